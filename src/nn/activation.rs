//! Functions of elements, softmaxes and changes of shape as modules, for [`Sequential`](super::Sequential). Formulas stand with the
//! methods of [`Tensor`] that they call.

use super::init;
use super::layer::Layer;
use super::module::{Module, Parts};
use crate::device::Device;
use crate::error::Result;
use crate::ops::unary::Approximate;
use crate::tensor::Tensor;

/// Modules without parts that call a method of the tensor, with settings whose defaults are PyTorch's.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $ty:ty = $default:expr),* } => $method:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name { $($(#[$about])* pub $field: $ty),* }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default),* }
            }
        }

        impl Module for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method($(self.$field),*)
            }

            fn parts(&self) -> Parts<'_> {
                Parts::new()
            }
        }
    )* };
}

functions! {
    /// [`Tensor::relu`].
    Relu {} => relu;
    /// [`Tensor::relu6`].
    Relu6 {} => relu6;
    /// [`Tensor::sigmoid`].
    Sigmoid {} => sigmoid;
    /// [`Tensor::tanh`].
    Tanh {} => tanh;
    /// [`Tensor::silu`].
    Silu {} => silu;
    /// [`Tensor::mish`].
    Mish {} => mish;
    /// [`Tensor::selu`].
    Selu {} => selu;
    /// [`Tensor::softsign`].
    Softsign {} => softsign;
    /// [`Tensor::tanhshrink`].
    Tanhshrink {} => tanhshrink;
    /// [`Tensor::hardsigmoid`].
    Hardsigmoid {} => hardsigmoid;
    /// [`Tensor::hardswish`].
    Hardswish {} => hardswish;
    /// [`Tensor::logsigmoid`].
    LogSigmoid {} => logsigmoid;
    /// [`Tensor::gelu_with`]: exact, or the formula with tanh that GPT-2 was trained with.
    Gelu {
        /// How it is computed.
        approximate: Approximate = Approximate::None
    } => gelu_with;
    /// [`Tensor::leaky_relu`].
    LeakyRelu {
        /// The slope for negative numbers.
        negative_slope: f64 = 0.01
    } => leaky_relu;
    /// [`Tensor::elu`].
    Elu {
        /// The bound of what becomes of negative numbers.
        alpha: f64 = 1.0
    } => elu;
    /// [`Tensor::celu`].
    Celu {
        /// The bound of what becomes of negative numbers.
        alpha: f64 = 1.0
    } => celu;
    /// [`Tensor::hardtanh`].
    Hardtanh {
        /// The least result.
        min_val: f64 = -1.0,
        /// The greatest result.
        max_val: f64 = 1.0
    } => hardtanh;
    /// [`Tensor::softplus`].
    Softplus {
        /// How sharp the bend is.
        beta: f64 = 1.0,
        /// Above it (times beta) the result is the input.
        threshold: f64 = 20.0
    } => softplus;
    /// [`Tensor::softmax`].
    Softmax {
        /// The dimension whose numbers sum to 1.
        dim: isize = -1
    } => softmax;
    /// [`Tensor::log_softmax`].
    LogSoftmax {
        /// The dimension whose exponentials sum to 1.
        dim: isize = -1
    } => log_softmax;
    /// [`Tensor::flatten`].
    Flatten {
        /// The first dimension that is joined; 0 is the batch.
        start_dim: isize = 1,
        /// The last one.
        end_dim: isize = -1
    } => flatten;
}

/// The input itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Identity {}

impl Module for Identity {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new()
    }
}

/// [`Tensor::prelu`]: the slopes for negative numbers are learnt.
pub struct Prelu {
    /// `[1]`, or `[C]` for inputs `[N, C, ..]`.
    pub weight: Tensor,
    layer: Layer,
}

impl Prelu {
    /// `count` slopes, 1 or one for each channel, that start at `init` (PyTorch's default is 0.25).
    pub fn new(device: &Device, count: usize, init: f64) -> Result<Prelu> {
        Ok(Prelu { weight: init::constant(device, &[count], init)?, layer: Layer::default() })
    }
}

impl Module for Prelu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(|| x.prelu(&self.weight))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer).parameter("weight", &self.weight)
    }
}
