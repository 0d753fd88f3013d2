//! Private pools: memory that serves only those who ask for it there. PyTorch's `MemPool`.
//!
//! A segment belongs to the pool that it was bought for, and a request looks at free blocks of its own pool. A pool that is
//! dropped leaves its segments to everybody: what is live in them stays, what is free can be lent or given back.

use super::block::{BlockState, SegmentState};
use super::free_list::FreeList;
use super::pool::Pool;
use crate::ids::MemPoolId;

/// What is special about a private pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemPoolOptions {
    /// Every block has a segment of its own, which is never split.
    pub no_split: bool,
    /// Its free blocks serve everybody before a request fails.
    pub use_on_oom: bool,
}

/// A private pool that somebody holds.
#[derive(Debug, Default)]
pub(super) struct Private {
    pub free: FreeList,
    pub options: MemPoolOptions,
}

impl Pool {
    /// A new private pool, for requests made with [`Request::in_pool`](super::Request::in_pool).
    pub fn new_mem_pool(&mut self, options: MemPoolOptions) -> MemPoolId {
        self.private.push(Some(Box::new(Private { free: FreeList::default(), options })));
        MemPoolId(self.private.len() as u32)
    }

    /// Nobody asks there any more: its segments are everybody's from now on.
    pub fn drop_mem_pool(&mut self, pool: MemPoolId) {
        let Some(place) = self.private_at(pool) else { return };
        if self.private.get_mut(place).and_then(Option::take).is_none() {
            return;
        }
        let theirs: Vec<u32> = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.state != SegmentState::Vacant && segment.pool == pool)
            .map(|(segment, _)| segment)
            .collect();
        self.vain = None;
        for at in theirs {
            self.book_inherited(at);
            let free: Vec<u32> =
                self.blocks_of(self.segments[at].first).map(|(block, _)| block).filter(|block| self.is_free(*block)).collect();
            free.into_iter().for_each(|block| self.list(block));
        }
    }

    /// Bytes of the private pool's segments, and of live blocks in them: a walk over these.
    pub fn mem_pool_bytes(&self, pool: MemPoolId) -> (u64, u64) {
        let theirs = self.segments.iter().filter(|(_, segment)| segment.state != SegmentState::Vacant && segment.pool == pool);
        let blocks = theirs.flat_map(|(_, segment)| self.blocks_of(segment.first));
        let live = blocks.filter(|(_, block)| block.state == BlockState::Lent).map(|(_, block)| block.size).sum();
        (self.mem_pool_reserved(pool), live)
    }

    /// Bytes of the private pool's segments; takes no walk.
    pub fn mem_pool_reserved(&self, pool: MemPoolId) -> u64 {
        self.stats.private_bytes(pool)
    }

    fn private_at(&self, pool: MemPoolId) -> Option<usize> {
        (pool.0 as usize).checked_sub(1)
    }

    fn private(&self, pool: MemPoolId) -> Option<&Private> {
        self.private.get(self.private_at(pool)?)?.as_deref()
    }

    /// The pool, or everybody's if it was dropped.
    pub(super) fn living(&self, pool: MemPoolId) -> MemPoolId {
        if pool != MemPoolId::DEFAULT && self.private(pool).is_none() { MemPoolId::DEFAULT } else { pool }
    }

    /// True when blocks of the pool have segments of their own.
    #[inline]
    pub(super) fn is_unsplit(&self, pool: MemPoolId) -> bool {
        pool != MemPoolId::DEFAULT && self.private(pool).is_some_and(|private| private.options.no_split)
    }

    /// What `find` finds in a pool that helps out, for a request of everybody's pool.
    pub(super) fn reserve(&self, asks: MemPoolId, find: impl Fn(&Pool, MemPoolId) -> Option<u32>) -> Option<u32> {
        if asks != MemPoolId::DEFAULT {
            return None;
        }
        let numbered = (1u32..).zip(&self.private);
        let mut helping = numbered.filter(|(_, private)| private.as_ref().is_some_and(|private| private.options.use_on_oom));
        helping.find_map(|(number, _)| find(self, MemPoolId(number)))
    }

    /// The free blocks of a living pool.
    #[inline]
    pub(super) fn list_of(&self, pool: MemPoolId) -> &FreeList {
        match pool {
            MemPoolId::DEFAULT => &self.free,
            pool => self.private(pool).map_or(&self.free, |private| &private.free),
        }
    }

    /// The same, to change it.
    #[inline]
    pub(super) fn list_of_mut(&mut self, pool: MemPoolId) -> &mut FreeList {
        if pool == MemPoolId::DEFAULT {
            return &mut self.free;
        }
        let place = self.private_at(pool);
        match place.and_then(|at| self.private.get_mut(at)).and_then(Option::as_deref_mut) {
            Some(private) => &mut private.free,
            None => &mut self.free,
        }
    }

    /// Bytes of the largest free block of any pool.
    pub(super) fn largest_free(&self) -> u64 {
        let private = self.private.iter().flatten().map(|private| private.free.largest());
        private.chain([self.free.largest()]).max().unwrap_or(0)
    }
}
