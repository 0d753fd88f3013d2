//! The books of the whole pool: what every change does to counters, categories and history, in one place.

use super::block::BlockState;
use super::free_tree::Key;
use super::history::{Action, Event};
use super::policy::{Category, Request};
use super::pool::Pool;
use super::report::OomCause;
use super::stats::{Breakdown, SMALL_SIZE, Stats};
use crate::ids::BlockId;

/// Free blocks that do not fill their segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    pub count: u64,
    pub bytes: u64,
}

impl Pool {
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
        self.stats.reset_peaks(self.breakdown);
    }

    /// Sums and event counters start again at zero; current values and peaks stay.
    pub fn reset_accumulated_stats(&mut self) {
        self.stats.reset_sums();
    }

    /// Says what a lent block is used for from now on.
    pub fn set_category(&mut self, block: BlockId, category: Category) {
        if self.blocks.get(block.0).is_some_and(|record| record.state == BlockState::Lent) {
            let record = &mut self.blocks[block.0];
            self.breakdown.requested[record.tag.category as usize] -= record.requested;
            self.breakdown.requested[category as usize] += record.requested;
            record.tag.category = category;
            self.note_block(Action::SetCategory, block.0);
        }
    }

    /// The block was free and is lent now.
    #[inline]
    pub(super) fn book_lent(&mut self, at: u32) {
        let record = &self.blocks[at];
        let (size, requested, segment) = (record.size, record.requested, record.segment);
        let category = record.tag.category;
        self.breakdown.requested[category as usize] += requested;
        self.breakdown.rounding += size - requested;
        self.breakdown.cached -= size;

        let stats = &mut self.stats;
        let peak = stats.all.allocated_bytes.peak;
        for pool in [&mut stats.all, if requested <= SMALL_SIZE { &mut stats.small_pool } else { &mut stats.large_pool }] {
            pool.allocation.add(1);
            pool.allocated_bytes.add(size);
            pool.requested_bytes.add(requested);
        }
        let (allocated, reserved) = (stats.all.allocated_bytes.current, stats.all.reserved_bytes);
        if allocated > peak {
            stats.at_peak_allocated = self.breakdown;
        }
        if reserved.current == reserved.peak && allocated > stats.most_at_peak {
            (stats.at_peak_reserved, stats.most_at_peak) = (self.breakdown, allocated);
        }
        self.settle(segment);
        if self.history.is_some() {
            self.note_block(Action::Alloc, at);
        }
    }

    /// The block is lent and becomes free.
    #[inline]
    pub(super) fn book_freed(&mut self, at: u32) {
        let record = &self.blocks[at];
        let (size, requested, category) = (record.size, record.requested, record.tag.category);
        self.breakdown.requested[category as usize] -= requested;
        self.breakdown.rounding -= size - requested;
        self.breakdown.cached += size;
        let stats = &mut self.stats;
        for pool in [&mut stats.all, if requested <= SMALL_SIZE { &mut stats.small_pool } else { &mut stats.large_pool }] {
            pool.allocation.sub(1);
            pool.allocated_bytes.sub(size);
            pool.requested_bytes.sub(requested);
        }
        if self.history.is_some() {
            self.note_block(Action::FreeRequested, at);
            self.note_block(Action::FreeCompleted, at);
        }
    }

    /// The segment was bought; all of it is cached.
    pub(super) fn book_bought(&mut self, at: u32) {
        let segment = &self.segments[at];
        let (size, small) = (segment.size, segment.small);
        self.breakdown.cached += size;
        let stats = &mut self.stats;
        let peak = stats.all.reserved_bytes.peak;
        for pool in [&mut stats.all, if small { &mut stats.small_pool } else { &mut stats.large_pool }] {
            pool.segment.add(1);
            pool.reserved_bytes.add(size);
        }
        stats.num_device_alloc += 1;
        if stats.all.reserved_bytes.current > peak {
            (stats.at_peak_reserved, stats.most_at_peak) = (self.breakdown, stats.all.allocated_bytes.current);
        }
        self.note_segment(Action::SegmentAlloc, at);
    }

    /// A cached segment is on its way back to the driver.
    pub(super) fn book_retiring(&mut self, at: u32) {
        let size = self.segments[at].size;
        self.breakdown.cached -= size;
        self.breakdown.retiring += size;
        self.note_segment(Action::SegmentRetiring, at);
    }

    /// It was still there and is cached again.
    pub(super) fn book_restored(&mut self, at: u32) {
        let size = self.segments[at].size;
        self.breakdown.cached += size;
        self.breakdown.retiring -= size;
        self.note_segment(Action::SegmentRestored, at);
    }

    /// Its memory is the driver's again.
    pub(super) fn book_given_back(&mut self, at: u32) {
        let segment = &self.segments[at];
        let (size, small) = (segment.size, segment.small);
        self.breakdown.retiring -= size;
        let stats = &mut self.stats;
        for pool in [&mut stats.all, if small { &mut stats.small_pool } else { &mut stats.large_pool }] {
            pool.segment.sub(1);
            pool.reserved_bytes.sub(size);
        }
        stats.num_device_free += 1;
        self.note_segment(Action::SegmentFree, at);
    }

    /// The request failed.
    pub(super) fn book_oom(&mut self, size: u64, cause: OomCause, request: &Request) {
        self.stats.num_ooms += 1;
        self.stats.num_oom_rejections += u64::from(cause != OomCause::Driver);
        if let Some(history) = &mut self.history {
            let event = Event::new(Action::Oom, 0, size, request.stream, request.tag);
            history.push(Event { free: self.breakdown.cached, ..event });
        }
    }

    /// A free block enters or leaves the lists.
    #[inline]
    pub(super) fn count_split(&mut self, key: Key, enters: bool) {
        let segment = &self.segments[key.segment];
        if key.size < segment.size {
            let split = &mut self.split[usize::from(segment.small)];
            if enters {
                split.count += 1;
                split.bytes += key.size;
            } else {
                split.count -= 1;
                split.bytes -= key.size;
            }
        }
    }

    /// One change of the pool is done: the steps it took between are not seen by the counters of split blocks.
    #[inline]
    pub(super) fn settle(&mut self, segment: u32) {
        let small = self.segments[segment].small;
        let now = self.split[usize::from(small)];
        let stats = &mut self.stats;
        let pool = if small { &mut stats.small_pool } else { &mut stats.large_pool };
        stats.all.inactive_split.shift(pool.inactive_split.current, now.count);
        pool.inactive_split.shift(pool.inactive_split.current, now.count);
        stats.all.inactive_split_bytes.shift(pool.inactive_split_bytes.current, now.bytes);
        pool.inactive_split_bytes.shift(pool.inactive_split_bytes.current, now.bytes);
    }

    #[cold]
    pub(super) fn note_block(&mut self, action: Action, at: u32) {
        let Some(history) = &mut self.history else { return };
        let block = &self.blocks[at];
        let address = self.segments[block.segment].address + block.offset;
        let event = Event::new(action, address, block.requested, block.stream, block.tag);
        history.push(Event { block_size: block.size, ..event });
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
        history.push(Event { block_size: segment.size, ..event });
    }
}
