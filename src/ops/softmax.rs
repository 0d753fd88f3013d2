//! Softmax and log-softmax along one dimension.
use crate::error::Result;
use crate::tensor::Tensor;

/// exp(x) / sum(exp(x)) along `dim`.
#[track_caller]
pub fn softmax(x: &Tensor, dim: isize) -> Result<Tensor> {
    let _ = (x, dim);
    todo!()
}
/// x - log(sum(exp(x))) along `dim`.
#[track_caller]
pub fn log_softmax(x: &Tensor, dim: isize) -> Result<Tensor> {
    let _ = (x, dim);
    todo!()
}
/// dx from y = softmax(x) and dy.
#[track_caller]
pub fn softmax_backward(y: &Tensor, dy: &Tensor, dim: isize) -> Result<Tensor> {
    let _ = (y, dy, dim);
    todo!()
}
/// dx from y = log_softmax(x) and dy.
#[track_caller]
pub fn log_softmax_backward(y: &Tensor, dy: &Tensor, dim: isize) -> Result<Tensor> {
    let _ = (y, dy, dim);
    todo!()
}
