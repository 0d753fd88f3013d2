//! Streams: recordings that the host appends to and runs ahead of.
//!
//! Every operation is enqueued on the *current stream* of its thread (the default stream unless a guard of
//! [`Stream::enter`] is alive) and returns at once. Commands of one stream run in order; commands of different streams run
//! in any order, except that an operation always comes after the operations whose results it uses, after the readers of
//! what it overwrites, and after the earlier users of its memory: these order edges are added by themselves.
//!
//! There is one queue, so streams take turns on the device. They order work and let the host run ahead.

mod batch;
mod copies;
mod encode;
mod event;
pub mod interop;
mod mail;
pub(crate) mod multi;
mod open;
mod origin;
pub(crate) mod own;
mod pinned;
mod policy;
mod queue;
mod read;
mod stage;
mod timestamps;
mod wait;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

pub use event::Event;
pub(crate) use origin::Origin;
pub use pinned::{PinnedDownload, PinnedRead, PinnedUpload};
pub(crate) use pinned::{read_into, upload_from};
pub use read::ReadFuture;
pub(crate) use read::read;

use crate::device::command::{Command, MAX_PARAMS, Op, Windows};
use crate::device::core::{Core, MOST_RECORDED, StagingBuffer, may_wait};
use crate::device::entered::{self, Entered};
use crate::device::places::PlaceId;
use crate::device::staging::{Direction, LARGEST_CHUNK, Piece};
use crate::device::{Device, Memory, Shared, WaitKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ids::{Fence, FenceSet, StreamId};
use crate::kernel::grid::Work;
use crate::kernel::sharing::Textures;
use crate::kernel::{KernelId, Role, Sharing};
use crate::memory::{Category, Compacted, Tag};
use crate::timeline::{Access, AccessList};

/// A handle on a stream; cheap to clone. Work that was enqueued runs even when the last handle is gone.
#[derive(Clone)]
pub struct Stream(Arc<StreamHandle>);

struct StreamHandle {
    device: Device,
    id: StreamId,
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if self.id != StreamId::DEFAULT {
            self.device.shared().lock().timeline.drop_stream(self.id);
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Entered<Stream>> = RefCell::default();
}

/// Makes a stream the current one of its thread until dropped. Guards nest; the innermost one that is alive counts.
pub struct StreamGuard {
    depth: usize,
    /// A guard belongs to the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        // Dropping a stream's last handle takes locks: do it after the borrow ends.
        drop(entered::leave(&CURRENT, self.depth));
    }
}

impl Device {
    /// The stream that exists from the start.
    pub fn default_stream(&self) -> Stream {
        Stream(Arc::new(StreamHandle { device: self.clone(), id: StreamId::DEFAULT }))
    }

    /// A new stream.
    pub fn new_stream(&self) -> Stream {
        self.new_stream_with_priority(0)
    }

    /// A new stream whose work goes to the device before that of streams with a larger number, as far as it depends on no such
    /// work: 0 is the default stream's, -3 the most urgent; others are clamped. Urgent work does not interrupt what the device is
    /// at: it waits for the submissions in flight (about 100 ms each at most). PyTorch's numbers.
    pub fn new_stream_with_priority(&self, priority: i32) -> Stream {
        let (least, greatest) = self.stream_priority_range();
        let id = self.shared().lock().timeline.new_stream_with_priority(priority.clamp(greatest, least));
        Stream(Arc::new(StreamHandle { device: self.clone(), id }))
    }

    /// The least and the greatest priority of streams: (0, -3).
    pub fn stream_priority_range(&self) -> (i32, i32) {
        (0, -3)
    }

    /// The stream that this thread enqueues on.
    pub fn current_stream(&self) -> Stream {
        entered::innermost(&CURRENT, self.shared().id, Stream::clone).unwrap_or_else(|| self.default_stream())
    }

    /// Moves live tensors, `budget` bytes at most, so that whole segments become empty, and gives these back to the driver.
    ///
    /// Tensors keep their contents and stay usable: the copies are enqueued on the current stream, ordered after all earlier
    /// uses of what moves and before all later ones. The call does not wait; the driver has its memory back when the copies
    /// have run ([`Device::synchronize`]). Idle segments stay ([`Device::empty_cache`] is for these). Before a request fails
    /// for want of memory in one piece, blocks are moved without being asked to.
    ///
    /// Fails when the device is lost.
    #[track_caller]
    pub fn compact(&self, budget: u64) -> Result<Compacted> {
        self.compact_on(current_id(self), budget, Origin::line())
    }

    /// Waits until everything enqueued on any stream has been executed, and reports what went wrong meanwhile.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        self.wait_for_everything()?;
        read::check_status(self)
    }

    /// [`Device::synchronize`] for so long at most: false where work is left, which goes on. An index out of range is only
    /// reported by the next call that waits without a bound.
    #[track_caller]
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<bool> {
        wait::wait_at_most(self, self.everything(), timeout)
    }

    /// [`Device::synchronize`] as a future; what is waited for is what was enqueued when it was called.
    pub fn synchronize_async(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        wait::wait_async(self, self.everything())
    }

    fn everything(&self) -> FenceSet {
        self.shared().lock().timeline.everything()
    }
}

impl Stream {
    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Its number; 0 is the default stream.
    pub fn id(&self) -> u32 {
        self.0.id.0
    }

    /// Its priority; smaller numbers go first.
    pub fn priority(&self) -> i32 {
        self.device().shared().lock().timeline.priority(self.0.id)
    }

    /// Makes this the current stream of the thread until the guard is dropped.
    #[must_use = "the stream is current only while the guard lives"]
    pub fn enter(&self) -> StreamGuard {
        let depth = entered::enter(&CURRENT, self.device().shared().id, self.clone());
        StreamGuard { depth, _not_send: PhantomData }
    }

    /// Runs `work` with this as the current stream.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.enter();
        work()
    }

    /// An event at this point of the stream: everything enqueued on it so far, and what it waits for.
    pub fn record_event(&self) -> Event {
        Event::at(self.device().clone(), self.point())
    }

    /// Work enqueued on this stream from now on comes after the event. The host does not wait.
    ///
    /// The event may be one of another device, as in PyTorch. Then this stream's work, and what depends on it, stays here until
    /// that device has passed the event (or is lost); other streams go on.
    ///
    /// # Errors
    /// Where the event is another device's and one of the two is lost.
    #[track_caller]
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        let Some((device, point)) = event.point() else { return Ok(()) };
        if !device.same(self.device()) {
            return wait::hold(self, &device, point);
        }
        self.device().shared().lock().timeline.wait(self.0.id, &point);
        Ok(())
    }

    /// Work enqueued on this stream from now on comes after everything enqueued on `other` so far, which may be a stream of
    /// another device: see [`Stream::wait_event`].
    #[track_caller]
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        self.wait_event(&other.record_event())
    }

    /// True when everything enqueued so far has been executed; also on a lost device, where nothing more will be (the next
    /// call that synchronises says so).
    pub fn query(&self) -> bool {
        self.device().has_reached(&self.point())
    }

    /// Hands everything enqueued so far to the driver, without waiting for it. Happens by itself; this only hurries.
    pub fn flush(&self) {
        let shared = self.device().shared();
        let mut core = shared.lock();
        let point = core.timeline.record(self.0.id);
        core.want(&point);
        shared.wake(core);
    }

    /// Blocks until everything enqueued on this stream so far has been executed (other streams are not waited for), and
    /// reports what went wrong meanwhile.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        wait::wait(self.device(), self.point())
    }

    /// [`Stream::synchronize`] for so long at most: false where work is left, which goes on. An index out of range is only
    /// reported by the next call that waits without a bound.
    #[track_caller]
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<bool> {
        wait::wait_at_most(self.device(), self.point(), timeout)
    }

    /// [`Stream::synchronize`] as a future; the point waited for is where it was called.
    pub fn synchronize_async(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        wait::wait_async(self.device(), self.point())
    }

    fn point(&self) -> FenceSet {
        self.device().shared().lock().timeline.record(self.0.id)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.0.id == other.0.id && self.device().same(other.device())
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({} of {})", self.id(), self.device().name())
    }
}

/// The current stream's id, without counting handles.
fn current_id(device: &Device) -> StreamId {
    entered::innermost(&CURRENT, device.shared().id, |stream| stream.0.id).unwrap_or(StreamId::DEFAULT)
}

/// Memory for commands of the current stream.
#[track_caller]
pub(crate) fn allocate(device: &Device, size: u64, label: &'static str, category: Category) -> Result<Memory> {
    device.allocate(current_id(device), size, Tag { category, label, location: Origin::line() })
}

/// Windows of a buffer end at multiples of so many bytes: a `vec4` of words.
pub(crate) const BINDING_UNIT: u64 = 16;

/// An operand of a dispatch.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) memory: &'a Memory,
    /// Offset and size in bytes of what the kernel sees of it; all where there is none.
    pub(crate) window: Option<(u64, u64)>,
}

/// Enqueues one dispatch on the current stream. `operands` come in the order of the catalogue row's bindings; their roles
/// come from the row; a last binding named `status` is added here. `textures` are read from copies, made first.
/// `params` is the row's parameter struct as bytes.
#[track_caller]
pub(crate) fn launch(
    device: &Device,
    kernel: KernelId,
    dtype: DType,
    operands: &[Operand<'_>],
    textures: Textures,
    params: &[u8],
    work: Work,
) -> Result<()> {
    let (row, form) = (kernel.row(), kernel.form());
    let limits = device.limits();
    let windows = windows(row.name, operands, limits.max_storage_buffer_binding_size)?;
    let mut blocks: SmallVec<[PlaceId; 8]> = SmallVec::new();
    let mut accesses = AccessList::default();
    for (Operand { memory, .. }, binding) in operands.iter().zip(form.bindings) {
        blocks.push(memory.place());
        accesses.push(memory.block(), if binding.role == Role::In { Access::Read } else { Access::Write });
    }
    if params.len() > MAX_PARAMS {
        let fact = format!("more than {MAX_PARAMS} parameter bytes");
        return Err(Error::argument(row.name, fact, "report this as a fault of linn"));
    }
    let reports = form.bindings.last().is_some_and(|binding| binding.name == "status");
    if reports {
        blocks.push(PlaceId::STATUS);
    }
    let window = |i: usize| windows.as_ref().and_then(|windows| windows.get(i)).copied().unwrap_or_default();
    let sharing = match windows {
        None => Sharing::of(&blocks, textures),
        Some(_) => Sharing::of(&blocks.iter().enumerate().map(|(i, block)| (*block, window(i))).collect::<Vec<_>>(), textures),
    };
    let mut bound: SmallVec<[PlaceId; 6]> = SmallVec::new();
    sharing.bound().for_each(|i| bound.push(blocks[i]));
    expect_buffers(device, row.name, bound.len())?;
    let registry = queue::registry(device.shared()).ok_or_else(|| Error::DeviceLost { fact: "the device is closed".into() })?;
    let pipeline = registry.pipeline(device, kernel, dtype, sharing)?;
    let windows = windows.is_some().then(|| Box::new(sharing.bound().map(window).collect()));
    let op = Op::Dispatch { pipeline, places: bound, windows, params: params.len() as u16, grid: work.grid, work: work.amount };
    let mut core = device.shared().lock();
    core.usable(row.name, &accesses)?;
    core.reports.enqueued += u64::from(reports);
    for (operand, binding) in operands.iter().zip(form.bindings) {
        if binding.role != Role::In {
            operand.memory.written();
        }
    }
    enqueue(device, core, &accesses, Command { label: row.name, location: Origin::line(), op }, params)
}

/// Refuses more storage buffers than the adapter has.
fn expect_buffers(device: &Device, op: &'static str, bound: usize) -> Result<()> {
    let most = device.limits().max_storage_buffers;
    if bound <= most as usize {
        return Ok(());
    }
    let fact = format!("needs {bound} storage buffers, the adapter has {most}");
    Err(Error::Limit { op, fact, help: "use another adapter".into() })
}

/// What is bound of each operand, where not all of every one is; an error where that is more than `limit` bytes.
fn windows(op: &'static str, operands: &[Operand<'_>], limit: u64) -> Result<Option<Windows>> {
    if operands.iter().all(|operand| operand.window.is_none() && operand.memory.block_size() <= limit) {
        return Ok(None);
    }
    let window = |Operand { memory, window }: &Operand<'_>| {
        // Of a block that is longer than the tensor in it, the part that the tensor has.
        let size = if memory.block_size() <= limit { memory.block_size() } else { memory.size().next_multiple_of(BINDING_UNIT) };
        let (start, size) = window.unwrap_or((0, size));
        (size <= limit).then_some((start, size)).ok_or_else(|| Error::Limit {
            op,
            fact: format!(
                "a tensor of {} bytes is larger than the adapter lets a kernel see (max_storage_buffer_binding_size is {limit})",
                memory.size(),
            ),
            help: "split the tensor along its first dimension".into(),
        })
    };
    operands.iter().map(window).collect::<Result<_>>().map(Some)
}

/// Enqueues a copy of host bytes (a multiple of 4) into `memory` at byte `offset`, on the current stream. The bytes are
/// taken over at once; the call waits only where more is on its way than staging may hold.
#[track_caller]
pub(crate) fn upload(device: &Device, memory: &Memory, offset: u64, bytes: &[u8], label: &'static str) -> Result<()> {
    let (mut offset, mut rest) = (offset, bytes);
    let mut accesses = AccessList::default();
    accesses.push(memory.block(), Access::Write);
    device.shared().lock().usable(label, &accesses)?;
    while !rest.is_empty() {
        let (core, piece) = reserve(device, Direction::Upload, (rest.len() as u64).min(LARGEST_CHUNK))?;
        let size = piece.size;
        let (bytes, later) = rest.split_at(size as usize);
        rest = later;
        // Small pieces share a chunk that a submission may seal, so they are copied under the lock; a large one has a chunk
        // of its own, which nothing seals before its command is enqueued.
        let large = size > crate::device::staging::SHARED_UPLOAD;
        let core = if large {
            drop(core);
            None
        } else {
            Some(core)
        };
        match piece.buffer.get_mapped_range_mut(piece.offset..piece.offset + size) {
            Ok(mut mapped) => mapped.copy_from_slice(bytes),
            Err(error) => {
                drop(core);
                return Err(device.unmapped(label, &error.to_string()));
            }
        }
        let core = core.unwrap_or_else(|| device.shared().lock());
        memory.written();
        let op = Op::Upload { chunk: piece.chunk, chunk_offset: piece.offset, dst: memory.place(), dst_offset: offset, size };
        enqueue(device, core, &accesses, Command { label, location: Origin::line(), op }, &[])?;
        offset += size;
    }
    Ok(())
}

/// The core, and a piece of staging memory in it.
type Reserved<'a> = (std::sync::MutexGuard<'a, Core>, Piece<StagingBuffer>);

/// A piece of staging memory; buys a chunk, or waits for one, where none is ready. Returns with the lock held. The piece of
/// an upload can be shorter than asked for.
#[track_caller]
fn reserve(device: &Device, direction: Direction, size: u64) -> Result<Reserved<'_>> {
    let shared = device.shared();
    let mut core = shared.lock();
    loop {
        core.alive()?;
        if let Some(piece) = core.staging.piece(direction, size) {
            return Ok((core, piece));
        }
        match core.staging.purchase(direction, size) {
            Some(chunk) => {
                drop(core);
                let buffer = shared.buy_staging(direction, chunk)?;
                core = shared.lock();
                core.staging.add(direction, chunk, buffer);
            }
            None => match core.staging.any_piece(direction, size) {
                Some(piece) => return Ok((core, piece)),
                None => core = wait_for_room(shared, core)?,
            },
        }
    }
}

/// Appends a command to the current stream and wakes the queue; waits where far too much is recorded.
#[track_caller]
fn enqueue(
    device: &Device,
    core: std::sync::MutexGuard<'_, Core>,
    accesses: &AccessList,
    command: Command,
    params: &[u8],
) -> Result<()> {
    enqueue_on(device, core, current_id(device), accesses, command, params).map(|_| ())
}

/// [`enqueue`] on any stream; the command's fence.
#[track_caller]
fn enqueue_on(
    device: &Device,
    mut core: std::sync::MutexGuard<'_, Core>,
    stream: StreamId,
    accesses: &AccessList,
    command: Command,
    params: &[u8],
) -> Result<Fence> {
    core.alive()?;
    core.enqueue(stream, accesses, command, params);
    let fence = core.timeline.last(stream);
    submit_some(device, core, stream)?;
    Ok(fence)
}

/// Commands were enqueued on a stream: wakes the queue; waits where far too much is recorded.
#[track_caller]
fn submit_some(device: &Device, core: std::sync::MutexGuard<'_, Core>, stream: StreamId) -> Result<()> {
    // (At the bound, not above it: a recording's memory grows by doubling. In browsers it may: nobody can wait there.)
    let flooded = cfg!(not(target_arch = "wasm32")) && core.is_flooded(stream, MOST_RECORDED);
    let shared = device.shared();
    if core.naps && core.is_light() {
        // It looks by itself soon.
        drop(core);
    } else {
        shared.wake(core);
    }
    if flooded {
        let mut core = shared.lock();
        while core.is_flooded(stream, MOST_RECORDED / 2) && core.lost.is_none() && !core.stop {
            core = wait_for_room(shared, core)?;
        }
    }
    Ok(())
}

/// Lets the queue work for a while. Only the thread that floods waits.
#[track_caller]
fn wait_for_room<'a>(shared: &'a Shared, mut core: std::sync::MutexGuard<'a, Core>) -> Result<std::sync::MutexGuard<'a, Core>> {
    if cfg!(target_arch = "wasm32") {
        let help = "await a read or synchronize_async between large uploads";
        return Err(Error::Device { fact: "too much is enqueued and a browser's thread cannot wait".into(), help: help.into() });
    }
    may_wait()?;
    let start = web_time::Instant::now();
    core.look = true;
    core = shared.signals.wait(core);
    core.counters.back_pressure_waits += 1;
    let waited = start.elapsed();
    core.counters.back_pressure_nanos += waited.as_nanos() as u64;
    core.waits.add(WaitKind::Room, Origin::line(), waited);
    Ok(core)
}
