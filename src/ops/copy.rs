//! Copies, casts, fills and concatenation.
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// The same values in row-major order: `x` itself where it is contiguous already, else a copy.
#[track_caller]
pub fn contiguous(x: &Tensor) -> Result<Tensor> {
    let _ = x;
    todo!()
}
/// A contiguous copy.
#[track_caller]
pub fn copy(x: &Tensor) -> Result<Tensor> {
    let _ = x;
    todo!()
}
/// The same values as another type (float to int truncates towards zero).
#[track_caller]
pub fn to_dtype(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let _ = (x, dtype);
    todo!()
}
/// dst = src (broadcast, cast), in place, through views; overlapping views are safe.
#[track_caller]
pub fn copy_(dst: &Tensor, src: &Tensor) -> Result<()> {
    let _ = (dst, src);
    todo!()
}
/// All elements of x become `value`, through views.
#[track_caller]
pub fn fill_(x: &Tensor, value: f64) -> Result<()> {
    let _ = (x, value);
    todo!()
}
/// A tensor filled with `value`.
#[track_caller]
pub fn full(device: &Device, shape: &[usize], value: f64, dtype: DType) -> Result<Tensor> {
    let _ = (device, shape, value, dtype);
    todo!()
}
/// 0, 1, .. len-1.
#[track_caller]
pub fn arange(device: &Device, len: usize, dtype: DType) -> Result<Tensor> {
    let _ = (device, len, dtype);
    todo!()
}
/// The tensors one after the other along `dim`.
#[track_caller]
pub fn cat(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
    let _ = (tensors, dim);
    todo!()
}
