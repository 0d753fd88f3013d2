//! `Tensor`: a cheap handle on device memory with a shape.
//!
//! A tensor is storage + [`Layout`] + [`DType`] + one opaque slot for what autograd knows about it. Views share the
//! storage. Nothing here waits for the device unless its name says so (`item`, `to_vec`, printing).

mod create;
pub(crate) mod display;
pub mod files;
mod interop;
#[cfg(feature = "ndarray")]
mod ndarray;
mod pinned;
mod storage;
mod transfer;
mod view;

use std::any::Any;
use std::sync::Arc;

pub use create::NestedArray;
pub use interop::Export;
pub use storage::Storage;
pub use transfer::TensorRead;

use crate::device::Device;
use crate::dtype::DType;
use crate::ids::StreamId;
use crate::layout::Layout;
use crate::memory::Category;
use crate::stream::Stream;

/// An n-dimensional array on a device. Cloning is cheap and shares the memory. What holds for all operations (shapes, types,
/// errors) stands in the docs of `linn::autograd`.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) storage: Arc<Storage>,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    /// What autograd knows about this tensor; opaque on this floor.
    pub(crate) grad_slot: Option<Arc<dyn Any + Send + Sync>>,
}

impl Tensor {
    /// Length of each dimension.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// Length of dimension `dim` (negative: from the back), or an error where there is no such dimension.
    pub fn size(&self, dim: isize) -> crate::Result<usize> {
        if self.rank() == 0 {
            return Err(crate::Error::argument("size", "a 0-d tensor has no dimensions", "use len()"));
        }
        Ok(self.shape()[self.layout.dim("size", dim)?])
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device that holds the elements.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// Shape, strides and offset in the storage.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// True when the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// True when both tensors use the same storage.
    pub fn shares_storage(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// How often the storage was written in place since it was made; autograd compares it with what it saved.
    pub fn version(&self) -> u64 {
        self.storage.version()
    }

    /// Books the storage under another category of the memory statistics.
    pub fn set_category(&self, category: Category) {
        self.storage.set_category(category);
    }

    /// Tells that work on `stream` uses the memory in a way that linn does not see. When the last handle of the storage is
    /// dropped, its memory is lent to nobody before everything that is enqueued on `stream` at that moment (policy `pytorch`:
    /// before all of it has been executed).
    ///
    /// PyTorch's `record_stream`, and like there it covers the whole storage of a view and lasts until the storage is freed.
    /// Operations of linn need no such call, on whatever stream they run: each is a use that is known.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a stream of another device.
    pub fn record_stream(&self, stream: &Stream) -> crate::Result<()> {
        if !stream.device().same(self.device()) {
            return Err(self.device().mismatch("record_stream", stream.device()));
        }
        if let Some(memory) = self.storage.memory() {
            let mut core = self.device().shared().lock();
            core.timeline.record_stream(memory.block(), StreamId(stream.id()));
        }
        Ok(())
    }

    /// True where no other elements lie in the last word of a contiguous tensor.
    pub(crate) fn owns_last_word(&self) -> bool {
        let end = (self.layout.end() * self.dtype.size()) as u64;
        end.is_multiple_of(4) || self.storage.ends_at(end)
    }

    /// The same elements under another layout; the storage is shared, gradients are not.
    pub(crate) fn with_layout(&self, layout: Layout) -> Tensor {
        Tensor { storage: self.storage.clone(), layout, dtype: self.dtype, grad_slot: None }
    }

    /// The same elements without gradient history.
    pub(crate) fn without_grad_slot(&self) -> Tensor {
        Tensor { grad_slot: None, ..self.clone() }
    }
}
