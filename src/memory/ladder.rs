//! The ladder: how a wish for memory becomes a block, a purchase, a wait or a report.

use super::free_list::Effort;
use super::policy::{Caching, Policy, Request, Rung, Tag};
use super::pool::{Place, Pool};
use super::pytorch::Owner;
use super::report::{OomCause, OomReport};
use super::size_class::{self, OWN_SEGMENT, SEGMENT_STEP, WHOLE_SEGMENT, round_size, round_up, segment_size};
use crate::ids::{BlockId, FenceSet, Horizons, MemPoolId, StreamId};

/// Ask the driver for this many bytes, then report with [`Pool::handle_segment`] or [`Pool::handle_segment_failed`].
/// One of the two must come: until then the bytes count against the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRequest {
    /// Bytes to buy.
    pub size: u64,
    /// The stream whose request this is for.
    pub stream: StreamId,
    /// Who made it.
    pub tag: Tag,
    pub(super) pool: MemPoolId,
    pub(super) owner: Option<Owner>,
    pub(super) buyer: u32,
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

/// Memory is dear when more than this share of what is live at most is reserved on top of it, and [`DEAR_LEAST`].
///
/// It bounds what a stream that lags far behind can cost; without it the pool grows as long as that stream is not submitted.
/// On recorded workloads with completion 200 rows late it changes nothing but edges (133 for 179).
const DEAR_SHARE: u64 = 8;

/// Below this much on top of what is live, memory is never dear: small programs run ahead freely.
const DEAR_LEAST: u64 = 64 << 20;

impl Pool {
    /// Asks for memory. Do what the answer says and ask again with the same `request` until it is `Ready` or `Exhausted`.
    ///
    /// The ladder: a fitting free block; where memory is dear, one with any edge; a new segment (idle ones make room for it
    /// under the limit and the peak; a smaller one when the driver refuses); a free block with any edge; live blocks that move; once
    /// per request, completion of all work; a private pool that helps out; out of memory.
    pub fn alloc(&mut self, request: &mut Request, horizons: &impl Horizons) -> Answer {
        request.pool = self.living(request.pool);
        if (self.config.policy, self.config.caching) == (Policy::Pytorch, Caching::Pooled) {
            return self.alloc_pytorch(request, horizons);
        }
        let size = self.round(request.bytes);
        if let Some(free) = self.search(size, Effort::ShortBacklog, request, horizons)
            && !self.leaves_whole(free, size, request, horizons)
        {
            return self.lend(free, size, request, horizons);
        }
        self.alloc_missed(size, request, horizons)
    }

    /// The rungs below a hit.
    #[inline(never)]
    fn alloc_missed(&mut self, size: u64, request: &mut Request, horizons: &impl Horizons) -> Answer {
        self.reap(horizons);
        if self.config.caching == Caching::Pooled
            && self.unmark_fitting(request.pool, size)
            && let Some(free) = self.search(size, Effort::ShortBacklog, request, horizons)
            && !self.leaves_whole(free, size, request, horizons)
        {
            return self.lend(free, size, request, horizons);
        }
        let hopeless = if size > self.config.max_segment {
            Some(OomCause::LargerThanBuffer)
        } else if size > self.limit {
            Some(OomCause::LargerThanLimit)
        } else {
            None
        };
        let limit = self.limit;
        if hopeless.is_none()
            && !horizons.is_urgent(request.stream)
            && self.is_dear(size, horizons)
            && let Some(free) = self.search(size, Effort::AnyBacklog, request, horizons)
            && !self.leaves_whole(free, size, request, horizons)
        {
            return self.lend(free, size, request, horizons);
        }
        if hopeless.is_none() {
            let ceiling = self.ceiling(size);
            if let Some(bytes) = self.plan_purchase(size, ceiling, request, horizons) {
                return self.buy(bytes, request.pool, None, request);
            }
            if ceiling < limit {
                if let Some(answer) = self.compact_for(size, ceiling, request, horizons) {
                    return answer;
                }
                if let Some(bytes) = self.plan_purchase(size, limit, request, horizons) {
                    return self.buy(bytes, request.pool, None, request);
                }
            }
        }
        if let Some(free) = self.search(size, Effort::AnyBacklog, request, horizons) {
            return self.lend(free, size, request, horizons);
        }
        if hopeless.is_none()
            && let Some(answer) = self.compact_for(size, limit, request, horizons)
        {
            return answer;
        }
        let find = |pool: &Pool, reserve| pool.search_in(reserve, size, Effort::AnyBacklog, request, horizons);
        if (hopeless.is_some() || request.waited)
            && let Some(free) = self.reserve(request.pool, find)
        {
            return self.lend(free, size, request, horizons);
        }
        if let Some(cause) = hopeless {
            return self.exhausted(cause, size, size, request, horizons);
        }
        if !request.waited {
            request.waited = true;
            request.rung = Rung::Exact;
            self.book_retry(request);
            self.mark_idle();
            return self.wait_for_completion();
        }
        let cause = match request.rung {
            _ if self.config.caching == Caching::Pooled && self.largest_free() >= size => OomCause::Stranded,
            _ if self.breakdown().cached >= size => OomCause::Fragmented,
            Rung::Refused => OomCause::Driver,
            _ => OomCause::Limit,
        };
        self.exhausted(cause, size, size, request, horizons)
    }

    /// The answer that asks to wait for everything, booked.
    pub(super) fn wait_for_completion(&mut self) -> Answer {
        self.stats.num_sync_all_streams += 1;
        Answer::NeedCompletion
    }

    /// The answer that asks for a segment of that pool.
    pub(super) fn buy(&mut self, bytes: u64, pool: MemPoolId, owner: Option<Owner>, request: &mut Request) -> Answer {
        self.pending += bytes;
        if request.buyer == 0 {
            self.buyers = self.buyers.wrapping_add(1).max(1);
            request.buyer = self.buyers;
        }
        Answer::NeedSegment(SegmentRequest {
            size: bytes,
            stream: request.stream,
            tag: request.tag,
            pool,
            owner,
            buyer: request.buyer,
        })
    }

    /// True when buying would take `reserved` past its peak and well past what is live: then a stream waits rather for
    /// another's long backlog.
    fn is_dear(&self, size: u64, horizons: &impl Horizons) -> bool {
        let stats = &self.stats;
        let live = stats.most_allocated().max(stats.allocated_bytes.current + size);
        self.held(horizons) + size > stats.most_reserved().max(live + live / DEAR_SHARE + DEAR_LEAST)
    }

    /// True for a large idle segment that is better given back, or kept whole, than broken up for this request: one is bought
    /// instead, as long as that raises no peak or the idle one can make room for it.
    #[inline(always)]
    fn leaves_whole(&self, free: u32, size: u64, request: &Request, horizons: &impl Horizons) -> bool {
        size >= WHOLE_SEGMENT && self.leaves_idle_whole(free, size, request, horizons)
    }

    fn leaves_idle_whole(&self, free: u32, size: u64, request: &Request, horizons: &impl Horizons) -> bool {
        // (A private pool's idle segments make no room.)
        if request.buyer != 0 || request.pool != MemPoolId::DEFAULT {
            return false;
        }
        let at = self.blocks[free].segment;
        let segment = &self.segments[at];
        segment.lent == 0
            && segment.buyer == 0
            && size_class::leaves_whole(size, segment.size)
            && (self.has_completed(at, horizons)
                || self.held(horizons) + round_up(size, SEGMENT_STEP) <= self.stats.most_reserved())
    }

    /// Bytes of the block for a request.
    #[inline]
    pub(super) fn round(&self, bytes: u64) -> u64 {
        round_size(bytes.max(1), self.config.alignment, &self.config.roundup_power2_divisions)
    }

    /// Bytes that count against the limit: bought or being bought, less what the driver has back as soon as it is asked.
    pub(super) fn held(&self, horizons: &impl Horizons) -> u64 {
        let leaving = self.marked.iter().filter(|at| self.has_completed(**at, horizons));
        let leaving: u64 = leaving.map(|at| self.segments[*at].size).sum();
        (self.stats.reserved_bytes.current + self.pending).saturating_sub(leaving)
    }

    /// Idle segments go back before more than this is reserved: the limit, or the garbage collector's share of it.
    pub(super) fn collected_above(&self) -> u64 {
        match self.config.garbage_collection_threshold {
            threshold if threshold > 0.0 && self.limit != u64::MAX => (self.limit as f64 * threshold) as u64,
            _ => self.limit,
        }
    }

    /// The driver refused the segment that `request` was told to buy.
    pub fn handle_segment_failed(&mut self, request: &mut Request, segment: SegmentRequest, horizons: &impl Horizons) {
        self.pending = self.pending.saturating_sub(segment.size);
        request.refused = true;
        let exact = self.round(request.bytes);
        request.rung = match request.rung {
            _ if segment.owner.is_some() => request.rung.next(),
            Rung::Grown if segment.size > exact => Rung::Exact,
            Rung::Grown | Rung::Exact if self.release_idle(u64::MAX, horizons) > 0 => {
                self.book_retry(request);
                Rung::Released
            }
            _ => Rung::Refused,
        };
    }

    pub(super) fn search(&self, size: u64, effort: Effort, request: &Request, horizons: &impl Horizons) -> Option<u32> {
        self.search_in(request.pool, size, effort, request, horizons)
    }

    /// True when a free block of that pool fits, whatever it must be ordered after.
    pub(super) fn fits_any(&self, pool: MemPoolId, size: u64, request: &Request, horizons: &impl Horizons) -> bool {
        self.search_in(pool, size, Effort::AnyBacklog, request, horizons).is_some()
    }

    #[inline]
    fn search_in(&self, pool: MemPoolId, size: u64, effort: Effort, request: &Request, horizons: &impl Horizons) -> Option<u32> {
        let uses_of = |block| &self.blocks[block].uses;
        let found = self.list_of(pool).search(request.stream, size, effort, uses_of, horizons);
        // Unpooled, the only free blocks are segments that were bought and not yet asked for: each for one size.
        // (The number alone goes on: it fits a register.)
        found.filter(|key| self.config.caching == Caching::Pooled || key.size == size).map(|key| key.block)
    }

    /// Bytes to buy next for a block of `size` bytes, below `limit`.
    ///
    /// Before `reserved` passes its limit or its peak so far, idle segments (none of them fits) are marked for release, as
    /// far as they can be given back without waiting. A program in its steady state is below its peak and buys nothing.
    fn plan_purchase(&mut self, size: u64, limit: u64, request: &Request, horizons: &impl Horizons) -> Option<u64> {
        let grown = match (self.config.caching, request.rung) {
            (_, Rung::Refused) => return None,
            (Caching::Pooled, Rung::Grown) if !self.is_unsplit(request.pool) => {
                let reserved = match request.pool {
                    MemPoolId::DEFAULT => self.stats.reserved_bytes.current,
                    private => self.mem_pool_reserved(private),
                };
                segment_size(size, reserved, self.config.max_segment, self.config.alignment)
            }
            _ => size,
        };
        let held = self.held(horizons);
        let over_limit = (held + size).saturating_sub(self.collected_above().min(limit));
        let needed = if size >= OWN_SEGMENT { grown } else { size };
        let over_peak = (held + needed).saturating_sub(self.stats.most_reserved());
        let released = match over_limit.max(over_peak) {
            0 => 0,
            over => self.release_idle(over, horizons),
        };
        let held = held - released;
        let room = limit.saturating_sub(held);
        let wanted = match released {
            0 => grown,
            // What was given back may be bought again, but not more on top of the block.
            _ => grown.min(self.stats.most_reserved().saturating_sub(held)).max(size),
        };
        if size > room {
            return None;
        }
        // Where there is no room for all that is wanted, a block's neighbours get what there is.
        Some(wanted.min(room & !(SEGMENT_STEP - 1)).max(size))
    }

    /// The request fails; a segment of `wanted` bytes would be bought for its block.
    pub(super) fn exhausted(
        &mut self,
        cause: OomCause,
        size: u64,
        wanted: u64,
        request: &Request,
        horizons: &impl Horizons,
    ) -> Answer {
        if request.buyer != 0 {
            self.leave_bought(request.buyer);
        }
        self.book_oom(size, request);
        Answer::Exhausted(Box::new(OomReport {
            cause,
            requested: request.bytes,
            rounded: size,
            stream: request.stream,
            pool: request.pool,
            label: request.tag.label,
            location: request.tag.location,
            limit: self.limit,
            max_segment: self.config.max_segment,
            allocated: self.stats.allocated_bytes.current,
            reserved: self.stats.reserved_bytes.current,
            pending: self.pending,
            largest_free: self.largest_free(),
            breakdown: self.breakdown(),
            holders: self.largest_holders(5),
            ways: self.ways(self.round(request.bytes), wanted, request, horizons),
        }))
    }
}
