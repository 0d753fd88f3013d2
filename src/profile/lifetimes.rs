//! From a snapshot with its history to lifetimes: which block lay where, for whom, from which event to which.
//!
//! Between n events there are n + 1 states: state 0 before the first, state i + 1 after event i. A lifetime holds in the
//! states from `begin` up to, and without, `end`.

use rustc_hash::FxHashMap;

use crate::ids::StreamId;
use crate::memory::{Action, BlockState, Category, Event, Snapshot, StackId, Tag};

/// A lifetime that lasts until the end has this `end`.
pub const FOREVER: u32 = u32::MAX;

/// What the bytes of a lifetime are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A live block.
    Live(Category),
    /// A block given back that waits, or a whole segment on its way to the driver.
    Retiring,
}

/// A block at one place in one category.
#[derive(Clone, Copy, Debug)]
pub struct Stay {
    /// First state.
    pub begin: u32,
    /// The state after the last.
    pub end: u32,
    /// Where.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// What for.
    pub used: Use,
    /// The stream that asked.
    pub stream: StreamId,
    /// Who asked.
    pub tag: Tag,
    /// The stack, where one was captured.
    pub stack: Option<StackId>,
}

/// A segment from its purchase until the driver has it back.
#[derive(Clone, Copy, Debug)]
pub struct SegmentStay {
    /// First state.
    pub begin: u32,
    /// The state after the last.
    pub end: u32,
    /// Where.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The stream it was bought for.
    pub stream: StreamId,
}

/// All lifetimes of a history.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes {
    /// Number of events; states are one more.
    pub events: usize,
    /// Of blocks, in the order they began.
    pub blocks: Vec<Stay>,
    /// Of segments, in address order.
    pub segments: Vec<SegmentStay>,
}

/// The walk over the events.
#[derive(Default)]
struct Walk {
    blocks: Vec<Stay>,
    segments: Vec<SegmentStay>,
    /// Open lifetimes by address.
    live: FxHashMap<u64, usize>,
    waiting: FxHashMap<u64, usize>,
    bought: FxHashMap<u64, usize>,
    retiring: FxHashMap<u64, usize>,
}

fn stay(event: &Event, begin: u32, used: Use) -> Stay {
    let Event { address, block_size, size, stream, tag, stack, .. } = *event;
    Stay { begin, end: FOREVER, address, size: block_size, requested: size, used, stream, tag, stack }
}

impl Walk {
    /// A lifetime opens in state `now`.
    fn open(&mut self, stay: Stay) {
        let map = if matches!(stay.used, Use::Live(_)) { &mut self.live } else { &mut self.waiting };
        map.insert(stay.address, self.blocks.len());
        self.blocks.push(stay);
    }

    /// The open lifetime ends; what the history has not seen begin was there from the start.
    fn close(&mut self, event: &Event, now: u32) -> Stay {
        match self.live.remove(&event.address) {
            Some(at) => {
                self.blocks[at].end = now;
                self.blocks[at]
            }
            None => {
                let ghost = Stay { end: now, ..stay(event, 0, Use::Live(event.tag.category)) };
                self.blocks.push(ghost);
                ghost
            }
        }
    }

    fn segment(&mut self, event: &Event, begin: u32) -> usize {
        let Event { address, size, stream, .. } = *event;
        self.segments.push(SegmentStay { begin, end: FOREVER, address, size, stream });
        self.bought.insert(address, self.segments.len() - 1);
        self.segments.len() - 1
    }

    fn retire(&mut self, event: &Event, begin: u32) {
        self.retiring.insert(event.address, self.blocks.len());
        self.blocks.push(stay(event, begin, Use::Retiring));
    }

    fn apply(&mut self, event: &Event, next: Option<&Event>, now: u32) {
        match event.action {
            Action::Alloc => self.open(stay(event, now, Use::Live(event.tag.category))),
            Action::FreeRequested => {
                let stay = self.close(event, now);
                let at_once = next.is_some_and(|next| next.action == Action::FreeCompleted && next.address == event.address);
                if !at_once {
                    self.open(Stay { begin: now, end: FOREVER, used: Use::Retiring, ..stay });
                }
            }
            Action::FreeCompleted => {
                if let Some(at) = self.waiting.remove(&event.address) {
                    self.blocks[at].end = now;
                }
            }
            Action::SetCategory => {
                let before = self.close(event, now);
                self.open(Stay { begin: now, end: FOREVER, used: Use::Live(event.tag.category), tag: event.tag, ..before });
            }
            Action::Move => {
                let before = self.close(&Event { address: event.from, ..*event }, now);
                self.open(Stay { begin: now, end: FOREVER, address: event.address, ..before });
            }
            Action::SegmentAlloc => {
                self.segment(event, now);
            }
            Action::SegmentFree => {
                let at = self.bought.remove(&event.address).unwrap_or_else(|| self.segment(event, 0));
                self.bought.remove(&event.address);
                self.segments[at].end = now;
                match self.retiring.remove(&event.address) {
                    Some(at) => self.blocks[at].end = now,
                    None => self.blocks.push(Stay { end: now, ..stay(event, 0, Use::Retiring) }),
                }
            }
            Action::SegmentRetiring => self.retire(event, now),
            Action::SegmentRestored => match self.retiring.remove(&event.address) {
                Some(at) => self.blocks[at].end = now,
                None => self.blocks.push(Stay { end: now, ..stay(event, 0, Use::Retiring) }),
            },
            Action::Oom | Action::Snapshot => {}
        }
    }

    /// What is there at the end and was never seen to begin, was there from the start.
    fn finish(&mut self, snapshot: &Snapshot) {
        for segment in &snapshot.segments {
            if !self.bought.contains_key(&segment.address) {
                let (address, size, stream) = (segment.address, segment.total_size, segment.stream);
                self.segments.push(SegmentStay { begin: 0, end: FOREVER, address, size, stream });
            }
            let whole = || Stay {
                begin: 0,
                end: FOREVER,
                address: segment.address,
                size: segment.total_size,
                requested: 0,
                used: Use::Retiring,
                stream: segment.stream,
                tag: segment.tag,
                stack: None,
            };
            if segment.is_retiring && !self.retiring.contains_key(&segment.address) {
                self.blocks.push(whole());
            }
            for block in &segment.blocks {
                let Some(tag) = block.tag else { continue };
                let (used, known) = match block.state {
                    BlockState::ActiveAllocated => (Use::Live(tag.category), &self.live),
                    _ => (Use::Retiring, &self.waiting),
                };
                if !known.contains_key(&block.address) {
                    let (address, size, requested) = (block.address, block.size, block.requested_size);
                    self.blocks.push(Stay {
                        address,
                        size,
                        requested,
                        used,
                        stream: block.stream,
                        tag,
                        stack: block.stack,
                        ..whole()
                    });
                }
            }
        }
    }
}

impl Snapshot {
    /// The lifetimes of all blocks and segments that the history has seen, and of those that are there.
    pub fn lifetimes(&self) -> Lifetimes {
        let mut walk = Walk::default();
        for (at, event) in self.trace.iter().enumerate() {
            walk.apply(event, self.trace.get(at + 1), at as u32 + 1);
        }
        walk.finish(self);
        let Walk { mut blocks, mut segments, .. } = walk;
        blocks.sort_by_key(|stay| stay.begin);
        segments.sort_by_key(|segment| (segment.address, segment.begin));
        Lifetimes { events: self.trace.len(), blocks, segments }
    }
}
