//! Layers, losses, initial values, checkpoints, and a small GPT.
//!
//! Weights have PyTorch's names and layout (`[out, in]` for `Linear`). A [`Module`] has a forward pass and lists its
//! parts by name; parameters are [`Tensor`](crate::tensor::Tensor)s that collect gradients, and clones of them are the same parameter.

pub mod gpt;
pub mod init;
pub mod loss;
pub mod state;

mod activation;
mod attention;
mod batch_norm;
mod conv;
mod dropout;
mod embedding;
mod layer;
mod linear;
mod module;
mod norm;
mod pool;
mod sequential;

pub use activation::{
    Celu, Elu, Flatten, Gelu, Hardsigmoid, Hardswish, Hardtanh, Identity, LeakyRelu, LogSigmoid, LogSoftmax, Mish, Prelu, Relu,
    Relu6, Selu, Sigmoid, Silu, Softmax, Softplus, Softsign, Tanh, Tanhshrink,
};
pub use attention::MultiheadAttention;
pub use batch_norm::{BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormOptions};
pub use conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use gpt::{Gpt, GptConfig};
pub use layer::{DetectNan, Layer, scope};
pub use linear::{Bias, Linear};
pub use module::{Mode, Module, Parts};
pub use norm::{GroupNorm, LayerNorm, RmsNorm};
pub use pool::{AdaptiveAvgPool1d, AdaptiveAvgPool2d, AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d};
pub use sequential::{Sequential, lambda};
pub use state::{IncompatibleKeys, Strict};
