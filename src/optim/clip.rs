//! Gradient clipping, by the norm of all gradients together or number by number; nothing waits for the device, and all gradients
//! share a few dispatches.

use crate::error::{Error, Result};
use crate::ops::optim::in_range;
use crate::ops::{foreach, optim};
use crate::stream::Origin;
use crate::tensor::Tensor;

/// The 2-norm of all gradients together, 0-d, on the device. Parameters without a gradient count as 0; none at all is an error.
#[track_caller]
pub fn grad_norm(params: &[Tensor]) -> Result<Tensor> {
    let grads: Vec<Tensor> = params.iter().filter_map(Tensor::grad).collect();
    if grads.is_empty() {
        return Err(Error::autograd("grad_norm: no parameter has a gradient", "call backward first"));
    }
    foreach::total_norm(&grads.iter().collect::<Vec<_>>())
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
    let _origin = Origin::enter();
    let norm = grad_norm(params)?;
    let scale = clip_scale(&norm, max_norm)?;
    foreach::mul_("clip_grad_norm_", &grads(params), &scale)?;
    Ok(norm)
}

/// Brings every number of all gradients into -clip_value..=clip_value; NaN stays NaN.
///
/// # Errors
/// [`Error::Argument`] where `clip_value` is negative or NaN.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// let x = Tensor::new(&device, [1.0f32, -3.0])?.requires_grad_(true)?;
/// x.square()?.sum_all()?.backward()?;
/// linn::optim::clip_grad_value_(&[x.clone()], 2.5)?;
/// assert_eq!(x.grad().map(|grad| grad.to_vec::<f32>()).transpose()?, Some(vec![2.0, -2.5]));
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn clip_grad_value_(params: &[Tensor], clip_value: f64) -> Result<()> {
    const OP: &str = "clip_grad_value_";
    let _origin = Origin::enter();
    in_range(OP, &[("clip_value", clip_value)], f64::INFINITY)?;
    foreach::clamp_(OP, &grads(params), clip_value)
}

fn grads(params: &[Tensor]) -> Vec<Tensor> {
    params.iter().filter_map(Tensor::grad).collect()
}
