//! Records of blocks and segments, in arenas with `u32` links.

use super::policy::{Category, Tag};
use super::pytorch::Owner;
use crate::ids::{FenceSet, MemPoolId, StreamId};

/// "No neighbour".
pub(super) const NONE: u32 = u32::MAX;

/// What becomes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// The slot of the arena is unused.
    Vacant,
    /// Cached: in the free lists.
    Free,
    /// Lent to a storage.
    Lent,
    /// Given back, but other streams' work must complete before it is free (policy `pytorch`).
    Waiting,
    /// Free, but its segment is on its way back to the driver: in no free list.
    Withdrawn,
    /// All of an imported segment.
    Imported,
}

/// A piece of a segment. The blocks of a segment tile it and are linked in address order.
#[derive(Debug)]
pub(super) struct Block {
    pub segment: u32,
    pub prev: u32,
    pub next: u32,
    pub state: BlockState,
    pub offset: u64,
    pub size: u64,
    /// What was asked for; at most `size`. Zero unless lent.
    pub requested: u64,
    /// Unsubmitted commands that may still use these bytes. Free: the last uses. Lent: what it was lent with.
    pub uses: FenceSet,
    /// The stream that asked for it, while lent.
    pub stream: StreamId,
    /// Who holds it, while lent.
    pub tag: Tag,
    /// How often it was pinned: above 0 it does not move.
    pub pins: u32,
}

impl Block {
    /// A free block without neighbours.
    pub(super) fn free(segment: u32, offset: u64, size: u64) -> Block {
        let tag = Tag::here(Category::Temporary, "free");
        let (state, uses, stream) = (BlockState::Free, FenceSet::new(), StreamId::DEFAULT);
        Block { segment, prev: NONE, next: NONE, state, offset, size, requested: 0, uses, stream, tag, pins: 0 }
    }
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentState {
    /// The slot of the arena is unused.
    Vacant,
    /// In use or cached.
    Open,
    /// To be released as soon as its uses are submitted.
    Marked,
    /// Released: the buffer is dropped, the memory comes back when its uses have completed.
    Retiring,
    /// Bought by somebody else; see `import`.
    Imported,
}

/// One purchase from the driver.
#[derive(Debug)]
pub(super) struct Segment {
    pub state: SegmentState,
    pub size: u64,
    /// Counts purchases: older segments come first among equal fits.
    pub birth: u32,
    /// Whose requests it serves.
    pub pool: MemPoolId,
    /// Whom it serves alone, under policy `pytorch`.
    pub owner: Option<Owner>,
    /// The large pool's searches when its last block was given back; for garbage collection.
    pub idle_since: u64,
    /// The block at offset 0.
    pub first: u32,
    /// Lent blocks in it, waiting ones included.
    pub lent: u32,
    /// The request that bought it and is about to ask again, so that the ladder of others must not release it; 0 when nobody is.
    pub buyer: u32,
    /// The last use of any byte of it, per stream. Only grows: it decides when the memory is really given back.
    pub uses: FenceSet,
    /// Counted with small requests.
    pub small: bool,
    /// Where it starts in the address space that histories and snapshots show: invented, and never used twice.
    pub address: u64,
    /// The stream that it was bought for.
    pub stream: StreamId,
    /// The request that it was bought for.
    pub tag: Tag,
}

/// Records in a vector; unused slots are kept in a list and used again.
#[derive(Debug)]
pub(super) struct Arena<T> {
    slots: Vec<T>,
    vacant: Vec<u32>,
}

impl<T> Arena<T> {
    pub(super) fn new() -> Arena<T> {
        Arena { slots: Vec::new(), vacant: Vec::new() }
    }

    /// Puts `record` into a slot and names it.
    #[inline]
    pub(super) fn insert(&mut self, record: T) -> u32 {
        match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = record;
                slot
            }
            None => {
                self.slots.push(record);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// The slot may be used again; its record must say that it is vacant.
    #[inline]
    pub(super) fn release(&mut self, slot: u32) {
        self.vacant.push(slot);
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().map(|(slot, record)| (slot as u32, record))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut()
    }

    /// Number of slots that hold a record.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}

impl<T> std::ops::Index<u32> for Arena<T> {
    type Output = T;
    #[inline]
    fn index(&self, slot: u32) -> &T {
        &self.slots[slot as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize]
    }
}
