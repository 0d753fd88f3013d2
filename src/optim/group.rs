//! What optimizers have in common: groups of parameters, and state that can be saved.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::stream::Origin;
use crate::tensor::Tensor;

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

/// Changes parameters by their gradients. Parameters without a gradient are left alone.
pub trait Optimizer {
    /// One step with all gradients multiplied by `grad_scale` (0-d, on the device; `None` means 1) first.
    fn step_scaled(&mut self, grad_scale: Option<&Tensor>) -> Result<()>;

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
        self.step_scaled(None)
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
