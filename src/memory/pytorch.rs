//! Policy `pytorch`: the placement rules of PyTorch's native allocator, over the same books of blocks and segments.
//!
//! What differs from linn's own policy: every segment belongs to one stream and to the small or the large pool and its
//! free blocks serve only these; segments have PyTorch's sizes; large rests of up to 1 MiB stay unsplit; oversize blocks
//! (`max_split_size_mb`) are kept for oversize requests; cached segments are given back only when nothing can be bought
//! (or above `garbage_collection_threshold`); a block that other streams used serves again when these have completed what
//! they had enqueued when it was freed (`record_stream`). Written from a description of that allocator; verified vectors
//! and recorded programs are the judge (`tests/pure/memory_pytorch.rs`).
//!
//! One rule is not copied: after the wait of the last resort, PyTorch asks the driver without another look at the blocks
//! that came back by the wait. This pool looks again.

use super::block::BlockState;
use super::free_tree::Key;
use super::ladder::Answer;
use super::policy::{Config, Request, Rung};
use super::pool::Pool;
use super::report::OomCause;
use super::size_class::round_up;
use crate::ids::{BlockId, Fence, FenceSet, Horizons, MemPoolId, StreamId};

/// Blocks are multiples of this.
pub const MIN_BLOCK: u64 = 512;
/// Larger blocks belong to the large pool.
pub const SMALL_SIZE: u64 = 1 << 20;
/// A segment of the small pool.
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// `large_segment_size_mb` and `max_non_split_rounding_mb` unless set.
pub const LARGE_SEGMENT: u64 = 20 << 20;
/// From here on a block has a segment of its own size, in multiples of [`SMALL_SEGMENT`].
pub const MIN_LARGE_ALLOC: u64 = 10 << 20;

/// Whose free blocks a segment's are: this stream's, in the pool of small or of large blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub stream: StreamId,
    pub small: bool,
}

impl Owner {
    /// Whose blocks serve a request for a block of `size` bytes.
    pub(super) fn of(request: &Request, size: u64) -> Owner {
        Owner { stream: request.stream, small: size <= SMALL_SIZE }
    }
}

/// A freed block that other streams have used.
#[derive(Debug)]
pub(super) struct Waiting {
    pub block: u32,
    /// What those streams had enqueued when it was freed.
    pub events: FenceSet,
}

/// Bytes of the segment that is bought for a block of `size` bytes: 2 MiB, `large_segment`, or the size in steps of 2 MiB.
pub fn segment_size(size: u64, large_segment: u64) -> u64 {
    if size <= SMALL_SIZE {
        SMALL_SEGMENT
    } else if size < MIN_LARGE_ALLOC {
        large_segment
    } else {
        round_up(size, SMALL_SEGMENT)
    }
}

/// Whether the rest of a block becomes a free block of its own.
pub(super) fn splits(owner: Owner, size: u64, rest: u64, config: &Config) -> bool {
    match owner.small {
        true => rest >= MIN_BLOCK,
        false => size < config.max_split_size && rest > SMALL_SIZE,
    }
}

impl Pool {
    /// The ladder of this policy: a cached block; garbage collection; a segment; oversize segments back and a segment; all
    /// work awaited, every cached segment back and a segment; out of memory.
    pub(super) fn alloc_pytorch(&mut self, request: &mut Request, horizons: &impl Horizons) -> Answer {
        let size = self.round(request.bytes);
        let owner = Owner::of(request, size);
        let most = self.config.max_segment & !(self.config.alignment - 1);
        let wanted = segment_size(size, self.config.large_segment_size).min(most).max(size);
        if request.buyer != 0
            && let Some(free) = self.bought(request, owner, wanted)
        {
            return self.lend(free, size, request, horizons);
        }
        let collects = self.limit != u64::MAX && self.config.garbage_collection_threshold > 0.0;
        let first = !std::mem::replace(&mut request.searched, true);
        self.searches += u64::from(collects && first && !owner.small);
        if let Some(free) = self.cached(request.pool, owner, size) {
            return self.lend(free, size, request, horizons);
        }
        if size > self.config.max_segment {
            return self.exhausted(OomCause::LargerThanBuffer, size, wanted, request, horizons);
        }
        self.reap(horizons);
        if collects && first {
            self.collect_garbage(horizons);
        }
        loop {
            match request.rung {
                Rung::Grown => {}
                Rung::Exact => {
                    if let Some(free) = self.reserve(request.pool, |pool, reserve| pool.cached(reserve, owner, size)) {
                        return self.lend(free, size, request, horizons);
                    }
                    if !self.release_oversize(request.pool, owner, size) {
                        request.rung = Rung::Released;
                        continue;
                    }
                }
                Rung::Released if !request.waited => {
                    request.waited = true;
                    self.book_retry(request);
                    return self.wait_for_completion();
                }
                Rung::Released => self.mark_idle(),
                Rung::Refused => break,
            }
            if self.held(horizons).saturating_add(wanted) <= self.limit {
                return self.buy(wanted, request.pool, Some(owner), request);
            }
            request.rung = request.rung.next();
        }
        // What other streams used is free since the wait.
        if let Some(free) = self.reserve(request.pool, |pool, reserve| pool.cached(reserve, owner, size)) {
            return self.lend(free, size, request, horizons);
        }
        let (cause, size) = match () {
            () if size > self.limit => (OomCause::LargerThanLimit, size),
            () if self.largest_free() >= size => (OomCause::Stranded, size),
            () if self.breakdown().cached >= size => (OomCause::Fragmented, size),
            // What is missing is the room for a segment.
            () if self.held(horizons).saturating_add(wanted) > self.limit => (OomCause::Limit, wanted),
            () => (OomCause::Driver, size),
        };
        self.exhausted(cause, size, wanted, request, horizons)
    }

    /// The segment of just this size that was bought for the request.
    fn bought(&self, request: &Request, owner: Owner, size: u64) -> Option<u32> {
        let free = self.list_of(request.pool);
        let fitting = std::iter::successors(free.first_fit(owner, size), |key| free.after(owner, *key));
        let mut same_size = fitting.take_while(|key| key.size == size);
        let found = same_size.find(|key| self.segments[self.blocks[key.block].segment].buyer == request.buyer);
        found.map(|key| key.block)
    }

    /// The smallest cached block that fits and that the rules of oversize blocks leave to this size. Only the first one is
    /// looked at.
    pub(super) fn cached(&self, pool: MemPoolId, owner: Owner, size: u64) -> Option<u32> {
        let key = self.list_of(pool).first_fit(owner, size)?;
        let largest = self.config.max_split_size;
        let too_large = match size < largest {
            true => key.size >= largest,
            false => key.size >= size.saturating_add(self.config.max_non_split_rounding),
        };
        (!too_large).then_some(key.block)
    }

    /// Gives cached segments of the large pool back, those first that were not used for long, until `reserved` is down to
    /// its threshold.
    fn collect_garbage(&mut self, horizons: &impl Horizons) {
        let target = self.held(horizons).saturating_sub(self.collected_above());
        let mut freed = 0;
        while freed < target {
            let large = |at: &u32| self.segments[*at].owner.is_some_and(|owner| !owner.small);
            let idle: Vec<u32> = self.idle_segments().into_iter().filter(large).collect();
            let ages: u64 = idle.iter().map(|at| self.searches - self.segments[*at].idle_since).sum();
            let count = idle.len() as u64;
            // Age >= mean age, without a division. Some segment is always that old.
            let old = idle.into_iter().filter(|at| (self.searches - self.segments[*at].idle_since) * count >= ages);
            let old: Vec<u32> = old.collect();
            if old.is_empty() {
                break;
            }
            for segment in old {
                freed += self.segments[segment].size;
                self.mark(segment);
            }
        }
    }

    /// Gives back one cached oversize segment that is large enough, else several until their sum is. False when that
    /// cannot be reached.
    fn release_oversize(&mut self, pool: MemPoolId, owner: Owner, size: u64) -> bool {
        if self.config.max_split_size == u64::MAX {
            return false;
        }
        let whole = |pool: &Pool, key: &Key| key.size == pool.segments[pool.blocks[key.block].segment].size;
        if let Some(key) = self.list_of(pool).first_fit(owner, size.max(self.config.max_split_size)) {
            let releases = whole(self, &key);
            if releases {
                self.mark(self.blocks[key.block].segment);
            }
            return releases;
        }
        let free = self.list_of(pool);
        let first = free.first_fit(owner, self.config.max_split_size);
        let mut oversize: Vec<Key> = std::iter::successors(first, |key| free.after(owner, *key)).collect();
        let mut freed = 0;
        while let Some(key) = oversize.pop().filter(|_| freed < size) {
            if whole(self, &key) {
                freed += key.size;
                self.mark(self.blocks[key.block].segment);
            }
        }
        freed >= size
    }

    /// The events that keep a block of `owner` from serving again: what other streams that used it have enqueued by now.
    pub(super) fn events(&self, owner: Owner, uses: &FenceSet, horizons: &impl Horizons) -> FenceSet {
        let foreign = uses.iter().filter(|fence| fence.stream != owner.stream);
        let event =
            foreign.map(|fence| Fence { stream: fence.stream, number: horizons.enqueued(fence.stream).max(fence.number) });
        event.filter(|event| event.number > horizons.completed(event.stream)).collect()
    }

    /// Frees the blocks whose events have completed; to be asked when work has, not for each request.
    pub(super) fn finish_events(&mut self, horizons: &impl Horizons) {
        let waits = |events: &FenceSet| events.iter().any(|event| event.number > horizons.completed(event.stream));
        let (waiting, done) = std::mem::take(&mut self.waiting).into_iter().partition(|Waiting { events, .. }| waits(events));
        self.waiting = waiting;
        for Waiting { block, .. } in done {
            self.book_waiting(block, false);
            self.make_free(block, horizons);
        }
    }

    /// True while a freed block waits for other streams.
    pub fn is_waiting(&self, block: BlockId) -> bool {
        self.blocks.get(block.0).is_some_and(|record| record.state == BlockState::Waiting)
    }
}
