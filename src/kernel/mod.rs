//! Kernels: what exists ([`catalog`]), its text ([`source`]), its parameters ([`params`]), its size ([`grid`]), how its
//! operands are bound ([`sharing`]) and what it may report ([`checks`]). Kernels that a program brings along: [`KernelSource`].

pub mod catalog;
pub mod checks;
mod forms;
pub mod grid;
pub(crate) mod labels;
pub(crate) mod own;
pub mod params;
pub(crate) mod pipeline;
pub mod sharing;
pub mod source;
pub(crate) mod wgsl;

pub use catalog::{Class, Form, Inputs, Kernel, KernelId, Results, Role};
pub use forms::{
    BF16_STATE, COLUMNS_VEC4, CONTIGUOUS, MATMUL_TEXTURE, PACKED, ROWS_VEC4, RUNS, STRIDED, STRIDED_VEC4, TOTALS, VEC4,
};
pub use params::Params;
pub use sharing::Sharing;
pub use source::ParamPath;
pub use wgsl::{KernelArg, KernelSource};
