//! Names for pieces of memory that recorded commands hold: (segment, offset, size), counted.
//!
//! A block's record may die while commands that use it are not yet encoded; its place lives until then. A block can move:
//! its name stays, and means another place for commands encoded after the move.

use crate::ids::BlockId;
use crate::memory::Place;

/// A named place; resolved when a command is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlaceId(pub(crate) u32);

impl PlaceId {
    /// The status words that index kernels report to; not memory of the pool.
    pub(crate) const STATUS: PlaceId = PlaceId(u32::MAX);
}

struct Entry {
    place: Place,
    references: u32,
}

/// The table of places, beside the pool.
#[derive(Default)]
pub(crate) struct Places {
    entries: Vec<Entry>,
    free: Vec<PlaceId>,
    /// By block: the name of its memory, true while the block lives.
    blocks: Vec<PlaceId>,
}

impl Places {
    /// A new name, with one reference, for the memory of a block.
    pub(crate) fn insert(&mut self, block: BlockId, place: Place) -> PlaceId {
        let id = self.name(place);
        let index = block.0 as usize;
        if self.blocks.len() <= index {
            self.blocks.resize(index + 1, id);
        }
        self.blocks[index] = id;
        id
    }

    fn name(&mut self, place: Place) -> PlaceId {
        let entry = Entry { place, references: 1 };
        match self.free.pop() {
            Some(id) => {
                self.entries[id.0 as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                PlaceId(self.entries.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn retain(&mut self, id: PlaceId) {
        if id != PlaceId::STATUS {
            self.entries[id.0 as usize].references += 1;
        }
    }

    pub(crate) fn release(&mut self, id: PlaceId) {
        if id == PlaceId::STATUS {
            return;
        }
        let entry = &mut self.entries[id.0 as usize];
        entry.references -= 1;
        if entry.references == 0 {
            self.free.push(id);
        }
    }

    /// The name of a live block's memory.
    pub(crate) fn of(&self, block: BlockId) -> Option<PlaceId> {
        self.blocks.get(block.0 as usize).copied()
    }

    /// The memory lies elsewhere from now on: a move is being encoded. Returns where it was.
    pub(crate) fn relocate(&mut self, id: PlaceId, to: Place) -> Place {
        std::mem::replace(&mut self.entries[id.0 as usize].place, to)
    }

    /// Where the place is now; `None` for the status words.
    pub(crate) fn resolve(&self, id: PlaceId) -> Option<Place> {
        (id != PlaceId::STATUS).then(|| self.entries[id.0 as usize].place)
    }

    /// Names in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SegmentId;

    #[test]
    fn a_place_lives_as_long_as_its_last_reference() {
        let mut places = Places::default();
        let place = |offset| Place { segment: SegmentId(3), offset, size: 256 };
        let first = places.insert(BlockId(5), place(0));
        places.retain(first);
        places.release(first);
        let second = places.insert(BlockId(6), place(256));
        assert_ne!(first, second);
        assert_eq!(places.resolve(first), Some(place(0)));
        assert_eq!((places.of(BlockId(5)), places.of(BlockId(6))), (Some(first), Some(second)));
        assert_eq!(places.relocate(first, place(1024)), place(0));
        assert_eq!(places.resolve(first), Some(place(1024)));
        places.release(first);
        assert_eq!(places.len(), 1);
        assert_eq!(places.insert(BlockId(7), place(512)), first);
        places.release(PlaceId::STATUS);
        assert_eq!(places.resolve(PlaceId::STATUS), None);
    }
}
