//! What all optimizers do alike: groups of parameters, their state, their step counts, and steps of all of them at once.
//!
//! The state of parameters that step for the first time together lies in common tensors, one for each part of the state (some MiB
//! each at most), so that few dispatches reach all of it. A part of a parameter is a view.

use std::collections::BTreeMap;

use super::group::{ParamGroup, Scaling, check, saved};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::ops::copy;
use crate::ops::optim::{Control, Rule, Stepping, flat, gradient, step_};
use crate::tensor::Tensor;

/// A part of an optimizer's state: PyTorch's name, and what it starts with.
pub(super) type Part = (&'static str, f64);

/// Bytes of the largest common tensor of state.
const LARGEST_BUCKET: usize = 64 << 20;

/// Parameters and what an optimizer keeps about them.
pub(super) struct Stepper {
    pub(super) groups: Vec<ParamGroup>,
    parts: Vec<Part>,
    /// The type of the state; that of the parameter where there is none.
    state_dtype: Option<DType>,
    /// By the numbers of the parameters, which go through the groups in order; `None` before the first step.
    states: Vec<Option<Vec<Tensor>>>,
    /// One for each device.
    controls: Vec<Control>,
}

impl Stepper {
    pub(super) fn new(groups: Vec<ParamGroup>, parts: &[Part], state_dtype: Option<DType>) -> Stepper {
        let count = groups.iter().map(|group| group.params.len()).sum();
        let states = (0..count).map(|_| None).collect();
        Stepper { groups, parts: parts.to_vec(), state_dtype, states, controls: Vec::new() }
    }

    /// (number, group, name, parameter)
    fn numbered(&self) -> impl Iterator<Item = (usize, usize, &str, &Tensor)> {
        let params = self.groups.iter().enumerate().flat_map(|(at, group)| group.params.iter().map(move |param| (at, param)));
        params.enumerate().map(|(number, (group, (name, param)))| (number, group, name.as_str(), param))
    }

    /// One step of the parameters that have a gradient, by a rule whose settings were checked.
    #[track_caller]
    pub(super) fn step(&mut self, rule: &Rule, scaling: Scaling<'_>) -> Result<()> {
        scaling.check(rule.op)?;
        check(rule.op, &self.groups)?;
        let mut grads = Vec::new();
        for (number, group, _, param) in self.numbered() {
            if let Some(grad) = param.grad().filter(|_| !param.is_empty()) {
                grads.push((number, group, param.clone(), gradient(rule.op, param, &grad)?));
            }
        }
        let fresh: Vec<(usize, Tensor)> = grads
            .iter()
            .filter(|(number, ..)| self.states[*number].is_none())
            .map(|(n, _, param, _)| (*n, param.clone()))
            .collect();
        self.begin(&fresh)?;
        let groups: Vec<(f64, f64)> = self.groups.iter().map(|group| (group.lr, group.weight_decay)).collect();
        let mut devices: Vec<Device> = Vec::new();
        for (_, _, param, _) in &grads {
            if !devices.iter().any(|known| known.same(param.device())) {
                devices.push(param.device().clone());
            }
        }
        for device in devices {
            let control = control(&mut self.controls, &device, self.states.len())?;
            let stepping: Vec<Stepping<'_>> = grads
                .iter()
                .filter(|(_, _, param, _)| param.device().same(&device))
                .map(|(number, group, param, grad)| Stepping {
                    param,
                    grad,
                    state: self.states[*number].as_deref().unwrap_or_default(),
                    number: *number,
                    group: *group,
                })
                .collect();
            let here = |tensor: Option<&Tensor>| tensor.map(|tensor| tensor.to(&device)).transpose();
            control.begin(&stepping, [here(scaling.grad_scale)?, here(scaling.found_inf)?])?;
            step_(control, rule, &stepping, &groups)?;
            control.count(rule)?;
        }
        Ok(())
    }

    /// State for parameters that have none.
    #[track_caller]
    fn begin(&mut self, fresh: &[(usize, Tensor)]) -> Result<()> {
        struct Bucket<'a> {
            device: &'a Device,
            dtype: DType,
            members: Vec<(usize, &'a Tensor)>,
            len: usize,
        }
        let mut planned: Vec<Bucket<'_>> = Vec::new();
        for (number, param) in fresh {
            let (device, dtype) = (param.device(), self.state_dtype.unwrap_or(param.dtype()));
            let size = padded(param);
            let room = |bucket: &&mut Bucket<'_>| {
                let fits = (bucket.len + size) * dtype.size() <= LARGEST_BUCKET;
                bucket.device.same(device) && bucket.dtype == dtype && fits
            };
            match planned.iter_mut().rev().find(room) {
                Some(bucket) => {
                    bucket.members.push((*number, param));
                    bucket.len += size;
                }
                None => planned.push(Bucket { device, dtype, members: vec![(*number, param)], len: size }),
            }
        }
        for Bucket { device, dtype, members, len } in planned {
            let mut buckets = Vec::new();
            for (_, start) in &self.parts {
                let bucket = copy::full(device, &[len], *start, dtype)?;
                bucket.set_category(Category::OptimizerState);
                buckets.push(bucket);
            }
            let mut offset = 0;
            for (number, param) in members {
                let size = padded(param);
                self.states[number] = Some(buckets.iter().map(|bucket| flat(bucket, size, offset)).collect());
                offset += size;
            }
        }
        Ok(())
    }

    /// The state by name: the parts, behind the counts that PyTorch has among them ([`STEP`], [`MU_PRODUCT`]).
    pub(super) fn state(&self, counts: &[&str]) -> Vec<(String, Tensor)> {
        let mut named = Vec::new();
        for (number, _, name, param) in self.numbered() {
            let control = self.controls.iter().find(|control| control.device().same(param.device()));
            let (Some(state), Some(control)) = (&self.states[number], control) else { continue };
            let places = [control.steps(number), control.product(number)];
            named.extend(counts.iter().zip(places).map(|(count, place)| (format!("{count}.{name}"), place)));
            for ((part, _), tensor) in self.parts.iter().zip(state) {
                let layout = param.layout().at_offset(tensor.layout().offset());
                named.push((format!("{part}.{name}"), tensor.with_layout(layout)));
            }
        }
        named
    }

    /// Takes the state of [`Stepper::state`] back; a parameter of which there is none has taken no step. Where PyTorch counts no
    /// steps, one with state has taken some. Where anything is wrong, nothing has changed.
    #[track_caller]
    pub(super) fn load(&mut self, tensors: &BTreeMap<String, Tensor>, prefix: &str, counts: &[&str]) -> Result<()> {
        let mut loaded: Vec<(usize, Tensor, Vec<Tensor>, Vec<Tensor>)> = Vec::new();
        for (number, _, name, param) in self.numbered() {
            let dtype = self.state_dtype.unwrap_or(param.dtype());
            let counted = counts.iter().map(|count| (*count, &[1][..], DType::F32));
            let wanted = counted.chain(self.parts.iter().map(|(part, _)| (*part, param.shape(), dtype)));
            let find = |(kind, shape, dtype)| Ok((kind, saved(tensors, prefix, kind, name, (shape, dtype))?));
            let found = wanted.map(find).collect::<Result<Vec<_>>>()?;
            if found.iter().all(|(_, tensor)| tensor.is_none()) {
                continue;
            }
            let all = found.into_iter().map(|(kind, tensor)| tensor.ok_or_else(|| incomplete(kind, name)));
            let mut all = all.collect::<Result<Vec<_>>>()?;
            let parts = all.split_off(counts.len());
            loaded.push((number, param.clone(), all, parts));
        }
        let fresh: Vec<(usize, Tensor)> = loaded.iter().map(|(number, param, ..)| (*number, param.clone())).collect();
        self.states.iter_mut().for_each(|state| *state = None);
        self.controls.clear();
        self.begin(&fresh)?;
        for (number, param, mut counted, parts) in loaded {
            if counted.is_empty() {
                counted.push(copy::full(param.device(), &[1], 1.0, DType::F32)?);
            }
            let control = control(&mut self.controls, param.device(), self.states.len())?;
            let places = [control.steps(number), control.product(number)];
            places.iter().zip(&counted).try_for_each(|(place, count)| copy::copy_(place, count))?;
            for (state, part) in self.states[number].iter().flatten().zip(&parts) {
                copy::copy_(&state.with_layout(param.layout().at_offset(state.layout().offset())), part)?;
            }
        }
        Ok(())
    }
}

/// The control of a device, for so many parameters.
#[track_caller]
fn control<'a>(controls: &'a mut Vec<Control>, device: &Device, params: usize) -> Result<&'a mut Control> {
    let at = match controls.iter().position(|control| control.device().same(device)) {
        Some(at) => at,
        None => {
            controls.push(Control::new(device, params)?);
            controls.len() - 1
        }
    };
    Ok(&mut controls[at])
}

/// The name of step counts.
pub(super) const STEP: &str = "step";
/// The name of the products of NAdam's momenta.
pub(super) const MU_PRODUCT: &str = "mu_product";

/// An optimizer whose step is a [`Rule`]: has fields `stepper` and a method `rule`.
macro_rules! steps_by_rule {
    ($optimizer:ty, $counts:expr) => {
        impl super::Optimizer for $optimizer {
            #[track_caller]
            fn step_with(&mut self, scaling: super::Scaling<'_>) -> crate::error::Result<()> {
                let _origin = crate::stream::Origin::enter();
                let rule = self.rule()?;
                self.stepper.step(&rule, scaling)
            }

            fn groups(&self) -> &[super::ParamGroup] {
                &self.stepper.groups
            }

            fn groups_mut(&mut self) -> &mut [super::ParamGroup] {
                &mut self.stepper.groups
            }

            fn state(&self) -> Vec<(String, crate::tensor::Tensor)> {
                self.stepper.state($counts)
            }

            #[track_caller]
            fn load_state(
                &mut self,
                tensors: &std::collections::BTreeMap<String, crate::tensor::Tensor>,
                prefix: &str,
            ) -> crate::error::Result<()> {
                let _origin = crate::stream::Origin::enter();
                self.stepper.load(tensors, prefix, $counts)
            }
        }
    };
}
pub(super) use steps_by_rule;

/// Elements of a part of the state in its common tensor: parts begin at multiples of 256 bytes.
fn padded(param: &Tensor) -> usize {
    param.len().next_multiple_of(128)
}

pub(super) fn incomplete(kind: &str, name: &str) -> Error {
    Error::file(
        format!("optimizer state {kind}.{name} is missing"),
        "load a whole checkpoint that was saved with the same optimizer",
    )
}
