//! Who wrote a block last and who has read it since: read after write, write after read, write after write.

use smallvec::SmallVec;

use super::EdgeKind;
use crate::ids::{Fence, FenceSet};

/// What a command does with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes it, or reads and writes it.
    Write,
}

/// The uses of one block that later commands have to respect.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    write: Option<Fence>,
    /// Reads since the last write.
    reads: FenceSet,
    /// Until the first write: what the memory was used for by earlier blocks.
    former: FenceSet,
}

impl Uses {
    /// A fresh block whose memory is still in use by `after`.
    pub(super) fn after(after: FenceSet) -> Uses {
        Uses { former: after, ..Uses::default() }
    }

    /// Books a use by `this` and names every command that has to go before it, and why.
    pub(super) fn record(&mut self, this: Fence, access: Access, mut before: impl FnMut(Fence, EdgeKind)) {
        match access {
            Access::Read => {
                self.write.iter().for_each(|write| before(*write, EdgeKind::ReadAfterWrite));
                self.reads.insert(this);
            }
            Access::Write => {
                self.write.iter().for_each(|write| before(*write, EdgeKind::WriteAfterWrite));
                self.former.iter().for_each(|former| before(former, EdgeKind::MemoryReuse));
                self.reads.iter().for_each(|read| before(read, EdgeKind::WriteAfterRead));
                self.former.clear();
                self.reads.clear();
                self.write = Some(this);
            }
        }
    }

    pub(super) fn last_write(&self) -> Option<Fence> {
        self.write
    }

    pub(super) fn into_fences(self) -> FenceSet {
        let mut fences = self.reads;
        fences.merge(&self.former);
        self.write.into_iter().for_each(|write| fences.insert(write));
        fences
    }
}

/// Accesses of one command with every block named once: a block that is read and written counts as written.
#[derive(Clone, Debug, Default)]
pub struct AccessList(SmallVec<[(crate::ids::BlockId, Access); 8]>);

impl AccessList {
    /// Adds one use.
    pub fn push(&mut self, block: crate::ids::BlockId, access: Access) {
        match self.0.iter_mut().find(|(known, _)| *known == block) {
            Some((_, known)) if access == Access::Write => *known = Access::Write,
            Some(_) => {}
            None => self.0.push((block, access)),
        }
    }

    /// Adds many uses.
    pub fn extend(&mut self, uses: impl IntoIterator<Item = (crate::ids::BlockId, Access)>) {
        self.0.extend(uses);
        // Of the uses of a block a write comes first, and stays.
        self.0.sort_unstable_by_key(|(block, access)| (*block, *access == Access::Read));
        self.0.dedup_by_key(|(block, _)| *block);
    }

    /// The uses, each block once.
    pub fn iter(&self) -> impl Iterator<Item = (crate::ids::BlockId, Access)> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::BlockId;

    #[test]
    fn many_uses_at_once_are_those_one_by_one() {
        let uses: Vec<_> =
            (0..200u32).map(|i| (BlockId(i * 7 % 60), if i % 5 == 0 { Access::Write } else { Access::Read })).collect();
        let (mut each, mut all) = (AccessList::default(), AccessList::default());
        uses.iter().for_each(|(block, access)| each.push(*block, *access));
        all.push(BlockId(3), Access::Write);
        all.extend(uses.iter().copied());
        each.push(BlockId(3), Access::Write);
        let sorted = |list: &AccessList| {
            let mut uses: Vec<_> = list.iter().collect();
            uses.sort_by_key(|(block, _)| *block);
            uses
        };
        assert_eq!(sorted(&all), sorted(&each));
        assert_eq!(all.iter().count(), 60);
    }
}
