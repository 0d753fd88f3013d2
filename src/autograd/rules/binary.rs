//! Element-wise functions of two tensors. A gradient is summed over whatever broadcasting repeated.

use crate::error::Result;
use crate::ops::binary::{div, eq, gt, lt, mul, pow, where_, where_scalar};
use crate::ops::copy::full;
use crate::ops::reduce::sum_to;
use crate::ops::unary::{add_scalar, log, mul_scalar, neg};
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
    let zero = full(b.device(), &[], 0.0, b.dtype())?;
    let slope = mul(b, &pow(a, &add_scalar(b, -1.0)?)?)?;
    let slope = where_(&eq(b, &zero)?, &zero, &slope)?;
    to_shape(&mul(g, &slope)?, a.shape())
}

/// y = a^b: db = g y log a; 0 where a is 0 and b is not negative
pub(crate) fn pow_b(a: &Tensor, b: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    let zero = full(a.device(), &[], 0.0, a.dtype())?;
    // y = 0 where a = 0 and b > 0, so only the product with log 0 has to be avoided; for b < 0 it is -inf, as it should be.
    let slope = where_(&eq(y, &zero)?, &zero, &mul(y, &log(a)?)?)?;
    let slope = where_(&eq(a, &zero)?, &where_(&lt(b, &zero)?, &slope, &zero)?, &slope)?;
    to_shape(&mul(g, &slope)?, b.shape())
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
