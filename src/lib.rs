//! linn gives Rust programs PyTorch's GPU runtime on every GPU that wgpu reaches: streams, a caching allocator, WGSL
//! kernels, autograd, and training on top.
//!
//! ```
//! # #[cfg(feature = "gpu")]
//! # mod with_gpu {
//! use linn::{Device, Tensor};
//!
//! # pub fn run() -> linn::Result<()> {
//! let device = Device::open()?; // the best adapter, or the one that LINN_ADAPTER names
//! let w = Tensor::new(&device, [[1.0f32, -2.0], [0.5, 3.0]])?.requires_grad_(true)?;
//! let x = Tensor::new(&device, [[1.0f32, 2.0]])?;
//! let loss = x.linear(&w, None)?.relu()?.sum_all()?; // enqueued; the host runs on
//! loss.backward()?;
//! assert_eq!(loss.item::<f32>()?, 6.5); // waits for the device
//! # Ok(())
//! # }
//! # }
//! # #[cfg(feature = "gpu")]
//! # with_gpu::run().unwrap();
//! ```
//!
//! # Six nouns
//!
//! - A [`Device`] is an opened adapter with its memory and its queue.
//! - A [`Stream`] is a sequence of commands that the host appends to and runs ahead of. The order between streams that
//!   results, readers and reused memory demand is kept by itself.
//! - An [`Event`] is a remembered point of a stream.
//! - A [`Tensor`] is a shape over device memory; views share it.
//! - A *block* is memory lent to tensors, a *segment* what the pool ([`memory`]) bought from the driver to lend from.
//!   What is lent is *allocated*, what was bought is *reserved*.
//! - A *kernel* is a row of the catalogue ([`kernel::catalog`]): one WGSL body, used by the operation of its name. A program's
//!   own are [`WgslKernel`]s; with a gradient of their own, [`autograd::Function`]s.
//!
//! The README explains the two rules (calls are enqueued, memory is cached), ARCHITECTURE.md how the crate is built.
#![deny(missing_docs)]
#![deny(rustdoc::broken_intra_doc_links)]
#![deny(unsafe_code)]

pub mod dtype;
pub mod error;
#[cfg(feature = "files")]
pub mod files;
pub mod ids;
pub mod layout;
pub mod memory;
pub mod profile;
pub mod timeline;

#[cfg(feature = "gpu")]
pub mod autograd;
#[cfg(feature = "gpu")]
#[doc = include_str!("coming_from.md")]
pub mod coming_from {}
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

pub use dtype::{DType, Element, Scalar};
pub use error::{Error, Result};

#[cfg(feature = "gpu")]
pub use device::{Device, DeviceOptions, MemPool};
#[cfg(feature = "gpu")]
pub use ops::wgsl::WgslKernel;
#[cfg(feature = "gpu")]
pub use stream::{Event, Stream};
#[cfg(feature = "gpu")]
pub use tensor::Tensor;
/// The wgpu that linn is built on, for applications that share a device with it ([`stream::interop`]): types of another version
/// do not fit.
#[cfg(feature = "gpu")]
pub use wgpu;

/// The README's code compiles and runs as tests.
#[cfg(all(doctest, feature = "gpu"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Handles go to any thread and are shared between threads.
#[cfg(feature = "gpu")]
const _: () = {
    const fn sendable<T: Send + Sync + 'static>() {}
    sendable::<Device>();
    sendable::<Stream>();
    sendable::<Event>();
    sendable::<MemPool>();
    sendable::<Tensor>();
    sendable::<WgslKernel>();
    sendable::<Error>();
    sendable::<stream::ReadFuture>();
    sendable::<tensor::Export>();
    sendable::<stream::PinnedUpload<f32>>();
    sendable::<stream::PinnedDownload<f32>>();
    sendable::<stream::PinnedRead<'static, f32>>();
};
