//! Element-wise functions of two tensors. A gradient is summed over whatever broadcasting repeated.

use crate::autograd::halves::rounded_once;
use crate::error::Result;
use crate::ops::binary::{
    add, div, div_floor, div_trunc, eq, ge, gt, le, logical_or, lt, mul, pow, sub, where_, where_scalar, xlogy,
};
use crate::ops::copy::full;
use crate::ops::reduce::sum_to;
use crate::ops::unary::{add_scalar, exp, isnan, log, logical_not, mul_scalar, neg, square};
use crate::tensor::Tensor;

/// The gradient of an operand that has `shape`.
pub(crate) fn to_shape(g: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if g.shape() == shape { Ok(g.clone()) } else { sum_to(g, shape) }
}

/// y = a / b: da = g / b
pub(crate) fn div_a(b: &Tensor, g: &Tensor, shape: &[usize]) -> Result<Tensor> {
    to_shape(&div(g, b)?, shape)
}

/// y = a / b: db = -g a / b^2
pub(crate) fn div_b(a: &Tensor, b: &Tensor, g: &Tensor) -> Result<Tensor> {
    let quotient = div(&div(a, b)?, b)?;
    to_shape(&neg(&mul(g, &quotient)?)?, b.shape())
}

/// y = a * b: da = g b
pub(crate) fn mul_a(b: &Tensor, g: &Tensor, shape: &[usize]) -> Result<Tensor> {
    to_shape(&mul(g, b)?, shape)
}

/// y = a^b: da = g b a^(b - 1); 0 where b is 0
pub(crate) fn pow_a(a: &Tensor, b: &Tensor, g: &Tensor) -> Result<Tensor> {
    rounded_once("pow", [a, b, g], |[a, b, g]| {
        let zero = full(b.device(), &[], 0.0, b.dtype())?;
        let slope = mul(b, &pow(a, &add_scalar(b, -1.0)?)?)?;
        let slope = where_(&eq(b, &zero)?, &zero, &slope)?;
        to_shape(&mul(g, &slope)?, a.shape())
    })
}

/// y = a^b: db = g y log a; 0 where a is 0 and b is not negative
pub(crate) fn pow_b(a: &Tensor, b: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    rounded_once("pow", [a, b, y, g], |[a, b, y, g]| {
        let zero = full(a.device(), &[], 0.0, a.dtype())?;
        // y = 0 where a = 0 and b > 0, so only the product with log 0 has to be avoided; for b < 0 it is -inf, as it should be.
        let slope = where_(&eq(y, &zero)?, &zero, &mul(y, &log(a)?)?)?;
        let slope = where_(&eq(a, &zero)?, &where_(&lt(b, &zero)?, &slope, &zero)?, &slope)?;
        to_shape(&mul(g, &slope)?, b.shape())
    })
}

/// Which of two elements an operation takes.
#[derive(Clone, Copy)]
pub(crate) enum Extreme {
    Larger,
    Smaller,
}

/// y = max(a, b): da = g where a > b, g / 2 where a = b, else 0 (min: where a < b)
pub(crate) fn extreme(a: &Tensor, b: &Tensor, which: Extreme, g: &Tensor) -> Result<Tensor> {
    let wins = match which {
        Extreme::Larger => gt(a, b)?,
        Extreme::Smaller => lt(a, b)?,
    };
    let shared = where_scalar(&eq(a, b)?, &mul_scalar(g, 0.5)?, 0.0)?;
    to_shape(&where_(&wins, g, &shared)?, a.shape())
}

/// y = c ? a : b: da = c ? g : 0
pub(crate) fn where_a(condition: &Tensor, g: &Tensor, shape: &[usize]) -> Result<Tensor> {
    to_shape(&where_scalar(condition, g, 0.0)?, shape)
}

/// y = c ? a : b: db = c ? 0 : g
pub(crate) fn where_b(condition: &Tensor, g: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let zero = full(g.device(), &[], 0.0, g.dtype())?;
    to_shape(&where_(condition, &zero, g)?, shape)
}

/// A rule of (a, b, y, g) for one of the two operands of y = f(a, b); what broadcasting repeated is summed afterwards.
pub(crate) type Rule = fn(&Tensor, &Tensor, &Tensor, &Tensor) -> Result<Tensor>;

/// da = g
pub(crate) fn same(_: &Tensor, _: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    Ok(g.clone())
}

/// 0 everywhere
pub(crate) fn nothing(_: &Tensor, _: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    full(g.device(), g.shape(), 0.0, g.dtype())
}

/// y = atan2(a, b): da = g b / (a^2 + b^2)
pub(crate) fn atan2_a(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &div(b, &add(&square(a)?, &square(b)?)?)?)
}

/// y = atan2(a, b): db = -g a / (a^2 + b^2)
pub(crate) fn atan2_b(a: &Tensor, b: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    neg(&atan2_a(b, a, y, g)?)
}

/// y = |a| sign b: da = g y / a, 0 where a is 0
pub(crate) fn copysign_a(a: &Tensor, _: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &where_scalar(a, &div(y, a)?, 0.0)?)
}

/// y = sqrt(a^2 + b^2): da = g a / y
pub(crate) fn hypot_a(a: &Tensor, _: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &div(a, y)?)
}

/// y = sqrt(a^2 + b^2): db = g b / y
pub(crate) fn hypot_b(_: &Tensor, b: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &div(b, y)?)
}

/// y = a log b: da = g log b, 0 where a is 0 and b is not positive
pub(crate) fn xlogy_a(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    let zero = full(b.device(), &[], 0, b.dtype())?;
    let counts = logical_or(&gt(b, &zero)?, a)?;
    where_scalar(&counts, &xlogy(g, b)?, 0.0)
}

/// y = a log b: db = g a / b
pub(crate) fn xlogy_b(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &div(a, b)?)
}

/// y = log(e^a + e^b): da = g / (1 + e^(b - a))
pub(crate) fn logaddexp_a(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    div(g, &add_scalar(&exp(&sub(b, a)?)?, 1.0)?)
}

/// y = log(e^a + e^b): db = g / (1 + e^(a - b))
pub(crate) fn logaddexp_b(a: &Tensor, b: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    logaddexp_a(b, a, y, g)
}

/// y = fmax(a, b): da = g where a >= b or b is NaN
pub(crate) fn fmax_a(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    where_scalar(&logical_or(&ge(a, b)?, &isnan(b)?)?, g, 0.0)
}

/// y = fmax(a, b): db = g where fmax_a has none
pub(crate) fn fmax_b(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    where_scalar(&logical_not(&logical_or(&ge(a, b)?, &isnan(b)?)?)?, g, 0.0)
}

/// y = fmin(a, b): da = g where a <= b or b is NaN
pub(crate) fn fmin_a(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    where_scalar(&logical_or(&le(a, b)?, &isnan(b)?)?, g, 0.0)
}

/// y = fmin(a, b): db = g where fmin_a has none
pub(crate) fn fmin_b(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    where_scalar(&logical_not(&logical_or(&le(a, b)?, &isnan(b)?)?)?, g, 0.0)
}

/// y = a - b trunc(a / b): db = -g trunc(a / b)
pub(crate) fn fmod_b(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    neg(&mul(g, &div_trunc(a, b)?)?)
}

/// y = a - b floor(a / b): db = -g floor(a / b)
pub(crate) fn remainder_b(a: &Tensor, b: &Tensor, _: &Tensor, g: &Tensor) -> Result<Tensor> {
    neg(&mul(g, &div_floor(a, b)?)?)
}
