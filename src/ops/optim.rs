//! Optimizer steps and gradient clipping, all state on the device.
use crate::error::Result;
use crate::tensor::Tensor;

/// Weight decay added to the gradient (Adam, SGD) or applied to the parameter (AdamW).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    Coupled,
    Decoupled,
}

/// Settings of one Adam step.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    pub decay: Decay,
}

/// Settings of one SGD step. `first`: the momentum buffer holds nothing yet and becomes the gradient.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    pub lr: f64,
    pub momentum: f64,
    pub dampening: f64,
    pub weight_decay: f64,
    pub nesterov: bool,
    pub first: bool,
}

/// One step of Adam/AdamW in place. `step` [1] f32 on the device counts steps including this one (the caller has incremented it);
/// `max_exp_avg_sq` for AMSGrad; `grad_scale` (0-d, on the device) multiplies the gradient first.
#[track_caller]
#[allow(clippy::too_many_arguments)]
pub fn adam_(
    param: &Tensor,
    grad: &Tensor,
    exp_avg: &Tensor,
    exp_avg_sq: &Tensor,
    max_exp_avg_sq: Option<&Tensor>,
    step: &Tensor,
    grad_scale: Option<&Tensor>,
    settings: Adam,
) -> Result<()> {
    let _ = (param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step, grad_scale, settings);
    todo!()
}
/// One step of SGD in place.
#[track_caller]
pub fn sgd_(
    param: &Tensor,
    grad: &Tensor,
    momentum_buffer: Option<&Tensor>,
    grad_scale: Option<&Tensor>,
    settings: Sgd,
) -> Result<()> {
    let _ = (param, grad, momentum_buffer, grad_scale, settings);
    todo!()
}
/// The 2-norm of all elements of all tensors, 0-d, on the device.
#[track_caller]
pub fn total_norm(tensors: &[&Tensor]) -> Result<Tensor> {
    let _ = tensors;
    todo!()
}
/// min(1, max_norm / (norm + 1e-6)), 0-d, on the device (PyTorch's clip_grad_norm_).
#[track_caller]
pub fn clip_coefficient(norm: &Tensor, max_norm: f64) -> Result<Tensor> {
    let _ = (norm, max_norm);
    todo!()
}
