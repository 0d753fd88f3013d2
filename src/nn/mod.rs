//! Layers, losses, initial values, checkpoints, and a small GPT.
//!
//! Weights have PyTorch's names and layout (`[out, in]` for `Linear`). A [`Module`] lists its parameters by name; a parameter is
//! a [`Tensor`](crate::tensor::Tensor) that collects gradients, and clones of it are the same parameter.

pub mod gpt;
pub mod init;
pub mod loss;
pub mod state;

mod dropout;
mod embedding;
mod linear;
mod module;
mod norm;

pub use dropout::Dropout;
pub use embedding::Embedding;
pub use gpt::{Gpt, GptConfig};
pub use linear::{Bias, Linear};
pub use module::{Mode, Module};
pub use norm::LayerNorm;
