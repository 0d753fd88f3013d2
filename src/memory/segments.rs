//! Segments: bought, idle, marked for release, retiring, gone.

use super::block::{Block, BlockState, NONE, Segment, SegmentState};
use super::ladder::SegmentRequest;
use super::pool::Pool;
use super::pytorch::SMALL_SIZE;
use crate::ids::{FenceSet, Horizons, MemPoolId, SegmentId};

impl Pool {
    /// The driver sold the segment that was asked for.
    pub fn handle_segment(&mut self, request: SegmentRequest) -> SegmentId {
        let size = request.size;
        self.vain = None;
        self.births += 1;
        self.pending = self.pending.saturating_sub(size);
        let segment = self.segments.insert(Segment {
            state: SegmentState::Open,
            pool: self.living(request.pool),
            size,
            birth: self.births,
            owner: request.owner,
            idle_since: self.searches,
            first: NONE,
            lent: 0,
            buyer: request.buyer,
            uses: FenceSet::new(),
            small: request.owner.map_or(size <= SMALL_SIZE, |owner| owner.small),
            address: self.addresses.next(size),
            stream: request.stream,
            tag: request.tag,
        });
        let block = self.blocks.insert(Block::free(segment, 0, size));
        self.segments[segment].first = block;
        self.list(block);
        self.book_bought(segment);
        SegmentId(segment)
    }

    /// Work has completed: the memory of retiring segments may be free now.
    pub fn handle_completed(&mut self, horizons: &impl Horizons) {
        self.finish_events(horizons);
        self.reap(horizons);
    }

    /// The next segment whose buffer is to be dropped, with everything that keeps it alive (bind groups). Its memory is
    /// *retiring* until the work that used it has completed; then the id may name another segment.
    pub fn poll_release(&mut self, horizons: &impl Horizons) -> Option<SegmentId> {
        if !self.leaving.is_empty()
            && let Some(segment) = self.poll_imported(horizons)
        {
            return Some(segment);
        }
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

    /// Marks every idle segment for release, but those of private pools that somebody holds; `poll_release` hands them out.
    pub fn empty_cache(&mut self) {
        self.stats.num_sync_all_streams += 1;
        self.mark_idle();
    }

    /// Marks every idle segment, also those that their buyers have not come for: these buy another one.
    pub(super) fn mark_idle(&mut self) {
        self.segments.iter_mut().for_each(|segment| segment.buyer = 0);
        for segment in self.idle_segments() {
            self.mark(segment);
        }
    }

    /// The request is done: what was bought for it and did not serve it is idle like any other.
    #[cold]
    pub(super) fn leave_bought(&mut self, buyer: u32) {
        self.segments.iter_mut().filter(|segment| segment.buyer == buyer).for_each(|segment| segment.buyer = 0);
    }

    /// Marks idle segments that can be given back without waiting, the largest first, until `bytes` are reached.
    /// Returns the bytes marked.
    pub(super) fn release_idle(&mut self, bytes: u64, horizons: &impl Horizons) -> u64 {
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

    /// Everybody's open segments without a lent block, the largest last; not those that their buyers have not come for.
    pub(super) fn idle_segments(&self) -> Vec<u32> {
        let is_idle = |segment: &Segment| {
            segment.state == SegmentState::Open && segment.lent == 0 && segment.buyer == 0 && segment.pool == MemPoolId::DEFAULT
        };
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
        self.book_retiring(segment);
    }

    /// Takes the pool's smallest marked segment that fits `size` back into use. False when there is none.
    pub(super) fn unmark_fitting(&mut self, pool: MemPoolId, size: u64) -> bool {
        let fits = |segment: &Segment| segment.pool == pool && segment.size >= size;
        let fitting = self.marked.iter().enumerate().filter(|(_, segment)| fits(&self.segments[**segment]));
        let Some((at, _)) = fitting.min_by_key(|(_, segment)| (self.segments[**segment].size, **segment)) else { return false };
        self.vain = None;
        let segment = self.marked.swap_remove(at);
        self.segments[segment].state = SegmentState::Open;
        let block = self.segments[segment].first;
        self.blocks[block].state = BlockState::Free;
        self.list(block);
        self.book_restored(segment);
        true
    }

    pub(super) fn has_completed(&self, segment: u32, horizons: &impl Horizons) -> bool {
        self.segments[segment].uses.iter().all(|fence| fence.number <= horizons.completed(fence.stream))
    }

    /// Forgets retiring segments whose work has completed.
    pub(super) fn reap(&mut self, horizons: &impl Horizons) {
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
            let block = record.first;
            self.book_given_back(segment);
            self.segments.release(segment);
            self.blocks[block].state = BlockState::Vacant;
            self.blocks.release(block);
        }
    }
}
