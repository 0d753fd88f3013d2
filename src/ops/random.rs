//! Random numbers: Philox 4x32-10, the same bits on every adapter.
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

/// Uniform in [low, high), from the device's generator.
#[track_caller]
pub fn uniform(device: &Device, shape: &[usize], low: f64, high: f64) -> Result<Tensor> {
    let _ = (device, shape, low, high);
    todo!()
}
/// Normal with the given mean and standard deviation, from the device's generator.
#[track_caller]
pub fn normal(device: &Device, shape: &[usize], mean: f64, std: f64) -> Result<Tensor> {
    let _ = (device, shape, mean, std);
    todo!()
}
/// Integers (i32) in [low, high), from the device's generator.
#[track_caller]
pub fn randint(device: &Device, shape: &[usize], low: i32, high: i32) -> Result<Tensor> {
    let _ = (device, shape, low, high);
    todo!()
}
