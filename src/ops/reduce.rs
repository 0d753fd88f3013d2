//! Sums, means, extremes over dimensions. Empty `dims` means all dimensions.
use crate::error::Result;
use crate::tensor::Tensor;

/// Keep reduced dimensions with length 1, or drop them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepDim {
    Keep,
    Drop,
}

/// Sum over `dims`.
#[track_caller]
pub fn sum(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    let _ = (x, dims, keep);
    todo!()
}
/// Mean over `dims`.
#[track_caller]
pub fn mean(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    let _ = (x, dims, keep);
    todo!()
}
/// Maximum over `dims` (NaN wins).
#[track_caller]
pub fn amax(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    let _ = (x, dims, keep);
    todo!()
}
/// Minimum over `dims` (NaN wins).
#[track_caller]
pub fn amin(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    let _ = (x, dims, keep);
    todo!()
}
/// Position (i32) of the first maximum along `dim`.
#[track_caller]
pub fn argmax(x: &Tensor, dim: isize, keep: KeepDim) -> Result<Tensor> {
    let _ = (x, dim, keep);
    todo!()
}
/// Sums over whatever dimensions broadcasting would have repeated, so that the result has `shape`.
#[track_caller]
pub fn sum_to(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let _ = (x, shape);
    todo!()
}
