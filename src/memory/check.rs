//! What is always true of a pool: sentences, each with a function.

use super::block::{Block, BlockState, Segment, SegmentState};
use super::pool::Pool;
use super::pytorch::SMALL_SIZE;
use super::stats::Breakdown;

type Invariant = (&'static str, fn(&Pool) -> bool);

/// Every invariant. They are checked in this order: later ones walk what earlier ones have found sound.
const INVARIANTS: [Invariant; 13] = [
    ("the blocks of a segment tile it in address order and are linked both ways", blocks_tile_segments),
    ("every block lies in exactly one segment", every_block_is_in_a_segment),
    ("sizes and offsets of blocks are multiples of the alignment", blocks_are_aligned),
    ("two neighbours are never both free", free_neighbours_are_merged),
    ("the free blocks of open segments, and only these, are listed under their uses", free_blocks_are_listed),
    ("a segment that is marked or retiring is one withdrawn block and stands in one queue", leaving_segments_are_withdrawn),
    ("an active block holds what was asked for, any other nothing", lent_blocks_hold_requests),
    ("what may still use a block may still use its segment", segments_know_all_uses),
    ("requested + rounding + cached + retiring = reserved, as the blocks say", breakdown_is_what_blocks_say),
    ("the counters are what the blocks say", stats_are_what_blocks_say),
    ("what counts as a private pool's is in its segments", private_pools_are_counted),
    ("all = large + small, and no peak is below its current value", pools_add_up),
    ("the categories at the peaks add up to the peaks", splits_add_up_to_peaks),
];

impl Pool {
    /// Checks every invariant; `Err` holds the sentence that is not true. Time grows with the number of blocks.
    pub fn validate(&self) -> Result<(), String> {
        match INVARIANTS.iter().find(|(_, holds)| !holds(self)) {
            Some((sentence, _)) => Err(format!("not true: {sentence}")),
            None => Ok(()),
        }
    }

    /// The blocks of a segment in address order; stops at a broken link.
    pub(super) fn blocks_of(&self, first: u32) -> impl Iterator<Item = (u32, &Block)> {
        let link = |at: u32| self.blocks.get(at).map(|block| (at, block));
        // A cycle would be longer than there are blocks.
        std::iter::successors(link(first), move |(_, block)| link(block.next)).take(self.blocks.len() + 1)
    }

    fn live_blocks(&self) -> impl Iterator<Item = (u32, &Block)> {
        self.blocks.iter().filter(|(_, block)| block.state != BlockState::Vacant)
    }
}

fn blocks_tile_segments(pool: &Pool) -> bool {
    pool.segments.iter().filter(|(_, segment)| segment.state != SegmentState::Vacant).all(|(at, segment)| {
        let (mut end, mut before, mut lent) = (0, super::block::NONE, 0);
        for (id, block) in pool.blocks_of(segment.first) {
            if block.segment != at || block.offset != end || block.size == 0 || block.prev != before {
                return false;
            }
            end += block.size;
            before = id;
            lent += u32::from(matches!(block.state, BlockState::Lent | BlockState::Waiting));
        }
        end == segment.size && lent == segment.lent
    })
}

fn every_block_is_in_a_segment(pool: &Pool) -> bool {
    let open = pool.segments.iter().filter(|(_, segment)| segment.state != SegmentState::Vacant);
    let in_segments: usize = open.map(|(_, segment)| pool.blocks_of(segment.first).count()).sum();
    in_segments == pool.live_blocks().count() && in_segments == pool.blocks.len()
}

fn blocks_are_aligned(pool: &Pool) -> bool {
    let step = pool.config.alignment;
    pool.live_blocks().all(|(_, block)| block.state == BlockState::Imported || block.size % step == 0 && block.offset % step == 0)
}

fn free_neighbours_are_merged(pool: &Pool) -> bool {
    let is_free = |at: u32| pool.blocks.get(at).is_some_and(|block| block.state == BlockState::Free);
    pool.live_blocks().all(|(at, block)| !(is_free(at) && is_free(block.next)))
}

fn free_blocks_are_listed(pool: &Pool) -> bool {
    let mut free = pool.live_blocks().filter(|(_, block)| block.state == BlockState::Free);
    let listed = free.all(|(at, block)| {
        let segment = &pool.segments[block.segment];
        segment.state == SegmentState::Open && pool.list_of(segment.pool).contains(pool.key(at), pool.home(at))
    });
    let free = pool.live_blocks().filter(|(_, block)| block.state == BlockState::Free).count();
    listed && free == pool.free.len() + pool.private.iter().flatten().map(|private| private.free.len()).sum::<usize>()
}

fn leaving_segments_are_withdrawn(pool: &Pool) -> bool {
    pool.segments.iter().all(|(at, segment)| {
        let leaving = matches!(segment.state, SegmentState::Marked | SegmentState::Retiring);
        let withdrawn = segment.state == SegmentState::Vacant
            || pool.blocks_of(segment.first).any(|(_, block)| block.state == BlockState::Withdrawn);
        let whole = pool.blocks_of(segment.first).count() == 1;
        let queued = |queue: &[u32]| queue.iter().filter(|known| **known == at).count();
        let (marked, retiring) = (queued(&pool.marked), queued(&pool.retiring));
        marked == usize::from(segment.state == SegmentState::Marked)
            && retiring == usize::from(segment.state == SegmentState::Retiring)
            && (if leaving { withdrawn && whole } else { segment.state == SegmentState::Vacant || !withdrawn })
    })
}

fn lent_blocks_hold_requests(pool: &Pool) -> bool {
    pool.live_blocks().all(|(_, block)| match block.state {
        BlockState::Lent | BlockState::Waiting => block.requested <= block.size,
        _ => block.requested == 0,
    })
}

fn segments_know_all_uses(pool: &Pool) -> bool {
    pool.live_blocks().all(|(_, block)| {
        let known = &pool.segments[block.segment].uses;
        block.uses.iter().all(|fence| known.of(fence.stream).is_some_and(|last| last.number >= fence.number))
    })
}

fn breakdown_is_what_blocks_say(pool: &Pool) -> bool {
    let mut seen = Breakdown::default();
    for (_, block) in pool.live_blocks() {
        match block.state {
            BlockState::Lent => {
                seen.requested[block.tag.category as usize] += block.requested;
                seen.rounding += block.size - block.requested;
            }
            BlockState::Free => seen.cached += block.size,
            BlockState::Withdrawn | BlockState::Waiting => seen.retiring += block.size,
            BlockState::Vacant | BlockState::Imported => {}
        }
    }
    seen == pool.breakdown() && seen.sum() == pool.stats.reserved_bytes.current
}

fn stats_are_what_blocks_say(pool: &Pool) -> bool {
    // Of large and of small sizes, in the order of `PoolStats`.
    let mut seen = [[0u64; 9]; 2];
    let mut count = |small: bool, first: usize, values: &[u64]| {
        seen[usize::from(small)][first..].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    };
    for (_, block) in pool.live_blocks() {
        let (segment, small) = (&pool.segments[block.segment], block.requested <= SMALL_SIZE);
        match block.state {
            BlockState::Lent => count(small, 0, &[1, block.size, 1, block.size, block.requested]),
            BlockState::Waiting => count(small, 2, &[1, block.size, block.requested]),
            BlockState::Free if block.size < segment.size => count(segment.small, 7, &[1, block.size]),
            _ => {}
        }
    }
    let bought = |segment: &Segment| !matches!(segment.state, SegmentState::Vacant | SegmentState::Imported);
    for (_, segment) in pool.segments.iter().filter(|(_, segment)| bought(segment)) {
        count(segment.small, 5, &[1, segment.size]);
    }
    let stats = pool.stats();
    [stats.large_pool, stats.small_pool].map(|stats| stats.named().map(|(_, stat)| stat.current)) == seen
}

fn private_pools_are_counted(pool: &Pool) -> bool {
    let mut seen = vec![[0; 2]; pool.private.len()];
    for (_, segment) in pool.segments.iter().filter(|(_, segment)| segment.state != SegmentState::Vacant) {
        if let Some(parts) = (segment.pool.0 as usize).checked_sub(1).and_then(|at| seen.get_mut(at)) {
            parts[usize::from(segment.small)] += segment.size;
        }
    }
    let mut counted = vec![[0; 2]; pool.private.len()];
    for stats in pool.stats().private_pools {
        counted[stats.pool.0 as usize - 1] = [stats.large_pool.current, stats.small_pool.current];
    }
    seen == counted
}

fn pools_add_up(pool: &Pool) -> bool {
    let stats = pool.stats();
    let parts = stats.large_pool.named().into_iter().zip(stats.small_pool.named());
    stats.all.named().into_iter().zip(parts).all(|((_, all), ((_, large), (_, small)))| {
        all.current == large.current + small.current
            && [all, large, small].iter().all(|stat| stat.peak >= stat.current)
            && all.peak >= large.peak.max(small.peak)
            && all.peak <= large.peak + small.peak
    })
}

fn splits_add_up_to_peaks(pool: &Pool) -> bool {
    let stats = &pool.stats;
    let most = stats.peak_requested.iter().zip(&pool.requested).all(|(peak, now)| peak >= now);
    let at_peaks = stats.peak_requested.iter().zip(&stats.at_peak_allocated.requested).all(|(peak, at)| peak >= at);
    let adds_up = stats.at_peak_allocated.allocated() == stats.allocated_bytes.peak;
    adds_up && most && at_peaks && stats.at_peak_reserved.sum() == stats.reserved_bytes.peak
}
