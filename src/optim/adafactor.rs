//! Adafactor (Shazeer, Stern 2018), PyTorch's form: the second moment of a matrix as one number for each row and each column.
//!
//! With rho = min(lr, 1 / sqrt(t)), b = t^beta2_decay and alpha = max(eps2, rms(p)) rho: p *= 1 - lr weight_decay;
//! row += b (mean over columns of g^2 - row), col += b (mean over rows of g^2 - col), v = row col / max(mean(row), eps1)
//! (of vectors v += b (g^2 - v)); u = g / sqrt(max(v, eps1^2)); p -= alpha / max(1, rms(u) / d) u.

use std::collections::BTreeMap;

use super::group::{Optimizer, ParamGroup, Scaling, check, saved};
use super::stepper::incomplete;
use crate::autograd::no_grad;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::Category;
use crate::ops::copy;
use crate::ops::optim::{gradient, in_range};
use crate::ops::reduce::KeepDim;
use crate::stream::Origin;
use crate::tensor::Tensor;

/// Options of [`Adafactor`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdafactorOptions {
    /// Exponent of the step that gives the weight of the newest square.
    pub beta2_decay: f64,
    /// Least mean of the row factors and root of the least second moment (`None`: the distance of 1 to the next number of the
    /// parameter's type), and least size of parameters.
    pub eps: (Option<f64>, f64),
    /// Bound on the size of an update.
    pub d: f64,
}

impl Default for AdafactorOptions {
    fn default() -> AdafactorOptions {
        AdafactorOptions { beta2_decay: -0.8, eps: (None, 1e-3), d: 1.0 }
    }
}

/// Adafactor: a matrix of m x n has a state of m + n numbers.
///
/// Its factors are sums over rows and columns, so it steps one parameter at a time, by about 25 dispatches each.
pub struct Adafactor {
    groups: Vec<ParamGroup>,
    options: AdafactorOptions,
    /// Like the parameters of the groups; `None` before the first step of a parameter.
    states: Vec<Vec<Option<State>>>,
}

struct State {
    /// `[1]`, f32.
    step: Tensor,
    /// As [`parts`] has them.
    parts: Vec<Tensor>,
}

impl Adafactor {
    /// An optimizer for `groups`. PyTorch's default learning rate is 1e-2.
    pub fn new(groups: Vec<ParamGroup>, options: AdafactorOptions) -> Adafactor {
        let states = groups.iter().map(|group| group.params.iter().map(|_| None).collect()).collect();
        Adafactor { groups, options, states }
    }

    fn check(&self) -> Result<()> {
        let AdafactorOptions { beta2_decay, eps: (eps1, eps2), d } = self.options;
        check(OP, &self.groups)?;
        let settings = [("-beta2_decay", -beta2_decay), ("eps1", eps1.unwrap_or(0.0)), ("eps2", eps2), ("d - 1", d - 1.0)];
        in_range(OP, &settings, f64::INFINITY)
    }

    #[track_caller]
    fn step_all(&mut self, scaling: Scaling<'_>) -> Result<()> {
        for (group, states) in self.groups.iter().zip(&mut self.states) {
            for ((_, param), slot) in group.params.iter().zip(states) {
                let Some(grad) = param.grad().filter(|_| !param.is_empty()) else { continue };
                let grad = gradient(OP, param, &grad)?;
                let grad = match scaling.grad_scale {
                    Some(scale) => grad.mul(&scale.to_dtype(grad.dtype())?)?,
                    None => grad,
                };
                if slot.is_none() {
                    let zeros = |shape: &[usize], dtype: DType| copy::full(param.device(), shape, 0.0, dtype);
                    let parts = parts(param).iter().map(|(_, shape)| zeros(shape, param.dtype())).collect::<Result<_>>()?;
                    *slot = Some(State::new(zeros(&[1], DType::F32)?, parts));
                }
                if let Some(state) = slot {
                    state.step(param, &grad, group, &self.options, scaling.found_inf)?;
                }
            }
        }
        Ok(())
    }
}

const OP: &str = "adafactor_";

/// (name, shape) of the parts of a parameter's state: the factors of matrices and of stacks of them, else the variance.
fn parts(param: &Tensor) -> Vec<(&'static str, Vec<usize>)> {
    let mut row = param.shape().to_vec();
    let mut col = row.clone();
    match row.len() {
        0 | 1 => vec![("variance", row)],
        n => {
            (row[n - 1], col[n - 2]) = (1, 1);
            vec![("row_var", row), ("col_var", col)]
        }
    }
}

impl State {
    fn new(step: Tensor, parts: Vec<Tensor>) -> State {
        [&step].into_iter().chain(&parts).for_each(|tensor| tensor.set_category(Category::OptimizerState));
        State { step, parts }
    }

    #[track_caller]
    fn step(
        &self,
        param: &Tensor,
        grad: &Tensor,
        group: &ParamGroup,
        options: &AdafactorOptions,
        skip: Option<&Tensor>,
    ) -> Result<()> {
        let AdafactorOptions { beta2_decay, eps: (eps1, eps2), d } = *options;
        let eps1 = eps1.unwrap_or(match param.dtype() {
            DType::F16 => 2f64.powi(-10),
            DType::BF16 => 2f64.powi(-7),
            _ => 2f64.powi(-23),
        });
        // What was there, where the step is skipped.
        let skip = skip.map(|found| found.reshape(&[])?.to_dtype(DType::Bool)).transpose()?;
        let write = |to: &Tensor, new: &Tensor| match &skip {
            Some(skip) => copy::copy_(to, &to.detach().to_dtype(new.dtype())?.where_(skip, new)?),
            None => copy::copy_(to, new),
        };
        let step = self.step.add_scalar(1.0)?;
        write(&self.step, &step)?;
        let newest = step.pow_scalar(beta2_decay)?;
        let rho = step.pow_scalar(-0.5)?.clamp(f64::NEG_INFINITY, group.lr)?;
        let x = param.detach().to_dtype(DType::F32)?;
        let g = grad.to_dtype(DType::F32)?;
        let rms = |x: &Tensor| x.square()?.mean_all()?.sqrt();
        let alpha = rms(&x)?.clamp(eps2, f64::INFINITY)?.mul(&rho)?;
        let square = g.square()?;
        let toward = |moment: &Tensor, new: &Tensor| -> Result<Tensor> {
            let old = moment.to_dtype(DType::F32)?;
            let next = old.add(&new.sub(&old)?.mul(&newest)?)?;
            write(moment, &next)?;
            Ok(next)
        };
        let variance = match self.parts.as_slice() {
            [row, col] => {
                let row = toward(row, &square.mean(&[-1], KeepDim::Keep)?)?;
                let col = toward(col, &square.mean(&[-2], KeepDim::Keep)?)?;
                row.mul(&col)?.div(&row.mean(&[-2], KeepDim::Keep)?.clamp(eps1, f64::INFINITY)?)?
            }
            [variance, ..] => toward(variance, &square)?,
            [] => return Ok(()),
        };
        let update = variance.clamp(eps1 * eps1, f64::INFINITY)?.rsqrt()?.mul(&g)?;
        let bound = rms(&update)?.mul_scalar(1.0 / d)?.clamp(1.0, f64::INFINITY)?;
        let decayed = if group.weight_decay == 0.0 { x } else { x.mul_scalar(1.0 - group.lr * group.weight_decay)? };
        write(param, &decayed.sub(&update.mul(&alpha.div(&bound)?)?)?)
    }
}

impl Optimizer for Adafactor {
    #[track_caller]
    fn step_with(&mut self, scaling: Scaling<'_>) -> Result<()> {
        let _origin = Origin::enter();
        self.check()?;
        scaling.check(OP)?;
        no_grad(|| self.step_all(scaling))
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
            for ((name, param), state) in group.params.iter().zip(states) {
                let Some(state) = state else { continue };
                named.push((format!("step.{name}"), state.step.clone()));
                let tensors = parts(param).into_iter().zip(&state.parts);
                named.extend(tensors.map(|((part, _), tensor)| (format!("{part}.{name}"), tensor.clone())));
            }
        }
        named
    }

    #[track_caller]
    fn load_state(&mut self, tensors: &BTreeMap<String, Tensor>, prefix: &str) -> Result<()> {
        let _origin = Origin::enter();
        let mut all = Vec::new();
        for group in &self.groups {
            let mut loaded = Vec::new();
            for (name, param) in &group.params {
                let find = |kind: &str, shape: &[usize], dtype| saved(tensors, prefix, kind, name, (shape, dtype));
                let step = find("step", &[1], DType::F32)?;
                let parts = parts(param);
                let found = parts.iter().map(|(kind, shape)| Ok((*kind, find(kind, shape, param.dtype())?)));
                let found = found.collect::<Result<Vec<_>>>()?;
                if step.is_none() && found.iter().all(|(_, tensor)| tensor.is_none()) {
                    loaded.push(None);
                    continue;
                }
                let step = copy::copy(&step.ok_or_else(|| incomplete("step", name))?)?;
                let own = found.into_iter().map(|(kind, tensor)| copy::copy(&tensor.ok_or_else(|| incomplete(kind, name))?));
                loaded.push(Some(State::new(step, own.collect::<Result<_>>()?)));
            }
            all.push(loaded);
        }
        self.states = all;
        Ok(())
    }
}
