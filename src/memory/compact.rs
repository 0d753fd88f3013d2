//! Compaction: live blocks move, so that free memory comes together or segments become empty.
//!
//! Callers hold blocks by name, so a block can lie elsewhere tomorrow. A [`Move`] is a command like any other: it is
//! enqueued on the stream that asked for memory, as a *write* of the block, so it comes after all earlier uses and before
//! all later ones. Commands enqueued before it find the block at the old place, later ones at the new. The pool books a
//! move when it plans it and names its fence in advance, so the bytes it leaves can be lent in the same breath.
//!
//! What to move is chosen in [`planner`](super::planner); here it is done. Pinned blocks stay.

use super::block::{BlockState, NONE};
use super::free_list::{Effort, needs_edge};
use super::layout::Layout;
use super::planner::Bounds;
use super::policy::{Caching, Request, Rung};
use super::pool::{Answer, Place, Pool};
use crate::ids::{BlockId, Fence, FenceSet, Horizons, StreamId};

/// When blocks are moved without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Before a request fails.
    pub pressure: bool,
    /// Also before more is reserved than ever before, as long as all that was moved stays below this share of all that
    /// was allocated (in thousandths).
    pub budget_permille: u32,
    /// Moves may stay inside a segment. Needs a device that can copy within a buffer, overlapping ranges included.
    pub within_segment: bool,
}

impl Default for Compaction {
    /// Before a request fails, and not otherwise.
    fn default() -> Compaction {
        Compaction { pressure: true, budget_permille: 0, within_segment: true }
    }
}

impl Compaction {
    /// Nothing moves by itself.
    pub const OFF: Compaction = Compaction { pressure: false, budget_permille: 0, within_segment: true };
}

/// A block changes its place: enqueue a copy of `from` to `to` as the next command of `stream`, ordered after `after` and
/// after everything that uses the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The block; its name stays.
    pub block: BlockId,
    /// Where its bytes are.
    pub from: Place,
    /// Where they go. The two can overlap, with `to` in front.
    pub to: Place,
    /// The command that the move has to become.
    pub fence: Fence,
    /// Commands of other streams, not yet submitted, that may still use the bytes at `to`.
    pub after: FenceSet,
}

/// What [`Pool::compact`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Blocks moved.
    pub moves: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Bytes of the segments that became empty; they go back to the driver.
    pub released_bytes: u64,
}

/// Times that segments are emptied for one request; each waits for the device.
const MOST_ROUNDS: u32 = 8;

impl Pool {
    /// The next move to enqueue. After every [`Pool::alloc`] and [`Pool::compact`], before anything else is enqueued,
    /// all of them must be, in this order.
    pub fn poll_move(&mut self) -> Option<Move> {
        self.moves.pop_front()
    }

    /// The block stays where it is until it is unpinned as often as it was pinned.
    pub fn pin(&mut self, block: BlockId) {
        if self.blocks.get(block.0).is_some_and(|record| record.state == BlockState::Lent) {
            self.blocks[block.0].pins += 1;
        }
    }

    /// Takes one [`Pool::pin`] back.
    pub fn unpin(&mut self, block: BlockId) {
        if self.blocks.get(block.0).is_some_and(|record| record.state == BlockState::Lent) {
            let pins = &mut self.blocks[block.0].pins;
            *pins = pins.saturating_sub(1);
        }
    }

    /// Empties segments by moves of `stream` of at most `budget` bytes in all, those first that give back most for what is
    /// moved, and marks them for release. `poll_move` and then `poll_release` hand out what to do.
    pub fn compact(&mut self, stream: StreamId, budget: u64, horizons: &impl Horizons) -> Compacted {
        let (moves, moved_bytes) = (self.stats.moves, self.stats.moved_bytes);
        let mut released_bytes = 0;
        let mut layout = Layout::of(self, 0);
        let bounds = self.bounds(budget);
        while let Some(emptied) = layout.empty(1, bounds) {
            self.carry_out(&mut layout, stream, horizons);
            for segment in emptied {
                released_bytes += self.segments[segment].size;
                self.mark(segment);
                layout.forget(segment);
            }
        }
        let stats = &self.stats;
        Compacted { moves: stats.moves - moves, moved_bytes: stats.moved_bytes - moved_bytes, released_bytes }
    }

    fn bounds(&self, bytes: u64) -> Bounds {
        Bounds { bytes: bytes.saturating_add(1), within_segment: self.config.compaction.within_segment }
    }

    /// Moves blocks for a request that nothing else can serve below `limit`.
    pub(super) fn compact_for(
        &mut self,
        size: u64,
        limit: u64,
        request: &mut Request,
        horizons: &impl Horizons,
    ) -> Option<Answer> {
        let most = if limit < self.config.limit {
            let share = u64::from(self.config.compaction.budget_permille);
            (self.stats.allocated_bytes.allocated / 1000 * share).saturating_sub(self.stats.moved_bytes)
        } else if self.config.compaction.pressure {
            u64::MAX
        } else {
            0
        };
        if most == 0 || self.config.caching == Caching::Unpooled {
            return None;
        }
        let left = match request.rung {
            Rung::Refused => 0,
            _ => limit.saturating_sub(self.stats.reserved_bytes.current + self.pending),
        };
        // Once a segment was bought to move blocks into, they are moved.
        let room = if request.hosting { 0 } else { left };
        let needed = size.saturating_sub(left).max(1);
        let most = self.bounds(most);
        let mut window = Layout::of(self, room);
        let found = window.make_window(size, most).is_some();
        let most = if found { Bounds { bytes: window.bytes, ..most } } else { most };
        if (request.rounds as u64) < if limit < self.config.limit { super::pool::env("ROUNDS", 8) } else { 8 } && request.rung != Rung::Refused {
            let mut emptying = Layout::of(self, room);
            let mut enough = emptying.empty(needed, most).is_some();
            if !enough && !found {
                enough = emptying.gain(needed, most).1 > 0;
            }
            if enough {
                if emptying.to_buy() > 0 {
                    request.hosting = true;
                    return Some(self.buy(emptying.to_buy()));
                }
                self.carry_out(&mut emptying, request.stream, horizons);
                request.rounds += 1;
                request.hosting = false;
                request.rung = Rung::Exact;
                self.stats.num_alloc_retries += 1;
                self.mark_idle();
                return Some(Answer::NeedCompletion);
            }
        }
        if !found {
            return None;
        }
        if window.to_buy() > 0 {
            request.hosting = true;
            return Some(self.buy(window.to_buy()));
        }
        request.hosting = false;
        self.carry_out(&mut window, request.stream, horizons);
        let key = self.search(size, Effort::AnyBacklog, request, horizons)?;
        Some(self.lend(key, size, request, horizons))
    }

    /// Does what was tried out.
    fn carry_out(&mut self, layout: &mut Layout, stream: StreamId, horizons: &impl Horizons) {
        for step in std::mem::take(&mut layout.steps) {
            let done = self.relocate(step.block, layout.regions[step.to.0 as usize].segment, step.to.1, stream, horizons);
            debug_assert!(done, "{step:?} cannot be done");
        }
    }

    /// Moves a block to the front of a free one.
    fn relocate(&mut self, block: u32, segment: u32, offset: u64, stream: StreamId, horizons: &impl Horizons) -> bool {
        let Some(hole) = self.free_at(block, segment, offset) else { return false };
        if hole == self.blocks[block].prev {
            return self.slide_down(block, stream, horizons);
        }
        let size = self.blocks[block].size;
        if self.blocks[hole].size < size || hole == self.blocks[block].next {
            return false;
        }
        let target = if self.blocks[hole].size > size {
            self.split(self.key(hole), size)
        } else {
            self.unlist(hole);
            hole
        };
        let from = self.place(BlockId(block));
        // The records change places: the block keeps its name.
        let (old, new) = (self.position(block), self.position(target));
        self.put(block, new);
        self.put(target, old);
        self.segments[from.segment.0].lent -= 1;
        self.segments[segment].lent += 1;
        self.segments[segment].fresh = false;
        self.book(block, target, from, stream, horizons);
        true
    }

    /// The free block at `offset`, the one before `block` if that is it.
    fn free_at(&self, block: u32, segment: u32, offset: u64) -> Option<u32> {
        let mut at = self.blocks[block].prev;
        if at == NONE || self.blocks[at].segment != segment || self.blocks[at].offset != offset {
            at = self.segments.get(segment)?.first;
        }
        while at != NONE && self.blocks[at].offset < offset {
            at = self.blocks[at].next;
        }
        (self.is_free(at) && self.is_movable(block) && self.blocks[at].offset == offset).then_some(at)
    }

    /// Moves a block to the front of the free one before it.
    fn slide_down(&mut self, block: u32, stream: StreamId, horizons: &impl Horizons) -> bool {
        let gap = self.blocks[block].prev;
        self.unlist(gap);
        let from = self.place(BlockId(block));
        let (mut first, mut second) = (self.position(gap), self.position(block));
        second.offset = first.offset + from.size;
        (first.next, second.prev) = (gap, block);
        self.put(block, first);
        self.put(gap, second);
        self.book(block, gap, from, stream, horizons);
        true
    }

    fn is_movable(&self, block: u32) -> bool {
        self.blocks[block].state == BlockState::Lent && self.blocks[block].pins == 0
    }

    fn position(&self, block: u32) -> Position {
        let record = &self.blocks[block];
        Position { segment: record.segment, prev: record.prev, next: record.next, offset: record.offset }
    }

    fn put(&mut self, block: u32, at: Position) {
        let record = &mut self.blocks[block];
        (record.segment, record.prev, record.next, record.offset) = (at.segment, at.prev, at.next, at.offset);
        self.link(at.segment, at.prev, block);
        if at.next != NONE {
            self.blocks[at.next].prev = block;
        }
    }

    /// The block has come from `from` to where `free` was, which holds the bytes left behind now and is in no list.
    fn book(&mut self, block: u32, free: u32, from: Place, stream: StreamId, horizons: &impl Horizons) {
        let number = horizons.enqueued(stream) + self.moves.len() as u64 + 1;
        let fence = Fence { stream, number };
        let after = self.blocks[free].uses.iter().filter(|fence| needs_edge(*fence, stream, horizons)).collect();
        let to = self.place(BlockId(block));
        // The move comes after all uses of the block and of the bytes at its new place: whoever comes after it is safe.
        for record in [block, free] {
            let segment = self.blocks[record].segment;
            self.segments[segment].uses.insert(fence);
            self.blocks[record].uses = std::iter::once(fence).collect();
        }
        self.stats.moves += 1;
        self.stats.moved_bytes += to.size;
        self.moves.push_back(Move { block: BlockId(block), from, to, fence, after });
        self.merge_and_list(free, horizons);
    }
}

/// Where a block stands in its segment.
struct Position {
    segment: u32,
    prev: u32,
    next: u32,
    offset: u64,
}

impl Place {
    /// True when the two share a byte.
    pub fn overlaps(&self, other: &Place) -> bool {
        self.segment == other.segment && self.offset < other.offset + other.size && other.offset < self.offset + self.size
    }
}


impl Pool {
    /// DEBUG
    pub fn dump(&self) -> String {
        let layout = Layout::of(self, 0);
        let mut out = String::new();
        for region in &layout.regions {
            out += &format!("{:8.1}M live {:8.1}M:", region.size as f64 / 1048576.0, region.live() as f64 / 1048576.0);
            for piece in &region.pieces { out += &format!(" {}{:.1}", if piece.kind == super::layout::Kind::Free { "-" } else { "" }, piece.size as f64 / 1048576.0); }
            out += "\n";
        }
        out
    }
}
