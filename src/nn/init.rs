//! Initial values of parameters, from the device's generator. Each function gives a parameter: it collects gradients and is
//! booked as one.

use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::Category;
use crate::ops;
use crate::ops::random::Distribution;
use crate::tensor::Tensor;

/// `tensor` as a parameter.
pub fn parameter(tensor: Tensor) -> Result<Tensor> {
    tensor.set_category(Category::Parameter);
    tensor.detach().requires_grad_(true)
}

/// Normally distributed.
pub fn normal(device: &Device, shape: &[usize], mean: f64, std: f64) -> Result<Tensor> {
    parameter(Distribution::normal("init::normal", mean, std)?.draw(device, shape, DType::F32)?)
}

/// Uniform in [low, high).
pub fn uniform(device: &Device, shape: &[usize], low: f64, high: f64) -> Result<Tensor> {
    parameter(Distribution::uniform("init::uniform", low, high, DType::F32)?.draw(device, shape, DType::F32)?)
}

/// All zeros.
pub fn zeros(device: &Device, shape: &[usize]) -> Result<Tensor> {
    constant(device, shape, 0.0)
}

/// All ones.
pub fn ones(device: &Device, shape: &[usize]) -> Result<Tensor> {
    constant(device, shape, 1.0)
}

/// All `value`.
pub fn constant(device: &Device, shape: &[usize], value: f64) -> Result<Tensor> {
    parameter(ops::copy::full(device, shape, value, DType::F32)?)
}
