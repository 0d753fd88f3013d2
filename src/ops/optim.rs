//! Optimizer steps and gradient clipping, all state on the device. Formulas and their order are PyTorch's.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::{Adam as AdamParams, Sgd as SgdParams};
use crate::kernel::{Kernel, KernelId, grid};
use crate::ops::elementwise::{grid_for, index, map};
use crate::ops::{copy, expect_dtype, expect_same_device, launch, reduce, unary};
use crate::stream::Origin;
use crate::tensor::Tensor;

/// Weight decay added to the gradient (Adam, SGD) or applied to the parameter (AdamW).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// g = g + weight_decay * param
    Coupled,
    /// param = param * (1 - lr * weight_decay)
    Decoupled,
}

/// Settings of one Adam step.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// How it is applied.
    pub decay: Decay,
}

/// Settings of one SGD step.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Momentum.
    pub momentum: f64,
    /// Dampening of the gradient in the momentum.
    pub dampening: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// The momentum buffer holds nothing yet and becomes the gradient.
    pub first: bool,
}

impl Adam {
    /// Refuses what PyTorch refuses.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        let Adam { lr, beta1, beta2, eps, weight_decay, .. } = *self;
        let positive = [("lr", lr), ("eps", eps), ("weight_decay", weight_decay)];
        in_range(op, &positive, f64::INFINITY)?;
        in_range(op, &[("beta1", beta1), ("beta2", beta2)], 1.0)
    }
}

impl Sgd {
    /// Refuses what PyTorch refuses.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        let Sgd { lr, momentum, dampening, weight_decay, nesterov, .. } = *self;
        in_range(op, &[("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)], f64::INFINITY)?;
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            let fact = format!("nesterov with momentum {momentum} and dampening {dampening}");
            return Err(Error::argument(op, fact, "pass a momentum above 0 and a dampening of 0, or no nesterov"));
        }
        Ok(())
    }
}

/// Each value is at least 0 and below `end`; NaN is not.
fn in_range(op: &'static str, values: &[(&str, f64)], end: f64) -> Result<()> {
    match values.iter().find(|(_, value)| !(0.0..end).contains(value)) {
        None => Ok(()),
        Some((name, value)) => {
            let help = if end == 1.0 { "pass a number from 0 up to, not including, 1" } else { "pass a finite number from 0 on" };
            Err(Error::argument(op, format!("{name} is {value}"), help))
        }
    }
}

/// One step of Adam/AdamW in place, on floats of one type; halves are computed in f32 and rounded once. `step` `[1]` f32 on the device
/// counts steps including this one (the caller has incremented it); `max_exp_avg_sq` for AMSGrad; `grad_scale` (0-d, on the device)
/// multiplies the gradient first.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::optim::{Adam, Decay, adam_};
/// let [x, grad, first, second, step] = [1.0f32, 0.5, 0.0, 0.0, 1.0].map(|value| Tensor::new(&device, [value]));
/// let (x, second) = (x?, second?);
/// let settings = Adam { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decay: Decay::Decoupled };
/// adam_(&x, &grad?, &first?, &second, None, &step?, None, settings)?;
/// assert_eq!(format!("{:.4}", x.item::<f32>()?), "0.9000");
/// # Ok::<(), linn::Error>(())
/// ```
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
    const OP: &str = "adam_";
    settings.check(OP)?;
    let mut state = vec![param, exp_avg, exp_avg_sq];
    state.extend(max_exp_avg_sq);
    check_state(OP, param, &state)?;
    if param.is_empty() {
        return Ok(());
    }
    let grad = gradient(OP, param, grad)?;
    if param.dtype() != DType::F32 {
        return in_f32(&grad, &state, |grad, state| {
            adam_(&state[0], grad, &state[1], &state[2], state.get(3), step, grad_scale, settings)
        });
    }
    let scale = scale_of(OP, param, grad_scale)?;
    if step.len() != 1 || step.layout().offset() != 0 {
        return Err(Error::shape(OP, format!("a step count of shape {:?}", step.shape()), "pass a tensor of one element"));
    }
    let kernel = if max_exp_avg_sq.is_some() { Kernel::adam_amsgrad } else { Kernel::adam }.form(0);
    let (len, rounds, grid) = extent(OP, kernel, param)?;
    let params = AdamParams {
        offsets: [quarter(OP, param)?, quarter(OP, &grad)?, quarter(OP, exp_avg)?, quarter(OP, exp_avg_sq)?],
        len,
        rounds,
        scale_offset: index(OP, scale.layout().offset())?,
        decoupled: u32::from(settings.decay == Decay::Decoupled),
        lr: settings.lr as f32,
        weight_decay: settings.weight_decay as f32,
        beta2: settings.beta2 as f32,
        one_minus_beta1: (1.0 - settings.beta1) as f32,
        one_minus_beta2: (1.0 - settings.beta2) as f32,
        eps: settings.eps as f32,
        log_beta1: settings.beta1.ln() as f32,
        log_beta2: settings.beta2.ln() as f32,
    };
    match max_exp_avg_sq {
        None => {
            let operands = [param, &grad, exp_avg, exp_avg_sq, step, &scale, param, exp_avg, exp_avg_sq];
            launch(OP, kernel, DType::F32, &operands, &params, grid)
        }
        Some(largest) => {
            if largest.layout().offset() != exp_avg_sq.layout().offset() {
                return Err(refuse_state(OP, largest));
            }
            let operands = [param, &grad, exp_avg, exp_avg_sq, largest, step, &scale, param, exp_avg, exp_avg_sq, largest];
            launch(OP, kernel, DType::F32, &operands, &params, grid)
        }
    }
}

/// One step of SGD in place; momentum where there is a buffer for it. Types as for [`adam_`].
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::optim::{Sgd, sgd_};
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// let grad = Tensor::new(&device, [0.5f32, 4.0])?;
/// let settings = Sgd { lr: 0.5, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false, first: true };
/// sgd_(&x, &grad, None, None, settings)?;
/// assert_eq!(x.to_vec::<f32>()?, [0.75, 0.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn sgd_(
    param: &Tensor,
    grad: &Tensor,
    momentum_buffer: Option<&Tensor>,
    grad_scale: Option<&Tensor>,
    settings: Sgd,
) -> Result<()> {
    const OP: &str = "sgd_";
    settings.check(OP)?;
    let mut state = vec![param];
    state.extend(momentum_buffer);
    check_state(OP, param, &state)?;
    if param.is_empty() {
        return Ok(());
    }
    let grad = gradient(OP, param, grad)?;
    if param.dtype() != DType::F32 {
        return in_f32(&grad, &state, |grad, state| sgd_(&state[0], grad, state.get(1), grad_scale, settings));
    }
    let scale = scale_of(OP, param, grad_scale)?;
    let kernel = if momentum_buffer.is_some() { Kernel::sgd_momentum } else { Kernel::sgd }.form(0);
    let (len, rounds, grid) = extent(OP, kernel, param)?;
    let buffer_offset = momentum_buffer.map_or(Ok(0), |buffer| quarter(OP, buffer))?;
    let params = SgdParams {
        offsets: [quarter(OP, param)?, quarter(OP, &grad)?, buffer_offset, 0],
        len,
        rounds,
        scale_offset: index(OP, scale.layout().offset())?,
        nesterov: u32::from(settings.nesterov),
        lr: settings.lr as f32,
        weight_decay: settings.weight_decay as f32,
        momentum: settings.momentum as f32,
        one_minus_dampening: (1.0 - settings.dampening) as f32,
        first: u32::from(settings.first),
        ..SgdParams::default()
    };
    match momentum_buffer {
        None => launch(OP, kernel, DType::F32, &[param, &grad, &scale], &params, grid),
        Some(buffer) => launch(OP, kernel, DType::F32, &[param, &grad, buffer, &scale], &params, grid),
    }
}

/// The 2-norm of all elements of all tensors, 0-d, on the device. There must be a tensor; empty ones add nothing.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::optim::total_norm;
/// let x = Tensor::new(&device, [3.0f32, 0.0])?;
/// let y = Tensor::new(&device, [[4.0f32]])?;
/// assert_eq!(total_norm(&[&x, &y])?.item::<f32>()?, 5.0);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn total_norm(tensors: &[&Tensor]) -> Result<Tensor> {
    const OP: &str = "total_norm";
    let Some(first) = tensors.first() else {
        return Err(Error::argument(OP, "there are no tensors", "pass at least one tensor"));
    };
    expect_same_device(OP, tensors)?;
    match reduce::square_parts(OP, tensors)? {
        None => copy::full(first.device(), &[], 0.0, DType::F32),
        Some(parts) => unary::sqrt(&reduce::sum(&parts, &[], reduce::KeepDim::Drop)?),
    }
}

/// min(1, max_norm / (norm + 1e-6)), of the shape of `norm`, on the device (PyTorch's clip_grad_norm_).
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::optim::clip_coefficient;
/// let norm = Tensor::new(&device, 5.0f32)?;
/// assert_eq!(format!("{:.4}", clip_coefficient(&norm, 1.0)?.item::<f32>()?), "0.2000");
/// assert_eq!(clip_coefficient(&norm, 10.0)?.item::<f32>()?, 1.0);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn clip_coefficient(norm: &Tensor, max_norm: f64) -> Result<Tensor> {
    map("clip_coefficient", Kernel::clip_coefficient, norm, [(max_norm as f32).to_bits(), 1e-6f32.to_bits()])
}

/// `step`, which changes what it is given of `state`, on copies in f32.
#[track_caller]
fn in_f32(grad: &Tensor, state: &[&Tensor], step: impl FnOnce(&Tensor, &[Tensor]) -> Result<()>) -> Result<()> {
    let _origin = Origin::enter();
    let wide = state.iter().map(|tensor| copy::to_dtype(tensor, DType::F32)).collect::<Result<Vec<_>>>()?;
    step(&copy::to_dtype(grad, DType::F32)?, &wide)?;
    state.iter().zip(&wide).try_for_each(|(tensor, wide)| copy::copy_(tensor, wide))
}

/// Parameter and state are written where they are: floats of one type, contiguous, of one shape, at offsets that are multiples of 4.
fn check_state(op: &'static str, param: &Tensor, state: &[&Tensor]) -> Result<()> {
    expect_same_device(op, state)?;
    reduce::expect_float(op, param)?;
    for tensor in state {
        expect_dtype(op, tensor, param.dtype())?;
        let whole = tensor.shape() == param.shape() && tensor.is_contiguous() && tensor.layout().offset().is_multiple_of(4);
        if !whole {
            return Err(refuse_state(op, tensor));
        }
    }
    Ok(())
}

fn refuse_state(op: &'static str, tensor: &Tensor) -> Error {
    Error::shape(
        op,
        format!("parameter or state of shape {:?} is a view, or its shape is not the parameter's", tensor.shape()),
        "pass contiguous tensors of one shape that own their memory",
    )
}

#[track_caller]
fn gradient(op: &'static str, param: &Tensor, grad: &Tensor) -> Result<Tensor> {
    expect_same_device(op, &[param, grad])?;
    expect_dtype(op, grad, param.dtype())?;
    if grad.shape() != param.shape() {
        return Err(Error::shape(
            op,
            format!("a gradient of shape {:?} for a parameter of shape {:?}", grad.shape(), param.shape()),
            "pass the gradient of this parameter",
        ));
    }
    let aligned = grad.is_contiguous() && grad.layout().offset().is_multiple_of(4);
    if aligned { Ok(grad.clone()) } else { copy::copy(grad) }
}

/// The factor on the gradient: 1 where there is none.
#[track_caller]
fn scale_of(op: &'static str, param: &Tensor, scale: Option<&Tensor>) -> Result<Tensor> {
    let Some(scale) = scale else { return copy::full(param.device(), &[], 1.0, DType::F32) };
    expect_same_device(op, &[param, scale])?;
    expect_dtype(op, scale, DType::F32)?;
    if scale.len() != 1 {
        return Err(Error::shape(op, format!("a gradient scale of shape {:?}", scale.shape()), "pass a tensor of one element"));
    }
    Ok(scale.clone())
}

/// Elements, `vec4`s per invocation, and the grid.
fn extent(op: &'static str, kernel: KernelId, param: &Tensor) -> Result<(u32, u32, [u32; 3])> {
    let rounds = grid::rounds(param.len(), kernel.form().constant("WG"), param.device().class().is_cpu());
    let grid = grid_for(op, kernel, param.len().div_ceil(4).div_ceil(rounds as usize))?;
    Ok((index(op, param.len())?, rounds, grid))
}

fn quarter(op: &'static str, tensor: &Tensor) -> Result<u32> {
    index(op, tensor.layout().offset() / 4)
}
