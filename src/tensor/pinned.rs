//! Copies between tensors and pinned memory, which nobody waits for (PyTorch's `non_blocking=True`).

use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::stream::{self, PinnedDownload, PinnedRead, PinnedUpload};
use crate::tensor::Tensor;

impl Tensor {
    /// A tensor of `shape` with the elements of `pinned` in row-major order; the copy is enqueued on the current stream.
    /// PyTorch's `pinned.to(device, non_blocking=True)`.
    #[track_caller]
    pub fn from_pinned<T: Element>(shape: &[usize], pinned: &PinnedUpload<T>) -> Result<Tensor> {
        let tensor = Tensor::empty_as("from_pinned", pinned.device(), shape, T::DTYPE, Category::Input)?;
        tensor.copy_from_pinned("from_pinned", pinned)?;
        Ok(tensor)
    }

    /// Overwrites a contiguous tensor with the elements of `pinned`, in place. The copy is enqueued on the current stream and
    /// comes after whatever still reads the old elements; the call never waits. Until it has been executed the buffer is in
    /// flight ([`PinnedUpload::query`]). PyTorch's `copy_(pinned, non_blocking=True)`.
    #[track_caller]
    pub fn copy_from_pinned_<T: Element>(&self, pinned: &PinnedUpload<T>) -> Result<()> {
        self.copy_from_pinned("copy_from_pinned_", pinned)
    }

    #[track_caller]
    fn copy_from_pinned<T: Element>(&self, op: &'static str, pinned: &PinnedUpload<T>) -> Result<()> {
        let offset = self.pinned_offset::<T>(op, pinned.len())?;
        match self.storage.memory() {
            Some(memory) if !self.is_empty() => stream::upload_from(self.device(), memory, offset, pinned, op),
            _ => Ok(()),
        }
    }

    /// Copies the elements of a contiguous tensor to `pinned`. The copy is enqueued on the current stream; only the future
    /// that is returned gives the elements, when they are there. PyTorch's `pinned.copy_(tensor, non_blocking=True)`.
    ///
    /// Does not wait, unless an earlier copy to `pinned`, whose future was dropped, is in flight.
    #[track_caller]
    pub fn copy_to_pinned<'a, T: Element>(&self, pinned: &'a mut PinnedDownload<T>) -> Result<PinnedRead<'a, T>> {
        const OP: &str = "copy_to_pinned";
        let offset = self.pinned_offset::<T>(OP, pinned.len())?;
        match self.storage.memory() {
            Some(memory) if !self.is_empty() => stream::read_into(self.device(), memory, offset, pinned, OP),
            _ => Ok(PinnedRead::nothing(pinned)),
        }
    }

    /// Where the tensor begins in its storage, in bytes, if it fits a pinned buffer of `len` elements.
    fn pinned_offset<T: Element>(&self, op: &'static str, len: usize) -> Result<u64> {
        if self.dtype() != T::DTYPE {
            return Err(Error::DType { op, got: self.dtype(), expected: T::DTYPE.name() });
        }
        if !self.is_contiguous() || self.len() != len {
            return Err(Error::shape(
                op,
                format!(
                    "a pinned buffer of {len} elements and a tensor of shape {:?}, strides {:?}",
                    self.shape(),
                    self.layout.strides()
                ),
                "take a buffer with as many elements as the tensor has; the tensor must be contiguous",
            ));
        }
        self.whole_words(op)
    }
}
