//! Who wrote a block last and who has read it since: read after write, write after read, write after write.

use smallvec::SmallVec;

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
    /// Reads since the last write; before the first write also what the memory was used for by earlier blocks.
    reads: FenceSet,
}

impl Uses {
    /// A fresh block whose memory is still in use by `after`.
    pub(super) fn after(after: FenceSet) -> Uses {
        Uses { write: None, reads: after }
    }

    /// Books a use by `this` and names every command that has to go before it.
    pub(super) fn record(&mut self, this: Fence, access: Access, mut before: impl FnMut(Fence)) {
        self.write.iter().for_each(|write| before(*write));
        match access {
            Access::Read => self.reads.insert(this),
            Access::Write => {
                self.reads.iter().for_each(&mut before);
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

    /// The uses, each block once.
    pub fn iter(&self) -> impl Iterator<Item = (crate::ids::BlockId, Access)> + '_ {
        self.0.iter().copied()
    }
}
