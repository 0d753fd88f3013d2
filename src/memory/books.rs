//! The books of blocks: lent, given back, split, merged, listed.

use super::block::{Block, BlockState, NONE};
use super::free_list::{Home, needs_edge};
use super::free_tree::Key;
use super::ladder::Answer;
use super::policy::{Caching, Request};
use super::pool::{Place, Pool};
use super::pytorch::{self, Owner, Waiting};
use crate::ids::{BlockId, Fence, FenceSet, Horizons, MemPoolId, SegmentId};

impl Pool {
    /// Lends the front of the block `free`; what is left stays free.
    pub(super) fn lend(&mut self, free: u32, size: u64, request: &Request, horizons: &impl Horizons) -> Answer {
        let (key, segment) = (self.key(free), self.blocks[free].segment);
        let record = &mut self.segments[segment];
        record.lent += 1;
        record.buyer = 0;
        let (owner, pool) = (record.owner, record.pool);
        let at = if key.size > size && self.splits(owner, pool, size, key.size - size) {
            self.split(key, size)
        } else {
            self.list_of_mut(pool).remove(key);
            self.book_taken(segment, key.size);
            key.block
        };
        let record = &mut self.blocks[at];
        record.state = BlockState::Lent;
        record.requested = request.bytes;
        record.stream = request.stream;
        record.tag = request.tag;
        let (block, place) = (BlockId(at), Place { segment: SegmentId(segment), offset: record.offset, size: record.size });
        if request.buyer != 0 {
            self.leave_bought(request.buyer);
        }
        self.book_lent(at);
        // Most blocks need none, and a filtered set is not free to build.
        let edge = |fence: &Fence| needs_edge(*fence, request.stream, horizons);
        let uses = &self.blocks[at].uses;
        if !uses.iter().any(|fence| edge(&fence)) {
            return Answer::Ready { block, place, after: FenceSet::new() };
        }
        let after: FenceSet = uses.iter().filter(edge).collect();
        self.stats.order_edges += after.len() as u64;
        Answer::Ready { block, place, after }
    }

    /// Whether what a request leaves of a free block becomes a block of its own.
    fn splits(&self, owner: Option<Owner>, pool: MemPoolId, size: u64, rest: u64) -> bool {
        let splits = match owner {
            Some(owner) => pytorch::splits(owner, size, rest, &self.config),
            None => self.config.caching == Caching::Pooled,
        };
        splits && !self.is_unsplit(pool)
    }

    /// Takes a block back; `last_uses` are the commands that may still use it.
    ///
    /// Without any (it was never used) it keeps the uses it was lent with.
    pub fn free(&mut self, block: BlockId, last_uses: FenceSet, horizons: &impl Horizons) {
        let BlockId(at) = block;
        match self.blocks.get(at).map(|record| record.state) {
            Some(BlockState::Lent) => {}
            Some(BlockState::Imported) => return self.free_imported(at, last_uses),
            _ => {
                debug_assert!(false, "{block:?} is freed but not lent");
                return;
            }
        }
        self.book_free_requested(at);
        let record = &mut self.blocks[at];
        record.pins = 0;
        let segment = record.segment;
        let owning = &mut self.segments[segment];
        if last_uses.is_empty() {
            owning.uses.merge(&record.uses);
        } else {
            owning.uses.merge(&last_uses);
            record.uses = last_uses;
        }
        if let Some(owner) = owning.owner {
            let events = self.events(owner, &self.blocks[at].uses, horizons);
            if !events.is_empty() {
                self.blocks[at].state = BlockState::Waiting;
                self.waiting.push(Waiting { block: at, events });
                self.book_waiting(at, true);
                return;
            }
        }
        self.make_free(at, horizons);
        if self.config.caching == Caching::Unpooled {
            self.mark(segment);
        }
    }

    /// A block that was given back becomes free.
    #[inline(always)]
    pub(super) fn make_free(&mut self, at: u32, horizons: &impl Horizons) {
        self.book_free_completed(at);
        self.vain = None;
        let record = &mut self.blocks[at];
        record.state = BlockState::Free;
        record.requested = 0;
        let segment = &mut self.segments[record.segment];
        segment.lent -= 1;
        if segment.lent == 0 {
            segment.idle_since = self.searches;
        }
        self.forget_submitted(at, horizons);
        self.merge_and_list(at, horizons);
    }

    /// Cuts `size` bytes off the front of a free block, as a block that is in no list.
    pub(super) fn split(&mut self, key: Key, size: u64) -> u32 {
        let rest = &self.blocks[key.block];
        let (segment, offset, prev) = (rest.segment, rest.offset, rest.prev);
        let mut front = Block::free(segment, offset, size);
        (front.prev, front.next) = (prev, key.block);
        rest.uses.iter().for_each(|fence| front.uses.insert(fence));
        let home = self.home(key.block);
        let front = self.blocks.insert(front);
        let rest = &mut self.blocks[key.block];
        rest.prev = front;
        rest.offset += size;
        rest.size -= size;
        self.link(segment, prev, front);
        let rest = self.key(key.block);
        self.list_of_mut(self.segments[segment].pool).rekey(key, rest, home);
        self.book_split(segment, key.size, size);
        front
    }

    /// Lists a block that has become free, as one with its free neighbours. The neighbour's record takes it in: a rest that
    /// shrinks and grows again keeps its place in the order.
    #[inline(always)]
    pub(super) fn merge_and_list(&mut self, at: u32, horizons: &impl Horizons) {
        let Block { prev, next, .. } = self.blocks[at];
        match (self.is_free(prev), self.is_free(next)) {
            (false, false) => {
                self.book_merged(at, 0, 0);
                self.list(at);
            }
            (true, false) => self.merge(at, prev, horizons),
            (_, true) => self.merge(at, next, horizons),
        }
    }

    /// The record of the free neighbour `keep`, the next one if both are, takes the block in.
    fn merge(&mut self, at: u32, keep: u32, horizons: &impl Horizons) {
        let Block { prev, next, .. } = self.blocks[at];
        let old = self.key(keep);
        let (mut count, mut bytes) = (1, old.size);
        self.absorb(keep, at);
        if keep == next && self.is_free(prev) {
            (count, bytes) = (2, bytes + self.blocks[prev].size);
            self.unlist(prev);
            self.absorb(keep, prev);
        }
        self.forget_submitted(keep, horizons);
        let (new, home) = (self.key(keep), self.home(keep));
        self.list_of_mut(self.pool_of(keep)).rekey(old, new, home);
        self.book_merged(keep, count, bytes);
    }

    /// Joins two neighbours into the record of `keep`; `gone` is in no list.
    fn absorb(&mut self, keep: u32, gone: u32) {
        let record = &mut self.blocks[gone];
        record.state = BlockState::Vacant;
        let uses = std::mem::take(&mut record.uses);
        let (segment, offset, size, prev, next) = (record.segment, record.offset, record.size, record.prev, record.next);
        self.blocks.release(gone);
        let block = &mut self.blocks[keep];
        block.size += size;
        uses.iter().for_each(|fence| block.uses.insert(fence));
        if next == keep {
            block.offset = offset;
            block.prev = prev;
            self.link(segment, prev, keep);
        } else {
            block.next = next;
            if next != NONE {
                self.blocks[next].prev = keep;
            }
        }
    }

    /// `block` comes after `prev` in its segment.
    #[inline]
    pub(super) fn link(&mut self, segment: u32, prev: u32, block: u32) {
        match prev {
            NONE => self.segments[segment].first = block,
            prev => self.blocks[prev].next = block,
        }
    }

    /// Drops the uses that every later command comes after anyway.
    #[inline]
    fn forget_submitted(&mut self, block: u32, horizons: &impl Horizons) {
        let uses = &mut self.blocks[block].uses;
        if uses.iter().any(|fence| fence.number <= horizons.submitted(fence.stream)) {
            uses.retain(|fence| fence.number > horizons.submitted(fence.stream));
        }
    }

    #[inline]
    pub(super) fn is_free(&self, block: u32) -> bool {
        block != NONE && self.blocks[block].state == BlockState::Free
    }

    #[inline]
    pub(super) fn key(&self, at: u32) -> Key {
        self.listed(at).0
    }

    /// Which set of free blocks it belongs to while it is free.
    #[inline]
    pub(super) fn home(&self, at: u32) -> Home {
        self.listed(at).1
    }

    /// Its key, its set and its pool, with one look at its segment.
    #[inline(always)]
    fn listed(&self, at: u32) -> (Key, Home, MemPoolId) {
        let block = &self.blocks[at];
        let segment = &self.segments[block.segment];
        let key = Key { size: block.size, birth: segment.birth, offset: block.offset, block: at };
        (key, segment.owner.map_or_else(|| Home::of(&block.uses), Home::owned), segment.pool)
    }

    #[inline]
    pub(super) fn pool_of(&self, at: u32) -> MemPoolId {
        self.segments[self.blocks[at].segment].pool
    }

    #[inline]
    pub(super) fn list(&mut self, at: u32) {
        let (key, home, pool) = self.listed(at);
        self.list_of_mut(pool).insert(key, home);
    }

    #[inline]
    pub(super) fn unlist(&mut self, at: u32) {
        let key = self.key(at);
        self.list_of_mut(self.pool_of(at)).remove(key);
    }
}
