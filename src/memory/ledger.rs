//! The books of the whole pool: what every change does to counters, categories and history, in one place.

use super::block::{Block, BlockState, Segment};
use super::history::{Action, Event};
use super::policy::{Category, Request};
use super::pool::{Place, Pool};
use super::pytorch::SMALL_SIZE;
use super::stats::{Breakdown, Stats};
use crate::ids::BlockId;

impl Pool {
    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats.stats()
    }

    /// Bytes of each category, rounding, cached and retiring; the sum is `reserved`.
    ///
    /// Only what cannot be worked out from the counters is kept: few additions for each block.
    pub fn breakdown(&self) -> Breakdown {
        let (requested, stats) = (self.requested, &self.stats);
        let allocated = stats.allocated_bytes.current;
        let retiring = self.leaving_bytes + stats.waiting_bytes.sum();
        Breakdown {
            requested,
            rounding: allocated - requested.iter().sum::<u64>(),
            cached: stats.reserved_bytes.current - allocated - retiring,
            retiring,
        }
    }

    /// Every peak becomes the current value.
    pub fn reset_peak_stats(&mut self) {
        let now = self.breakdown();
        self.stats.reset_peaks(now);
    }

    /// Sums and event counters start again at zero; current values and peaks stay.
    pub fn reset_accumulated_stats(&mut self) {
        self.stats.reset_sums();
    }

    /// Says what a lent block is used for from now on.
    pub fn set_category(&mut self, block: BlockId, category: Category) {
        if self.blocks.get(block.0).is_some_and(|record| record.state == BlockState::Lent) {
            let record = &mut self.blocks[block.0];
            self.requested[record.tag.category as usize] -= record.requested;
            record.tag.category = category;
            let requested = record.requested;
            self.book_requested(category, requested);
            self.note_block(Action::SetCategory, block.0);
        }
    }

    /// More bytes asked for in a category.
    #[inline(always)]
    fn book_requested(&mut self, category: Category, more: u64) {
        let (now, peak) = (&mut self.requested[category as usize], &mut self.stats.peak_requested[category as usize]);
        *now += more;
        *peak = (*peak).max(*now);
    }

    /// The block was free and is lent now.
    #[inline(always)]
    pub(super) fn book_lent(&mut self, at: u32) {
        let record = &self.blocks[at];
        let (size, requested, category) = (record.size, record.requested, record.tag.category);
        self.book_requested(category, requested);
        let (small, stats) = (requested <= SMALL_SIZE, &mut self.stats);
        let peak = stats.allocated_bytes.peak;
        stats.allocation.add(small, 1);
        stats.allocated_bytes.add(small, size);
        stats.requested_bytes.add(small, requested);
        if !self.waiting.is_empty() {
            stats.lift_active();
        }
        if size >= stats.max_split_size {
            stats.oversize_allocations.add(small, 1);
        }
        let allocated = stats.allocated_bytes.current;
        let most = stats.reserved_bytes.current == stats.reserved_bytes.peak && allocated > stats.most_at_peak;
        if allocated > peak || most {
            self.book_peak(allocated > peak, most);
        }
        if self.history.is_some() {
            self.note_block(Action::Alloc, at);
        }
    }

    /// The categories at a new peak of allocated bytes, or at the moment of most allocated bytes at the peak of reserved ones.
    fn book_peak(&mut self, allocated: bool, reserved: bool) {
        let now = self.breakdown();
        if allocated {
            self.stats.at_peak_allocated = now;
        }
        if reserved {
            (self.stats.at_peak_reserved, self.stats.most_at_peak) = (now, now.allocated());
        }
    }

    /// The holder gives the block back.
    #[inline(always)]
    pub(super) fn book_free_requested(&mut self, at: u32) {
        let record = &self.blocks[at];
        let (size, requested, category) = (record.size, record.requested, record.tag.category);
        self.requested[category as usize] -= requested;
        let (small, stats) = (requested <= SMALL_SIZE, &mut self.stats);
        stats.allocation.sub(small, 1);
        stats.allocated_bytes.sub(small, size);
        if size >= stats.max_split_size {
            stats.oversize_allocations.sub(small, 1);
        }
        if self.history.is_some() {
            self.note_block(Action::FreeRequested, at);
        }
    }

    /// It cannot be lent again yet, or, with `false`, it no longer waits.
    pub(super) fn book_waiting(&mut self, at: u32, waits: bool) {
        let Block { size, requested, .. } = self.blocks[at];
        self.stats.wait(requested <= SMALL_SIZE, size, waits);
    }

    /// It can be lent again.
    #[inline(always)]
    pub(super) fn book_free_completed(&mut self, at: u32) {
        let requested = self.blocks[at].requested;
        self.stats.requested_bytes.sub(requested <= SMALL_SIZE, requested);
        if self.history.is_some() {
            self.note_block(Action::FreeCompleted, at);
        }
    }

    /// The segment was bought; all of it is cached.
    pub(super) fn book_bought(&mut self, at: u32) {
        let segment = &self.segments[at];
        let (size, small, pool) = (segment.size, segment.small, segment.pool);
        let stats = &mut self.stats;
        let peak = stats.reserved_bytes.peak;
        stats.segment.add(small, 1);
        stats.reserved_bytes.add(small, size);
        if size >= stats.max_split_size {
            stats.oversize_segments.add(small, 1);
        }
        if let Some(meter) = stats.private_meter(pool) {
            meter.add(small, size);
        }
        stats.num_device_alloc += 1;
        if stats.reserved_bytes.current > peak {
            self.book_peak(false, true);
        }
        self.note_segment(Action::SegmentAlloc, at);
    }

    /// A cached segment is on its way back to the driver.
    pub(super) fn book_retiring(&mut self, at: u32) {
        self.leaving_bytes += self.segments[at].size;
        self.note_segment(Action::SegmentRetiring, at);
    }

    /// It was still there and is cached again.
    pub(super) fn book_restored(&mut self, at: u32) {
        self.leaving_bytes -= self.segments[at].size;
        self.note_segment(Action::SegmentRestored, at);
    }

    /// Its memory is the driver's again.
    pub(super) fn book_given_back(&mut self, at: u32) {
        let segment = &self.segments[at];
        let (size, small, pool) = (segment.size, segment.small, segment.pool);
        self.leaving_bytes -= size;
        let stats = &mut self.stats;
        stats.segment.sub(small, 1);
        stats.reserved_bytes.sub(small, size);
        if size >= stats.max_split_size {
            stats.oversize_segments.sub(small, 1);
        }
        if let Some(meter) = stats.private_meter(pool) {
            meter.sub(small, size);
        }
        stats.num_device_free += 1;
        self.note_segment(Action::SegmentFree, at);
    }

    /// The segment of a pool that was dropped is everybody's.
    pub(super) fn book_inherited(&mut self, at: u32) {
        let segment = &mut self.segments[at];
        let pool = std::mem::take(&mut segment.pool);
        if let Some(meter) = self.stats.private_meter(pool) {
            meter.sub(segment.small, segment.size);
        }
    }

    /// A live block lies elsewhere than at `from` from now on.
    pub(super) fn book_moved(&mut self, at: u32, from: Place) {
        self.stats.moves += 1;
        self.stats.moved_bytes = self.stats.moved_bytes.wrapping_add(from.size);
        let Some(history) = &mut self.history else { return };
        let (block, address) = (&self.blocks[at], |segment: u32| self.segments[segment].address);
        let event = Event::new(Action::Move, address(block.segment) + block.offset, block.requested, block.stream, block.tag);
        let pool = self.segments[block.segment].pool;
        history.push(Event { from: address(from.segment.0) + from.offset, block_size: block.size, pool, ..event });
    }

    /// All that is idle goes back, and the request is tried again. Counted once for each.
    pub(super) fn book_retry(&mut self, request: &mut Request) {
        self.stats.num_alloc_retries += u64::from(!std::mem::replace(&mut request.retried, true));
    }

    /// The request failed.
    pub(super) fn book_oom(&mut self, size: u64, request: &Request) {
        self.stats.num_ooms += 1;
        self.stats.num_oom_rejections += u64::from(!request.refused);
        let cached = self.breakdown().cached;
        if let Some(history) = &mut self.history {
            let event = Event::new(Action::Oom, 0, size, request.stream, request.tag);
            history.push(Event { free: cached, pool: request.pool, ..event });
        }
    }

    /// The front of a free block of `whole` bytes is cut off. (The three functions from here on count what is free beside
    /// live blocks: nothing is while a free block fills its segment.)
    #[inline]
    pub(super) fn book_split(&mut self, segment: u32, whole: u64, front: u64) {
        let Segment { size, small, .. } = self.segments[segment];
        if whole < size {
            self.stats.inactive_split_bytes.sub(small, front);
        } else {
            self.stats.inactive_split.add(small, 1);
            self.stats.inactive_split_bytes.add(small, whole - front);
        }
    }

    /// A free block of `whole` bytes is lent as it is.
    #[inline]
    pub(super) fn book_taken(&mut self, segment: u32, whole: u64) {
        let Segment { size, small, .. } = self.segments[segment];
        if whole < size {
            self.stats.inactive_split.sub(small, 1);
            self.stats.inactive_split_bytes.sub(small, whole);
        }
    }

    /// A block became free and took in `count` free neighbours of `bytes` in all.
    #[inline(always)]
    pub(super) fn book_merged(&mut self, at: u32, count: u64, bytes: u64) {
        let block = &self.blocks[at];
        let Segment { size, small, .. } = self.segments[block.segment];
        let stats = &mut self.stats;
        if block.size < size {
            match count {
                0 => stats.inactive_split.add(small, 1),
                _ => stats.inactive_split.sub(small, count - 1),
            }
            stats.inactive_split_bytes.add(small, block.size - bytes);
        } else {
            stats.inactive_split.sub(small, count);
            stats.inactive_split_bytes.sub(small, bytes);
        }
    }

    #[cold]
    pub(super) fn note_block(&mut self, action: Action, at: u32) {
        let Some(history) = &mut self.history else { return };
        let block = &self.blocks[at];
        let segment = &self.segments[block.segment];
        let address = segment.address + block.offset;
        let event = Event::new(action, address, block.requested, block.stream, block.tag);
        history.push(Event { block_size: block.size, pool: segment.pool, ..event });
        match action {
            Action::Alloc => history.lent(at),
            Action::FreeCompleted => history.freed(at),
            _ => {}
        }
    }

    fn note_segment(&mut self, action: Action, at: u32) {
        let Some(history) = &mut self.history else { return };
        let segment = &self.segments[at];
        let event = Event::new(action, segment.address, segment.size, segment.stream, segment.tag);
        history.push(Event { block_size: segment.size, pool: segment.pool, ..event });
    }
}
