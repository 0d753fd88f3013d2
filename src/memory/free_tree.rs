//! Free blocks ordered by (size, address): best fit in a few steps, without heap allocation once it has grown. An address is
//! (birth of the segment, offset), so older segments come first.
//!
//! Sizes fall into bins, 32 to the octave, found by two levels of bitmaps. The blocks of a bin are a treap: a search tree
//! by (size, address) that is a heap by a priority derived from the block's number. A bin knows its first block: most
//! requests are for a size that was there before, and that block is their best fit. Nodes lie in one vector, at their
//! block's number; several sets of trees share it, since a block is in one at a time.

use super::block::NONE;

/// Where a free block stands in the order: smallest first, then lowest address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub size: u64,
    /// [`Segment::birth`](super::block::Segment::birth).
    pub birth: u32,
    pub offset: u64,
    pub block: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    size: u64,
    offset: u64,
    birth: u32,
    left: u32,
    right: u32,
    /// The number of the tree it is in.
    tree: u32,
}

/// Where the number of a subtree's root is kept.
#[derive(Clone, Copy)]
enum Link {
    Root(usize),
    Left(u32),
    Right(u32),
}

/// The nodes of all trees of a pool.
#[derive(Debug, Default)]
pub(super) struct Nodes(Vec<Node>);

impl Nodes {
    #[inline]
    fn order(&self, block: u32) -> (u64, u32, u64) {
        let node = &self.0[block as usize];
        (node.size, node.birth, node.offset)
    }

    #[inline]
    fn key(&self, block: u32) -> Key {
        let node = &self.0[block as usize];
        Key { size: node.size, birth: node.birth, offset: node.offset, block }
    }

    #[inline]
    pub(super) fn tree(&self, block: u32) -> u32 {
        self.0[block as usize].tree
    }

    /// The first block of a subtree.
    fn leftmost(&self, mut below: u32) -> u32 {
        let mut first = NONE;
        while below != NONE {
            first = below;
            below = self.0[below as usize].left;
        }
        first
    }

    #[inline]
    fn put(&mut self, key: Key, tree: u32) {
        let node = Node { size: key.size, offset: key.offset, birth: key.birth, left: NONE, right: NONE, tree };
        match self.0.get_mut(key.block as usize) {
            Some(known) => *known = node,
            None => self.0.resize(key.block as usize + 1, node),
        }
    }
}

/// The heap order. Multiplying by an odd number permutes the numbers, so no two blocks are equal.
fn priority(block: u32) -> u32 {
    block.wrapping_mul(0x9E37_79B1)
}

/// Bins are counted in these bytes: the least alignment of a block.
const UNIT_BITS: u32 = 8;
/// log2 of the bins per octave: bins 3% apart.
const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
/// Enough for every `u64` size.
const BINS: usize = STEPS * (64 - UNIT_BITS as usize - STEP_BITS as usize + 1);
const WORDS: usize = BINS.div_ceil(64);

#[inline]
fn bin_of(size: u64) -> usize {
    let units = size >> UNIT_BITS;
    if units < STEPS as u64 {
        return units as usize;
    }
    let shift = units.ilog2() - STEP_BITS;
    // The leading bit of `units >> shift` is worth STEPS and so counts the first octave.
    shift as usize * STEPS + (units >> shift) as usize
}

/// The blocks of about one size.
#[derive(Clone, Copy, Debug)]
struct Bin {
    root: u32,
    /// The first in the order; of no meaning in an empty bin.
    first: u32,
}

/// One ordered set of free blocks.
#[derive(Debug)]
pub(super) struct Tree {
    bins: Vec<Bin>,
    /// A bit per bin that holds a block.
    filled: [u64; WORDS],
    /// A bit per word of `filled` that is not zero.
    filled_words: u64,
    len: usize,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { bins: vec![Bin { root: NONE, first: NONE }; BINS], filled: [0; WORDS], filled_words: 0, len: 0 }
    }
}

impl Tree {
    /// Number of blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a block that is in no tree; this is the tree of that number. (What every allocation does is inlined always: the
    /// calls alone were a tenth of it.)
    #[inline(always)]
    pub(super) fn insert(&mut self, nodes: &mut Nodes, key: Key, number: u32) {
        nodes.put(key, number);
        let bin = bin_of(key.size);
        self.len += 1;
        if self.bins[bin].root == NONE {
            self.bins[bin] = Bin { root: key.block, first: key.block };
            self.filled[bin / 64] |= 1 << (bin % 64);
            self.filled_words |= 1 << (bin / 64);
            return;
        }
        self.insert_into(nodes, bin, key);
    }

    fn insert_into(&mut self, nodes: &mut Nodes, bin: usize, key: Key) {
        let order = nodes.order(key.block);
        let first = &mut self.bins[bin].first;
        if order < nodes.order(*first) {
            *first = key.block;
        }
        let mut link = Link::Root(bin);
        let mut below = self.at(nodes, link);
        while below != NONE && priority(below) > priority(key.block) {
            link = if order < nodes.order(below) { Link::Left(below) } else { Link::Right(below) };
            below = self.at(nodes, link);
        }
        self.set(nodes, link, key.block);
        // The subtree that was here is divided: what is less hangs left, the rest right.
        let (mut less, mut more) = (Link::Left(key.block), Link::Right(key.block));
        while below != NONE {
            if nodes.order(below) < order {
                self.set(nodes, less, below);
                less = Link::Right(below);
                below = self.at(nodes, less);
            } else {
                self.set(nodes, more, below);
                more = Link::Left(below);
                below = self.at(nodes, more);
            }
        }
        self.set(nodes, less, NONE);
        self.set(nodes, more, NONE);
    }

    /// Takes a block out; false when it is not here.
    #[inline(always)]
    pub(super) fn remove(&mut self, nodes: &mut Nodes, key: Key) -> bool {
        let bin = bin_of(key.size);
        let Node { left, right, .. } = nodes.0[key.block as usize];
        if self.bins[bin].root != key.block || left != NONE || right != NONE {
            return self.remove_from(nodes, key);
        }
        // Alone in its bin.
        self.bins[bin].root = NONE;
        self.filled[bin / 64] &= !(1 << (bin % 64));
        if self.filled[bin / 64] == 0 {
            self.filled_words &= !(1 << (bin / 64));
        }
        self.len -= 1;
        true
    }

    /// The same for a block that is not alone in its bin.
    fn remove_from(&mut self, nodes: &mut Nodes, key: Key) -> bool {
        let Some(mut link) = self.find(nodes, key) else { return false };
        let Node { mut left, mut right, .. } = nodes.0[key.block as usize];
        let bin = bin_of(key.size);
        if self.bins[bin].first == key.block {
            // Nothing hangs left of it, and it hangs left of what comes after its right.
            self.bins[bin].first = match (nodes.leftmost(right), link) {
                (NONE, Link::Left(above)) => above,
                (next, _) => next,
            };
        }
        // Both subtrees become one: the greater priority goes up.
        while left != NONE && right != NONE {
            if priority(left) > priority(right) {
                self.set(nodes, link, left);
                link = Link::Right(left);
                left = self.at(nodes, link);
            } else {
                self.set(nodes, link, right);
                link = Link::Left(right);
                right = self.at(nodes, link);
            }
        }
        self.set(nodes, link, if left == NONE { right } else { left });
        self.len -= 1;
        true
    }

    /// A block here has become larger or smaller. Cheap for the usual case, the rest of a segment alone in its bin.
    #[inline]
    pub(super) fn rekey(&mut self, nodes: &mut Nodes, old: Key, new: Key) {
        let bin = bin_of(old.size);
        let node = &mut nodes.0[old.block as usize];
        let alone = self.bins[bin].root == old.block && node.left == NONE && node.right == NONE;
        if alone && bin == bin_of(new.size) {
            let number = node.tree;
            nodes.put(new, number);
        } else {
            let number = node.tree;
            if self.remove(nodes, old) {
                self.insert(nodes, new, number);
            }
        }
    }

    /// True when the block is here.
    pub(super) fn contains(&self, nodes: &Nodes, key: Key) -> bool {
        self.find(nodes, key).is_some()
    }

    /// The first block with at least `size` bytes, and before `best` if there is one; else `best`.
    #[inline]
    pub(super) fn first_fit_before(&self, nodes: &Nodes, size: u64, best: Option<Key>) -> Option<Key> {
        // Most often the bin of the next larger block says that it is none.
        let Some(known) = best else { return self.first_fit(nodes, size) };
        if self.next_filled(bin_of(size)).is_none_or(|bin| bin > bin_of(known.size)) {
            return best;
        }
        self.first_fit(nodes, size).filter(|key| *key < known).or(best)
    }

    /// The first block with at least `size` bytes.
    #[inline(always)]
    pub(super) fn first_fit(&self, nodes: &Nodes, size: u64) -> Option<Key> {
        let bin = self.next_filled(bin_of(size))?;
        let first = nodes.key(self.bins[bin].first);
        if first.size >= size {
            return Some(first);
        }
        // Some blocks of the request's own bin are smaller.
        self.first_not_below(nodes, bin, (size, 0, 0))
    }

    /// The next block after `key` in the order.
    pub(super) fn after(&self, nodes: &Nodes, key: Key) -> Option<Key> {
        // Offsets are far from u64::MAX.
        self.first_not_below(nodes, bin_of(key.size), (key.size, key.birth, key.offset + 1))
    }

    /// The largest block.
    pub(super) fn last(&self, nodes: &Nodes) -> Option<Key> {
        let word = self.filled_words.checked_ilog2()? as usize;
        let mut below = self.bins[word * 64 + self.filled[word].ilog2() as usize].root;
        let mut last = NONE;
        while below != NONE {
            last = below;
            below = nodes.0[below as usize].right;
        }
        Some(nodes.key(last))
    }

    /// The first block of that order or a later one; it belongs into `bin`.
    fn first_not_below(&self, nodes: &Nodes, bin: usize, order: (u64, u32, u64)) -> Option<Key> {
        let (mut found, mut below) = (NONE, self.bins[bin].root);
        while below != NONE {
            let node = &nodes.0[below as usize];
            below = if nodes.order(below) >= order {
                found = below;
                node.left
            } else {
                node.right
            };
        }
        if found == NONE {
            found = self.bins[self.next_filled(bin + 1)?].first;
        }
        Some(nodes.key(found))
    }

    /// The first bin from `bin` on that holds a block.
    #[inline]
    fn next_filled(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        let rest = self.filled.get(word)? >> (bin % 64);
        if rest != 0 {
            return Some(bin + rest.trailing_zeros() as usize);
        }
        let words = self.filled_words.checked_shr(word as u32 + 1).filter(|words| *words != 0)?;
        let word = word + 1 + words.trailing_zeros() as usize;
        Some(word * 64 + self.filled[word].trailing_zeros() as usize)
    }

    /// The link that holds the block.
    fn find(&self, nodes: &Nodes, key: Key) -> Option<Link> {
        let order = (key.size, key.birth, key.offset);
        let mut link = Link::Root(bin_of(key.size));
        loop {
            let below = self.at(nodes, link);
            if below == NONE {
                return None;
            }
            if below == key.block {
                return Some(link);
            }
            link = if order < nodes.order(below) { Link::Left(below) } else { Link::Right(below) };
        }
    }

    #[inline]
    fn at(&self, nodes: &Nodes, link: Link) -> u32 {
        match link {
            Link::Root(bin) => self.bins[bin].root,
            Link::Left(block) => nodes.0[block as usize].left,
            Link::Right(block) => nodes.0[block as usize].right,
        }
    }

    #[inline]
    fn set(&mut self, nodes: &mut Nodes, link: Link, block: u32) {
        match link {
            Link::Root(bin) => self.bins[bin].root = block,
            Link::Left(above) => nodes.0[above as usize].left = block,
            Link::Right(above) => nodes.0[above as usize].right = block,
        }
    }
}
