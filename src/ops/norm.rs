//! Layer normalisation over the last dimension.
use crate::error::Result;
use crate::tensor::Tensor;

/// (y, mean, rstd): y = (x - mean) * rstd * weight + bias over the last dimension; mean and rstd [rows].
#[track_caller]
pub fn layer_norm(x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<(Tensor, Tensor, Tensor)> {
    let _ = (x, weight, bias, eps);
    todo!()
}
/// (dx, dweight, dbias); the last two only where wanted.
#[track_caller]
pub fn layer_norm_backward(
    dy: &Tensor,
    x: &Tensor,
    weight: Option<&Tensor>,
    mean: &Tensor,
    rstd: &Tensor,
    want_weight: bool,
    want_bias: bool,
) -> Result<(Tensor, Option<Tensor>, Option<Tensor>)> {
    let _ = (dy, x, weight, mean, rstd, want_weight, want_bias);
    todo!()
}
