//! What would make a failed request succeed. The help of an out-of-memory report names only what the pool has made sure of,
//! by the rules of its own ladder; the driver alone could still refuse.

use super::block::{Block, BlockState, SegmentState};
use super::policy::{Caching, Policy, Request};
use super::pool::Pool;
use super::pytorch::Owner;
use super::report::Holder;
use crate::ids::{Horizons, MemPoolId};

/// One thing after which the same request succeeds, if all else stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Set the limit to so many MiB, or more.
    Limit(u64),
    /// Free all that this holder has.
    Free(Holder),
    /// Ask outside of the private pool.
    LeavePool,
    /// Drop this private pool.
    DropPool(MemPoolId),
}

const MIB: u64 = 1 << 20;

impl Pool {
    /// The ways for a request whose block has `size` bytes and that wants a segment of `wanted`.
    pub(super) fn ways(&self, size: u64, wanted: u64, request: &Request, horizons: &impl Horizons) -> Vec<Way> {
        if size > self.config.max_segment {
            return Vec::new();
        }
        let fits = |pool: &MemPoolId| self.fits_in(*pool, size, request, horizons);
        let outside = request.pool != MemPoolId::DEFAULT;
        let leave = (outside && fits(&MemPoolId::DEFAULT)).then_some(Way::LeavePool);
        let living = (1u32..).zip(&self.private).filter(|(_, private)| private.is_some()).map(|(number, _)| MemPoolId(number));
        let drop = if outside || self.is_above_limit() { None } else { living.into_iter().find(fits).map(Way::DropPool) };
        let holder = self.largest_holders(5).into_iter().find(|holder| self.serves_without(holder, size, wanted, request));
        let limit = (!request.refused).then(|| self.limit_for(self.kept_without(None) + self.pending + wanted)).flatten();
        leave.into_iter().chain(drop).chain(limit.map(Way::Limit)).chain(holder.map(Way::Free)).collect()
    }

    /// True when a free block of that pool would serve the request, if it was everybody's.
    fn fits_in(&self, pool: MemPoolId, size: u64, request: &Request, horizons: &impl Horizons) -> bool {
        match self.config.policy {
            Policy::Linn => self.fits_any(pool, size, request, horizons),
            Policy::Pytorch => self.cached(pool, Owner::of(request, size), size).is_some(),
        }
    }

    /// MiB of a limit of which so many bytes may be reserved.
    fn limit_for(&self, bytes: u64) -> Option<u64> {
        let share = self.config.memory_fraction;
        let set = match share < 1.0 {
            true => (bytes as f64 / share).ceil() + 1.0,
            false => bytes as f64,
        };
        // (A share of 0 allows nothing, whatever the limit.)
        (self.limit != u64::MAX && set < u64::MAX as f64).then(|| (set as u64).max(bytes).div_ceil(MIB))
    }

    /// True when the request is served once all that the holder has is free: by a piece in one of its pool's segments, or
    /// by a segment for which idle ones make room.
    fn serves_without(&self, holder: &Holder, size: u64, wanted: u64, request: &Request) -> bool {
        let pooled = (self.config.policy, self.config.caching) == (Policy::Linn, Caching::Pooled);
        let open = self.segments.iter().filter(|(_, segment)| segment.state == SegmentState::Open);
        let mut theirs = open.filter(|(_, segment)| pooled && segment.pool == request.pool);
        let stays =
            |first| !self.is_above_limit() || self.blocks_of(first).any(|(_, block)| !is_free_without(block, Some(holder)));
        if theirs.any(|(_, segment)| self.longest_without(holder, segment.first) >= size && stays(segment.first)) {
            return true;
        }
        let most = if request.refused { self.stats.reserved_bytes.current.min(self.limit) } else { self.limit };
        (self.kept_without(Some(holder)) + self.pending).saturating_add(wanted) <= most
    }

    /// True where the limit was lowered below what is reserved: a segment that becomes idle, or everybody's, goes back at once.
    fn is_above_limit(&self) -> bool {
        self.stats.reserved_bytes.current > self.limit
    }

    /// Bytes of the longest piece of a segment that is free, or would be without the holder.
    fn longest_without(&self, holder: &Holder, first: u32) -> u64 {
        let (mut run, mut longest) = (0, 0);
        for (_, block) in self.blocks_of(first) {
            run = if is_free_without(block, Some(holder)) { run + block.size } else { 0 };
            longest = run.max(longest);
        }
        longest
    }

    /// Bytes of the segments that the last resort does not give back: in use, or a private pool's.
    fn kept_without(&self, holder: Option<&Holder>) -> u64 {
        let occupied = self.segments.iter().filter(|(_, segment)| segment.state == SegmentState::Open);
        let kept = occupied.filter(|(_, segment)| {
            segment.pool != MemPoolId::DEFAULT || self.blocks_of(segment.first).any(|(_, block)| !is_free_without(block, holder))
        });
        kept.map(|(_, segment)| segment.size).sum()
    }
}

fn is_free_without(block: &Block, holder: Option<&Holder>) -> bool {
    match block.state {
        BlockState::Lent => holder.is_some_and(|holder| holder.has(&block.tag)),
        _ => true,
    }
}
