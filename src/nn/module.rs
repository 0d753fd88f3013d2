//! What a layer is: a forward pass and named parameters.

use crate::error::Result;
use crate::tensor::Tensor;

/// Whether layers behave as in training (dropout drops) or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training.
    Train,
    /// Evaluation and sampling.
    Eval,
}

/// A layer or a model.
pub trait Module: Send + Sync {
    /// The result for `x`.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// Appends all parameters, each under `path` and its own name joined by a dot.
    fn collect_parameters(&self, path: &str, into: &mut Vec<(String, Tensor)>);

    /// Switches between training and evaluation; layers that make no difference ignore it.
    fn set_mode(&self, mode: Mode) {
        let _ = mode;
    }

    /// All parameters with PyTorch's names, a shared one once.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let mut parameters = Vec::new();
        self.collect_parameters("", &mut parameters);
        parameters
    }

    /// All parameters.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, parameter)| parameter).collect()
    }

    /// Drops the gradients of all parameters.
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

/// `path.name`, or `name` at the top.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}
