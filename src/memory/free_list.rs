//! Free blocks ordered by (size, address), apart by the stream that may still use them.
//!
//! A stream first looks at its own blocks and at those that no unsubmitted command uses. Both lists are searched as
//! if they were one, so what a single stream is given does not depend on how far submission has come.

use super::free_tree::{Key, Nodes, Tree};
use super::pytorch::Owner;
use crate::ids::{Fence, FenceSet, Horizons, StreamId};

/// Whose unsubmitted commands may still use a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Nobody,
    One(StreamId),
    Several,
    /// Whatever uses it: it serves this owner alone (policy `pytorch`).
    Owned(Owner),
}

impl Home {
    #[inline]
    pub(super) fn of(uses: &FenceSet) -> Home {
        let mut fences = uses.iter();
        match (fences.next(), fences.next()) {
            (None, _) => Home::Nobody,
            (Some(only), None) => Home::One(only.stream),
            _ => Home::Several,
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
#[derive(Debug, Default)]
pub(super) struct FreeList {
    nodes: Nodes,
    nobody: Tree,
    several: Tree,
    streams: Vec<(StreamId, Tree)>,
    owned: Vec<(Owner, Tree)>,
}

impl FreeList {
    #[inline]
    fn tree(&mut self, home: Home) -> (&mut Tree, &mut Nodes) {
        let tree = match home {
            Home::Nobody => &mut self.nobody,
            Home::Several => &mut self.several,
            Home::One(stream) => tree_of(&mut self.streams, stream),
            Home::Owned(owner) => tree_of(&mut self.owned, owner),
        };
        (tree, &mut self.nodes)
    }

    fn trees(&self) -> impl Iterator<Item = &Tree> {
        let streams = self.streams.iter().map(|(_, tree)| tree).chain(self.owned.iter().map(|(_, tree)| tree));
        [&self.nobody, &self.several].into_iter().chain(streams)
    }

    fn owned(&self, owner: Owner) -> Option<&Tree> {
        self.owned.iter().find(|(known, _)| *known == owner).map(|(_, tree)| tree)
    }

    /// The smallest block of `owner` with at least `size` bytes.
    pub(super) fn first_fit(&self, owner: Owner, size: u64) -> Option<Key> {
        self.owned(owner)?.first_fit(&self.nodes, size)
    }

    /// The next block of `owner` in the order.
    pub(super) fn after(&self, owner: Owner, key: Key) -> Option<Key> {
        self.owned(owner)?.after(&self.nodes, key)
    }

    /// Adds a block.
    #[inline]
    pub(super) fn insert(&mut self, key: Key, home: Home) {
        let (tree, nodes) = self.tree(home);
        tree.insert(nodes, key);
    }

    /// Takes a block out of the tree it is in.
    #[inline]
    pub(super) fn remove(&mut self, key: Key, home: Home) {
        let (tree, nodes) = self.tree(home);
        tree.remove(nodes, key);
    }

    /// The block `old`, in the tree of `from`, has become `new` and belongs to `home`.
    #[inline]
    pub(super) fn rekey(&mut self, old: Key, from: Home, new: Key, home: Home) {
        if from == home {
            let (tree, nodes) = self.tree(home);
            tree.rekey(nodes, old, new);
        } else {
            self.remove(old, from);
            self.insert(new, home);
        }
    }

    /// True when the block is in the tree of `home`.
    pub(super) fn contains(&self, key: Key, home: Home) -> bool {
        match home {
            Home::Nobody => self.nobody.contains(&self.nodes, key),
            Home::Several => self.several.contains(&self.nodes, key),
            Home::One(stream) => self.streams.iter().any(|(known, tree)| *known == stream && tree.contains(&self.nodes, key)),
            Home::Owned(owner) => self.owned(owner).is_some_and(|tree| tree.contains(&self.nodes, key)),
        }
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
        let mut best = self.nobody.first_fit(&self.nodes, size);
        let mut foreign = self.several.len() > 0;
        for (known, tree) in &self.streams {
            if *known == stream {
                best = lesser(best, tree.first_fit(&self.nodes, size));
            } else {
                foreign |= tree.len() > 0;
            }
        }
        // A tight fit is taken without a look at other streams: fewer edges, and the same choice every time.
        if !foreign || best.is_some_and(|key| key.size - size <= size / 4) {
            return best;
        }
        let mut with_edge: Option<(u64, Key)> = None;
        let others = self.streams.iter().filter(|(known, _)| *known != stream).map(|(_, tree)| tree);
        for tree in others.chain([&self.several]) {
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
        let longest = if effort == Effort::AnyBacklog { u64::MAX } else { SHORT_BACKLOG };
        best.or_else(|| with_edge.filter(|(backlog, _)| *backlog <= longest).map(|(_, key)| key))
    }
}

/// The tree of `name`, made at first use.
#[inline]
fn tree_of<N: Copy + PartialEq>(trees: &mut Vec<(N, Tree)>, name: N) -> &mut Tree {
    let at = match trees.iter().position(|(known, _)| *known == name) {
        Some(at) => at,
        None => {
            trees.push((name, Tree::default()));
            trees.len() - 1
        }
    };
    &mut trees[at].1
}

#[inline]
fn lesser(a: Option<Key>, b: Option<Key>) -> Option<Key> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// True when a command of `stream` that comes now needs an edge to `fence`: it is another stream's and not submitted.
pub(super) fn needs_edge(fence: Fence, stream: StreamId, horizons: &impl Horizons) -> bool {
    fence.stream != stream && fence.number > horizons.submitted(fence.stream)
}

/// Unsubmitted commands of other streams that have to be submitted before `stream` may use the block.
fn backlog(uses: &FenceSet, stream: StreamId, horizons: &impl Horizons) -> u64 {
    let foreign = uses.iter().filter(|fence| needs_edge(*fence, stream, horizons));
    foreign.map(|fence| fence.number - horizons.submitted(fence.stream)).sum()
}
