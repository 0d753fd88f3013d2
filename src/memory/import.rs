//! Memory that somebody else has bought: buffers of a host application, named here so that all blocks have one kind of number.
//!
//! It is in no statistics, reports or snapshots, is never lent to others, moved or given back to the driver. All that the pool
//! does for it is to keep its numbers until the last command that uses it has been submitted.

use super::block::{Block, BlockState, NONE, Segment, SegmentState};
use super::policy::Tag;
use super::pool::{Place, Pool};
use crate::ids::{BlockId, FenceSet, Horizons, MemPoolId, SegmentId, StreamId};

impl Pool {
    /// Names `size` bytes of memory that was not bought here: a segment with one block, until that is freed. The place is the
    /// whole segment; where in a buffer that lies is for the caller to know.
    pub fn import(&mut self, size: u64, tag: Tag) -> (BlockId, Place) {
        let segment = self.segments.insert(Segment {
            state: SegmentState::Imported,
            pool: MemPoolId::DEFAULT,
            size,
            birth: 0,
            owner: None,
            idle_since: 0,
            first: NONE,
            lent: 0,
            buyer: 0,
            uses: FenceSet::new(),
            small: false,
            address: 0,
            stream: StreamId::DEFAULT,
            tag,
        });
        let block = Block { state: BlockState::Imported, tag, ..Block::free(segment, 0, size) };
        let block = self.blocks.insert(block);
        self.segments[segment].first = block;
        (BlockId(block), Place { segment: SegmentId(segment), offset: 0, size })
    }

    /// True when somebody else has bought the segment.
    pub fn is_imported(&self, segment: SegmentId) -> bool {
        self.segments.get(segment.0).is_some_and(|record| record.state == SegmentState::Imported)
    }

    /// The owner of imported memory is done with it, but for these commands.
    pub(super) fn free_imported(&mut self, block: u32, last_uses: FenceSet) {
        let segment = self.blocks[block].segment;
        self.segments[segment].uses = last_uses;
        self.leaving.push(segment);
    }

    /// The next imported segment that no unsubmitted command uses any more; its numbers may be used again.
    pub(super) fn poll_imported(&mut self, horizons: &impl Horizons) -> Option<SegmentId> {
        let submitted = |uses: &FenceSet| uses.iter().all(|fence| fence.number <= horizons.submitted(fence.stream));
        let at = self.leaving.iter().position(|segment| submitted(&self.segments[*segment].uses))?;
        let segment = self.leaving.swap_remove(at);
        let block = self.segments[segment].first;
        self.blocks[block].state = BlockState::Vacant;
        self.blocks.release(block);
        self.segments[segment].state = SegmentState::Vacant;
        self.segments.release(segment);
        Some(SegmentId(segment))
    }
}
