//! What is there at one moment, as data: segments with their blocks, counters, and the events recorded so far.

use super::block::{self, SegmentState};
use super::history::{Action, Event, HistoryOptions, StackId};
use super::policy::{Config, Tag};
use super::pool::Pool;
use super::report::Holder;
use super::size_class::round_up;
use super::stats::{Breakdown, Stats};
use crate::ids::{BlockId, MemPoolId, SegmentId, StreamId};

/// What a block of a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Lent.
    ActiveAllocated,
    /// Given back, and work that uses it must complete before it can be lent again. Not in policy `linn`.
    ActivePendingFree,
    /// Free, or in a segment on its way back to the driver.
    Inactive,
}

impl BlockState {
    /// PyTorch's spelling.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

/// A block at the moment of the snapshot.
#[derive(Clone, Debug)]
pub struct BlockSnapshot {
    /// Its name in the pool; another block's later.
    pub block: BlockId,
    /// Where it starts, in an invented address space: no two segments ever overlap.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes asked for; 0 when inactive.
    pub requested_size: u64,
    /// What it is.
    pub state: BlockState,
    /// The stream that asked for it, while active.
    pub stream: StreamId,
    /// Who holds it, while active.
    pub tag: Option<Tag>,
    /// The stack it was lent on behalf of, where one was captured.
    pub stack: Option<StackId>,
}

/// A segment at the moment of the snapshot. Its blocks tile it.
#[derive(Clone, Debug)]
pub struct SegmentSnapshot {
    /// Its name in the pool; another segment's later.
    pub segment: SegmentId,
    /// Where it starts, in an invented address space: no two segments ever overlap.
    pub address: u64,
    /// Bytes.
    pub total_size: u64,
    /// Bytes of lent blocks.
    pub allocated_size: u64,
    /// Bytes of these, and of blocks given back that wait.
    pub active_size: u64,
    /// Bytes asked for.
    pub requested_size: u64,
    /// The stream that it was bought for.
    pub stream: StreamId,
    /// Whose requests it serves.
    pub pool: MemPoolId,
    /// Counted with small requests.
    pub is_small: bool,
    /// On its way back to the driver.
    pub is_retiring: bool,
    /// The request that it was bought for.
    pub tag: Tag,
    /// In address order.
    pub blocks: Vec<BlockSnapshot>,
}

/// One call of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// Its file; empty where it is not known.
    pub file: String,
    /// The line; 0 where it is not known.
    pub line: u32,
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// In address order.
    pub segments: Vec<SegmentSnapshot>,
    /// The events recorded, oldest first; empty when nothing is recorded.
    pub trace: Vec<Event>,
    /// Events that the ring had no room for: the oldest ones.
    pub overflowed: u64,
    /// What is recorded.
    pub history: Option<HistoryOptions>,
    /// The stacks that [`StackId`]s number, innermost frame first; empty where nothing here has that number. Filled in by
    /// whoever captured them.
    pub stacks: Vec<Vec<Frame>>,
    /// Counters.
    pub stats: Stats,
    /// Bytes by category.
    pub breakdown: Breakdown,
    /// Settings.
    pub config: Config,
}

impl Snapshot {
    /// The holders of live memory, by label and caller's line, largest first.
    pub fn holders(&self) -> Vec<Holder> {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        Holder::sum(blocks.filter_map(|block| block.tag.map(|tag| (tag, block.size))))
    }
}

impl Pool {
    /// Everything at this moment, and an event that says so, which the next snapshot will show.
    pub fn snapshot(&mut self) -> Snapshot {
        let shown = |segment: &block::Segment| !matches!(segment.state, SegmentState::Vacant | SegmentState::Imported);
        let occupied = self.segments.iter().filter(|(_, segment)| shown(segment));
        let mut segments: Vec<SegmentSnapshot> = occupied.map(|(at, _)| self.segment_snapshot(at)).collect();
        segments.sort_by_key(|segment| segment.address);
        let history = self.history.as_ref();
        let snapshot = Snapshot {
            segments,
            trace: history.map(|history| history.events()).unwrap_or_default(),
            overflowed: history.map_or(0, |history| history.overflowed()),
            history: self.history_options(),
            stacks: Vec::new(),
            stats: self.stats(),
            breakdown: self.breakdown(),
            config: self.config.clone(),
        };
        let live = self.stats.allocated_bytes.current;
        if let Some(history) = &mut self.history {
            let tag = Tag::here(super::Category::Temporary, "snapshot");
            history.push(Event::new(Action::Snapshot, 0, live, StreamId::DEFAULT, tag));
        }
        snapshot
    }

    fn segment_snapshot(&self, at: u32) -> SegmentSnapshot {
        let segment = &self.segments[at];
        let stack = |at| self.history.as_ref().and_then(|history| history.stack_of(at));
        let blocks = self.blocks_of(segment.first).map(|(at, block)| {
            let state = match block.state {
                block::BlockState::Lent => BlockState::ActiveAllocated,
                block::BlockState::Waiting => BlockState::ActivePendingFree,
                _ => BlockState::Inactive,
            };
            BlockSnapshot {
                block: BlockId(at),
                address: segment.address + block.offset,
                size: block.size,
                requested_size: block.requested,
                state,
                stream: block.stream,
                tag: (state != BlockState::Inactive).then_some(block.tag),
                stack: stack(at),
            }
        });
        let blocks: Vec<BlockSnapshot> = blocks.collect();
        let sum = |size: fn(&BlockSnapshot) -> u64, counts: fn(BlockState) -> bool| {
            blocks.iter().filter(|block| counts(block.state)).map(size).sum()
        };
        SegmentSnapshot {
            segment: SegmentId(at),
            address: segment.address,
            total_size: segment.size,
            allocated_size: sum(|block| block.size, |state| state == BlockState::ActiveAllocated),
            active_size: sum(|block| block.size, |state| state != BlockState::Inactive),
            requested_size: sum(|block| block.requested_size, |state| state != BlockState::Inactive),
            stream: segment.stream,
            pool: segment.pool,
            is_small: segment.small,
            is_retiring: segment.state != SegmentState::Open,
            tag: segment.tag,
            blocks,
        }
    }
}

/// Gives every segment a range of an address space that is only shown, never used. Numbers stay below 2^53, so that they
/// survive as a double in JSON; after 4 PiB of purchases they start again.
#[derive(Debug)]
pub(super) struct Addresses {
    next: u64,
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses { next: Addresses::FIRST }
    }
}

impl Addresses {
    const FIRST: u64 = 1 << 32;

    pub(super) fn next(&mut self, size: u64) -> u64 {
        let step = round_up(size.max(1), 2 << 20);
        if self.next + step > 1 << 52 {
            self.next = Addresses::FIRST;
        }
        let address = self.next;
        self.next += step;
        address
    }
}
