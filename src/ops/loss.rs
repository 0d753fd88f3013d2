//! Cross entropy.
use crate::error::Result;
use crate::tensor::Tensor;

/// (mean loss 0-d, logsumexp [N]) of logits [N, V] against targets [N] (i32).
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)> {
    let _ = (logits, targets);
    todo!()
}
/// dlogits = (softmax - onehot) * dloss / N; dloss 0-d on the device.
#[track_caller]
pub fn cross_entropy_backward(logits: &Tensor, targets: &Tensor, logsumexp: &Tensor, dloss: &Tensor) -> Result<Tensor> {
    let _ = (logits, targets, logsumexp, dloss);
    todo!()
}
