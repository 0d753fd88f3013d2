//! Free blocks ordered by (size, address), apart by the stream that may still use them.
//!
//! A stream first looks at its own blocks and at those that no unsubmitted command uses. Both lists are searched as
//! if they were one, so what a single stream is given does not depend on how far submission has come.

use std::collections::BTreeSet;

use crate::ids::{Fence, FenceSet, Horizons, StreamId};

/// Where a free block stands in the order: smallest first, then lowest address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub size: u64,
    pub segment: u32,
    pub offset: u64,
    pub block: u32,
}

impl Key {
    /// The lowest key of blocks with at least `size` bytes.
    fn at_least(size: u64) -> Key {
        Key { size, segment: 0, offset: 0, block: 0 }
    }
}

/// Whose unsubmitted commands may still use a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Nobody,
    One(StreamId),
    Several,
}

impl Home {
    fn of(uses: &FenceSet) -> Home {
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

/// All free blocks of one size group.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    nobody: BTreeSet<Key>,
    several: BTreeSet<Key>,
    streams: Vec<(StreamId, BTreeSet<Key>)>,
}

impl FreeList {
    fn list(&mut self, home: Home) -> &mut BTreeSet<Key> {
        match home {
            Home::Nobody => &mut self.nobody,
            Home::Several => &mut self.several,
            Home::One(stream) => {
                let at = match self.streams.iter().position(|(known, _)| *known == stream) {
                    Some(at) => at,
                    None => {
                        self.streams.push((stream, BTreeSet::new()));
                        self.streams.len() - 1
                    }
                };
                &mut self.streams[at].1
            }
        }
    }

    /// Adds a block with these last uses.
    pub(super) fn insert(&mut self, key: Key, uses: &FenceSet) {
        self.list(Home::of(uses)).insert(key);
    }

    /// Takes a block out; `uses` is what it was inserted with. False when it was not there.
    pub(super) fn remove(&mut self, key: Key, uses: &FenceSet) -> bool {
        self.list(Home::of(uses)).remove(&key)
    }

    /// True when the block is in the list that belongs to `uses`.
    pub(super) fn contains(&self, key: Key, uses: &FenceSet) -> bool {
        match Home::of(uses) {
            Home::Nobody => self.nobody.contains(&key),
            Home::Several => self.several.contains(&key),
            Home::One(stream) => self.streams.iter().any(|(known, list)| *known == stream && list.contains(&key)),
        }
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.nobody.len() + self.several.len() + self.streams.iter().map(|(_, list)| list.len()).sum::<usize>()
    }

    /// Size of the largest block.
    pub(super) fn largest(&self) -> u64 {
        let lists = [&self.nobody, &self.several].into_iter().chain(self.streams.iter().map(|(_, list)| list));
        lists.filter_map(|list| list.last()).map(|key| key.size).max().unwrap_or(0)
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
        let from = Key::at_least(size);
        let mut best = self.nobody.range(from..).next().copied();
        let mut foreign = false;
        for (known, list) in &self.streams {
            if *known == stream {
                best = lesser(best, list.range(from..).next().copied());
            } else {
                foreign |= !list.is_empty();
            }
        }
        foreign |= !self.several.is_empty();
        // A tight fit is taken without a look at other streams: fewer edges, and the same choice every time.
        if !foreign || best.is_some_and(|key| key.size - size <= size / 4) {
            return best;
        }
        let mut with_edge: Option<(u64, Key)> = None;
        let others = self.streams.iter().filter(|(known, _)| *known != stream).map(|(_, list)| list);
        for list in others.chain([&self.several]) {
            for key in list.range(from..).take(LOOK) {
                let backlog = backlog(uses_of(key.block), stream, horizons);
                if backlog == 0 {
                    best = lesser(best, Some(*key));
                    break;
                }
                if with_edge.is_none_or(|known| (backlog, *key) < known) {
                    with_edge = Some((backlog, *key));
                }
            }
        }
        let longest = if effort == Effort::AnyBacklog { u64::MAX } else { SHORT_BACKLOG };
        best.or_else(|| with_edge.filter(|(backlog, _)| *backlog <= longest).map(|(_, key)| key))
    }
}

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
