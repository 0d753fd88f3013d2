//! Losses: scalars to call `backward` on.
//!
//! These two are the usual ones. With a reduction, weights, label smoothing or an ignored class, and for all other losses, there are
//! methods of [`Tensor`]: [`mse_loss`](Tensor::mse_loss), [`l1_loss`](Tensor::l1_loss), [`smooth_l1_loss`](Tensor::smooth_l1_loss),
//! [`huber_loss`](Tensor::huber_loss), [`nll_loss`](Tensor::nll_loss), [`cross_entropy_with`](Tensor::cross_entropy_with),
//! [`binary_cross_entropy`](Tensor::binary_cross_entropy), [`kl_div`](Tensor::kl_div) and
//! [`binary_cross_entropy_with_logits`](Tensor::binary_cross_entropy_with_logits).

use super::layer::look_at;
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
    let loss = logits.reshape(&[rows, *width as isize])?.cross_entropy(&targets.reshape(&[rows])?)?;
    look_at(&loss)?;
    Ok(loss)
}

/// Mean of (x - target)^2 over all elements, 0-d.
#[track_caller]
pub fn mse_loss(x: &Tensor, target: &Tensor) -> Result<Tensor> {
    let loss = x.mse_loss(target, Reduction::Mean)?;
    look_at(&loss)?;
    Ok(loss)
}
