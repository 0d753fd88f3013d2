//! Losses.

use crate::error::Result;
use crate::ops::binary::{div, mul, sub};
use crate::ops::unary::{clamp, log, log1p, neg};
use crate::tensor::Tensor;

/// y = -(t log(x) + (1 - t) log(1 - x)): dx = g (x - t) / (x (1 - x)), whose denominator counts from 1e-12 on
pub(crate) fn binary_cross_entropy_x(x: &Tensor, t: &Tensor, g: &Tensor) -> Result<Tensor> {
    let room = clamp(&sub(x, &mul(x, x)?)?, 1e-12, f64::INFINITY)?;
    div(&mul(g, &sub(x, t)?)?, &room)
}

/// y = -(t log(x) + (1 - t) log(1 - x)): dt = g (log(1 - x) - log(x)), logarithms from -100 on
pub(crate) fn binary_cross_entropy_target(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    let bounded = |x: &Tensor| clamp(x, -100.0, f64::INFINITY);
    mul(g, &sub(&bounded(&log1p(&neg(x)?)?)?, &bounded(&log(x)?)?)?)
}
