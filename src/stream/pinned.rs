//! Pinned memory: host memory that a user holds, fills and passes on without waiting (PyTorch's `pin_memory`,
//! `non_blocking=True`).
//!
//! A [`PinnedUpload`] is filled by the host and copied from; a [`PinnedDownload`] is copied to and then read. Each is either
//! the host's, or *in flight*: from the call that enqueues a copy until that has been executed. In PyTorch, filling a buffer in
//! flight, and reading one too early, are races; here the first waits ([`PinnedUpload::query`] tells beforehand), and the second
//! cannot be written, because only the future of a copy gives the elements.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_channel::oneshot;

use crate::device::command::{Command, Op};
use crate::device::core::{ReadSlot, StagingBuffer};
use crate::device::pinned::{HeldChunk, ReadBytes};
use crate::device::staging::{Direction, Held};
use crate::device::{Device, Memory, WaitKind};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::ids::{Fence, Horizons};
use crate::stream::read::{self, Source};
use crate::stream::{Origin, current_id, enqueue};
use crate::timeline::{Access, AccessList};

impl Device {
    /// A buffer of `len` elements to fill and to copy to the device. The elements are whatever the memory held before.
    ///
    /// Buffers that are dropped are kept for the next of their size ([`Device::empty_cache`] gives them back); at most a
    /// sixteenth more than asked for is bought ([`Device::pinned_memory_stats`]).
    ///
    /// # Errors
    /// [`Error::Limit`] for more bytes than a buffer of the adapter can have, [`Error::Device`] where the driver refuses.
    pub fn pinned_upload<T: Element>(&self, len: usize) -> Result<PinnedUpload<T>> {
        let chunk = self.hold_chunk("pinned_upload", Direction::Upload, size_of_elements::<T>(len).max(SMALLEST))?;
        Ok(PinnedUpload { chunk, len, element: PhantomData })
    }

    /// A buffer of `len` elements to copy to from the device and to read; as [`Device::pinned_upload`].
    pub fn pinned_download<T: Element>(&self, len: usize) -> Result<PinnedDownload<T>> {
        let size = Source::staged(size_of_elements::<T>(len));
        let chunk = self.hold_chunk("pinned_download", Direction::Download, size)?;
        Ok(PinnedDownload { chunk, len, answer: None, bytes: None, elements: Vec::new() })
    }

    /// A pinned copy of `data`: [`Device::pinned_upload`] and [`PinnedUpload::copy_from_slice`]. PyTorch's `pin_memory`.
    #[track_caller]
    pub fn pin_memory<T: Element>(&self, data: &[T]) -> Result<PinnedUpload<T>> {
        let mut pinned = self.pinned_upload(data.len())?;
        pinned.copy_from_slice(data)?;
        Ok(pinned)
    }
}

/// Bytes of the smallest buffer: one of no bytes cannot be mapped.
const SMALLEST: u64 = 16;

fn size_of_elements<T: Element>(len: usize) -> u64 {
    (len as u64).saturating_mul(T::DTYPE.size() as u64)
}

/// Host memory to fill and to copy to the device, any number of times.
///
/// `tensor.copy_from_pinned_(&pinned)` and `Tensor::from_pinned` enqueue a copy and return. Until the copy has been executed
/// the buffer is in flight: it can be copied again, and dropped; filling it waits, as `synchronize` does.
pub struct PinnedUpload<T> {
    chunk: HeldChunk,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> PinnedUpload<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the elements.
    pub fn size(&self) -> u64 {
        size_of_elements::<T>(self.len)
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.chunk.device
    }

    /// True when no copy of it is in flight: then filling it does not wait.
    pub fn query(&self) -> bool {
        !self.chunk.is_in_flight()
    }

    /// Blocks until no copy of it is in flight.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        self.chunk.wait(WaitKind::Synchronize)
    }

    /// [`PinnedUpload::synchronize`] as a future. Dropping it takes nothing back.
    pub fn synchronize_async(&self) -> impl Future<Output = Result<()>> + Send + use<T> {
        self.chunk.wait_async()
    }

    /// Overwrites all elements. Waits while a copy is in flight, which [`SyncDebug`](crate::device::SyncDebug) can forbid.
    ///
    /// # Errors
    /// [`Error::Shape`] where `data` has another length.
    #[track_caller]
    pub fn copy_from_slice(&mut self, data: &[T]) -> Result<()> {
        if data.len() != self.len {
            return Err(Error::shape(
                "copy_from_slice",
                format!("{} elements do not fill a pinned buffer of {}", data.len(), self.len),
                "pass as many elements as the buffer has, or use write",
            ));
        }
        self.write(0, data)
    }

    /// Overwrites the elements from `start` on with `data`; the others stay. Waits as [`PinnedUpload::copy_from_slice`] does.
    ///
    /// # Errors
    /// [`Error::Argument`] where that is more than there are.
    #[track_caller]
    pub fn write(&mut self, start: usize, data: &[T]) -> Result<()> {
        if start.checked_add(data.len()).is_none_or(|end| end > self.len) {
            return Err(Error::argument(
                "write",
                format!("{} elements from {start} on reach beyond the {} of the pinned buffer", data.len(), self.len),
                "write fewer elements, or make a larger buffer",
            ));
        }
        let buffer = self.chunk.writable()?;
        if data.is_empty() {
            return Ok(());
        }
        // Ranges of mapped memory begin at a multiple of eight bytes.
        let offset = size_of_elements::<T>(start);
        let (first, skipped) = (offset & !7, (offset & 7) as usize);
        let mut view = buffer.get_mapped_range_mut(first..offset + size_of_elements::<T>(data.len())).map_err(unmappable)?;
        view.slice(skipped..).copy_from_slice(bytemuck::cast_slice(data));
        Ok(())
    }

    /// Overwrites all elements with `element(index)`, a few KiB at a time. Waits as [`PinnedUpload::copy_from_slice`] does.
    #[track_caller]
    pub fn fill_with(&mut self, mut element: impl FnMut(usize) -> T) -> Result<()> {
        const AT_ONCE: usize = 2048;
        let mut block = Vec::with_capacity(AT_ONCE.min(self.len));
        for start in (0..self.len).step_by(AT_ONCE) {
            block.clear();
            block.extend((start..self.len.min(start + AT_ONCE)).map(&mut element));
            self.write(start, &block)?;
        }
        Ok(())
    }
}

impl<T: Element> std::fmt::Debug for PinnedUpload<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedUpload({} x {} of {}, in flight: {})", self.len, T::DTYPE, self.device().name(), !self.query())
    }
}

/// Host memory that the device copies to, any number of times.
///
/// `tensor.copy_to_pinned(&mut pinned)` enqueues a copy and returns a [`PinnedRead`], which alone gives the elements, and only
/// when the copy has been executed.
pub struct PinnedDownload<T> {
    // What is kept here, rather than in the future or a view, is given back even where these are forgotten.
    answer: Option<oneshot::Receiver<Result<ReadSlot>>>,
    bytes: Option<ReadBytes>,
    /// The elements, where mapped memory is not aligned for them (in browsers).
    elements: Vec<T>,
    // After these: dropping it may close the device.
    chunk: HeldChunk,
    len: usize,
}

impl<T: Element> PinnedDownload<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the elements.
    pub fn size(&self) -> u64 {
        size_of_elements::<T>(self.len)
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.chunk.device
    }

    /// True when no copy to it is in flight: then the next copy does not wait. A copy whose future was dropped goes on.
    pub fn query(&self) -> bool {
        !self.chunk.is_in_flight()
    }

    fn elements(&mut self, slot: Result<ReadSlot>) -> Result<&[T]> {
        let bytes = self.bytes.insert(read::open(&self.chunk.device, slot)?).data();
        if let Ok(elements) = bytemuck::try_cast_slice(bytes) {
            return Ok(elements);
        }
        self.elements = bytemuck::pod_collect_to_vec(bytes);
        Ok(&self.elements)
    }
}

impl<T: Element> std::fmt::Debug for PinnedDownload<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedDownload({} x {} of {})", self.len, T::DTYPE, self.device().name())
    }
}

/// Elements on their way to a [`PinnedDownload`]: resolves when the copy has been executed. Dropping it is fine at any time.
pub struct PinnedRead<'a, T>(Option<&'a mut PinnedDownload<T>>);

impl<'a, T: Element> PinnedRead<'a, T> {
    /// Of a tensor without elements.
    pub(crate) fn nothing(pinned: &'a mut PinnedDownload<T>) -> PinnedRead<'a, T> {
        pinned.answer = None;
        PinnedRead(Some(pinned))
    }

    /// The elements, if they are there; never waits. After elements (or an error) there is nothing more to come.
    pub fn try_take(&mut self) -> Result<Option<&'a [T]>> {
        let Some(pinned) = self.0.take() else { return Ok(None) };
        let Some(answer) = pinned.answer.as_mut() else { return Ok(Some(&[])) };
        let Some(slot) = answer.try_recv().transpose() else {
            self.0 = Some(pinned);
            return Ok(None);
        };
        pinned.elements(slot.map_err(|_| closed(pinned.device())).and_then(|slot| slot)).map(Some)
    }

    /// Blocks until the elements are there.
    #[track_caller]
    pub fn wait(mut self) -> Result<&'a [T]> {
        let pinned = self.0.take().ok_or_else(read::taken)?;
        let Some(answer) = pinned.answer.take() else { return Ok(&[]) };
        let slot = pinned.device().block_on(answer, WaitKind::Read, Origin::line())?;
        pinned.elements(slot)
    }
}

impl<'a, T: Element> Future for PinnedRead<'a, T> {
    type Output = Result<&'a [T]>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(pinned) = self.0.take() else { return Poll::Ready(Err(read::taken())) };
        let Some(answer) = pinned.answer.as_mut() else { return Poll::Ready(Ok(&[])) };
        let Poll::Ready(slot) = Pin::new(answer).poll(context) else {
            self.0 = Some(pinned);
            return Poll::Pending;
        };
        pinned.answer = None;
        Poll::Ready(pinned.elements(slot.map_err(|_| closed(pinned.device())).and_then(|slot| slot)))
    }
}

fn closed(device: &Device) -> Error {
    device.closed(&device.shared().lock())
}

fn unmappable(error: impl std::fmt::Display) -> Error {
    Error::Device { fact: format!("pinned memory: {error}"), help: "open a new device".into() }
}

fn other_device(op: &'static str, device: &Device, chunk: &HeldChunk) -> Result<()> {
    if chunk.device.same(device) { Ok(()) } else { Err(device.mismatch(op, &chunk.device)) }
}

/// Enqueues a copy of all elements into `memory` at byte `offset`, on the current stream. Does not wait.
#[track_caller]
pub(crate) fn upload_from<T: Element>(
    device: &Device,
    memory: &Memory,
    offset: u64,
    pinned: &PinnedUpload<T>,
    label: &'static str,
) -> Result<()> {
    other_device(label, device, &pinned.chunk)?;
    let size = pinned.size();
    let mut accesses = AccessList::default();
    accesses.push(memory.block(), Access::Write);
    let mut core = device.shared().lock();
    core.alive()?;
    core.usable(label, &accesses)?;
    let stream = current_id(device);
    let fence = Fence { stream, number: core.timeline.enqueued(stream) + 1 };
    if !core.staging.use_held(pinned.chunk.id, fence) {
        return Err(device.closed(&core));
    }
    memory.written();
    let op = Op::Upload { chunk: pinned.chunk.id, chunk_offset: 0, dst: memory.place(), dst_offset: offset, size };
    enqueue(device, core, &accesses, Command { label, location: Origin::line(), op }, &[])
}

/// Enqueues a copy of `memory` from byte `offset` on, as many elements as the buffer has, on the current stream. Waits where an
/// earlier copy to the same buffer is still in flight.
#[track_caller]
pub(crate) fn read_into<'a, T: Element>(
    device: &Device,
    memory: &Memory,
    offset: u64,
    pinned: &'a mut PinnedDownload<T>,
    label: &'static str,
) -> Result<PinnedRead<'a, T>> {
    other_device(label, device, &pinned.chunk)?;
    (pinned.answer, pinned.bytes) = (None, None);
    pinned.chunk.writable()?;
    let source = Source::of(memory, offset, pinned.size());
    let mut core = device.shared().lock();
    core.alive()?;
    core.usable(label, &source.accesses)?;
    let stream = current_id(device);
    let fence = Fence { stream, number: core.timeline.enqueued(stream) + 1 };
    if !core.staging.use_held(pinned.chunk.id, fence) {
        return Err(device.closed(&core));
    }
    pinned.answer = Some(read::send(device, core, &source, (pinned.chunk.id, 0), label));
    Ok(PinnedRead(Some(pinned)))
}

impl HeldChunk {
    fn is_in_flight(&self) -> bool {
        matches!(self.device.shared().lock().staging.held(self.id), Held::InFlight)
    }

    /// A receiver that is told when the chunk is neither in flight nor being read; `None` where it is not. Flushes what it waits for.
    fn answer(&self) -> Option<oneshot::Receiver<()>> {
        let shared = self.device.shared();
        let mut core = shared.lock();
        if core.lost.is_some() || !matches!(core.staging.held(self.id), Held::InFlight | Held::Reading) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let uses = core.staging.wait(self.id, sender);
        core.want(&uses);
        shared.wake(core);
        Some(receiver)
    }

    #[track_caller]
    fn wait(&self, kind: WaitKind) -> Result<()> {
        if let Some(answer) = self.answer() {
            self.device.block_on(answer, kind, Origin::line())?;
        }
        self.device.shared().lock().alive()
    }

    fn wait_async(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let (device, answer) = (self.device.clone(), self.answer());
        async move {
            match answer {
                Some(answer) => answer.await.map_err(|_| closed(&device)),
                None => device.shared().lock().alive(),
            }
        }
    }

    /// The buffer, once nothing is in flight; another one where this could not be mapped any more.
    #[track_caller]
    fn writable(&mut self) -> Result<StagingBuffer> {
        loop {
            let held = {
                let core = self.device.shared().lock();
                core.alive()?;
                core.staging.held(self.id)
            };
            match held {
                Held::Ready(buffer) => return Ok(buffer),
                Held::InFlight => {
                    self.device.hidden_wait("filling a pinned buffer in flight", "synchronize_async", Origin::line())?;
                    self.wait(WaitKind::Pinned)?;
                }
                // Somebody is about to notice that nobody wants the elements of an earlier copy.
                Held::Reading => self.wait(WaitKind::Pinned)?,
                Held::Gone => *self = self.device.replace_chunk(self.id)?,
            }
        }
    }
}
