//! What is ordered before what: streams, fences, hazards, submissions. A state machine without threads, clocks or wgpu.
//!
//! Commands are enqueued on streams; each gets the next number of its stream and a device-wide ordinal. The
//! [`Timeline`] remembers who used a block last and adds *order edges*, so that a command is never submitted before
//! the commands of other streams that it depends on. There is one queue: submission order is execution order, so an
//! edge to a command that is already submitted costs nothing and is dropped.
//!
//! | direction | call |
//! |---|---|
//! | command | [`Timeline::new_stream`], [`Timeline::new_stream_with_priority`], [`Timeline::enqueue`], [`Timeline::wait`], [`Timeline::begin_block`], [`Timeline::record_stream`], [`Timeline::end_block`], [`Timeline::hold`], [`Timeline::open`] |
//! | ask out | [`Timeline::plan`], [`Timeline::urgent`] |
//! | report in | [`Timeline::handle_submitted`], [`Timeline::handle_completed`] |
//! | inspect | [`Horizons`], [`Timeline::edges_of_last`], [`Timeline::stats`], [`Timeline::validate`] |

mod edges;
mod hazards;
mod order;

pub use edges::{CommandName, Edge, EdgeKind, OrderEdge, OrderEdges};
pub use hazards::{Access, AccessList};
pub use order::{Batch, Flush, SubmissionId};

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ids::{BlockId, Fence, FenceSet, Horizons, Ordinal, StreamId};
use hazards::Uses;
use order::Submission;

/// All streams of one device.
pub struct Timeline {
    streams: Vec<StreamState>,
    /// Uses of each live block, by block id.
    uses: Vec<Uses>,
    /// Streams that use a live block in ways not told here; few blocks have any.
    foreign: FxHashMap<BlockId, SmallVec<[StreamId; 1]>>,
    in_flight: VecDeque<Submission>,
    /// Commands that wait for what this timeline does not know; few programs have any.
    held: Vec<Fence>,
    last_ordinal: u64,
    last_submission: u64,
    stats: TimelineStats,
}

/// Counters of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineStats {
    /// Commands enqueued so far.
    pub commands: u64,
    /// Order edges between streams that were inserted because of hazards or memory reuse.
    pub order_edges: u64,
    /// Submissions so far.
    pub submissions: u64,
}

struct StreamState {
    live: bool,
    /// Smaller numbers go first.
    priority: i32,
    enqueued: u64,
    submitted: u64,
    completed: u64,
    /// Ordinals of the commands `submitted + 1 ..= enqueued`.
    ordinals: VecDeque<u64>,
    /// Order edges of commands not yet submitted: (number here, what goes before, why), ascending by number.
    edges: VecDeque<(u64, Fence, EdgeKind)>,
    /// By stream: the latest command of it that this stream is already ordered after.
    known: Vec<u64>,
    /// Fences that the next command has to come after (`wait`).
    pending: FenceSet,
    /// Fences that the next command has to come after because it uses their memory (`reuse`).
    reused: FenceSet,
}

impl StreamState {
    fn new(priority: i32) -> StreamState {
        StreamState {
            live: true,
            priority,
            enqueued: 0,
            submitted: 0,
            completed: 0,
            ordinals: VecDeque::new(),
            edges: VecDeque::new(),
            known: Vec::new(),
            pending: FenceSet::new(),
            reused: FenceSet::new(),
        }
    }
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline::new()
    }
}

impl Horizons for Timeline {
    fn enqueued(&self, stream: StreamId) -> u64 {
        self.streams[stream.0 as usize].enqueued
    }
    fn submitted(&self, stream: StreamId) -> u64 {
        self.streams[stream.0 as usize].submitted
    }
    fn completed(&self, stream: StreamId) -> u64 {
        self.streams[stream.0 as usize].completed
    }
    fn is_urgent(&self, stream: StreamId) -> bool {
        self.streams[stream.0 as usize].priority < 0
    }
    fn is_held(&self, fence: Fence) -> bool {
        self.free().is_some_and(|free| fence.number > free[fence.stream.0 as usize])
    }
}

impl Timeline {
    /// A timeline with the default stream.
    pub fn new() -> Timeline {
        Timeline {
            streams: vec![StreamState::new(0)],
            uses: Vec::new(),
            foreign: FxHashMap::default(),
            in_flight: VecDeque::new(),
            held: Vec::new(),
            last_ordinal: 0,
            last_submission: 0,
            stats: TimelineStats::default(),
        }
    }

    /// A new stream. Ids of dropped streams whose work is done are used again; their numbers go on, so that old fences stay true.
    pub fn new_stream(&mut self) -> StreamId {
        self.new_stream_with_priority(0)
    }

    /// A new stream whose commands go before those of streams with larger numbers; see [`Timeline::urgent`].
    pub fn new_stream_with_priority(&mut self, priority: i32) -> StreamId {
        let idle = self.streams.iter().position(|stream| !stream.live && stream.completed == stream.enqueued);
        match idle {
            Some(index) => {
                self.streams[index].live = true;
                self.streams[index].priority = priority;
                StreamId(index as u32)
            }
            None => {
                self.streams.push(StreamState::new(priority));
                StreamId(self.streams.len() as u32 - 1)
            }
        }
    }

    /// The last handle of `stream` is gone. Commands already enqueued still run.
    pub fn drop_stream(&mut self, stream: StreamId) {
        let state = &mut self.streams[stream.0 as usize];
        state.live = false;
        state.pending.clear();
    }

    /// Appends a command to `stream` that uses the given blocks, and returns its ordinal.
    pub fn enqueue(&mut self, stream: StreamId, accesses: impl IntoIterator<Item = (BlockId, Access)>) -> Ordinal {
        self.last_ordinal += 1;
        self.stats.commands += 1;
        let state = &mut self.streams[stream.0 as usize];
        state.enqueued += 1;
        state.ordinals.push_back(self.last_ordinal);
        let this = Fence { stream, number: state.enqueued };
        let mut edges = 0;
        if !state.pending.is_empty() || !state.reused.is_empty() {
            let (pending, reused) = (std::mem::take(&mut state.pending), std::mem::take(&mut state.reused));
            pending.iter().for_each(|before| edges += add_edge(&mut self.streams, this, before, EdgeKind::Wait));
            reused.iter().for_each(|before| edges += add_edge(&mut self.streams, this, before, EdgeKind::MemoryReuse));
        }
        for (block, access) in accesses {
            let uses = &mut self.uses[block.0 as usize];
            uses.record(this, access, |before, kind| edges += add_edge(&mut self.streams, this, before, kind));
        }
        self.stats.order_edges += edges;
        Ordinal(self.last_ordinal)
    }

    /// The order edges of the last command enqueued on `stream`, until it is submitted: one for each stream that it waits for.
    pub fn edges_of_last(&self, stream: StreamId) -> impl Iterator<Item = Edge> + '_ {
        let command = self.last(stream);
        let edges = &self.streams[stream.0 as usize].edges;
        let own = edges.range(edges.partition_point(|(at, ..)| *at < command.number)..);
        own.map(move |(_, before, kind)| Edge { command, before: *before, kind: *kind })
    }

    /// The last command enqueued on `stream`.
    pub fn last(&self, stream: StreamId) -> Fence {
        Fence { stream, number: self.enqueued(stream) }
    }

    /// This point of `stream`: its last command, and what it was told to wait for since. That is what an event remembers.
    pub fn record(&self, stream: StreamId) -> FenceSet {
        let mut point = self.streams[stream.0 as usize].pending.clone();
        // Only what is still to come: a point stays small.
        point.retain(|fence| !self.is_completed(fence));
        point.insert(self.last(stream));
        point
    }

    /// Commands enqueued on `stream` from now on come after `before`.
    pub fn wait(&mut self, stream: StreamId, before: &FenceSet) {
        for fence in before.iter() {
            // What is submitted but not completed needs no edge; whoever waits for this stream on the host still waits for it.
            if fence.stream != stream && !self.is_completed(fence) {
                self.streams[stream.0 as usize].pending.insert(fence);
            }
        }
    }

    /// The last command of `stream` waits for what this timeline does not know (another device): it, what comes after it on its
    /// stream and what depends on these stay here until it is opened. Others go on.
    pub fn hold(&mut self, stream: StreamId) -> Fence {
        let last = self.last(stream);
        self.held.push(last);
        last
    }

    /// What the command waited for has happened.
    pub fn open(&mut self, fence: Fence) {
        self.held.retain(|held| *held != fence);
    }

    /// Nothing is held any more.
    pub fn open_all(&mut self) {
        self.held.clear();
    }

    /// The next command on `stream` uses memory that `before` used, other than what its accesses say.
    pub fn reuse(&mut self, stream: StreamId, before: &FenceSet) {
        self.streams[stream.0 as usize].reused.merge(before);
    }

    /// A block was lent; its first write comes after `after` (what its memory was last used for).
    pub fn begin_block(&mut self, block: BlockId, after: FenceSet) {
        let index = block.0 as usize;
        if self.uses.len() <= index {
            self.uses.resize_with(index + 1, Uses::default);
        }
        self.uses[index] = Uses::after(after);
    }

    /// `stream` uses the block in a way that is not told here: what is enqueued on it when the block is given back counts as a
    /// use (PyTorch's `record_stream`).
    pub fn record_stream(&mut self, block: BlockId, stream: StreamId) {
        let streams = self.foreign.entry(block).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Everything that the block's recorded streams have enqueued so far.
    pub fn foreign_uses(&self, block: BlockId) -> FenceSet {
        let streams = self.foreign.get(&block).into_iter().flatten();
        streams.map(|stream| self.last(*stream)).filter(|fence| fence.number > 0).collect()
    }

    /// A block is given back: the commands that may still use its memory.
    pub fn end_block(&mut self, block: BlockId) -> FenceSet {
        let mut fences = std::mem::take(&mut self.uses[block.0 as usize]).into_fences();
        if !self.foreign.is_empty() {
            fences.merge(&self.foreign_uses(block));
            self.foreign.remove(&block);
        }
        fences
    }

    /// The commands that may still use the block.
    pub fn last_uses(&self, block: BlockId) -> FenceSet {
        let mut fences = self.uses[block.0 as usize].clone().into_fences();
        fences.merge(&self.foreign_uses(block));
        fences
    }

    /// The last command that wrote the block, if it is known.
    pub fn last_write(&self, block: BlockId) -> Option<Fence> {
        self.uses[block.0 as usize].last_write()
    }

    /// Commands enqueued and not yet submitted, over all streams.
    pub fn backlog(&self) -> u64 {
        self.streams.iter().map(|stream| stream.enqueued - stream.submitted).sum()
    }

    /// True when the backlog is `most` or more, and `share` or more of it the stream's: who enqueues on another is not held up.
    pub fn is_flooded(&self, stream: StreamId, most: u64, share: u64) -> bool {
        self.backlog() >= most && self.enqueued(stream) - self.submitted(stream) >= share
    }

    /// Those of the backlog that may go to the driver: all that is not held.
    pub fn ready(&self) -> u64 {
        match self.free() {
            None => self.backlog(),
            Some(free) => free.iter().zip(&self.streams).map(|(free, stream)| free - stream.submitted).sum(),
        }
    }

    /// What goes to the driver before all else: the last commands of the streams with the smallest number for a priority among
    /// those with commands that may go. `None` where these all have the same.
    pub fn urgent(&self) -> Option<FenceSet> {
        let free = self.free();
        let end = |index: usize| free.as_ref().map_or(self.streams[index].enqueued, |free| free[index]);
        let waiting = || self.streams.iter().enumerate().filter(|(index, stream)| stream.submitted < end(*index));
        let first = waiting().map(|(_, stream)| stream.priority).min()?;
        let urgent = || waiting().filter(|(_, stream)| stream.priority == first);
        let fence = |(index, _): (usize, &StreamState)| Fence { stream: StreamId(index as u32), number: end(index) };
        (urgent().count() < waiting().count()).then(|| urgent().map(fence).collect())
    }

    /// The priority of a stream.
    pub fn priority(&self, stream: StreamId) -> i32 {
        self.streams[stream.0 as usize].priority
    }

    /// True when every command of every stream has completed.
    pub fn is_idle(&self) -> bool {
        self.streams.iter().all(|stream| stream.completed == stream.enqueued)
    }

    /// Number of submissions that are not known to be completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Everything enqueued so far, one fence per stream that has unfinished work.
    pub fn everything(&self) -> FenceSet {
        let unfinished = self.streams.iter().enumerate().filter(|(_, stream)| stream.completed < stream.enqueued);
        unfinished.map(|(index, stream)| Fence { stream: StreamId(index as u32), number: stream.enqueued }).collect()
    }

    /// True when the command has been executed.
    pub fn is_completed(&self, fence: Fence) -> bool {
        fence.number <= self.completed(fence.stream)
    }

    /// True when all of these commands have been executed.
    pub fn are_completed(&self, fences: &FenceSet) -> bool {
        fences.iter().all(|fence| self.is_completed(fence))
    }

    /// Counters.
    pub fn stats(&self) -> TimelineStats {
        self.stats
    }
}

/// Makes `this` come after `before`, unless that is certain already; how many edges that adds. Of several reasons the first for
/// the latest counts.
fn add_edge(streams: &mut [StreamState], this: Fence, before: Fence, kind: EdgeKind) -> u64 {
    let other = before.stream.0 as usize;
    if before.stream == this.stream || before.number <= streams[other].submitted {
        return 0;
    }
    let state = &mut streams[this.stream.0 as usize];
    if state.known.len() <= other {
        state.known.resize(other + 1, 0);
    }
    if state.known[other] >= before.number {
        return 0;
    }
    state.known[other] = before.number;
    // One edge per command and stream: a later command of the same stream implies the earlier one.
    let own = state.edges.iter_mut().rev().take_while(|(at, ..)| *at == this.number);
    match own.into_iter().find(|(_, known, _)| known.stream == before.stream) {
        Some((_, known, why)) => {
            (known.number, *why) = (before.number, kind);
            0
        }
        None => {
            state.edges.push_back((this.number, before, kind));
            1
        }
    }
}
