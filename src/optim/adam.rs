//! Adam, AMSGrad and AdamW, PyTorch's form.
//!
//! t += 1; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps).
//! AMSGrad divides by the largest v so far. Adam adds weight_decay p to g; AdamW multiplies p by 1 - lr weight_decay instead.

use std::collections::BTreeMap;

use super::group::{Optimizer, ParamGroup, saved, zeros_like};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::ops::optim::Decay;
use crate::ops::{copy, optim, unary};
use crate::stream::Origin;
use crate::tensor::Tensor;

/// Options of [`Adam`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// Decay rates of both moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Divides by the largest second moment so far.
    pub amsgrad: bool,
}

impl Default for AdamOptions {
    fn default() -> AdamOptions {
        AdamOptions { betas: (0.9, 0.999), eps: 1e-8, amsgrad: false }
    }
}

/// Adam and AdamW.
pub struct Adam {
    groups: Vec<ParamGroup>,
    options: AdamOptions,
    decay: Decay,
    /// Like the parameters of the groups; `None` before the first step of a parameter.
    states: Vec<Vec<Option<State>>>,
    /// Step counts on the device, `[1]` f32. Parameters that always step together share one.
    counters: Vec<Tensor>,
}

struct State {
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Option<Tensor>,
    /// Index into `counters`.
    counter: usize,
}

impl Adam {
    /// Adam: weight decay is added to the gradient.
    pub fn new(groups: Vec<ParamGroup>, options: AdamOptions) -> Adam {
        Adam::with_decay(groups, options, Decay::Coupled)
    }

    /// AdamW: weight decay shrinks the parameter.
    pub fn adamw(groups: Vec<ParamGroup>, options: AdamOptions) -> Adam {
        Adam::with_decay(groups, options, Decay::Decoupled)
    }

    fn with_decay(groups: Vec<ParamGroup>, options: AdamOptions, decay: Decay) -> Adam {
        let states = groups.iter().map(|group| group.params.iter().map(|_| None).collect()).collect();
        Adam { groups, options, decay, states, counters: Vec::new() }
    }

    fn settings(&self, group: &ParamGroup) -> optim::Adam {
        optim::Adam {
            lr: group.lr,
            beta1: self.options.betas.0,
            beta2: self.options.betas.1,
            eps: self.options.eps,
            weight_decay: group.weight_decay,
            decay: self.decay,
        }
    }

    /// Makes missing state and increments the counters of parameters that have a gradient. A counter shared with a
    /// parameter that has none is copied first, so that every parameter counts its own steps.
    fn count(&mut self) -> Result<()> {
        let mut stepping: Vec<Option<usize>> = vec![None; self.counters.len()];
        let mut fresh = None;
        for (group, states) in self.groups.iter().zip(&mut self.states) {
            for ((_, param), slot) in group.params.iter().zip(states) {
                if param.grad().is_none() {
                    continue;
                }
                if let Some(state) = slot {
                    stepping[state.counter] = Some(state.counter);
                    continue;
                }
                let counter = match fresh {
                    Some(counter) => counter,
                    None => {
                        self.counters.push(counter_at(param, 0.0)?);
                        *fresh.insert(self.counters.len() - 1)
                    }
                };
                let max_exp_avg_sq = if self.options.amsgrad { Some(zeros_like(param)?) } else { None };
                let (exp_avg, exp_avg_sq) = (zeros_like(param)?, zeros_like(param)?);
                *slot = Some(State { exp_avg, exp_avg_sq, max_exp_avg_sq, counter });
            }
        }
        let mut resting: BTreeMap<usize, usize> = BTreeMap::new();
        for (group, states) in self.groups.iter().zip(&mut self.states) {
            for ((_, param), slot) in group.params.iter().zip(states) {
                let Some(state) = slot else { continue };
                let shared = stepping.get(state.counter).copied().flatten();
                if let (Some(counter), true) = (shared, param.grad().is_none()) {
                    let own = match resting.get(&counter) {
                        Some(own) => *own,
                        None => {
                            let own = copy::copy(&self.counters[counter])?;
                            own.set_category(Category::OptimizerState);
                            self.counters.push(own);
                            self.counters.len() - 1
                        }
                    };
                    resting.insert(counter, own);
                    state.counter = own;
                }
            }
        }
        stepping.into_iter().flatten().chain(fresh).try_for_each(|i| unary::add_scalar_(&self.counters[i], 1.0))
    }
}

impl Optimizer for Adam {
    #[track_caller]
    fn step_scaled(&mut self, grad_scale: Option<&Tensor>) -> Result<()> {
        let _origin = Origin::enter();
        // Before anything is counted.
        self.groups.iter().try_for_each(|group| self.settings(group).check("adam_"))?;
        self.count()?;
        for (group, states) in self.groups.iter().zip(&self.states) {
            let settings = self.settings(group);
            for ((_, param), state) in group.params.iter().zip(states) {
                let (Some(grad), Some(state)) = (param.grad(), state) else { continue };
                optim::adam_(
                    param,
                    &grad,
                    &state.exp_avg,
                    &state.exp_avg_sq,
                    state.max_exp_avg_sq.as_ref(),
                    &self.counters[state.counter],
                    grad_scale,
                    settings,
                )?;
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
        let mut named = Vec::new();
        for (group, states) in self.groups.iter().zip(&self.states) {
            for ((name, _), state) in group.params.iter().zip(states) {
                let Some(state) = state else { continue };
                named.push((format!("step.{name}"), self.counters[state.counter].clone()));
                named.push((format!("exp_avg.{name}"), state.exp_avg.clone()));
                named.push((format!("exp_avg_sq.{name}"), state.exp_avg_sq.clone()));
                named.extend(state.max_exp_avg_sq.iter().map(|max| (format!("max_exp_avg_sq.{name}"), max.clone())));
            }
        }
        named
    }

    /// Waits for the step counts: equal ones are shared again.
    #[track_caller]
    fn load_state(&mut self, tensors: &BTreeMap<String, Tensor>, prefix: &str) -> Result<()> {
        let _origin = Origin::enter();
        let (mut counters, mut counts): (Vec<Tensor>, Vec<f32>) = (Vec::new(), Vec::new());
        let mut states = Vec::new();
        for group in &self.groups {
            let mut loaded = Vec::new();
            for (name, param) in &group.params {
                let find = |kind: &str, shape: &[usize], dtype: DType| saved(tensors, prefix, kind, name, (shape, dtype));
                let Some(step) = find("step", &[1], DType::F32)? else {
                    loaded.push(None);
                    continue;
                };
                let require = |kind: &str| find(kind, param.shape(), param.dtype())?.ok_or_else(|| incomplete(kind, name));
                let count = step.to_vec_async::<f32>()?.wait()?.first().copied().unwrap_or(0.0);
                let counter = counts.iter().position(|known| *known == count).unwrap_or(counts.len());
                if counter == counts.len() {
                    counts.push(count);
                    counters.push(step);
                }
                loaded.push(Some(State {
                    exp_avg: require("exp_avg")?,
                    exp_avg_sq: require("exp_avg_sq")?,
                    max_exp_avg_sq: if self.options.amsgrad { Some(require("max_exp_avg_sq")?) } else { None },
                    counter,
                }));
            }
            states.push(loaded);
        }
        (self.states, self.counters) = (states, counters);
        Ok(())
    }
}

fn counter_at(param: &Tensor, count: f64) -> Result<Tensor> {
    let counter = copy::full(param.device(), &[1], count, DType::F32)?;
    counter.set_category(Category::OptimizerState);
    Ok(counter)
}

fn incomplete(kind: &str, name: &str) -> Error {
    Error::file(
        format!("optimizer state {kind}.{name} is missing"),
        "load a whole checkpoint that was saved with the same optimizer",
    )
}
