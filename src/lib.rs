//! linn: PyTorch's GPU runtime for Rust, on every GPU that wgpu reaches.
#![allow(missing_docs)]

pub mod dtype;
pub mod error;
pub mod ids;
pub mod layout;
pub mod memory;
pub mod timeline;

#[cfg(feature = "gpu")]
pub mod autograd;
#[cfg(feature = "gpu")]
pub mod data;
#[cfg(feature = "gpu")]
pub mod device;
#[cfg(feature = "gpu")]
pub mod kernel;
#[cfg(feature = "gpu")]
pub mod nn;
#[cfg(feature = "gpu")]
pub mod ops;
#[cfg(feature = "gpu")]
pub mod optim;
#[cfg(feature = "gpu")]
pub mod stream;
#[cfg(feature = "gpu")]
pub mod tensor;

#[cfg(feature = "gpu")]
pub use device::{Device, DeviceOptions};
pub use dtype::{DType, Element};
pub use error::{Error, Result};
#[cfg(feature = "gpu")]
pub use stream::{Event, Stream};
#[cfg(feature = "gpu")]
pub use tensor::Tensor;
