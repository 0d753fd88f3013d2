//! Layers, losses, initial values, checkpoints, and a small GPT.
//!
//! Weights have PyTorch's names and layout (`[out, in]` for `Linear`). A [`Module`] has a forward pass and lists its
//! parts by name; parameters are [`Tensor`](crate::tensor::Tensor)s that collect gradients, and clones of them are the same parameter.

pub mod gpt;
pub mod init;
pub mod loss;
pub mod state;

mod dropout;
mod embedding;
mod layer;
mod linear;
mod module;
mod norm;
mod sequential;

pub use dropout::Dropout;
pub use embedding::Embedding;
pub use gpt::{Gpt, GptConfig};
pub use layer::{Layer, scope};
pub use linear::{Bias, Linear};
pub use module::{Mode, Module, Parts};
pub use norm::LayerNorm;
pub use sequential::{Sequential, lambda};
