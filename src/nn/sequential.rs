//! y = f_n(.. f_1(x)): modules one after the other.

use super::module::{Module, Parts};
use crate::error::Result;
use crate::tensor::Tensor;

/// Modules that each take the result of the one before; their names are 0, 1, 2 and so on, as PyTorch's.
///
/// ```
/// use linn::nn::{Bias, Linear, Module, Sequential, lambda};
/// use linn::{Device, Tensor};
///
/// let device = Device::open()?;
/// let model = Sequential::new()
///     .add(Linear::new(&device, 2, 16, Bias::With)?)
///     .add(lambda(|x| x.relu()))
///     .add(Linear::new(&device, 16, 3, Bias::With)?);
/// assert_eq!(model.forward(&Tensor::zeros(&device, &[5, 2])?)?.shape(), [5, 3]);
/// let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias"]);
/// # Ok::<(), linn::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    modules: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// None: the result is the input.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// And `module`, at the end.
    #[expect(clippy::should_implement_trait, reason = "a sum of modules means nothing")]
    pub fn add(mut self, module: impl Module + 'static) -> Sequential {
        self.modules.push(Box::new(module));
        self
    }

    /// How many modules there are.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }
}

impl Module for Sequential {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.modules.iter().try_fold(x.clone(), |x, module| module.forward(&x))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new().list("", &self.modules)
    }
}

/// A function as a module without parts.
pub fn lambda(function: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static) -> impl Module {
    Lambda(function)
}

struct Lambda<F>(F);

impl<F: Fn(&Tensor) -> Result<Tensor> + Send + Sync> Module for Lambda<F> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (self.0)(x)
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new()
    }
}
