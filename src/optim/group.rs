//! What optimizers have in common: groups of parameters, and state that can be saved.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::optim::{check_scale, in_range};
use crate::stream::Origin;
use crate::tensor::{Storage, Tensor};

/// Parameters that share a learning rate and a weight decay. Names are used for saved state.
pub struct ParamGroup {
    /// Parameters by name.
    pub params: Vec<(String, Tensor)>,
    /// Learning rate; may be set before every step.
    pub lr: f64,
    /// Weight decay.
    pub weight_decay: f64,
}

impl ParamGroup {
    /// One group.
    pub fn new(params: Vec<(String, Tensor)>, lr: f64, weight_decay: f64) -> ParamGroup {
        ParamGroup { params, lr, weight_decay }
    }

    /// nanoGPT's two groups: weight decay for matrices and tables (2-d and more), none for vectors.
    pub fn by_rank(params: Vec<(String, Tensor)>, lr: f64, weight_decay: f64) -> Vec<ParamGroup> {
        let (matrices, vectors) = params.into_iter().partition(|(_, param)| param.rank() >= 2);
        vec![ParamGroup::new(matrices, lr, weight_decay), ParamGroup::new(vectors, lr, 0.0)]
    }
}

/// What a step does about gradients before it uses them: tensors of one f32 each, on the device, under the names of PyTorch's fused
/// optimizers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scaling<'a> {
    /// All gradients are multiplied by it; `None` means 1.
    pub grad_scale: Option<&'a Tensor>,
    /// Where it is not 0 the step is skipped: no parameter and no state changes, and no step is counted.
    pub found_inf: Option<&'a Tensor>,
}

impl Scaling<'_> {
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        self.grad_scale.into_iter().chain(self.found_inf).try_for_each(|tensor| check_scale(op, tensor))
    }
}

/// Changes parameters by their gradients. Parameters without a gradient are left alone.
pub trait Optimizer {
    /// One step by gradients that are scaled, or none at all, by what the device finds.
    fn step_with(&mut self, scaling: Scaling<'_>) -> Result<()>;

    /// The groups.
    fn groups(&self) -> &[ParamGroup];

    /// The groups, to change learning rates and weight decays.
    fn groups_mut(&mut self) -> &mut [ParamGroup];

    /// The state by name, `<kind>.<parameter>`: what has to be saved to go on with the same bits.
    fn state(&self) -> Vec<(String, Tensor)>;

    /// Takes the state of [`Optimizer::state`] back; names start with `prefix`.
    fn load_state(&mut self, tensors: &BTreeMap<String, Tensor>, prefix: &str) -> Result<()>;

    /// One step.
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let _origin = Origin::enter();
        self.step_with(Scaling::default())
    }

    /// Sets the learning rate of all groups.
    fn set_lr(&mut self, lr: f64) {
        self.groups_mut().iter_mut().for_each(|group| group.lr = lr);
    }

    /// Drops all gradients.
    fn zero_grad(&self) {
        self.groups().iter().flat_map(|group| &group.params).for_each(|(_, param)| param.zero_grad());
    }
}

thread_local! {
    static REFUSES_STALE: Cell<bool> = const { Cell::new(false) };
}

/// Until it is dropped, a step on this thread refuses a gradient that an earlier step has used and that a backward pass has added to
/// since: `zero_grad` is missing. (Several backward passes before one step are accumulation, and fine.)
///
/// PyTorch says nothing in this case, and neither does linn without it: the sum of all gradients so far is a gradient, and some
/// programs want it. A loss that falls at first and then grows or swings is the usual sign.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::optim::{Optimizer, ParamGroup, Sgd, SgdOptions, StaleGradients};
/// let w = Tensor::new(&device, [1.0f32])?.requires_grad_(true)?;
/// let mut sgd = Sgd::new(vec![ParamGroup::new(vec![("w".into(), w.clone())], 0.1, 0.0)], SgdOptions::default());
/// let _refused = StaleGradients::refuse();
/// w.square()?.sum_all()?.backward()?;
/// sgd.step()?;
/// w.square()?.sum_all()?.backward()?; // without sgd.zero_grad() before it
/// assert!(sgd.step().unwrap_err().to_string().contains("help: call zero_grad after each step"));
/// # Ok::<(), linn::Error>(())
/// ```
#[must_use = "stale gradients are refused only while the guard lives"]
pub struct StaleGradients {
    before: bool,
    /// A guard belongs to the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl StaleGradients {
    /// Refuses them on this thread from now on.
    pub fn refuse() -> StaleGradients {
        StaleGradients { before: REFUSES_STALE.replace(true), _not_send: PhantomData }
    }
}

impl Drop for StaleGradients {
    fn drop(&mut self) {
        REFUSES_STALE.set(self.before);
    }
}

/// Refuses learning rates and weight decays that PyTorch refuses, and, as it does, a parameter that is there twice: both would be
/// stepped at the same time. Where the thread refuses stale gradients ([`StaleGradients`]), these too.
pub(super) fn check(op: &'static str, groups: &[ParamGroup]) -> Result<()> {
    let mut known: FxHashMap<(*const Storage, usize), &str> = FxHashMap::default();
    for group in groups {
        in_range(op, &[("lr", group.lr), ("weight_decay", group.weight_decay)], f64::INFINITY)?;
        for (name, param) in group.params.iter().filter(|(_, param)| !param.is_empty()) {
            if let Some(first) = known.insert((Arc::as_ptr(&param.storage), param.layout().offset()), name) {
                let fact = format!("parameters {first} and {name} of shape {:?} are one tensor", param.shape());
                return Err(Error::argument(op, fact, "give the optimizer each tensor once, in one group"));
            }
        }
    }
    let params = || groups.iter().flat_map(|group| &group.params);
    // All are told of the step, whatever becomes of it.
    let stale: Vec<&str> = params().filter(|(_, param)| param.use_grad()).map(|(name, _)| name.as_str()).collect();
    match stale.first() {
        Some(name) if REFUSES_STALE.get() => Err(Error::autograd(
            format!(
                "{op}: an earlier step has used the gradient of {name}, and backward has added to it since ({} so)",
                stale.len()
            ),
            "call zero_grad after each step, before the next backward",
        )),
        _ => Ok(()),
    }
}

/// The saved tensor `<prefix><kind>.<name>`, if there is one, checked against shape and type.
pub(super) fn saved(
    tensors: &BTreeMap<String, Tensor>,
    prefix: &str,
    kind: &str,
    name: &str,
    (shape, dtype): (&[usize], DType),
) -> Result<Option<Tensor>> {
    let key = format!("{prefix}{kind}.{name}");
    let Some(tensor) = tensors.get(&key) else { return Ok(None) };
    if tensor.shape() != shape {
        return Err(Error::file(
            format!("optimizer state {key} has shape {:?}, the parameter wants {shape:?}", tensor.shape()),
            "load the state of the same model",
        ));
    }
    if tensor.dtype() != dtype {
        return Err(Error::file(
            format!("optimizer state {key} has element type {}, the parameter wants {dtype}", tensor.dtype()),
            "load the state of the same model",
        ));
    }
    Ok(Some(tensor.clone()))
}
