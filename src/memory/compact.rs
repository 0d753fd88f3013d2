//! Compaction: live blocks move, so that free memory comes together or segments become empty.
//!
//! Callers hold blocks by name, so a block can lie elsewhere tomorrow. A [`Move`] is a command like any other: it is
//! enqueued on the stream that asked for memory, as a *write* of the block, so it comes after all earlier uses and before
//! all later ones. Commands enqueued before it find the block at the old place, later ones at the new. The pool books a
//! move when it plans it and names its fence in advance, so the bytes it leaves can be lent in the same breath.
//!
//! What to move is chosen in `planner`; here it is done. Pinned blocks stay.

use super::block::{BlockState, NONE};
use super::free_list::{Effort, needs_edge};
use super::ladder::Answer;
use super::layout::{LITTLE, Layout, MUCH};
use super::policy::{Caching, Request, Rung};
use super::pool::{Place, Pool};
use super::size_class::MIN_SEGMENT;
use crate::ids::{BlockId, Fence, FenceSet, Horizons, MemPoolId, StreamId};

/// When live blocks are moved without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Compaction {
    /// Never.
    Off,
    /// Before a request fails.
    #[default]
    Pressure,
    /// Also before much more is reserved than is live, as long as all that was moved stays below this share of all that
    /// was allocated. A request may wait for the device then, until a segment that was emptied has gone back.
    Share(f64),
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

/// With a budget for moves, up to this share of what is live at most is reserved on top of it before blocks are moved.
const SLACK_SHARE: u64 = 64;

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
            self.vain = None;
        }
    }

    /// Empties segments by moves of `stream` of at most `budget` bytes in all, those first that give back most for what is
    /// moved, and marks them for release. `poll_move` and then `poll_release` hand out what to do.
    pub fn compact(&mut self, stream: StreamId, budget: u64, horizons: &impl Horizons) -> Compacted {
        let (moves, moved_bytes) = (self.stats.moves, self.stats.moved_bytes);
        let mut released_bytes = 0;
        let Some(mut layout) = Layout::of(self, MemPoolId::DEFAULT, 0, MUCH) else { return Compacted::default() };
        while let Some(emptied) = layout.empty(1, budget) {
            self.carry_out(&mut layout, stream, horizons);
            for segment in emptied {
                if self.segments[segment].lent > 0 {
                    return self.compacted(moves, moved_bytes, released_bytes);
                }
                released_bytes += self.segments[segment].size;
                self.mark(segment);
                layout.forget(segment);
            }
        }
        self.compacted(moves, moved_bytes, released_bytes)
    }

    fn compacted(&self, moves: u64, moved_bytes: u64, released_bytes: u64) -> Compacted {
        let stats = &self.stats;
        Compacted { moves: stats.moves - moves, moved_bytes: stats.moved_bytes - moved_bytes, released_bytes }
    }

    /// Bytes up to which segments are bought without a thought of moving blocks instead.
    pub(super) fn ceiling(&self, size: u64) -> u64 {
        let Compaction::Share(_) = self.config.compaction else { return self.limit };
        let stats = &self.stats;
        let live = stats.most_allocated().max(stats.allocated_bytes.current + size);
        (live + live / SLACK_SHARE + MIN_SEGMENT).max(stats.most_reserved()).min(self.limit)
    }

    /// Bytes that may be moved for a request that fits nowhere below `limit`.
    fn allowance(&self, limit: u64) -> u64 {
        match self.config.compaction {
            Compaction::Off => 0,
            Compaction::Share(share) if limit < self.limit => {
                let allowed = (self.stats.ever_allocated() as f64 * share) as u64;
                allowed.saturating_sub(self.stats.ever_moved())
            }
            _ => u64::MAX,
        }
    }

    /// Moves blocks for a request that nothing else can serve below `limit`.
    pub(super) fn compact_for(
        &mut self,
        size: u64,
        limit: u64,
        request: &mut Request,
        horizons: &impl Horizons,
    ) -> Option<Answer> {
        let wish = self.wish(size, limit, request);
        if wish.most == 0
            || self.config.caching == Caching::Unpooled
            || self.breakdown().cached.saturating_add(wish.left) < size
            || self.vain.is_some_and(|vain| wish.asks_as_much_as(&vain))
        {
            return None;
        }
        self.stats.move_plans += 1;
        let Some(Plan { mut layout, pool, empties }) = self.plan(&wish) else {
            self.vain = Some(wish);
            return None;
        };
        if layout.to_buy() > 0 {
            request.hosting = true;
            return Some(self.buy(layout.to_buy(), pool, None, request));
        }
        request.hosting = false;
        self.carry_out(&mut layout, request.stream, horizons);
        if empties {
            request.rounds += 1;
            if limit == self.limit {
                request.rung = Rung::Exact;
                self.book_retry(request);
            }
            self.mark_idle();
            return Some(self.wait_for_completion());
        }
        let free = self.search(size, Effort::AnyBacklog, request, horizons)?;
        Some(self.lend(free, size, request, horizons))
    }

    fn wish(&self, size: u64, limit: u64, request: &Request) -> Wish {
        let refused = request.rung == Rung::Refused;
        let left = match refused {
            true => 0,
            false => limit.saturating_sub(self.stats.reserved_bytes.current + self.pending),
        };
        let last = limit == self.limit;
        let (rounds, fuel) = if last { (MOST_ROUNDS, MUCH) } else { (1, LITTLE) };
        Wish {
            pool: request.pool,
            size,
            left,
            // Once a segment was bought to move blocks into, they are moved.
            room: if request.hosting { 0 } else { left.min(self.config.max_segment) },
            most: self.allowance(limit),
            fuel,
            empties: request.rounds < rounds && !refused,
            last,
        }
    }

    fn plan(&self, wish: &Wish) -> Option<Plan> {
        // A plan moves no more than what is live, whatever it costs otherwise.
        let most = wish.most.min(self.stats.allocated_bytes.current);
        let mut layout = Layout::of(self, wish.pool, wish.room, wish.fuel / 2)?;
        // (Nothing to move: a free block with an edge. Below the limit it is better to buy.)
        let found = layout.make_window(wish.size, most).is_some() && (layout.bytes > 0 || wish.last);
        let most = if found { layout.bytes } else { most };
        let window = layout.undo(0);
        if wish.empties {
            // Only everybody's segments go back, also for a private pool's request.
            let (mut all, theirs) = match wish.pool {
                MemPoolId::DEFAULT => (layout, None),
                _ => (Layout::of(self, MemPoolId::DEFAULT, wish.room, wish.fuel / 2)?, Some(layout)),
            };
            all.fuel = wish.fuel / 2;
            let needed = wish.size.saturating_sub(wish.left).max(1);
            if all.empty(needed, most).is_some() || !found && all.gain(needed, most).1 > 0 {
                return Some(Plan { layout: all, pool: MemPoolId::DEFAULT, empties: true });
            }
            all.undo(0);
            layout = theirs.unwrap_or(all);
        }
        if !found {
            return None;
        }
        layout.redo(&window);
        Some(Plan { layout, pool: wish.pool, empties: false })
    }

    /// Does what was tried out.
    fn carry_out(&mut self, layout: &mut Layout, stream: StreamId, horizons: &impl Horizons) {
        self.vain = None;
        for step in std::mem::take(&mut layout.steps) {
            let hole = Hole { segment: layout.regions[step.to.0 as usize].segment, offset: step.to.1, after: step.after };
            let done = self.relocate(step.block, hole, stream, horizons);
            debug_assert!(done, "{step:?} cannot be done");
            if !done {
                return;
            }
        }
    }

    /// Moves a block to the front of a free one.
    fn relocate(&mut self, block: u32, to: Hole, stream: StreamId, horizons: &impl Horizons) -> bool {
        let segment = to.segment;
        let Some(hole) = self.free_at(block, to) else { return false };
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
            self.book_taken(segment, size);
            hole
        };
        let from = self.place(BlockId(block));
        // The records change places: the block keeps its name.
        let (old, new) = (self.position(block), self.position(target));
        self.put(block, new);
        self.put(target, old);
        self.segments[from.segment.0].lent -= 1;
        self.segments[segment].lent += 1;
        self.segments[segment].buyer = 0;
        self.book(block, target, from, stream, horizons);
        true
    }

    /// The free block that `block` is to go to.
    fn free_at(&self, block: u32, to: Hole) -> Option<u32> {
        let at = match to.after {
            NONE => self.segments.get(to.segment)?.first,
            before => self.blocks.get(before)?.next,
        };
        let is_there = |at: u32| self.blocks[at].segment == to.segment && self.blocks[at].offset == to.offset;
        (self.is_free(at) && self.is_movable(block) && is_there(at)).then_some(at)
    }

    /// Moves a block to the front of the free one before it.
    fn slide_down(&mut self, block: u32, stream: StreamId, horizons: &impl Horizons) -> bool {
        let gap = self.blocks[block].prev;
        self.unlist(gap);
        self.book_taken(self.blocks[gap].segment, self.blocks[gap].size);
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
        self.book_moved(block, from);
        self.moves.push_back(Move { block: BlockId(block), from, to, fence, after });
        self.merge_and_list(free, horizons);
    }
}

/// What a plan is made for.
///
/// Where none was found, none is looked for that asks as much and allows as little ([`Pool::vain`]): until something is
/// freed, bought, moved or unpinned, blocks that are lent only stand in the way. (What has gone back to the driver is in
/// `left`, and so is a new limit.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pool: MemPoolId,
    /// Bytes in one piece.
    size: u64,
    /// Bytes that could be bought.
    left: u64,
    /// Of these, in one segment for blocks that have to go somewhere.
    room: u64,
    /// Bytes that may be moved.
    most: u64,
    /// Work that may be done.
    fuel: u64,
    /// Whether segments may be emptied.
    empties: bool,
    /// Whether the request fails without a plan.
    last: bool,
}

impl Wish {
    fn asks_as_much_as(&self, other: &Wish) -> bool {
        self.pool == other.pool
            && self.size >= other.size
            && self.left <= other.left
            && self.room <= other.room
            && self.most <= other.most
            && self.fuel <= other.fuel
            && self.empties <= other.empties
            && self.last <= other.last
    }
}

/// Moves tried out that serve a [`Wish`].
struct Plan {
    layout: Layout,
    /// Whose blocks move.
    pool: MemPoolId,
    /// They empty segments; otherwise they bring free blocks together.
    empties: bool,
}

/// A free block: where it lies, and the block before it (`NONE` at the start).
#[derive(Clone, Copy)]
struct Hole {
    segment: u32,
    offset: u64,
    after: u32,
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
