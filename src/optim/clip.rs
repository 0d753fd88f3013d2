//! Gradient clipping by the norm of all gradients together; nothing waits for the device.

use crate::error::{Error, Result};
use crate::ops::{binary, optim};
use crate::tensor::Tensor;

/// The 2-norm of all gradients together, 0-d, on the device. Parameters without a gradient count as 0; none at all is an error.
#[track_caller]
pub fn grad_norm(params: &[Tensor]) -> Result<Tensor> {
    let grads: Vec<Tensor> = params.iter().filter_map(Tensor::grad).collect();
    if grads.is_empty() {
        return Err(Error::autograd("grad_norm: no parameter has a gradient", "call backward first"));
    }
    optim::total_norm(&grads.iter().collect::<Vec<_>>())
}

/// min(1, max_norm / (norm + 1e-6)), 0-d, on the device: the factor that clips. Pass it to
/// [`Optimizer::step_with`](super::Optimizer::step_with), which multiplies while it steps.
#[track_caller]
pub fn clip_scale(norm: &Tensor, max_norm: f64) -> Result<Tensor> {
    optim::clip_coefficient(norm, max_norm)
}

/// Scales all gradients so that their norm together is at most `max_norm`; returns the norm before (0-d, on the device).
#[track_caller]
pub fn clip_grad_norm_(params: &[Tensor], max_norm: f64) -> Result<Tensor> {
    let norm = grad_norm(params)?;
    let scale = clip_scale(&norm, max_norm)?;
    params.iter().filter_map(Tensor::grad).try_for_each(|grad| binary::mul_(&grad, &scale))?;
    Ok(norm)
}
