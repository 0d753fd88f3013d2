//! Kernels: what exists ([`catalog`]), its text ([`source`]), its parameters ([`params`]) and its size ([`grid`]).

pub mod catalog;
pub mod grid;
pub mod params;
pub(crate) mod pipeline;
pub mod source;

pub use catalog::{
    COLUMNS_VEC4, CONTIGUOUS, Class, Form, Inputs, Kernel, KernelId, MATMUL_TEXTURE, ROWS_VEC4, Role, STRIDED, STRIDED_VEC4,
    Sharing, VEC4,
};
pub use params::Params;
pub use source::ParamPath;
