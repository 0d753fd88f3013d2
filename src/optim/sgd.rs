//! Stochastic gradient descent with momentum, PyTorch's form.
//!
//! g += weight_decay p; b = momentum b + (1 - dampening) g (the first time b = g); g = nesterov ? g + momentum b : b; p -= lr g.

use std::collections::BTreeMap;

use super::group::{Optimizer, ParamGroup, saved, zeros_like};
use crate::error::Result;
use crate::ops::optim;
use crate::stream::Origin;
use crate::tensor::Tensor;

/// Options of [`Sgd`]; PyTorch's defaults are all 0 and `false`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SgdOptions {
    /// Share of the last direction that is kept.
    pub momentum: f64,
    /// Share of the gradient that momentum leaves out.
    pub dampening: f64,
    /// Nesterov's form: look ahead along the momentum.
    pub nesterov: bool,
}

/// SGD.
pub struct Sgd {
    groups: Vec<ParamGroup>,
    options: SgdOptions,
    /// Momentum buffers; `None` before the first step of a parameter.
    momentum: Vec<Vec<Option<Tensor>>>,
}

impl Sgd {
    /// An optimizer for `groups`.
    pub fn new(groups: Vec<ParamGroup>, options: SgdOptions) -> Sgd {
        let momentum = groups.iter().map(|group| vec![None; group.params.len()]).collect();
        Sgd { groups, options, momentum }
    }
}

impl Optimizer for Sgd {
    #[track_caller]
    fn step_scaled(&mut self, grad_scale: Option<&Tensor>) -> Result<()> {
        let _origin = Origin::enter();
        for (group, buffers) in self.groups.iter().zip(&mut self.momentum) {
            for ((_, param), buffer) in group.params.iter().zip(buffers) {
                let Some(grad) = param.grad() else { continue };
                let first = buffer.is_none();
                let made = if first && self.options.momentum != 0.0 { Some(zeros_like(param)?) } else { buffer.clone() };
                let settings = optim::Sgd {
                    lr: group.lr,
                    momentum: self.options.momentum,
                    dampening: self.options.dampening,
                    weight_decay: group.weight_decay,
                    nesterov: self.options.nesterov,
                    first,
                };
                optim::sgd_(param, &grad, made.as_ref(), grad_scale, settings)?;
                // A step that failed was not the first one.
                *buffer = made;
            }
        }
        Ok(())
    }

    fn groups(&self) -> &[ParamGroup] {
        &self.groups
    }

    fn groups_mut(&mut self) -> &mut [ParamGroup] {
        &mut self.groups
    }

    fn state(&self) -> Vec<(String, Tensor)> {
        let params = self.groups.iter().flat_map(|group| &group.params);
        let named = |((name, _), buffer): (&(String, Tensor), &Option<Tensor>)| {
            Some((format!("momentum_buffer.{name}"), buffer.clone()?))
        };
        params.zip(self.momentum.iter().flatten()).filter_map(named).collect()
    }

    fn load_state(&mut self, tensors: &BTreeMap<String, Tensor>, prefix: &str) -> Result<()> {
        for (group, buffers) in self.groups.iter().zip(&mut self.momentum) {
            for ((name, param), buffer) in group.params.iter().zip(buffers) {
                *buffer = saved(tensors, prefix, "momentum_buffer", name, (param.shape(), param.dtype()))?;
            }
        }
        Ok(())
    }
}
