//! What the core lock protects: the pure state machines, the recordings, and the mail between threads.
//!
//! The lock is held for look-ups and appends only, never while wgpu may wait or call back.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;

use futures_channel::oneshot;

use crate::device::command::{ChunkId, Command, Op, Recording};
use crate::device::history::StackTable;
use crate::device::observers::{MemoryUse, Observers, Shortage};
use crate::device::places::Places;
use crate::device::signals::Sleeps;
use crate::device::staging::Staging;
use crate::device::waiter::{self, Waiter};
use crate::device::waits::Waits;
use crate::device::wishes::Wishes;
use crate::error::{Error, Result};
use crate::ids::{BlockId, FenceSet, Ordinal, SegmentId, StreamId};
use crate::memory::{Place, Pool};
use crate::timeline::{Access, AccessList, OrderEdges, Timeline};

/// Commands recorded and not yet encoded at which whoever floods waits for the queue (back-pressure).
pub(crate) const MOST_RECORDED: u64 = 16 << 10;
/// A stream with so many of them, a submission's worth, has its part in a flood.
const FLOODS: u64 = 1 << 10;

/// The buffer of a staging chunk.
pub(crate) type StagingBuffer = Arc<wgpu::Buffer>;

/// Bytes, and commands, of uploads alone that are worth a submission.
const LIGHT_BYTES: u64 = 1 << 20;
const LIGHT_COMMANDS: u64 = 512;

/// The state of a device.
pub(crate) struct Core {
    pub(crate) timeline: Timeline,
    pub(crate) pool: Pool,
    pub(crate) places: Places,
    /// Commands not yet encoded, by stream.
    pub(crate) recordings: Vec<Recording>,
    /// Buffers of the pool's segments.
    pub(crate) segments: Vec<Option<wgpu::Buffer>>,
    /// Segments whose buffers the queue has to forget, oldest first, and the buffers.
    pub(crate) released: Vec<(SegmentId, wgpu::Buffer)>,
    /// Segments ever released, and those of them whose buffers the queue has dropped.
    pub(crate) released_ever: u64,
    pub(crate) forgotten: u64,
    /// Segments bought since the queue looked last.
    pub(crate) bought: Vec<(SegmentId, wgpu::Buffer)>,
    pub(crate) staging: Staging<StagingBuffer, oneshot::Sender<()>>,
    /// Reads by chunk: who wants which bytes.
    pub(crate) reads: Vec<PendingRead>,
    /// Commands that somebody waits for.
    pub(crate) wanted: Wishes,
    pub(crate) waiters: Vec<(FenceSet, Waiter)>,
    /// Who waits until commands have been handed to the driver.
    pub(crate) submit_waiters: Vec<(FenceSet, oneshot::Sender<()>)>,
    /// Memory that the application uses in submissions of its own, and what it does there.
    pub(crate) exports: Vec<(BlockId, Access)>,
    /// Bytes that an application has written: copies of them are out of date.
    pub(crate) rewritten: Vec<(SegmentId, u64, u64)>,
    /// Live memory that an application has bought.
    pub(crate) imports: Vec<(BlockId, Place)>,
    /// On an application's device: somebody asks how far the device is; a callback has left something for the queue.
    pub(crate) look: bool,
    pub(crate) mail: bool,
    /// Buffers that another thread asks the queue to create (GL only).
    pub(crate) orders: Vec<BufferOrder>,
    /// The first error of enqueued work that nobody has been told yet.
    pub(crate) late_error: Option<Error>,
    pub(crate) lost: Option<String>,
    pub(crate) reports: Reports,
    pub(crate) clear_status: bool,
    /// The queue is to drop the textures that hold copies.
    pub(crate) drop_copies: bool,
    pub(crate) stop: bool,
    /// The thread that the queue runs on, while it runs.
    pub(crate) queue_thread: Option<std::thread::ThreadId>,
    /// The queue thread sleeps until it is woken.
    pub(crate) queue_sleeps: bool,
    /// It sleeps for a moment only, because small uploads are recorded.
    pub(crate) naps: bool,
    /// Recorded commands that are no uploads, and the bytes of those that are.
    pub(crate) recorded: (u64, u64),
    pub(crate) counters: Counters,
    pub(crate) waits: Waits,
    pub(crate) stacks: StackTable,
    pub(crate) observers: Observers,
    /// The latest order edges, while somebody records them.
    pub(crate) edges: Option<OrderEdges>,
}

/// A read on its way: the bytes of a download chunk that somebody waits for.
pub(crate) struct PendingRead {
    pub(crate) chunk: ChunkId,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) status: Option<StatusCopy>,
    pub(crate) answer: oneshot::Sender<Result<ReadSlot>>,
}

/// Bytes that have arrived.
pub(crate) struct ReadSlot {
    pub(crate) chunk: Arc<crate::device::ReadChunk>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) status: Option<StatusCopy>,
}

/// Status words that a read brings along.
#[derive(Clone, Copy)]
pub(crate) struct StatusCopy {
    /// Where they lie in its chunk.
    pub(crate) offset: u64,
    /// How many commands had been handed to the driver before that could have written them.
    pub(crate) covers: u64,
}

/// Commands that report to the status words (index kernels), counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reports {
    pub(crate) enqueued: u64,
    /// Those handed to the driver.
    pub(crate) encoded: u64,
    /// Those of which is known what they had to say.
    pub(crate) read: u64,
}

/// A buffer to create on the queue thread.
pub(crate) struct BufferOrder {
    pub(crate) size: u64,
    pub(crate) kind: crate::device::driver::BufferKind,
    pub(crate) answer: oneshot::Sender<Result<wgpu::Buffer, String>>,
}

/// Counters of a device beside those of the pool and the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times the host blocked until the device had done something.
    pub host_syncs: u64,
    /// Nanoseconds the host was blocked by these.
    pub host_sync_nanos: u64,
    /// Times an enqueueing thread waited because too much was recorded or in staging.
    pub back_pressure_waits: u64,
    /// Nanoseconds of these.
    pub back_pressure_nanos: u64,
    /// Dispatches submitted.
    pub dispatches: u64,
    /// Dispatches whose bind group was in the cache.
    pub bind_group_hits: u64,
    /// Dispatches that had to make one.
    pub bind_group_misses: u64,
    /// Bind groups in the cache.
    pub bind_groups: u64,
    /// Bytes of textures that kernels of some CPU drivers read copies of their operands from.
    pub staging_texture_bytes: u64,
    /// Pipelines compiled.
    pub pipelines: u64,
    /// Those that are kept: all of linn's own kernels, and a program's until it drops them.
    pub live_pipelines: u64,
    /// Query sets that hold the times of events with timing, in use or to be used again.
    pub timestamp_sets: u64,
    /// Times enqueued work failed: whatever was computed since the first may be wrong. Never less than before.
    pub failures: u64,
}

thread_local! {
    static QUEUE: Cell<bool> = const { Cell::new(false) };
}

/// This thread is the queue of some device from now on.
pub(crate) fn become_queue_thread() {
    QUEUE.set(true);
}

/// True on the queue threads of all devices, which wait for no device.
pub(crate) fn on_a_queue_thread() -> bool {
    QUEUE.get()
}

/// Refuses to wait on such a thread: it would wait for itself, or two for each other.
pub(crate) fn may_wait() -> Result<()> {
    if !on_a_queue_thread() {
        return Ok(());
    }
    let fact = "this is a device's own thread, which others wait for (in a closure of with_encoder, or a waker)";
    Err(Error::argument("wait", fact, "wait on another thread"))
}

impl Sleeps for Core {
    fn sleeps(&mut self) -> &mut bool {
        &mut self.queue_sleeps
    }
}

impl Core {
    pub(crate) fn new(pool: Pool) -> Core {
        Core {
            timeline: Timeline::new(),
            pool,
            places: Places::default(),
            recordings: Vec::new(),
            segments: Vec::new(),
            released: Vec::new(),
            released_ever: 0,
            forgotten: 0,
            bought: Vec::new(),
            staging: Staging::default(),
            reads: Vec::new(),
            wanted: Wishes::default(),
            waiters: Vec::new(),
            submit_waiters: Vec::new(),
            exports: Vec::new(),
            rewritten: Vec::new(),
            imports: Vec::new(),
            look: false,
            mail: false,
            orders: Vec::new(),
            late_error: None,
            lost: None,
            reports: Reports::default(),
            clear_status: false,
            drop_copies: false,
            stop: false,
            queue_thread: None,
            queue_sleeps: false,
            naps: false,
            recorded: (0, 0),
            counters: Counters::default(),
            waits: Waits::default(),
            stacks: StackTable::default(),
            observers: Observers::default(),
            edges: None,
        }
    }

    /// Appends a command to `stream`, and a dispatch's parameters: the only way into a recording.
    pub(crate) fn enqueue(&mut self, stream: StreamId, accesses: &AccessList, command: Command, params: &[u8]) -> Ordinal {
        for place in command.op.places() {
            self.places.retain(*place);
        }
        let index = stream.0 as usize;
        if self.recordings.len() <= index {
            self.recordings.resize_with(index + 1, Recording::default);
        }
        match command.op {
            Op::Upload { size, .. } => self.recorded.1 += size,
            _ => self.recorded.0 += 1,
        }
        self.recordings[index].push(command, params);
        let ordinal = self.timeline.enqueue(stream, accesses.iter());
        if self.edges.is_some() {
            self.note_edges(stream);
        }
        ordinal
    }

    /// Enqueues what the pool wants moved; called after the pool was asked, under the same lock. A move writes the block: it
    /// comes after all earlier uses of it and before all later ones. `location` asked for it. True when there were moves.
    pub(crate) fn enqueue_moves(&mut self, location: &'static Location<'static>) -> bool {
        let mut any = false;
        while let Some(step) = self.pool.poll_move() {
            let Some(place) = self.places.of(step.block) else { continue };
            let stream = step.fence.stream;
            self.timeline.reuse(stream, &step.after);
            // What a recorded stream does with the old place is not among the block's known uses.
            let foreign = self.timeline.foreign_uses(step.block);
            self.timeline.reuse(stream, &foreign);
            let mut accesses = AccessList::default();
            accesses.push(step.block, Access::Write);
            let op = Op::Move { place, to: step.to };
            self.enqueue(stream, &accesses, Command { label: "compact", location, op }, &[]);
            debug_assert_eq!(self.timeline.last(stream), step.fence, "the pool names the fence of a move in advance");
            any = true;
        }
        any
    }

    /// Somebody waits for these commands: they go to the driver before anything that nobody waits for.
    pub(crate) fn want(&mut self, fences: &FenceSet) {
        self.wanted.add(fences);
    }

    /// The queue takes the next command of `stream`, whose parameters are appended to `params`.
    pub(crate) fn take_recorded(&mut self, stream: StreamId, params: &mut Vec<u8>) -> Option<Command> {
        let command = self.recordings.get_mut(stream.0 as usize)?.pop(params)?;
        match command.op {
            Op::Upload { size, .. } => self.recorded.1 -= size,
            _ => self.recorded.0 -= 1,
        }
        Some(command)
    }

    /// At least `most` commands are recorded, and `stream` has its part in that: who enqueues on another is not held up.
    pub(crate) fn is_flooded(&self, stream: StreamId, most: u64) -> bool {
        self.timeline.is_flooded(stream, most, FLOODS)
    }

    /// Nothing but small uploads is recorded: nobody can see them before another command or a call that waits.
    pub(crate) fn is_light(&self) -> bool {
        let (others, bytes) = self.recorded;
        others == 0 && bytes < LIGHT_BYTES && self.timeline.backlog() < LIGHT_COMMANDS
    }

    /// Refuses work on a lost device.
    pub(crate) fn alive(&self) -> Result<()> {
        match &self.lost {
            None => Ok(()),
            Some(fact) => Err(Error::DeviceLost { fact: fact.clone() }),
        }
    }

    /// Refuses uses of memory that an application has been lent: the order of the two would be anybody's guess.
    pub(crate) fn usable(&self, op: &'static str, accesses: &AccessList) -> Result<()> {
        if self.exports.is_empty() {
            return Ok(());
        }
        let clashes = |(block, access): (BlockId, Access)| {
            let exported =
                |(known, theirs): &(BlockId, Access)| *known == block && (access == Access::Write || *theirs == Access::Write);
            self.exports.iter().any(exported)
        };
        if accesses.iter().any(clashes) {
            return Err(Error::argument(
                op,
                "a tensor is exported: an application may be using its memory at the same time",
                "call Export::submitted when the application's work has been submitted, or use Stream::with_encoder",
            ));
        }
        Ok(())
    }

    /// True on the thread that encodes and submits.
    pub(crate) fn is_queue_thread(&self) -> bool {
        self.queue_thread == Some(std::thread::current().id())
    }

    /// Takes away everybody who waits for an answer. To be called without the lock, what is returned tells them that none will come.
    pub(crate) fn orphans(&mut self) -> impl FnOnce() + use<> {
        let (waiters, submit_waiters) = (std::mem::take(&mut self.waiters), std::mem::take(&mut self.submit_waiters));
        let (reads, orders) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.orders));
        let pinned = self.staging.take_waiters();
        || {
            waiter::abandon(waiters);
            waiter::abandon(submit_waiters);
            waiter::abandon(reads);
            waiter::abandon(orders);
            waiter::abandon(pinned);
        }
    }

    /// On an application's device: something is to be learned from it soon, so that linn has to poll it.
    pub(crate) fn somebody_waits(&self) -> bool {
        let asked = !self.waiters.is_empty() || !self.reads.is_empty() || self.look;
        asked || !self.submit_waiters.is_empty() || self.timeline.backlog() > 0
    }

    /// Drops the buffers of segments that the pool gives back.
    pub(crate) fn release_segments(&mut self) {
        while let Some(segment) = self.pool.poll_release(&self.timeline) {
            if let Some(buffer) = self.segments.get_mut(segment.0 as usize).and_then(Option::take) {
                self.released.push((segment, buffer));
                self.released_ever += 1;
            }
        }
    }

    /// What is reserved and what may be.
    pub(crate) fn memory_use(&self) -> MemoryUse {
        MemoryUse { reserved: self.pool.reserved().0, limit: self.pool.limit() }
    }

    /// Who wants to be told that the memory use was `before` and is another one now.
    pub(crate) fn shortage(&self, before: MemoryUse) -> Shortage {
        self.observers.short(before, self.memory_use())
    }

    /// A segment was bought.
    pub(crate) fn add_segment(&mut self, segment: SegmentId, buffer: wgpu::Buffer) {
        let index = segment.0 as usize;
        if self.segments.len() <= index {
            self.segments.resize(index + 1, None);
        }
        self.segments[index] = Some(buffer.clone());
        self.bought.push((segment, buffer));
    }
}
