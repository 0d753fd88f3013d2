//! Tensors and host applications: commands of theirs that use tensors, and buffers of theirs that are tensors.

use std::sync::Arc;

use futures_channel::oneshot;

use crate::device::{Device, WaitKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::memory::{Category, Tag};
use crate::stream::interop::{self, Buffer, CommandEncoder, Part, Window};
use crate::stream::{Origin, Stream};
use crate::tensor::{Storage, Tensor};
use crate::timeline::Access;

impl Stream {
    /// Records commands of an application at this point of the stream: after what `reads` and `writes` depend on, whatever
    /// stream that was enqueued on, and before what is enqueued later and depends on them. Tensors in `writes` count as
    /// written in place. The call returns at once.
    ///
    /// `record` runs later, once at most, on linn's own thread, when the commands before it have been encoded. It gets the
    /// windows of `reads` and then of `writes`, in their order. It cannot wait for linn (such calls are errors there), and
    /// is best quick: nothing else is submitted meanwhile. What it needs beside, it holds: pipelines, or a clone of the
    /// application's `wgpu::Device`. Its commands are a submission of their own.
    ///
    /// What wgpu refuses of them, and a panic of the closure, is an error of the next call that synchronises; nothing of
    /// them is executed then.
    ///
    /// ```
    /// # use linn::memory::MemPoolOptions;
    /// # use linn::{Device, DeviceOptions, MemPool, Tensor};
    /// # let device = Device::noop(DeviceOptions::default())?;
    /// let from = Tensor::new(&device, [1.0f32, 2.0])?;
    /// // wgpu copies between different buffers only: this one gets a buffer of its own.
    /// let pool = MemPool::new(&device, MemPoolOptions { no_split: true, ..MemPoolOptions::default() });
    /// let to = pool.scope(|| Tensor::zeros(&device, &[2]))?;
    /// device.default_stream().with_encoder(&[&from], &[&to], |encoder, windows| {
    ///     let [from, to] = windows else { return };
    ///     encoder.copy_buffer_to_buffer(&from.buffer, from.offset, &to.buffer, to.offset, from.size);
    /// })?;
    /// assert_eq!(to.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for tensors of another device, [`Error::Argument`] for tensors that are empty or exported.
    #[track_caller]
    pub fn with_encoder(
        &self,
        reads: &[&Tensor],
        writes: &[&Tensor],
        record: impl FnOnce(&mut CommandEncoder, &[Window]) + Send + 'static,
    ) -> Result<()> {
        let reads = reads.iter().map(|tensor| tensor.part("with_encoder")).collect::<Result<Vec<_>>>()?;
        let writes = writes.iter().map(|tensor| tensor.part("with_encoder")).collect::<Result<Vec<_>>>()?;
        interop::with_encoder(self, &reads, &writes, Box::new(record))
    }
}

impl Tensor {
    /// Lends the tensor to an application, which reads it in submissions of its own. Waits until everything enqueued that uses
    /// the tensor has been handed to the driver (not until it has been executed: what the application submits comes after it).
    ///
    /// Until the export is given back with [`Export::submitted`], the tensor's memory does not move, operations of linn may
    /// read it, and those that write it are errors. Views are exported as the bytes from their first element to their last.
    ///
    /// # Errors
    /// [`Error::Argument`] for a tensor that is empty or exported for writing, [`Error::DeviceLost`].
    #[track_caller]
    pub fn export(&self) -> Result<Export> {
        self.export_blocking(Access::Read)
    }

    /// [`Tensor::export`] to an application that writes the tensor too: until it is given back, every operation of linn that
    /// uses the tensor is an error. It counts as written in place.
    #[track_caller]
    pub fn export_mut(&self) -> Result<Export> {
        self.export_blocking(Access::Write)
    }

    /// [`Tensor::export`] as a future. From this call on the tensor is exported.
    pub fn export_async(&self) -> impl Future<Output = Result<Export>> + Send + use<> {
        finish(self.lend(Access::Read))
    }

    /// [`Tensor::export_mut`] as a future. From this call on the tensor is exported.
    pub fn export_mut_async(&self) -> impl Future<Output = Result<Export>> + Send + use<> {
        finish(self.lend(Access::Write))
    }

    #[track_caller]
    fn export_blocking(&self, access: Access) -> Result<Export> {
        let (lease, submitted) = self.lend(access)?;
        self.device().block_on(submitted, WaitKind::Submission, Origin::line())?;
        lease.export()
    }

    fn lend(&self, access: Access) -> Result<(Lease, oneshot::Receiver<()>)> {
        let part = self.part("export")?;
        let submitted = interop::lend(part.memory, access)?;
        Ok((Lease { tensor: self.without_grad_slot(), access }, submitted))
    }

    /// A contiguous tensor in a buffer of an application, whose bytes from `offset` on are its elements in row-major order. The
    /// buffer stays the application's: linn keeps a handle on it until the last command that uses the tensor has been submitted,
    /// and never destroys it. It is in none of the pool's statistics; `DeviceStats::imported_bytes` counts it.
    ///
    /// While the tensor lives, the application uses these bytes as it would those of any other tensor: in
    /// [`Stream::with_encoder`], or between [`Tensor::export`] or [`Tensor::export_mut`] and [`Export::submitted`]. What it has
    /// submitted before this call comes before all that linn does. The buffer must not be mapped while linn uses it.
    ///
    /// # Errors
    /// [`Error::Argument`] where the buffer lacks a usage (storage, copies from and to), is too small (the elements, rounded up to
    /// 16 bytes), belongs to another wgpu device, or a tensor has some of the bytes already; where `offset` is no multiple of
    /// `min_storage_buffer_offset_alignment`. [`Error::Limit`] for more bytes than a kernel can see.
    #[track_caller]
    pub fn from_buffer(device: &Device, buffer: &Buffer, offset: u64, shape: &[usize], dtype: DType) -> Result<Tensor> {
        const OP: &str = "from_buffer";
        let layout = Layout::contiguous(OP, shape)?;
        let size = super::create::bytes_of(layout.len(), dtype);
        let tag = Tag { category: Category::Input, label: OP, location: Origin::line() };
        let storage = match size {
            0 => Storage::empty(device.clone()),
            _ => Storage::new(interop::import(device, buffer, offset, size, tag)?, (layout.len() * dtype.size()) as u64),
        };
        Ok(Tensor { storage: Arc::new(storage), layout, dtype, grad_slot: None })
    }

    /// The bytes from the first element to the last, rounded to whole words.
    pub(crate) fn part(&self, op: &'static str) -> Result<Part<'_>> {
        let (first, end) = (self.layout.offset(), self.layout.end());
        let memory = self.storage.memory().filter(|_| end > first && !self.is_empty());
        let memory = memory.ok_or_else(|| Error::argument(op, "a tensor without elements has no memory", "leave it out"))?;
        let size = self.dtype.size();
        let (first, end) = (first * size / 4 * 4, (end * size).next_multiple_of(4));
        Ok(Part { memory, offset: first as u64, size: (end - first) as u64 })
    }
}

async fn finish(lent: Result<(Lease, oneshot::Receiver<()>)>) -> Result<Export> {
    let (lease, submitted) = lent?;
    let device = lease.tensor.device().clone();
    submitted.await.map_err(|_| device.closed(&device.shared().lock()))?;
    lease.export()
}

/// A tensor that an application uses in submissions of its own; see [`Tensor::export`].
#[must_use = "a tensor is exported while this lives"]
pub struct Export {
    lease: Lease,
    window: Window,
}

impl Export {
    /// The buffer and the tensor's bytes in it.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.lease.tensor
    }

    /// The application has submitted all that uses the tensor, and lets go of it: what is enqueued from now on comes after that.
    /// Dropping the export means the same.
    pub fn submitted(self) {
        drop(self.lease);
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Export({:?} of {:?})", self.window, self.lease.tensor)
    }
}

/// Lent memory; dropping it gives it back.
struct Lease {
    tensor: Tensor,
    access: Access,
}

impl Lease {
    fn export(self) -> Result<Export> {
        let window = interop::window(&self.tensor.part("export")?)?;
        Ok(Export { lease: self, window })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(memory) = self.tensor.storage.memory() {
            interop::give_back(memory, self.access);
        }
    }
}
