//! Reading device memory: a copy into staging, enqueued at the call; the bytes come when it has been executed.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_channel::oneshot;
use smallvec::SmallVec;

use crate::device::command::{Command, Op};
use crate::device::core::{PendingRead, ReadSlot};
use crate::device::places::PlaceId;
use crate::device::staging::Direction;
use crate::device::{Device, Memory, WaitKind};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::stream::Origin;
use crate::stream::batch::STATUS_ALIGNMENT;
use crate::stream::encode::STATUS_SIZE;
use crate::timeline::{Access, AccessList};

/// Bytes on their way to the host: resolves when the copy has been executed. The point of the stream that is read is the
/// one where the read was called. Dropping it is fine at any time.
pub struct ReadFuture {
    device: Device,
    answer: oneshot::Receiver<Result<ReadSlot>>,
}

impl ReadFuture {
    /// The bytes, if they are there; never waits. After bytes (or an error) were returned there is nothing more to come.
    pub fn try_take(&mut self) -> Result<Option<Vec<u8>>> {
        match self.answer.try_recv() {
            Ok(None) => Ok(None),
            Ok(Some(slot)) => self.bytes(slot).map(Some),
            Err(_) => Err(self.device.closed(&self.device.shared().lock())),
        }
    }

    /// Blocks until the bytes are there.
    #[track_caller]
    pub fn wait(self) -> Result<Vec<u8>> {
        let ReadFuture { device, answer } = self;
        let slot = device.block_on(answer, WaitKind::Read, Origin::line())?;
        bytes(&device, slot)
    }

    fn bytes(&self, slot: Result<ReadSlot>) -> Result<Vec<u8>> {
        bytes(&self.device, slot)
    }
}

impl Future for ReadFuture {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.answer).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(slot)) => Poll::Ready(self.bytes(slot)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(self.device.closed(&self.device.shared().lock()))),
        }
    }
}

fn bytes(device: &Device, slot: Result<ReadSlot>) -> Result<Vec<u8>> {
    let slot = slot?;
    let view = |range: std::ops::Range<u64>| {
        slot.chunk.buffer.get_mapped_range(range).map(|view| view.to_vec()).map_err(|error| Error::Device {
            fact: format!("a read could not be mapped: {error}"),
            help: "read again, or open a new device".into(),
        })
    };
    let status = view(slot.status_offset..slot.status_offset + STATUS_SIZE)?;
    let data = if slot.size == 0 { Vec::new() } else { view(slot.offset..slot.offset + slot.size)? };
    drop(slot);
    report_status(device, &status);
    take_error(device)?;
    Ok(data)
}

/// Enqueues a read of `size` bytes of `memory` from `offset` on the current stream.
#[track_caller]
pub(crate) fn read(device: &Device, memory: &Memory, offset: u64, size: u64, label: &'static str) -> Result<ReadFuture> {
    let mut accesses = AccessList::default();
    accesses.push(memory.block(), Access::Read);
    enqueue_read(device, memory.place(), &accesses, offset, size, label)
}

#[track_caller]
fn enqueue_read(
    device: &Device,
    src: PlaceId,
    accesses: &AccessList,
    src_offset: u64,
    size: u64,
    label: &'static str,
) -> Result<ReadFuture> {
    let status_offset = size.next_multiple_of(STATUS_ALIGNMENT);
    {
        let mut core = device.shared().lock();
        let commands = core.timeline.stats().commands;
        core.staging.start_download(commands);
    }
    let (mut core, piece) = super::reserve(device, Direction::Download, status_offset + STATUS_SIZE)?;
    let (sender, answer) = oneshot::channel();
    core.reads.push(PendingRead {
        chunk: piece.chunk,
        offset: piece.offset,
        size,
        status_offset: piece.offset + status_offset,
        answer: sender,
    });
    let op = Op::Download { src, src_offset, chunk: piece.chunk, chunk_offset: piece.offset, size };
    let stream = super::current_id(device);
    core.enqueue(stream, accesses, Command { label, location: Origin::line(), op });
    let fence = core.timeline.last(stream);
    core.want(&[fence].into_iter().collect());
    device.shared().wake(core);
    Ok(ReadFuture { device: device.clone(), answer })
}

/// After a wait: reads the status words where an index kernel may have written them, and returns any late error.
#[track_caller]
pub(super) fn check_status(device: &Device) -> Result<()> {
    if device.shared().lock().status_used {
        let ReadFuture { answer, .. } = enqueue_read(device, PlaceId::STATUS, &AccessList::default(), 0, 0, "status")?;
        bytes(device, device.block_on(answer, WaitKind::Synchronize, Origin::line())?)?;
        device.shared().lock().status_used = false;
    }
    take_error(device)
}

/// [`check_status`] as a future.
pub(super) async fn check_status_async(device: &Device) -> Result<()> {
    if device.shared().lock().status_used {
        let read = enqueue_read(device, PlaceId::STATUS, &AccessList::default(), 0, 0, "status")?;
        read.await?;
        device.shared().lock().status_used = false;
    }
    take_error(device)
}

/// The first error of enqueued work that nobody has been told yet.
pub(super) fn take_error(device: &Device) -> Result<()> {
    let mut core = device.shared().lock();
    core.alive()?;
    core.late_error.take().map_or(Ok(()), Err)
}

/// Words: (kernel + 1 or 0, position of the index, the index, what it may be less than).
fn report_status(device: &Device, status: &[u8]) {
    let words: SmallVec<[u32; 4]> = bytemuck::pod_collect_to_vec::<u8, u32>(status).into_iter().collect();
    let [code, position, index, len] = words[..] else { return };
    if code == 0 {
        return;
    }
    let op = Kernel::ALL.get(code as usize - 1).map_or("an index operation", |kernel| kernel.row().name);
    let mut core = device.shared().lock();
    core.clear_status = true;
    core.counters.failures += 1;
    core.late_error.get_or_insert(Error::Device {
        fact: format!("{op}: index {} at position {position} is out of range for {len} entries", index as i32),
        help: format!("indices must be from 0 to {}; the operation read entry 0 instead", len.saturating_sub(1)),
    });
}
