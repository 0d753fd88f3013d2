//! Reductions: the gradient is spread over what was reduced. Spreading is a view, no kernel runs.

use crate::dtype::DType;
use crate::error::Result;
use crate::ops::binary::{div, eq, mul, sub, where_scalar};
use crate::ops::copy::{full, to_dtype};
use crate::ops::reduce::{KeepDim, prod, sum};
use crate::ops::unary::{abs, exp, isfinite, logical_not, mul_scalar, pow_scalar, sign};
use crate::tensor::Tensor;

use super::copy::reshaped;

/// y = sum of x over `dims`: dx = g, repeated along `dims`
pub(crate) fn sum_rule(g: &Tensor, shape: &[usize], dims: &[usize]) -> Result<Tensor> {
    let layout = kept(g, shape, dims)?.layout().broadcast_to("sum", shape)?;
    Ok(g.with_layout(layout))
}

/// y = mean of x over `dims`: dx = g / n, repeated along `dims`
pub(crate) fn mean_rule(g: &Tensor, shape: &[usize], dims: &[usize]) -> Result<Tensor> {
    let count: usize = dims.iter().map(|dim| shape[*dim]).product();
    sum_rule(&mul_scalar(g, 1.0 / count as f64)?, shape, dims)
}

/// y = max of x over `dims`: dx = g / n at the n places where x = y (PyTorch shares it among them)
pub(crate) fn extreme_rule(x: &Tensor, y: &Tensor, g: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let signed: Vec<isize> = dims.iter().map(|dim| *dim as isize).collect();
    let mask = to_dtype(&eq(x, &kept(y, x.shape(), dims)?)?, x.dtype())?;
    let count = sum(&mask, &signed, KeepDim::Keep)?;
    mul(&mask, &div(&kept(g, x.shape(), dims)?, &count)?)
}

/// y = product of x over `dims`: dx = g times the product of the others. With a single 0 among them only that place has a
/// gradient, with more none.
pub(crate) fn prod_rule(x: &Tensor, g: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let signed: Vec<isize> = dims.iter().map(|dim| *dim as isize).collect();
    let zero = logical_not(x)?;
    let others = where_scalar(&logical_not(&zero)?, x, 1)?;
    let product = prod(&others, &signed, KeepDim::Keep)?;
    // Zeros among the other elements, counted at every place.
    let zeros = sub(&sum(&zero, &signed, KeepDim::Keep)?, &to_dtype(&zero, DType::I32)?)?;
    let dx = div(&mul(&kept(g, x.shape(), dims)?, &product)?, &others)?;
    where_scalar(&logical_not(&zeros)?, &dx, 0)
}

/// y = sqrt(x): dx = g / 2y, 0 where y is 0
pub(crate) fn deviation_rule(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    where_scalar(y, &mul_scalar(&div(g, y)?, 0.5)?, 0)
}

/// y = log(sum(exp(x))) over `dims`: dx = g e^(x - y)
pub(crate) fn logsumexp_rule(x: &Tensor, y: &Tensor, g: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let y = kept(y, x.shape(), dims)?;
    mul(&kept(g, x.shape(), dims)?, &exp(&sub(x, &where_scalar(&isfinite(&y)?, &y, 0)?)?)?)
}

/// y = p-norm of x over `dims`: dx = g sign(x) |x|^(p-1) / y^(p-1), 0 where y is 0; for infinities as in [`extreme_rule`]
pub(crate) fn norm_rule(x: &Tensor, y: &Tensor, g: &Tensor, p: f64, dims: &[usize]) -> Result<Tensor> {
    if p == 0.0 {
        return full(x.device(), x.shape(), 0, x.dtype());
    }
    if p.is_infinite() {
        return mul(&sign(x)?, &extreme_rule(&abs(x)?, y, g, dims)?);
    }
    let (y, g) = (kept(y, x.shape(), dims)?, kept(g, x.shape(), dims)?);
    if p == 1.0 {
        return mul(&sign(x)?, &g);
    }
    if p == 2.0 {
        return mul(x, &where_scalar(&y, &div(&g, &y)?, 0)?);
    }
    let slope = mul(&sign(x)?, &pow_scalar(&abs(x)?, p - 1.0)?)?;
    // 0^(p-1) is an infinity here.
    let slope = if p < 1.0 { where_scalar(x, &slope, 0)? } else { slope };
    mul(&slope, &where_scalar(&y, &div(&g, &pow_scalar(&y, p - 1.0)?)?, 0)?)
}

/// `g` with the reduced dimensions back, each of length 1.
fn kept(g: &Tensor, shape: &[usize], dims: &[usize]) -> Result<Tensor> {
    let mut kept = shape.to_vec();
    dims.iter().for_each(|dim| kept[*dim] = 1);
    reshaped("sum", g, &kept)
}
