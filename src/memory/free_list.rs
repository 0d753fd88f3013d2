//! Free blocks ordered by (size, address), apart by the stream that may still use them.
//!
//! A stream first looks at its own blocks and at those that no unsubmitted command uses. Both lists are searched as
//! if they were one, so what a single stream is given does not depend on how far submission has come.

use super::free_tree::{Key, Nodes, Tree};
use super::pytorch::Owner;
use crate::ids::{Fence, FenceSet, Horizons, StreamId};

/// Whose unsubmitted commands may still use a free block, as a number: it is compared with each block that comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home(u64);

impl Home {
    const NOBODY: Home = Home(1 << 32);
    const SEVERAL: Home = Home(2 << 32);

    /// One stream's.
    #[inline]
    fn one(stream: StreamId) -> Home {
        Home(stream.0.into())
    }

    /// Whatever uses it: it serves this owner alone (policy `pytorch`).
    #[inline]
    pub(super) fn owned(owner: Owner) -> Home {
        Home((3 + u64::from(owner.small)) << 32 | u64::from(owner.stream.0))
    }

    #[inline]
    pub(super) fn of(uses: &FenceSet) -> Home {
        let mut fences = uses.iter();
        match (fences.next(), fences.next()) {
            (None, _) => Home::NOBODY,
            (Some(only), None) => Home::one(only.stream),
            _ => Home::SEVERAL,
        }
    }
}

/// How much order a stream is willing to take for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effort {
    /// Another stream's commands, when few of them are waiting to be submitted.
    ShortBacklog,
    /// Any edge: nothing can be bought.
    AnyBacklog,
}

/// An edge to a command with at most this many unsubmitted ones up to it is cheap: less than the queue takes at a time.
const SHORT_BACKLOG: u64 = 32;

/// So many blocks of another stream are looked at in one search: a bound on its time.
const LOOK: usize = 32;

/// All free blocks of a pool.
#[derive(Debug)]
pub(super) struct FreeList {
    nodes: Nodes,
    /// The first two are `Nobody`'s and `Several`'s. Others are made when they are needed: an empty one is somebody else's
    /// next, so there are as many as ever held blocks at one time, however many streams come and go.
    trees: Vec<(Home, Tree)>,
    /// The tree that a block was added to last.
    last: usize,
}

const NOBODY: usize = 0;
const SEVERAL: usize = 1;

impl Default for FreeList {
    fn default() -> FreeList {
        let trees = vec![(Home::NOBODY, Tree::default()), (Home::SEVERAL, Tree::default())];
        FreeList { nodes: Nodes::default(), trees, last: NOBODY }
    }
}

impl FreeList {
    /// The number of the tree of `home`; most often the one that was asked for last.
    #[inline]
    fn number(&mut self, home: Home) -> usize {
        if self.trees[self.last].0 != home {
            self.last = self.find(home);
        }
        self.last
    }

    fn find(&mut self, home: Home) -> usize {
        let known = self.trees.iter().position(|(known, _)| *known == home);
        let empty = || (SEVERAL + 1..self.trees.len()).find(|at| self.trees[*at].1.len() == 0);
        match known.or_else(empty) {
            Some(at) => {
                self.trees[at].0 = home;
                at
            }
            None => {
                self.trees.push((home, Tree::default()));
                self.trees.len() - 1
            }
        }
    }

    fn tree(&self, home: Home) -> Option<&Tree> {
        self.trees.iter().find(|(known, _)| *known == home).map(|(_, tree)| tree)
    }

    fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.trees.iter().map(|(_, tree)| tree)
    }

    /// The smallest block of `owner` with at least `size` bytes.
    pub(super) fn first_fit(&self, owner: Owner, size: u64) -> Option<Key> {
        self.tree(Home::owned(owner))?.first_fit(&self.nodes, size)
    }

    /// The next block of `owner` in the order.
    pub(super) fn after(&self, owner: Owner, key: Key) -> Option<Key> {
        self.tree(Home::owned(owner))?.after(&self.nodes, key)
    }

    /// Adds a block.
    #[inline]
    pub(super) fn insert(&mut self, key: Key, home: Home) {
        let number = self.number(home);
        self.trees[number].1.insert(&mut self.nodes, key, number as u32);
    }

    /// Takes a block out of the tree it is in.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) {
        let number = self.nodes.tree(key.block);
        self.trees[number as usize].1.remove(&mut self.nodes, key);
    }

    /// The block `old` has become `new` and belongs to `home`.
    #[inline]
    pub(super) fn rekey(&mut self, old: Key, new: Key, home: Home) {
        let number = self.nodes.tree(old.block);
        let (known, tree) = &mut self.trees[number as usize];
        if *known == home {
            tree.rekey(&mut self.nodes, old, new);
        } else {
            self.remove(old);
            self.insert(new, home);
        }
    }

    /// True when the block is in the tree of `home`.
    pub(super) fn contains(&self, key: Key, home: Home) -> bool {
        self.tree(home).is_some_and(|tree| tree.contains(&self.nodes, key))
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.trees().map(Tree::len).sum()
    }

    /// Size of the largest block.
    pub(super) fn largest(&self) -> u64 {
        self.trees().filter_map(|tree| tree.last(&self.nodes)).map(|key| key.size).max().unwrap_or(0)
    }

    /// The block for `stream`: best fit among those that need no edge, else one with the shortest backlog.
    pub(super) fn search<'a>(
        &self,
        stream: StreamId,
        size: u64,
        effort: Effort,
        uses_of: impl Fn(u32) -> &'a FenceSet,
        horizons: &impl Horizons,
    ) -> Option<Key> {
        let mut best = None;
        let mut foreign = self.trees[SEVERAL].1.len() > 0;
        for (known, tree) in &self.trees[SEVERAL + 1..] {
            if *known == Home::one(stream) {
                best = tree.first_fit(&self.nodes, size);
            } else {
                foreign |= tree.len() > 0;
            }
        }
        best = self.trees[NOBODY].1.first_fit_before(&self.nodes, size, best);
        // A tight fit is taken without a look at other streams: fewer edges, and the same choice every time.
        if !foreign || best.is_some_and(|key| key.size - size <= size / 4) {
            return best;
        }
        self.search_foreign(best, stream, size, effort, uses_of, horizons)
    }

    /// `best`, or a smaller block of other streams that they have submitted by now; if there is none, one with an edge.
    #[inline(never)]
    fn search_foreign<'a>(
        &self,
        mut best: Option<Key>,
        stream: StreamId,
        size: u64,
        effort: Effort,
        uses_of: impl Fn(u32) -> &'a FenceSet,
        horizons: &impl Horizons,
    ) -> Option<Key> {
        let mut with_edge: Option<(u64, Key)> = None;
        let others = self.trees.iter().filter(|(known, _)| ![Home::NOBODY, Home::one(stream)].contains(known));
        for (_, tree) in others {
            let mut next = tree.first_fit(&self.nodes, size);
            for _ in 0..LOOK {
                let Some(key) = next.filter(|key| best.is_none_or(|best| *key < best)) else { break };
                let backlog = backlog(uses_of(key.block), stream, horizons);
                if backlog == 0 {
                    best = Some(key);
                    break;
                }
                if with_edge.is_none_or(|known| (backlog, key) < known) {
                    with_edge = Some((backlog, key));
                }
                next = tree.after(&self.nodes, key);
            }
        }
        let longest = match effort {
            Effort::AnyBacklog => u64::MAX,
            Effort::ShortBacklog if horizons.is_urgent(stream) => 0,
            Effort::ShortBacklog => SHORT_BACKLOG,
        };
        best.or_else(|| with_edge.filter(|(backlog, _)| *backlog <= longest).map(|(_, key)| key))
    }
}

/// True when a command of `stream` that comes now needs an edge to `fence`: it is another stream's and not submitted.
#[inline]
pub(super) fn needs_edge(fence: Fence, stream: StreamId, horizons: &impl Horizons) -> bool {
    fence.stream != stream && fence.number > horizons.submitted(fence.stream)
}

/// What a command that is held counts for: more than any backlog.
const HELD: u64 = 1 << 48;

/// Unsubmitted commands of other streams that have to be submitted before `stream` may use the block.
fn backlog(uses: &FenceSet, stream: StreamId, horizons: &impl Horizons) -> u64 {
    let foreign = uses.iter().filter(|fence| needs_edge(*fence, stream, horizons));
    let of = |fence: Fence| if horizons.is_held(fence) { HELD } else { fence.number - horizons.submitted(fence.stream) };
    foreign.map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_come_and_go_share_trees() {
        let mut list = FreeList::default();
        let key = |block: u32| Key { size: 256, birth: 1, offset: u64::from(block) * 256, block };
        for stream in 0..1000 {
            list.insert(key(stream), Home::one(StreamId(stream)));
            assert!(list.contains(key(stream), Home::one(StreamId(stream))));
            // The one before is still there.
            if let Some(before) = stream.checked_sub(1) {
                assert!(list.contains(key(before), Home::one(StreamId(before))));
                list.remove(key(before));
                assert!(!list.contains(key(before), Home::one(StreamId(before))));
            }
        }
        assert_eq!((list.trees.len(), list.len()), (2 + 2, 1));
    }
}
