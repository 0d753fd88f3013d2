//! Running sums and products: what comes after an element depends on it.

use crate::autograd::halves::rounded_once;
use crate::error::Result;
use crate::ops::binary::{add, div, eq, logical_and, mul, sub, where_scalar};
use crate::ops::copy::full;
use crate::ops::scan::{Direction, cumprod, cumsum, logcumsumexp};
use crate::ops::unary::{exp, log, logical_not, neg, relu};
use crate::tensor::Tensor;

/// y = running product of x: `dx[k]` = sum over i >= k of `g[i]` times the product of the others up to i. Before the first 0 that is
/// `g[i] y[i] / x[k]`; at the first 0 it is the product with 1 in its place; behind it everything is 0.
pub(crate) fn cumprod_rule(x: &Tensor, y: &Tensor, g: &Tensor, dim: isize) -> Result<Tensor> {
    rounded_once("cumprod", [x, y, g], |[x, y, g]| {
        let after = |y: &Tensor| cumsum(&mul(g, y)?, dim, Direction::Backward);
        let zero = logical_not(x)?;
        let zeros = cumsum(&zero, dim, Direction::Forward)?;
        let first = logical_and(&zero, &eq(&zeros, &full(x.device(), &[], 1, zeros.dtype())?)?)?;
        let without = cumprod(&where_scalar(&logical_not(&first)?, x, 1)?, dim)?;
        let before = where_scalar(&logical_not(&zeros)?, &div(&after(y)?, x)?, 0)?;
        add(&before, &where_scalar(&first, &after(&without)?, 0)?)
    })
}

/// y = running logarithm of the sum of exponentials: `dx[k]` = sum over i >= k of `g[i]` e^`(x[k] - y[i])`. Summed as logarithms, the
/// positive and the negative part apart, since e^(-y) may overflow.
pub(crate) fn logcumsumexp_rule(x: &Tensor, y: &Tensor, g: &Tensor, dim: isize) -> Result<Tensor> {
    let part = |g: &Tensor| {
        let after = logcumsumexp(&sub(&log(&relu(g)?)?, y)?, dim, Direction::Backward)?;
        exp(&add(&after, x)?)
    };
    sub(&part(g)?, &part(&neg(g)?)?)
}
