//! Reductions: the gradient is spread over what was reduced. Spreading is a view, no kernel runs.

use crate::error::Result;
use crate::ops::binary::{div, eq, mul};
use crate::ops::copy::to_dtype;
use crate::ops::reduce::{KeepDim, sum};
use crate::ops::unary::mul_scalar;
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

/// `g` with the reduced dimensions back, each of length 1.
fn kept(g: &Tensor, shape: &[usize], dims: &[usize]) -> Result<Tensor> {
    let mut kept = shape.to_vec();
    dims.iter().for_each(|dim| kept[*dim] = 1);
    reshaped("sum", g, &kept)
}
