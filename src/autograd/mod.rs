//! Gradients: what is recorded, and the walk back.
//!
//! Every method of [`Tensor`](crate::tensor::Tensor) in [`methods`](self) calls an operation of `ops` and, when one of its
//! operands wants gradients and the grad mode of the thread is on, hangs a *node* on the result: the operation's name, the
//! tensors its rule needs (*saved* ones), and an *edge* per operand. [`Tensor::backward`](crate::tensor::Tensor::backward)
//! walks the nodes from the last made to the first, runs each node's rule on the stream of its forward pass and drops what
//! it saved as soon as it has run.
//!
//! A tensor that was made by no recorded operation and wants gradients is a *leaf*; its gradient is found in
//! [`Tensor::grad`](crate::tensor::Tensor::grad) afterwards.
//!
//! ```no_run
//! use linn::{device::Device, tensor::Tensor};
//! # fn main() -> linn::Result<()> {
//! let device = Device::open()?;
//! let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?.requires_grad_(true)?;
//! x.square()?.sum_all()?.backward()?;
//! let gradient = x.grad(); // [2.0, 4.0, 6.0]
//! # let _ = gradient; Ok(()) }
//! ```
//!
//! # Shapes, types and errors
//!
//! What holds for every operation whose docs say nothing else:
//! - *Shapes*: several operands are broadcast, that is, aligned at the last dimension, with lengths of 1 repeated. A result is a
//!   new contiguous tensor; an operation that gives a view says so. `dim` counts from 0, negative ones from the back.
//! - *Types*: operands of several types meet by PyTorch's promotion ([`result_type`](crate::dtype::result_type)). Functions of real
//!   numbers (`sin`, `/`) take i32, u32 and bool as f32. What is asked (`<`, `isnan`) is answered in bool, positions are i32. f16
//!   and bf16 are computed in f32 and rounded at the end of each operation.
//! - *In place* (`relu_`, through views too): the result must have this tensor's shape, and its type must be no higher in kind (bool,
//!   integer, float). A leaf that wants gradients, and a view that names an element twice, are errors.
//! - *Errors* come from the call and name the operation and the operands: [`Error::Shape`](crate::Error::Shape),
//!   [`Error::DType`](crate::Error::DType), [`Error::Argument`](crate::Error::Argument),
//!   [`Error::DeviceMismatch`](crate::Error::DeviceMismatch), [`Error::OutOfMemory`](crate::Error::OutOfMemory). What only the
//!   device sees, an index out of range, is the error of the next call that waits for it.
//!
//! Read next: `graph.rs` (nouns), `record.rs` (forward), `saved.rs` (what is kept), `backward.rs` (the walk), `rules/` (one formula per operation).

/// The example in the docs of a method that a table makes: what `x.call` is, to four digits, or what x becomes in place.
macro_rules! example {
    ($call:literal for $($var:ident = $value:literal),+ is $element:ident $want:literal) => {
        example!(@ concat!("let out = x.", $call, "?.to_vec::<", stringify!($element), ">()?;"), $($var = $value),+, $want)
    };
    ($name:ident($given:literal) for $($var:ident = $value:literal),+ becomes $want:literal) => {
        example!(
            @ concat!("x.", stringify!($name), "(", $given, ")?;\nlet out = x.to_vec::<f32>()?;"), $($var = $value),+, $want
        )
    };
    (@ $call:expr, $($var:ident = $value:literal),+, $want:literal) => {
        concat!(
            "\n```\n# use linn::{Device, Tensor, autograd::{Own, Put, ScatterReduce}};\n# let device = Device::open()?;\n",
            $("let ", stringify!($var), " = Tensor::new(&device, ", $value, ")?;\n",)+
            $call, "\nassert_eq!(format!(\"{out:.4?}\"), \"", $want, "\");\n# Ok::<(), linn::Error>(())\n```"
        )
    };
}

mod attend;
mod autocast;
mod backward;
mod checkpoint;
mod compare;
mod convolution;
mod display;
mod einsum;
mod elementwise;
mod function;
mod gradcheck;
mod graph;
mod halves;
mod in_place;
mod indexing;
mod indices;
mod leaf;
mod losses;
mod methods;
mod mode;
mod normalize;
mod offload;
mod operators;
mod parts;
mod pooling;
mod products;
mod random;
mod rearrange;
mod record;
mod resize;
mod rules;
mod saved;
mod scans;
mod scatter;
mod select;
mod sort;
mod statistics;
mod views;
mod wgsl;
mod windows;

pub use attend::AttentionOptions;
pub use autocast::{AutocastGuard, autocast, autocast_dtype, autocast_guard};
pub use backward::{BackwardOptions, Retain, grad};
pub use checkpoint::{checkpoint, checkpoint_sequential};
pub use convolution::{ConvOptions, ConvTransposeOptions, Padding};
pub use einsum::einsum;
pub use function::{Context, Function};
pub use gradcheck::{GradcheckOptions, gradcheck};
pub use indices::{Index, Indices};
pub use leaf::HookHandle;
pub use losses::{ClassOptions, Reduction};
pub use methods::{cat, stack};
pub use mode::{EnableGradGuard, NoGradGuard, enable_grad, enable_grad_guard, is_grad_enabled, no_grad, no_grad_guard};
pub use normalize::NormOptions;
pub use offload::SaveOnCpu;
pub use pooling::PoolOptions;
pub use random::Replacement;
pub use rearrange::{Indexing, PadMode, meshgrid};
pub use resize::{InterpolateMode, Resized};
pub use saved::{SavedTensorsHooksGuard, saved_tensors_hooks, saved_tensors_hooks_guard};
pub use scatter::{Own, Put, ScatterReduce};
pub use select::UniqueOf;
