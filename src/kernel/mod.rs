//! Kernels: what exists ([`catalog`]), its text ([`source`]), its parameters ([`params`]) and its size ([`grid`]).

pub mod catalog;
pub mod grid;
pub mod params;
pub(crate) mod pipeline;
pub mod source;

pub use catalog::{CONTIGUOUS, Class, Form, Kernel, KernelId, Role, STRIDED, STRIDED_VEC4, Sharing};
pub use params::Params;
pub use source::ParamPath;
