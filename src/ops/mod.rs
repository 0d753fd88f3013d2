//! Operations on tensors, without gradients: each checks shapes, allocates its result and enqueues kernels.
//!
//! File names are shader families. `autograd::methods` calls these and records what the backward pass needs.
//! In-place functions end in `_`, as in PyTorch; they write through views.

pub mod attention;
pub mod binary;
pub mod copy;
mod create;
pub(crate) mod elementwise;
pub mod foreach;
pub mod generator;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod optim;
pub mod random;
pub mod reduce;
pub mod scan;
pub mod scatter;
pub mod softmax;
pub mod sort;
pub mod unary;
pub mod wgsl;
mod windows;

use bytemuck::Pod;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::KernelId;
use crate::kernel::grid::Work;
use crate::stream::{self, Operand};
use crate::tensor::Tensor;

/// Refuses another element type than `want`.
pub(crate) fn expect_dtype(op: &'static str, x: &Tensor, want: DType) -> Result<()> {
    if x.dtype() == want {
        return Ok(());
    }
    Err(Error::DType { op, got: x.dtype(), expected: want.name() })
}

/// Refuses operands of two devices.
pub(crate) fn expect_same_device(op: &'static str, tensors: &[&Tensor]) -> Result<()> {
    let Some((first, rest)) = tensors.split_first() else { return Ok(()) };
    match rest.iter().find(|tensor| !tensor.device().same(first.device())) {
        None => Ok(()),
        Some(other) => Err(first.device().mismatch(op, other.device())),
    }
}

/// Enqueues one dispatch on the current stream: operands in the order of the catalogue row. The caller has made sure that
/// no operand is empty and that bound blocks are distinct (the same storage twice is refused).
#[track_caller]
pub(crate) fn launch<P: Pod>(
    op: &'static str,
    kernel: KernelId,
    dtype: DType,
    operands: &[&Tensor],
    params: &P,
    work: impl Into<Work>,
) -> Result<()> {
    expect_same_device(op, operands)?;
    let Some(first) = operands.first() else { return Ok(()) };
    let empty = || Error::shape(op, "an operand has no elements", "report this as a bug of linn");
    let mut memory: smallvec::SmallVec<[_; 8]> = smallvec::SmallVec::new();
    let mut elements = 0;
    for tensor in operands {
        memory.push(Operand { memory: tensor.storage.memory().ok_or_else(empty)?, window: tensor.storage.window() });
        elements += tensor.len();
    }
    let sizes = operands.iter().map(|tensor| (tensor.len(), tensor.storage.size()));
    let work = work.into().with_elements(elements);
    let textures = kernel.form().textures(first.device().class(), dtype, sizes);
    stream::launch(first.device(), kernel, dtype, &memory, textures, bytemuck::bytes_of(params), work)
        .map_err(|error| error.of(op))
}
