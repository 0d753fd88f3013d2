//! What a layer is: a forward pass, and parts with names.
//!
//! ```
//! use linn::nn::{Bias, Linear, Module, Parts};
//! use linn::{Device, Result, Tensor};
//!
//! struct Mlp {
//!     up: Linear,
//!     down: Linear,
//! }
//!
//! impl Module for Mlp {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.down.forward(&self.up.forward(x)?.relu()?)
//!     }
//!
//!     fn parts(&self) -> Parts<'_> {
//!         Parts::new().child("up", &self.up).child("down", &self.down)
//!     }
//! }
//!
//! let device = Device::open()?;
//! let mlp = Mlp { up: Linear::new(&device, 2, 8, Bias::With)?, down: Linear::new(&device, 8, 1, Bias::Without)? };
//! let names: Vec<String> = mlp.state_dict().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["up.weight", "up.bias", "down.weight"]);
//! // A layer that is used wrongly says which it is.
//! let error = mlp.forward(&Tensor::zeros(&device, &[4, 3])?).unwrap_err().to_string();
//! assert_eq!(
//!     error,
//!     "linear: in layer up: x [4, 3], weight [8, 2], bias Some([8])\nhelp: pass x [.., K], weight [N, K] and bias [N]"
//! );
//! # Ok::<(), linn::Error>(())
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::layer::Layer;
use super::state::{self, IncompatibleKeys, Strict};
use crate::error::Result;
use crate::tensor::{Storage, Tensor};

/// Whether layers behave as in training (dropout drops) or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training.
    Train,
    /// Evaluation and sampling.
    Eval,
}

/// A layer or a model: a forward pass and [`Parts`]; all else follows from these.
pub trait Module: Send + Sync {
    /// The result for `x`.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// What it consists of, by name. PyTorch's attributes, so that state dicts have PyTorch's names.
    fn parts(&self) -> Parts<'_>;

    /// Switches between training and evaluation; layers that make no difference ignore it.
    fn set_mode(&self, mode: Mode) {
        self.parts().visit("", &mut |_, part| {
            if let Part::Layer(layer) = part {
                layer.set_mode(mode);
            }
        });
    }

    /// All parameters with PyTorch's names, a shared one once. The layers learn their names, which their errors tell from now on.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let mut seen: HashSet<(*const Storage, usize)> = HashSet::new();
        let mut found = Vec::new();
        self.parts().visit("", &mut |path, part| {
            if let Part::Parameter(tensor) = part
                && seen.insert((Arc::as_ptr(&tensor.storage), tensor.layout().offset()))
            {
                found.push((path.to_string(), tensor.clone()));
            }
        });
        found
    }

    /// All parameters.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, parameter)| parameter).collect()
    }

    /// All buffers by name: what is saved with the parameters but does not learn by gradients, such as running statistics.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        let mut found = Vec::new();
        self.parts().visit("", &mut |path, part| {
            if let Part::Buffer(tensor) = part {
                found.push((path.to_string(), tensor.clone()));
            }
        });
        found
    }

    /// Parameters and buffers by name, a shared one under each of its names. The tensors share the module's memory.
    /// [`state::save`] writes them to a safetensors file.
    fn state_dict(&self) -> Vec<(String, Tensor)> {
        let mut found = Vec::new();
        self.parts().visit("", &mut |path, part| {
            if let Part::Parameter(tensor) | Part::Buffer(tensor) = part {
                found.push((path.to_string(), tensor.detach()));
            }
        });
        found
    }

    /// Copies `tensors` into the parameters and buffers of their names, converted to their types. With [`Strict::Yes`] every one
    /// must be there and no other, with [`Strict::No`] those that are there are taken and the names of the rest returned.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) that lists the missing and the unexpected names and those of another shape (an error with
    /// [`Strict::No`] too); then nothing has changed.
    fn load_state_dict(&self, tensors: &BTreeMap<String, Tensor>, strict: Strict) -> Result<IncompatibleKeys> {
        state::load_state_dict(&self.state_dict(), tensors, strict)
    }

    /// Whether the parameters learn from now on ([`Tensor::set_requires_grad`]). Frozen ones take no gradient memory, and an optimizer
    /// that has them leaves them alone.
    fn requires_grad_(&self, wanted: bool) -> Result<()> {
        self.parameters().iter().try_for_each(|parameter| parameter.set_requires_grad(wanted))
    }

    /// Drops the gradients of all parameters (PyTorch's `set_to_none`): their memory goes back, and the next backward pass does not
    /// have to add.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(Tensor::zero_grad);
    }

    /// [`Mode::Train`].
    fn train(&self) {
        self.set_mode(Mode::Train);
    }

    /// [`Mode::Eval`].
    fn eval(&self) {
        self.set_mode(Mode::Eval);
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (**self).forward(x)
    }

    fn parts(&self) -> Parts<'_> {
        (**self).parts()
    }

    fn set_mode(&self, mode: Mode) {
        (**self).set_mode(mode);
    }
}

/// What a [`Module`] consists of, each part under the name of its field.
#[derive(Default)]
pub struct Parts<'a> {
    layer: Option<&'a Layer>,
    own: Vec<(&'a str, Part<'a>)>,
    children: Vec<(Cow<'a, str>, &'a dyn Module)>,
}

/// One part of a module.
#[derive(Clone, Copy)]
enum Part<'a> {
    Parameter(&'a Tensor),
    Buffer(&'a Tensor),
    Layer(&'a Layer),
}

impl<'a> Parts<'a> {
    /// None yet.
    pub fn new() -> Parts<'a> {
        Parts::default()
    }

    /// None yet, of a module that has a mode and a name of its own.
    pub fn of(layer: &'a Layer) -> Parts<'a> {
        Parts { layer: Some(layer), ..Parts::default() }
    }

    /// And a parameter, or an optional one.
    pub fn parameter(mut self, name: &'a str, tensor: impl Into<Option<&'a Tensor>>) -> Parts<'a> {
        self.own.extend(tensor.into().map(|tensor| (name, Part::Parameter(tensor))));
        self
    }

    /// And a buffer, or an optional one. Change it in place: its memory is what is saved.
    pub fn buffer(mut self, name: &'a str, tensor: impl Into<Option<&'a Tensor>>) -> Parts<'a> {
        self.own.extend(tensor.into().map(|tensor| (name, Part::Buffer(tensor))));
        self
    }

    /// And a module.
    pub fn child(mut self, name: &'a str, module: &'a dyn Module) -> Parts<'a> {
        self.children.push((Cow::Borrowed(name), module));
        self
    }

    /// And modules with the names `name.0`, `name.1` and so on: PyTorch's `ModuleList`.
    pub fn list<M: Module + 'a>(mut self, name: &'a str, modules: impl IntoIterator<Item = &'a M>) -> Parts<'a> {
        let modules = modules.into_iter().enumerate();
        self.children.extend(modules.map(|(i, module)| (Cow::Owned(join(name, &i.to_string())), module as &dyn Module)));
        self
    }

    /// Calls `visit` with each part and its name, in PyTorch's order: own ones before those of the children.
    fn visit(self, path: &str, visit: &mut dyn FnMut(&str, Part<'_>)) {
        if let Some(layer) = self.layer {
            layer.learn_name(path);
            visit(path, Part::Layer(layer));
        }
        self.own.iter().for_each(|(name, part)| visit(&join(path, name), *part));
        self.children.iter().for_each(|(name, child)| child.parts().visit(&join(path, name), visit));
    }
}

/// `path.name`, or `name` at the top, or `path` where there is no name.
pub(super) fn join(path: &str, name: &str) -> String {
    match (path, name) {
        ("", _) => name.to_string(),
        (_, "") => path.to_string(),
        _ => format!("{path}.{name}"),
    }
}
