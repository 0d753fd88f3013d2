//! Reading device memory: a copy into staging, enqueued at the call; the bytes come when it has been executed.

use std::pin::Pin;
use std::sync::MutexGuard;
use std::task::{Context, Poll};

use futures_channel::oneshot;
use smallvec::SmallVec;

use crate::device::command::{ChunkId, Command, Op};
use crate::device::core::{Core, PendingRead, ReadSlot, Reports};
use crate::device::pinned::ReadBytes;
use crate::device::places::PlaceId;
use crate::device::staging::Direction;
use crate::device::{Device, Memory, WaitKind};
use crate::error::{Error, Result};
use crate::kernel::checks::Subject;
use crate::kernel::labels;
use crate::stream::Origin;
use crate::stream::batch::STATUS_ALIGNMENT;
use crate::stream::encode::STATUS_SIZE;
use crate::timeline::{Access, AccessList};

/// Bytes on their way to the host: resolves when the copy has been executed. The point of the stream that is read is the
/// one where the read was called. Dropping it is fine at any time.
pub struct ReadFuture {
    device: Device,
    /// Until it has come.
    answer: Option<oneshot::Receiver<Result<ReadSlot>>>,
}

impl ReadFuture {
    /// The bytes, if they are there; never waits. After bytes (or an error) were returned there is nothing more to come.
    pub fn try_take(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(slot) = self.answer.as_mut().and_then(|answer| answer.try_recv().transpose()) else { return Ok(None) };
        self.answer = None;
        self.bytes(slot).map(Some)
    }

    /// Blocks until the bytes are there.
    #[track_caller]
    pub fn wait(self) -> Result<Vec<u8>> {
        let answer = self.answer.ok_or_else(taken)?;
        let slot = self.device.block_on(answer, WaitKind::Read, Origin::line())?;
        bytes(&self.device, slot)
    }

    fn bytes(&self, slot: Result<Result<ReadSlot>, oneshot::Canceled>) -> Result<Vec<u8>> {
        let gone = |_| self.device.closed(&self.device.shared().lock());
        bytes(&self.device, slot.map_err(gone).and_then(|slot| slot))
    }
}

impl Future for ReadFuture {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(answer) = self.answer.as_mut() else { return Poll::Ready(Err(taken())) };
        let Poll::Ready(slot) = Pin::new(answer).poll(context) else { return Poll::Pending };
        self.answer = None;
        Poll::Ready(self.bytes(slot))
    }
}

/// A read is asked for its bytes again.
pub(super) fn taken() -> Error {
    Error::argument("read", "what was read has been taken already", "keep what the read returned, or read again")
}

fn bytes(device: &Device, slot: Result<ReadSlot>) -> Result<Vec<u8>> {
    Ok(open(device, slot)?.data().to_vec())
}

/// What has arrived, once errors of what was enqueued before it are told.
pub(super) fn open(device: &Device, slot: Result<ReadSlot>) -> Result<ReadBytes> {
    let bytes = ReadBytes::new(slot?, STATUS_SIZE)?;
    if let Some((words, covers)) = bytes.status() {
        report_status(device, words, covers);
    }
    take_error(device)?;
    Ok(bytes)
}

/// Enqueues a read of `size` bytes of `memory` from `offset` on the current stream.
#[track_caller]
pub(crate) fn read(device: &Device, memory: &Memory, offset: u64, size: u64, label: &'static str) -> Result<ReadFuture> {
    enqueue_read(device, &Source::of(memory, offset, size), label)
}

/// What is read.
pub(super) struct Source {
    place: PlaceId,
    pub(super) accesses: AccessList,
    offset: u64,
    size: u64,
}

impl Source {
    /// `size` bytes of `memory` from `offset`.
    pub(super) fn of(memory: &Memory, offset: u64, size: u64) -> Source {
        let mut accesses = AccessList::default();
        accesses.push(memory.block(), Access::Read);
        Source { place: memory.place(), accesses, offset, size }
    }

    /// The status words, which every read brings along.
    fn status() -> Source {
        Source { place: PlaceId::STATUS, accesses: AccessList::default(), offset: 0, size: 0 }
    }

    /// Bytes that it takes of a chunk.
    pub(super) fn staged(size: u64) -> u64 {
        size.next_multiple_of(STATUS_ALIGNMENT) + STATUS_SIZE
    }
}

#[track_caller]
fn enqueue_read(device: &Device, source: &Source, label: &'static str) -> Result<ReadFuture> {
    {
        let mut core = device.shared().lock();
        core.usable(label, &source.accesses)?;
        let commands = core.timeline.stats().commands;
        core.staging.start_download(commands);
    }
    let (core, piece) = super::reserve(device, Direction::Download, Source::staged(source.size))?;
    let answer = send(device, core, source, (piece.chunk, piece.offset), label);
    Ok(ReadFuture { device: device.clone(), answer: Some(answer) })
}

/// Enqueues the copy to a place of a chunk on the current stream.
#[track_caller]
pub(super) fn send(
    device: &Device,
    mut core: MutexGuard<'_, Core>,
    source: &Source,
    (chunk, chunk_offset): (ChunkId, u64),
    label: &'static str,
) -> oneshot::Receiver<Result<ReadSlot>> {
    let Source { place: src, offset: src_offset, size, .. } = *source;
    let (sender, answer) = oneshot::channel();
    core.reads.push(PendingRead { chunk, offset: chunk_offset, size, status: None, answer: sender });
    let op = Op::Download { src, src_offset, chunk, chunk_offset, size };
    let stream = super::current_id(device);
    core.enqueue(stream, &source.accesses, Command { label, location: Origin::line(), op }, &[]);
    let fence = core.timeline.last(stream);
    core.want(&[fence].into_iter().collect());
    device.shared().wake(core);
    answer
}

/// After a wait: reads the status words where an index kernel may have written them, and returns any late error.
#[track_caller]
pub(super) fn check_status(device: &Device) -> Result<()> {
    if has_reports(device) {
        let answer = enqueue_read(device, &Source::status(), "status")?.answer.ok_or_else(taken)?;
        bytes(device, device.block_on(answer, WaitKind::Synchronize, Origin::line())?)?;
    }
    take_error(device)
}

/// [`check_status`] as a future.
pub(super) async fn check_status_async(device: &Device) -> Result<()> {
    if has_reports(device) {
        enqueue_read(device, &Source::status(), "status")?.await?;
    }
    take_error(device)
}

/// True where commands may have written status words that nobody has read.
fn has_reports(device: &Device) -> bool {
    let Reports { enqueued, read, .. } = device.shared().lock().reports;
    enqueued > read
}

/// The first error of enqueued work that nobody has been told yet.
pub(super) fn take_error(device: &Device) -> Result<()> {
    let mut core = device.shared().lock();
    core.alive()?;
    core.late_error.take().map_or(Ok(()), Err)
}

/// Words: (number of the operation or of what was checked, or 0; position; the index or element there; what the index may be less
/// than), after `covers` commands that may have written them.
fn report_status(device: &Device, status: &[u8], covers: u64) {
    let words: SmallVec<[u32; 4]> = bytemuck::pod_collect_to_vec::<u8, u32>(status).into_iter().collect();
    let [code, position, value, len] = words[..] else { return };
    let mut core = device.shared().lock();
    core.reports.read = core.reports.read.max(covers);
    if code == 0 {
        return;
    }
    let checked = Subject::of_label(code);
    let out_of_range = || out_of_range(code, position, value as i32, len);
    core.clear_status = true;
    core.counters.failures += 1;
    core.late_error.get_or_insert_with(|| {
        checked.map_or_else(out_of_range, |(subject, layer)| subject.error(layer.as_deref(), position, f32::from_bits(value)))
    });
}

/// An index that the operation with this number met.
fn out_of_range(label: u32, position: u32, index: i32, len: u32) -> Error {
    let (op, layer) = labels::name(label).unwrap_or(("an index operation", None));
    let layer = layer.map_or(String::new(), |layer| format!("{}{layer}: ", Error::IN_LAYER));
    let (index_of, entries, cure) = match op {
        "cross_entropy" | "cross_entropy_backward" | "nll_loss" => (
            "target",
            "classes",
            "check the labels, or make the last layer as wide as there are classes; a label that is not to count is the ignore_index",
        ),
        "embedding" | "embedding_backward" => (
            "index",
            "entries",
            "check the ids (those of another vocabulary?), or make the table larger; entry 0 was read instead",
        ),
        _ => ("index", "entries", "the operation read entry 0 instead"),
    };
    Error::Device {
        fact: format!("{op}: {layer}{index_of} {index} at position {position} is out of range for {len} {entries}"),
        help: format!(
            "{} must be from 0 to {}; {cure}",
            if index_of == "target" { "targets" } else { "indices" },
            len.saturating_sub(1)
        ),
    }
}
