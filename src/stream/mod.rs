//! stream (placeholder by the lead; signatures are final)
use crate::device::{Device, Memory};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::KernelId;
use crate::memory::Category;

/// Memory for commands of the current stream.
#[track_caller]
pub(crate) fn allocate(device: &Device, size: u64, label: &'static str, category: Category) -> Result<Memory> {
    let _ = (device, size, label, category);
    todo!()
}
/// Enqueues a copy of host bytes into `memory` at byte `offset`, on the current stream. Does not wait.
pub(crate) fn upload(device: &Device, memory: &Memory, offset: u64, bytes: &[u8], label: &'static str) -> Result<()> {
    let _ = (device, memory, offset, bytes, label);
    todo!()
}
/// Enqueues one dispatch on the current stream. `operands` in the order of the catalogue row's bindings; their roles
/// (in, out, inout) come from the row. `params` is the row's parameter struct as bytes.
pub(crate) fn launch(
    device: &Device,
    kernel: KernelId,
    dtype: DType,
    operands: &[&Memory],
    params: &[u8],
    grid: [u32; 3],
) -> Result<()> {
    let _ = (device, kernel, dtype, operands, params, grid);
    todo!()
}
/// Enqueues a byte copy between two blocks (offsets and size multiples of 4; ranges in one segment go through a kernel).
pub(crate) fn copy(device: &Device, src: &Memory, src_offset: u64, dst: &Memory, dst_offset: u64, size: u64) -> Result<()> {
    let _ = (device, src, src_offset, dst, dst_offset, size);
    todo!()
}
