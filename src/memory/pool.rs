//! The state machine: commands and reports in, answers out.

use std::collections::VecDeque;

use super::block::{Arena, Block, BlockState, NONE, Segment, SegmentState};
use super::compact::Move;
use super::free_list::{Effort, FreeList, Home, needs_edge};
use super::free_tree::Key;
use super::policy::{Caching, Category, Config, Request, Rung, Tag};
use super::report::{Holder, OomCause, OomReport};
use super::size_class::{SEGMENT_STEP, round_up, segment_size};
use super::stats::{Breakdown, Stats};
use crate::ids::{BlockId, FenceSet, Horizons, SegmentId};

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer.
    pub segment: SegmentId,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes, rounded up from what was asked for.
    pub size: u64,
}

/// Ask the driver for this many bytes, then report with [`Pool::handle_segment`] or [`Pool::handle_segment_failed`].
/// One of the two must come: until then the bytes count against the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRequest {
    /// Bytes to buy.
    pub size: u64,
}

/// What the caller of [`Pool::alloc`] must do.
#[derive(Debug)]
pub enum Answer {
    /// The block may be used by commands of the stream that come after `after`.
    Ready {
        /// The block.
        block: BlockId,
        /// Where it lies.
        place: Place,
        /// Commands of other streams, not yet submitted, that the first use must be ordered after.
        after: FenceSet,
    },
    /// Buy a segment (first release what `poll_release` hands out), report, and ask again.
    NeedSegment(SegmentRequest),
    /// Last resort: submit everything, wait until the work completed, report it with `handle_completed` and ask again.
    NeedCompletion,
    /// No memory can be had.
    Exhausted(Box<OomReport>),
}

/// Sizes beyond this are refused by every driver; below it no sum of sizes overflows.
const MAX_SEGMENT: u64 = 1 << 56;

/// With a budget for moves, up to this share of what is live at most is reserved on top of it before blocks are moved.
const SLACK_SHARE: u64 = 50;

/// The caching allocator of one device. See the [module](super) for its words and its contract.
#[derive(Debug)]
pub struct Pool {
    pub(super) config: Config,
    pub(super) blocks: Arena<Block>,
    pub(super) segments: Arena<Segment>,
    /// Free blocks of open segments.
    pub(super) free: FreeList,
    /// Segments in state `Marked`.
    pub(super) marked: Vec<u32>,
    /// Segments in state `Retiring`.
    pub(super) retiring: Vec<u32>,
    /// Bytes answered with `NeedSegment` and not yet reported.
    pub(super) pending: u64,
    /// Planned and not yet enqueued.
    pub(super) moves: VecDeque<Move>,
    pub(super) stats: Stats,
    pub(super) breakdown: Breakdown,
}

impl Pool {
    /// An empty pool. The alignment becomes a power of two of at least 256.
    pub fn new(mut config: Config) -> Pool {
        config.alignment = config.alignment.clamp(256, MAX_SEGMENT).next_power_of_two();
        config.max_segment = config.max_segment.min(MAX_SEGMENT);
        Pool {
            config,
            blocks: Arena::new(),
            segments: Arena::new(),
            free: FreeList::default(),
            marked: Vec::new(),
            retiring: Vec::new(),
            pending: 0,
            moves: VecDeque::new(),
            stats: Stats::default(),
            breakdown: Breakdown::default(),
        }
    }

    /// Asks for memory. Do what the answer says and ask again with the same `request` until it is `Ready` or `Exhausted`.
    ///
    /// The ladder: a fitting free block; a new segment (idle ones make room for it under the limit; a smaller one when the
    /// driver refuses); a free block with any edge; once per request, completion of all work; out of memory.
    pub fn alloc(&mut self, request: &mut Request, horizons: &impl Horizons) -> Answer {
        let size = round_up(request.bytes.max(1), self.config.alignment);
        if let Some(key) = self.search(size, Effort::ShortBacklog, request, horizons) {
            return self.lend(key, size, request, horizons);
        }
        self.reap(horizons);
        if self.config.caching == Caching::Pooled
            && self.unmark_fitting(size)
            && let Some(key) = self.search(size, Effort::ShortBacklog, request, horizons)
        {
            return self.lend(key, size, request, horizons);
        }
        let hopeless = if size > self.config.max_segment {
            Some(OomCause::LargerThanBuffer)
        } else if size > self.config.limit {
            Some(OomCause::LargerThanLimit)
        } else {
            None
        };
        let ceiling = self.ceiling(size);
        if hopeless.is_none() {
            if let Some(bytes) = self.plan_purchase(size, ceiling, request, horizons) {
                return self.buy(bytes);
            }
            if ceiling < self.config.limit {
                if let Some(answer) = self.compact_for(size, ceiling, request, horizons) {
                    return answer;
                }
                if env("EX", 1) == 1 && request.rung == Rung::Grown { request.rung = Rung::Exact; }
                if let Some(bytes) = self.plan_purchase(size, self.config.limit, request, horizons) {
                    return self.buy(bytes);
                }
            }
        }
        if let Some(key) = self.search(size, Effort::AnyBacklog, request, horizons) {
            return self.lend(key, size, request, horizons);
        }
        if hopeless.is_none()
            && let Some(answer) = self.compact_for(size, self.config.limit, request, horizons)
        {
            return answer;
        }
        if let Some(cause) = hopeless {
            return self.exhausted(cause, size, request);
        }
        if !request.waited {
            request.waited = true;
            request.rung = Rung::Exact;
            self.stats.num_alloc_retries += 1;
            self.mark_idle();
            return Answer::NeedCompletion;
        }
        let cause = match request.rung {
            _ if self.breakdown.cached >= size => OomCause::Fragmented,
            Rung::Refused => OomCause::Driver,
            _ => OomCause::Limit,
        };
        self.exhausted(cause, size, request)
    }

    /// Takes a block back; `last_uses` are the commands that may still use it.
    ///
    /// Without any (it was never used) it keeps the uses it was lent with.
    pub fn free(&mut self, block: BlockId, last_uses: FenceSet, horizons: &impl Horizons) {
        let BlockId(at) = block;
        if self.blocks.get(at).is_none_or(|record| record.state != BlockState::Lent) {
            debug_assert!(false, "{block:?} is freed but not lent");
            return;
        }
        let record = &mut self.blocks[at];
        let (size, requested, segment) = (record.size, record.requested, record.segment);
        let category = record.tag.category;
        record.state = BlockState::Free;
        record.requested = 0;
        record.pins = 0;
        if !last_uses.is_empty() {
            record.uses = last_uses;
        }
        self.segments[segment].uses.merge(&self.blocks[at].uses);
        self.forget_submitted(at, horizons);

        self.stats.allocation.sub(1);
        self.stats.allocated_bytes.sub(size);
        self.stats.requested_bytes.sub(requested);
        self.breakdown.requested[category as usize] -= requested;
        self.breakdown.rounding -= size - requested;
        self.breakdown.cached += size;
        self.segments[segment].lent -= 1;

        self.merge_and_list(at, horizons);
        if self.config.caching == Caching::Unpooled {
            self.mark(segment);
        }
    }

    /// The driver sold the segment that was asked for.
    pub fn handle_segment(&mut self, request: SegmentRequest) -> SegmentId {
        let size = request.size;
        self.pending = self.pending.saturating_sub(size);
        self.stats.segment.add(1);
        self.stats.reserved_bytes.add(size);
        self.stats.num_device_alloc += 1;
        self.breakdown.cached += size;
        let segment = self.segments.insert(Segment {
            state: SegmentState::Open,
            size,
            first: NONE,
            lent: 0,
            fresh: true,
            uses: FenceSet::new(),
        });
        let block = self.blocks.insert(Block::free(segment, 0, size));
        self.segments[segment].first = block;
        self.list(block);
        SegmentId(segment)
    }

    /// The driver refused the segment that `request` was told to buy.
    pub fn handle_segment_failed(&mut self, request: &mut Request, segment: SegmentRequest, horizons: &impl Horizons) {
        self.pending = self.pending.saturating_sub(segment.size);
        let exact = round_up(request.bytes.max(1), self.config.alignment);
        request.rung = match request.rung {
            Rung::Grown if segment.size > exact => Rung::Exact,
            Rung::Grown | Rung::Exact if self.release_idle(u64::MAX, horizons) > 0 => Rung::Released,
            _ => Rung::Refused,
        };
    }

    /// Work has completed: the memory of retiring segments may be free now.
    pub fn handle_completed(&mut self, horizons: &impl Horizons) {
        self.reap(horizons);
    }

    /// The next segment whose buffer is to be dropped, with everything that keeps it alive (bind groups). Its memory is
    /// *retiring* until the work that used it has completed; then the id may name another segment.
    pub fn poll_release(&mut self, horizons: &impl Horizons) -> Option<SegmentId> {
        let at = self.marked.iter().position(|segment| {
            let uses = &self.segments[*segment].uses;
            uses.iter().all(|fence| fence.number <= horizons.submitted(fence.stream))
        })?;
        let segment = self.marked.swap_remove(at);
        self.segments[segment].state = SegmentState::Retiring;
        self.retiring.push(segment);
        if self.has_completed(segment, horizons) {
            self.reap(horizons);
        }
        Some(SegmentId(segment))
    }

    /// Marks every idle segment for release; `poll_release` hands them out.
    pub fn empty_cache(&mut self) {
        for segment in self.segments.iter_mut() {
            segment.fresh = false;
        }
        self.mark_idle();
    }

    pub(super) fn mark_idle(&mut self) {
        for segment in self.idle_segments() {
            self.mark(segment);
        }
    }

    /// Bytes that may be reserved from now on. Idle segments above it are marked for release; blocks that are lent stay.
    pub fn set_limit(&mut self, limit: u64) {
        self.config.limit = limit;
        for segment in self.idle_segments() {
            if self.stats.reserved_bytes.current.saturating_sub(self.breakdown.retiring) <= limit {
                break;
            }
            self.mark(segment);
        }
    }

    /// Says what a lent block is used for from now on.
    pub fn set_category(&mut self, block: BlockId, category: Category) {
        if self.blocks.get(block.0).is_some_and(|record| record.state == BlockState::Lent) {
            let record = &mut self.blocks[block.0];
            self.breakdown.requested[record.tag.category as usize] -= record.requested;
            self.breakdown.requested[category as usize] += record.requested;
            record.tag.category = category;
        }
    }

    /// Where a lent block lies.
    pub fn place(&self, block: BlockId) -> Place {
        let record = &self.blocks[block.0];
        Place { segment: SegmentId(record.segment), offset: record.offset, size: record.size }
    }

    /// Unsubmitted commands (as of its last free) that used the bytes of a lent block before: those of the stream that
    /// asked, which program order covers, included. A first use on *another* stream must be ordered after these.
    pub fn inherited(&self, block: BlockId) -> &FenceSet {
        &self.blocks[block.0].uses
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Bytes of each category, rounding, cached and retiring; the sum is `reserved`.
    pub fn breakdown(&self) -> Breakdown {
        self.breakdown
    }

    /// Every peak becomes the current value.
    pub fn reset_peak_stats(&mut self) {
        for stat in self.stats.stats_mut() {
            stat.peak = stat.current;
        }
    }

    /// Sums and event counters start again at zero; current values and peaks stay.
    pub fn reset_accumulated_stats(&mut self) {
        for stat in self.stats.stats_mut() {
            (stat.allocated, stat.freed) = (0, 0);
        }
        let stats = &mut self.stats;
        (stats.num_device_alloc, stats.num_device_free) = (0, 0);
        (stats.num_ooms, stats.num_alloc_retries, stats.order_edges) = (0, 0, 0);
    }

    /// The `count` largest holders of live memory, by label and caller's line, largest first.
    pub fn largest_holders(&self, count: usize) -> Vec<Holder> {
        let live = self.blocks.iter().map(|(_, block)| block).filter(|block| block.state == BlockState::Lent);
        let mut all: Vec<Holder> = live
            .map(|block| Holder { label: block.tag.label, location: block.tag.location, count: 1, bytes: block.size })
            .collect();
        let name = |holder: &Holder| (holder.location.file(), holder.location.line(), holder.location.column(), holder.label);
        all.sort_by_key(name);
        all.dedup_by(|next, first| {
            let same = name(next) == name(first);
            if same {
                first.count += next.count;
                first.bytes += next.bytes;
            }
            same
        });
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| name(a).cmp(&name(b))));
        all.truncate(count);
        all
    }

    pub(super) fn search(&self, size: u64, effort: Effort, request: &Request, horizons: &impl Horizons) -> Option<Key> {
        let uses_of = |block| &self.blocks[block].uses;
        let found = self.free.search(request.stream, size, effort, uses_of, horizons);
        // Unpooled, the only free blocks are segments that were bought and not yet asked for: each for one size.
        found.filter(|key| self.config.caching == Caching::Pooled || key.size == size)
    }

    /// Lends the front of a free block; what is left stays free.
    pub(super) fn lend(&mut self, key: Key, size: u64, request: &Request, horizons: &impl Horizons) -> Answer {
        let at = if key.size > size && self.config.caching == Caching::Pooled {
            self.split(key, size)
        } else {
            self.unlist(key.block);
            key.block
        };
        let record = &mut self.blocks[at];
        record.state = BlockState::Lent;
        record.requested = request.bytes;
        record.tag = request.tag;
        let (segment, offset, size) = (record.segment, record.offset, record.size);
        let after: FenceSet = record.uses.iter().filter(|fence| needs_edge(*fence, request.stream, horizons)).collect();

        self.segments[segment].lent += 1;
        self.segments[segment].fresh = false;
        self.stats.order_edges += after.len() as u64;
        self.stats.allocation.add(1);
        self.stats.allocated_bytes.add(size);
        self.stats.requested_bytes.add(request.bytes);
        self.breakdown.requested[request.tag.category as usize] += request.bytes;
        self.breakdown.rounding += size - request.bytes;
        self.breakdown.cached -= size;
        Answer::Ready { block: BlockId(at), place: Place { segment: SegmentId(segment), offset, size }, after }
    }

    /// Cuts `size` bytes off the front of a free block, as a block that is in no list.
    pub(super) fn split(&mut self, key: Key, size: u64) -> u32 {
        let rest = &self.blocks[key.block];
        let (segment, offset, prev) = (rest.segment, rest.offset, rest.prev);
        let mut front = Block::free(segment, offset, size);
        (front.prev, front.next) = (prev, key.block);
        rest.uses.iter().for_each(|fence| front.uses.insert(fence));
        let home = Home::of(&rest.uses);
        let front = self.blocks.insert(front);
        let rest = &mut self.blocks[key.block];
        rest.prev = front;
        rest.offset += size;
        rest.size -= size;
        self.link(segment, prev, front);
        self.free.rekey(key, home, self.key(key.block), home);
        front
    }

    /// Lists a block that has become free, as one with its free neighbours. The neighbour's record takes it in: a rest that
    /// shrinks and grows again keeps its place in the order.
    pub(super) fn merge_and_list(&mut self, at: u32, horizons: &impl Horizons) {
        let (prev, next) = (self.blocks[at].prev, self.blocks[at].next);
        let keep = match (self.is_free(prev), self.is_free(next)) {
            (false, false) => return self.list(at),
            (true, false) => prev,
            (_, true) => next,
        };
        let (old, from) = (self.key(keep), Home::of(&self.blocks[keep].uses));
        self.absorb(keep, at);
        if keep == next && self.is_free(prev) {
            self.unlist(prev);
            self.absorb(keep, prev);
        }
        self.forget_submitted(keep, horizons);
        self.free.rekey(old, from, self.key(keep), Home::of(&self.blocks[keep].uses));
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
    pub(super) fn link(&mut self, segment: u32, prev: u32, block: u32) {
        match prev {
            NONE => self.segments[segment].first = block,
            prev => self.blocks[prev].next = block,
        }
    }

    /// Drops the uses that every later command comes after anyway.
    fn forget_submitted(&mut self, block: u32, horizons: &impl Horizons) {
        let uses = &mut self.blocks[block].uses;
        if uses.iter().any(|fence| fence.number <= horizons.submitted(fence.stream)) {
            uses.retain(|fence| fence.number > horizons.submitted(fence.stream));
        }
    }

    pub(super) fn is_free(&self, block: u32) -> bool {
        block != NONE && self.blocks[block].state == BlockState::Free
    }

    pub(super) fn key(&self, at: u32) -> Key {
        let block = &self.blocks[at];
        Key { size: block.size, segment: block.segment, offset: block.offset, block: at }
    }

    fn list(&mut self, at: u32) {
        self.free.insert(self.key(at), Home::of(&self.blocks[at].uses));
    }

    pub(super) fn unlist(&mut self, at: u32) {
        self.free.remove(self.key(at), Home::of(&self.blocks[at].uses));
    }

    /// Open segments without a lent block, the largest last; not those that their buyers have not come for.
    fn idle_segments(&self) -> Vec<u32> {
        let is_idle = |segment: &Segment| segment.state == SegmentState::Open && segment.lent == 0 && !segment.fresh;
        let idle = self.segments.iter().filter(|(_, segment)| is_idle(segment));
        let mut idle: Vec<u32> = idle.map(|(at, _)| at).collect();
        idle.sort_by_key(|at| self.segments[*at].size);
        idle
    }

    /// Takes an idle segment out of use; `poll_release` will hand it out.
    pub(super) fn mark(&mut self, segment: u32) {
        let block = self.segments[segment].first;
        self.unlist(block);
        self.blocks[block].state = BlockState::Withdrawn;
        self.segments[segment].state = SegmentState::Marked;
        self.marked.push(segment);
        self.breakdown.cached -= self.segments[segment].size;
        self.breakdown.retiring += self.segments[segment].size;
    }

    /// Takes the smallest marked segment that fits `size` back into use. False when there is none.
    fn unmark_fitting(&mut self, size: u64) -> bool {
        let fitting = self.marked.iter().enumerate().filter(|(_, segment)| self.segments[**segment].size >= size);
        let Some((at, _)) = fitting.min_by_key(|(_, segment)| (self.segments[**segment].size, **segment)) else { return false };
        let segment = self.marked.swap_remove(at);
        self.segments[segment].state = SegmentState::Open;
        let block = self.segments[segment].first;
        self.blocks[block].state = BlockState::Free;
        self.list(block);
        self.breakdown.cached += self.segments[segment].size;
        self.breakdown.retiring -= self.segments[segment].size;
        true
    }

    fn has_completed(&self, segment: u32, horizons: &impl Horizons) -> bool {
        self.segments[segment].uses.iter().all(|fence| fence.number <= horizons.completed(fence.stream))
    }

    /// Forgets retiring segments whose work has completed.
    fn reap(&mut self, horizons: &impl Horizons) {
        let mut at = 0;
        while at < self.retiring.len() {
            let segment = self.retiring[at];
            if !self.has_completed(segment, horizons) {
                at += 1;
                continue;
            }
            self.retiring.swap_remove(at);
            let record = &mut self.segments[segment];
            record.state = SegmentState::Vacant;
            let (size, block) = (record.size, record.first);
            self.segments.release(segment);
            self.blocks[block].state = BlockState::Vacant;
            self.blocks.release(block);
            self.stats.segment.sub(1);
            self.stats.reserved_bytes.sub(size);
            self.stats.num_device_free += 1;
            self.breakdown.retiring -= size;
        }
    }

    pub(super) fn buy(&mut self, bytes: u64) -> Answer {
        self.pending += bytes;
        Answer::NeedSegment(SegmentRequest { size: bytes })
    }

    /// Bytes up to which segments are bought without a thought of moving blocks instead.
    fn ceiling(&self, size: u64) -> u64 {
        let stats = &self.stats;
        if self.config.compaction.budget_permille == 0 {
            return self.config.limit;
        }
        let live = stats.allocated_bytes.peak.max(stats.allocated_bytes.current + size);
        (live + live / env("SLACK", SLACK_SHARE) + SEGMENT_STEP).max(stats.reserved_bytes.peak).min(self.config.limit)
    }

    /// Bytes to buy next for a block of `size` bytes.
    ///
    /// Before `reserved` passes its limit or its peak so far, idle segments (none of them fits) are marked for release, as
    /// far as they can be given back without waiting. A program in its steady state is below its peak and buys nothing.
    fn plan_purchase(&mut self, size: u64, limit: u64, request: &Request, horizons: &impl Horizons) -> Option<u64> {
        let grown = match (self.config.caching, request.rung) {
            (_, Rung::Refused) => return None,
            (Caching::Pooled, Rung::Grown) => {
                segment_size(size, self.stats.reserved_bytes.current, self.config.max_segment, self.config.alignment)
            }
            _ => size,
        };
        let leaving = self.marked.iter().filter(|at| self.has_completed(**at, horizons));
        let leaving: u64 = leaving.map(|at| self.segments[*at].size).sum();
        let held = (self.stats.reserved_bytes.current + self.pending).saturating_sub(leaving);
        let over_limit = (held + size).saturating_sub(limit);
        let over_peak = (held + size).saturating_sub(self.stats.reserved_bytes.peak);
        let released = match over_limit.max(over_peak) {
            0 => 0,
            over => self.release_idle(over, horizons),
        };
        let held = held - released;
        let room = limit.saturating_sub(held);
        let wanted = match released {
            0 => grown,
            // What was given back may be bought again, but not more on top of the block.
            _ => grown.min(self.stats.reserved_bytes.peak.saturating_sub(held)).max(size),
        };
        let smaller = if env("SMALLER", 1) == 1 && limit < self.config.limit { room.min(wanted) & !(self.config.alignment - 1) } else { size };
        [wanted, smaller].into_iter().find(|bytes| size <= *bytes && *bytes <= room)
    }

    /// Marks idle segments that can be given back without waiting, the largest first, until `bytes` are reached.
    /// Returns the bytes marked.
    fn release_idle(&mut self, bytes: u64, horizons: &impl Horizons) -> u64 {
        let mut released = 0;
        for segment in self.idle_segments().into_iter().rev() {
            if released >= bytes {
                break;
            }
            if self.has_completed(segment, horizons) {
                released += self.segments[segment].size;
                self.mark(segment);
            }
        }
        released
    }

    fn exhausted(&mut self, cause: OomCause, size: u64, request: &Request) -> Answer {
        self.stats.num_ooms += 1;
        Answer::Exhausted(Box::new(OomReport {
            cause,
            requested: request.bytes,
            rounded: size,
            stream: request.stream,
            label: request.tag.label,
            location: request.tag.location,
            limit: self.config.limit,
            max_segment: self.config.max_segment,
            allocated: self.stats.allocated_bytes.current,
            reserved: self.stats.reserved_bytes.current,
            pending: self.pending,
            largest_free: self.free.largest(),
            breakdown: self.breakdown,
            holders: self.largest_holders(5),
        }))
    }

    /// Gives `tag` of a lent block, for reports.
    pub fn tag(&self, block: BlockId) -> Tag {
        self.blocks[block.0].tag
    }
}

pub(super) fn env(n: &str, d: u64) -> u64 { std::env::var(n).ok().and_then(|x| x.parse().ok()).unwrap_or(d) }
