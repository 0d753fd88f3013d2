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
//! Read next: `graph.rs` (nouns), `record.rs` (forward), `backward.rs` (the walk), `rules/` (one formula per operation).

mod attend;
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
mod in_place;
mod indexing;
mod leaf;
mod losses;
mod methods;
mod mode;
mod normalize;
mod operators;
mod parts;
mod pooling;
mod products;
mod random;
mod rearrange;
mod record;
mod resize;
mod rules;
mod scans;
mod scatter;
mod select;
mod sort;
mod statistics;
mod views;
mod wgsl;
mod windows;

pub use attend::AttentionOptions;
pub use backward::{BackwardOptions, Retain, grad};
pub use checkpoint::checkpoint;
pub use convolution::{ConvOptions, ConvTransposeOptions, Padding};
pub use einsum::einsum;
pub use function::{Context, Function};
pub use gradcheck::{GradcheckOptions, gradcheck};
pub use indexing::{Index, Indices};
pub use leaf::HookHandle;
pub use losses::{ClassOptions, Reduction};
pub use methods::{cat, stack};
pub use mode::{EnableGradGuard, NoGradGuard, enable_grad, enable_grad_guard, is_grad_enabled, no_grad, no_grad_guard};
pub use normalize::NormOptions;
pub use pooling::PoolOptions;
pub use random::Replacement;
pub use rearrange::{Indexing, PadMode, meshgrid};
pub use resize::{InterpolateMode, Resized};
pub use scatter::{Own, Put, ScatterReduce};
pub use select::UniqueOf;
