//! Losses: scalars to call `backward` on.

use crate::autograd::Reduction;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Mean of -log softmax(logits)`[target]` over all positions: logits `[.., V]`, targets `[..]` (i32) -> 0-d.
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let [lead @ .., width] = logits.shape() else {
        return Err(Error::shape("cross_entropy", "logits are 0-d", "pass logits [.., V] and targets [..]"));
    };
    if lead != targets.shape() {
        return Err(Error::shape(
            "cross_entropy",
            format!("logits {:?} against targets {:?}", logits.shape(), targets.shape()),
            "pass logits [.., V] and targets [..]",
        ));
    }
    let rows = targets.len() as isize;
    logits.reshape(&[rows, *width as isize])?.cross_entropy(&targets.reshape(&[rows])?)
}

/// Mean of (x - target)^2 over all elements, 0-d.
#[track_caller]
pub fn mse_loss(x: &Tensor, target: &Tensor) -> Result<Tensor> {
    x.mse_loss(target, Reduction::Mean)
}
