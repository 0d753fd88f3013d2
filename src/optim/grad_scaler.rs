//! Losses scaled so that gradients of f16 do not become 0, as PyTorch's `GradScaler`; it all stays on the device.
//!
//! With scale s: the loss is multiplied by s, gradients by 1 / s before they are used. Where one of them is infinite or NaN the step is
//! skipped and s *= backoff_factor; after growth_interval steps without s *= growth_factor.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::group::{Optimizer, Scaling};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::ops::foreach::{self, total_norm};
use crate::ops::optim::{in_range, update_scale};
use crate::ops::{binary, copy, unary};
use crate::stream::Origin;
use crate::tensor::{Storage, Tensor};

/// Options of [`GradScaler`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerOptions {
    /// The first scale.
    pub init_scale: f64,
    /// What the scale is multiplied by after `growth_interval` steps.
    pub growth_factor: f64,
    /// What the scale is multiplied by where gradients are not finite.
    pub backoff_factor: f64,
    /// Steps in a row with finite gradients until the scale grows.
    pub growth_interval: u32,
    /// Without it, losses are not scaled and steps are plain ones: one program for f16 and other types.
    pub enabled: bool,
}

impl Default for GradScalerOptions {
    fn default() -> GradScalerOptions {
        GradScalerOptions { init_scale: 65_536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval: 2000, enabled: true }
    }
}

/// Scales losses for training in f16. No call waits for the device, but [`GradScaler::get_scale`].
///
/// The squares of scaled gradients are summed to find out whether all are finite: gradients above 1e19 count as infinite.
///
/// ```
/// # use linn::{DType, Device, Tensor, autograd::autocast, nn::{Bias, Linear, Module}};
/// # let device = Device::open()?;
/// use linn::optim::{GradScaler, GradScalerOptions, Optimizer, ParamGroup, Sgd, SgdOptions};
/// let (model, x) = (Linear::new(&device, 4, 1, Bias::With)?, Tensor::ones(&device, &[2, 4])?);
/// let mut optimizer = Sgd::new(vec![ParamGroup::new(model.named_parameters(), 0.1, 0.0)], SgdOptions::default());
/// let mut scaler = GradScaler::new(&device, GradScalerOptions { init_scale: 1024.0, ..Default::default() })?;
/// let loss = autocast(DType::F16, || model.forward(&x)?.square()?.mean_all())?;
/// scaler.scale(&loss)?.backward()?;
/// scaler.step(&mut optimizer)?; // not where a gradient is infinite
/// scaler.update()?;
/// optimizer.zero_grad();
/// assert_eq!(scaler.get_scale()?, 1024.0);
/// # Ok::<(), linn::Error>(())
/// ```
pub struct GradScaler {
    options: GradScalerOptions,
    /// f32: the scale, and how many steps it has lasted.
    state: Tensor,
    /// Since the last update, for each optimizer.
    seen: Vec<Seen>,
}

/// An optimizer, known by its first parameter.
struct Seen {
    first: Arc<Storage>,
    /// f32, not 0 where a gradient is infinite.
    found_inf: Tensor,
    stepped: bool,
}

const OP: &str = "GradScaler";

impl GradScaler {
    /// A scaler for gradients on `device`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a scale or factors that PyTorch refuses: a growth of at most 1, a backoff of at least 1.
    pub fn new(device: &Device, options: GradScalerOptions) -> Result<GradScaler> {
        let GradScalerOptions { init_scale, growth_factor, backoff_factor, growth_interval, .. } = options;
        in_range(OP, &[("init_scale", init_scale), ("growth_factor - 1", growth_factor - 1.0)], f64::INFINITY)?;
        in_range(OP, &[("backoff_factor", backoff_factor)], 1.0)?;
        if init_scale == 0.0 || growth_factor == 1.0 || backoff_factor == 0.0 || growth_interval == 0 {
            return Err(Error::argument(
                OP,
                format!("{options:?}"),
                "pass a scale above 0, a growth_factor above 1, a backoff_factor between 0 and 1, and a growth_interval of at least 1",
            ));
        }
        let state = Tensor::from_slice(device, &[2], &[init_scale as f32, 0.0])?;
        state.set_category(Category::OptimizerState);
        Ok(GradScaler { options, state, seen: Vec::new() })
    }

    /// The loss times the scale, to call `backward` on; gradients then are those of the loss times the scale.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        let _origin = Origin::enter();
        if !self.options.enabled {
            return Ok(loss.clone());
        }
        // A copy: the scale moves on before the next backward pass through this loss, if there is one.
        loss.mul(&copy::copy(&self.scale_now()?)?)
    }

    /// Divides the gradients of an optimizer's parameters by the scale, so that they can be looked at or clipped before
    /// [`GradScaler::step`]; without this call the step divides them itself, which takes less work.
    ///
    /// # Errors
    /// [`Error::Autograd`] where it was called before for this optimizer since the last update, or after its step; for gradients of
    /// f16, whose small numbers would be lost.
    #[track_caller]
    pub fn unscale_(&mut self, optimizer: &dyn Optimizer) -> Result<()> {
        let _origin = Origin::enter();
        let Some(first) = first(optimizer).filter(|_| self.options.enabled) else { return Ok(()) };
        if let Some(seen) = self.seen.iter().find(|seen| Arc::ptr_eq(&seen.first, &first)) {
            let what = if seen.stepped { "after step" } else { "a second time" };
            return Err(Error::autograd(
                format!("GradScaler::unscale_ is called {what} for the same optimizer"),
                "call unscale_ once before step, and update at the end of each iteration",
            ));
        }
        let grads = grads(optimizer);
        if let Some(half) = grads.iter().find(|grad| grad.dtype() == DType::F16) {
            return Err(Error::autograd(
                format!("GradScaler::unscale_ on a gradient of f16 (shape {:?})", half.shape()),
                "keep parameters in f32 and run the forward pass in autocast(DType::F16, ..)",
            ));
        }
        let found_inf = self.not_finite(&grads)?;
        foreach::mul_("unscale_", &grads, &self.inverse()?)?;
        self.seen.push(Seen { first, found_inf, stepped: false });
        Ok(())
    }

    /// The optimizer's step by the unscaled gradients; nothing changes where one of them is infinite or NaN.
    ///
    /// # Errors
    /// Those of the step; [`Error::Autograd`] where it was called before for this optimizer since the last update.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        let _origin = Origin::enter();
        let Some(first) = first(optimizer).filter(|_| self.options.enabled) else { return optimizer.step() };
        let known = self.seen.iter().position(|seen| Arc::ptr_eq(&seen.first, &first));
        let (at, grad_scale) = match known {
            Some(at) if self.seen[at].stepped => {
                return Err(Error::autograd(
                    "GradScaler::step is called a second time for the same optimizer",
                    "call update at the end of each iteration",
                ));
            }
            Some(at) => (at, None),
            None => {
                let found_inf = self.not_finite(&grads(optimizer))?;
                self.seen.push(Seen { first, found_inf, stepped: false });
                (self.seen.len() - 1, Some(self.inverse()?))
            }
        };
        optimizer.step_with(Scaling { grad_scale: grad_scale.as_ref(), found_inf: Some(&self.seen[at].found_inf) })?;
        self.seen[at].stepped = true;
        Ok(())
    }

    /// Moves the scale on by what was found since the last update: at the end of every iteration.
    ///
    /// # Errors
    /// [`Error::Autograd`] where no optimizer was stepped or unscaled since the last update.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        let _origin = Origin::enter();
        if !self.options.enabled {
            return Ok(());
        }
        let GradScalerOptions { growth_factor, backoff_factor, growth_interval, .. } = self.options;
        let Some((one, rest)) = self.seen.split_first() else {
            let fact = "GradScaler::update without a step since the last update";
            return Err(Error::autograd(fact, "call step(&mut optimizer) before update"));
        };
        let found = rest.iter().try_fold(one.found_inf.clone(), |sum, seen| binary::maximum(&sum, &seen.found_inf))?;
        update_scale(&self.state, &found, growth_factor, backoff_factor, growth_interval)?;
        self.seen.clear();
        Ok(())
    }

    /// The scale; waits for the device (1 where it is not enabled).
    #[track_caller]
    pub fn get_scale(&self) -> Result<f32> {
        if self.options.enabled { self.scale_now()?.item() } else { Ok(1.0) }
    }

    /// What has to be saved to go on: `scale` and `growth_tracker`, under PyTorch's names.
    pub fn state(&self) -> Result<Vec<(String, Tensor)>> {
        Ok(vec![("scale".into(), self.scale_now()?), ("growth_tracker".into(), self.state.select(0, 1)?)])
    }

    /// Takes the state of [`GradScaler::state`] back; names start with `prefix`.
    ///
    /// # Errors
    /// [`Error::File`] where one of them is missing or no f32 of 0 dimensions; then nothing has changed.
    #[track_caller]
    pub fn load_state(&mut self, tensors: &BTreeMap<String, Tensor>, prefix: &str) -> Result<()> {
        let _origin = Origin::enter();
        let find = |name: &str| {
            let key = format!("{prefix}{name}");
            let fits = |tensor: &&Tensor| tensor.dtype() == DType::F32 && tensor.shape().is_empty();
            tensors.get(&key).filter(fits).ok_or_else(|| {
                Error::file(format!("{key}, an f32, is missing"), "load a checkpoint that a GradScaler's state was saved in")
            })
        };
        let both = [find("scale")?, find("growth_tracker")?];
        both.iter().zip(0..).try_for_each(|(tensor, i)| copy::copy_(&self.state.select(0, i)?, tensor))?;
        self.seen.clear();
        Ok(())
    }

    fn scale_now(&self) -> Result<Tensor> {
        self.state.select(0, 0)
    }

    #[track_caller]
    fn inverse(&self) -> Result<Tensor> {
        unary::reciprocal(&self.scale_now()?)
    }

    /// 1 where a gradient is infinite or NaN, else 0; f32, 0-d.
    #[track_caller]
    fn not_finite(&self, grads: &[Tensor]) -> Result<Tensor> {
        if grads.is_empty() {
            return Err(Error::autograd("GradScaler: no parameter has a gradient", "call backward on the scaled loss first"));
        }
        let norm = total_norm(&grads.iter().collect::<Vec<_>>())?;
        copy::to_dtype(&unary::logical_not(&unary::isfinite(&norm)?)?, DType::F32)
    }
}

fn grads(optimizer: &dyn Optimizer) -> Vec<Tensor> {
    optimizer.groups().iter().flat_map(|group| &group.params).filter_map(|(_, param)| param.grad()).collect()
}

fn first(optimizer: &dyn Optimizer) -> Option<Arc<Storage>> {
    optimizer.groups().iter().flat_map(|group| &group.params).next().map(|(_, param)| param.storage.clone())
}
