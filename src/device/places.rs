//! Names for pieces of memory that recorded commands hold: (segment, offset, size), counted.
//!
//! A block's record may die while commands that use it are not yet encoded; its place lives until then.

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
}

impl Places {
    /// A new name with one reference.
    pub(crate) fn insert(&mut self, place: Place) -> PlaceId {
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

    /// Where the place is now; `None` for the status words.
    pub(crate) fn resolve(&self, id: PlaceId) -> Option<Place> {
        (id != PlaceId::STATUS).then(|| self.entries[id.0 as usize].place)
    }

    /// Names in use.
    #[cfg(test)]
    fn len(&self) -> usize {
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
        let first = places.insert(place(0));
        places.retain(first);
        places.release(first);
        let second = places.insert(place(256));
        assert_ne!(first, second);
        assert_eq!(places.resolve(first), Some(place(0)));
        places.release(first);
        assert_eq!(places.len(), 1);
        assert_eq!(places.insert(place(512)), first);
        places.release(PlaceId::STATUS);
        assert_eq!(places.resolve(PlaceId::STATUS), None);
    }
}
