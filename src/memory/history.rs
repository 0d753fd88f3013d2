//! What happened, in order: a bounded ring of events, kept while somebody asked for it.
//!
//! The pool knows no clock and walks no stack. Whoever holds it says what time it is and on behalf of which stack it is
//! called ([`Pool::handle_context`]); the events that follow carry that. The caller's file and line are always there,
//! because every request brings them. When nothing is recorded an event costs one branch.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::policy::Tag;
use super::pool::Pool;
use crate::ids::{MemPoolId, StreamId};

/// What an event is. The first seven are PyTorch's trace actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A block was lent.
    Alloc,
    /// A block was given back by its holder.
    FreeRequested,
    /// It can be lent again: at once, here.
    FreeCompleted,
    /// A segment was bought.
    SegmentAlloc,
    /// The driver has the memory of a segment back.
    SegmentFree,
    /// A request failed.
    Oom,
    /// A snapshot was taken.
    Snapshot,
    /// A live block is used for something else from now on; linn's own, like the next ones.
    SetCategory,
    /// A segment is on its way back to the driver.
    SegmentRetiring,
    /// It is not: it was needed again in time.
    SegmentRestored,
    /// A live block lies elsewhere from now on.
    Move,
}

impl Action {
    /// PyTorch's spelling, and ours in the same manner.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::Oom => "oom",
            Action::Snapshot => "snapshot",
            Action::SetCategory => "set_category",
            Action::SegmentRetiring => "segment_retiring",
            Action::SegmentRestored => "segment_restored",
            Action::Move => "move",
        }
    }
}

/// A stack that whoever holds the pool keeps: the number is theirs, and free for another one when no event and no live block
/// has it ([`Pool::stacks_in_use`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackId(pub u32);

/// One thing that happened.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What.
    pub action: Action,
    /// Where the block or segment starts, in the invented address space of snapshots; 0 for `Oom` and `Snapshot`.
    pub address: u64,
    /// Where a block lay before, for `Move`.
    pub from: u64,
    /// Bytes asked for; of a segment its size, of `Oom` the rounded request, of `Snapshot` all live blocks.
    pub size: u64,
    /// Bytes of the block or segment.
    pub block_size: u64,
    /// Bytes that were cached, for `Oom`.
    pub free: u64,
    /// The stream that asked for the block or segment.
    pub stream: StreamId,
    /// The pool of the segment, or that the request was made in.
    pub pool: MemPoolId,
    /// Microseconds, as the last [`Pool::handle_context`] said.
    pub time_us: u64,
    /// Who asked, what for.
    pub tag: Tag,
    /// The stack, where one was captured.
    pub stack: Option<StackId>,
}

impl Event {
    pub(super) fn new(action: Action, address: u64, size: u64, stream: StreamId, tag: Tag) -> Event {
        let pool = MemPoolId::DEFAULT;
        Event { action, address, from: 0, size, block_size: 0, free: 0, stream, pool, time_us: 0, tag, stack: None }
    }
}

/// PyTorch's `enabled`: how much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Recording {
    /// Only what is needed to explain the live blocks: their stacks.
    State,
    /// Every event.
    #[default]
    All,
}

/// Which calls capture their whole stack, PyTorch's `context`. A stack walk costs more than an allocation by far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stacks {
    /// None: the file and line of the caller are enough.
    #[default]
    Off,
    /// Allocations.
    Alloc,
    /// Allocations and frees.
    All,
}

/// What to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Every event, or only what explains the present.
    pub enabled: Recording,
    /// Events kept; the oldest go first. An event takes about 120 bytes of host memory.
    pub max_entries: usize,
    /// Which calls capture their stack.
    pub stacks: Stacks,
    /// Forget what was recorded before.
    pub clear_history: bool,
}

impl Default for HistoryOptions {
    /// Every event, 1,000,000 kept, no stacks, what was recorded stays.
    fn default() -> HistoryOptions {
        HistoryOptions { enabled: Recording::All, max_entries: 1_000_000, stacks: Stacks::Off, clear_history: false }
    }
}

/// The ring, and the stacks of live blocks.
#[derive(Debug)]
pub(super) struct History {
    options: HistoryOptions,
    ring: VecDeque<Event>,
    overflowed: u64,
    time_us: u64,
    stack: Option<StackId>,
    stacks: FxHashMap<u32, StackId>,
}

impl History {
    fn new(options: HistoryOptions) -> History {
        let (ring, stacks) = (VecDeque::new(), FxHashMap::default());
        History { options, ring, overflowed: 0, time_us: 0, stack: None, stacks }
    }

    /// The event happens now, on behalf of the stack at hand.
    pub(super) fn push(&mut self, event: Event) {
        if self.options.enabled == Recording::All {
            self.ring.push_back(Event { time_us: self.time_us, stack: self.stack, ..event });
            self.make_room(self.options.max_entries);
        }
    }

    fn make_room(&mut self, most: usize) {
        let surplus = self.ring.len().saturating_sub(most);
        self.ring.drain(..surplus);
        self.overflowed += surplus as u64;
    }

    pub(super) fn lent(&mut self, block: u32) {
        if let Some(stack) = self.stack {
            self.stacks.insert(block, stack);
        }
    }

    pub(super) fn freed(&mut self, block: u32) {
        self.stacks.remove(&block);
    }

    pub(super) fn stack_of(&self, block: u32) -> Option<StackId> {
        self.stacks.get(&block).copied()
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.ring.iter().copied().collect()
    }

    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed
    }
}

impl Pool {
    /// Records from now on, or, with `None`, no longer, and forgets everything.
    ///
    /// What was recorded stays when only sizes and stacks change; a history never has a gap.
    pub fn record_history(&mut self, options: Option<HistoryOptions>) {
        let Some(options) = options else {
            self.history = None;
            return;
        };
        match &mut self.history {
            Some(history) if !options.clear_history && history.options.enabled == options.enabled => {
                history.options = options;
                history.make_room(options.max_entries);
            }
            _ => self.history = Some(Box::new(History::new(options))),
        }
    }

    /// What is recorded at present.
    #[inline]
    pub fn history_options(&self) -> Option<HistoryOptions> {
        self.history.as_ref().map(|history| history.options)
    }

    /// The stacks of recorded events and live blocks.
    pub fn stacks_in_use(&self) -> FxHashSet<StackId> {
        let Some(history) = &self.history else { return FxHashSet::default() };
        history.ring.iter().filter_map(|event| event.stack).chain(history.stacks.values().copied()).collect()
    }

    /// It is `time_us` now, and the next calls are made on behalf of `stack`. Needed only while a history is recorded.
    pub fn handle_context(&mut self, time_us: u64, stack: Option<StackId>) {
        if let Some(history) = &mut self.history {
            (history.time_us, history.stack) = (time_us, stack);
        }
    }
}
