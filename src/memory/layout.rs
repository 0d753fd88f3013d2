//! Where blocks lie, as a planner sees it: a copy of the pool's map on which moves are tried out and taken back.

use std::collections::BTreeSet;

use super::block::{BlockState, NONE, Segment, SegmentState};
use super::pool::Pool;
use crate::ids::MemPoolId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Free,
    Live,
    Pinned,
}

/// A block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub offset: u64,
    pub size: u64,
    pub block: u32,
    pub kind: Kind,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.size
    }
}

/// A segment, or (number `NONE`) room to buy one.
#[derive(Debug)]
pub(super) struct Region {
    pub segment: u32,
    pub size: u64,
    pub pieces: Vec<Piece>,
}

impl Region {
    /// Bytes of blocks that live in it.
    pub(super) fn live(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.kind != Kind::Free).map(|piece| piece.size).sum()
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pieces.iter().any(|piece| piece.kind == Kind::Pinned)
    }

    /// The piece that holds the byte at `offset`.
    pub(super) fn find(&self, offset: u64) -> usize {
        self.pieces.partition_point(|piece| piece.offset <= offset) - 1
    }
}

/// A place: region and offset.
pub(super) type Spot = (u32, u64);

/// A move that was tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub block: u32,
    pub size: u64,
    pub from: Spot,
    pub to: Spot,
    /// The block that lies before the hole it goes to; `NONE` at the start of a segment.
    pub after: u32,
}

/// Bytes where nothing is put: (region, start, end).
pub(super) type Keepout = (u32, u64, u64);

pub(super) fn is_kept_out(keepouts: &[Keepout], region: u32, start: u64, end: u64) -> bool {
    keepouts.iter().any(|(other, from, to)| *other == region && start < *to && *from < end)
}

/// The map.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub regions: Vec<Region>,
    /// (size, region, offset)
    holes: BTreeSet<(u64, u32, u64)>,
    /// All moves tried and not taken back.
    pub steps: Vec<Step>,
    /// Their bytes.
    pub bytes: u64,
    /// Work that may still be done: pieces looked at, moves tried.
    pub fuel: u64,
}

/// Work for a plan that merely saves a purchase: a few milliseconds at most (1 of work takes about 10 ns). What is not found
/// by then is not found.
pub(super) const LITTLE: u64 = 256 << 10;
/// Work for a plan that saves a request: a few milliseconds most often, tenths of a second where a segment has 100,000 blocks
/// or hardly any hole is left.
pub(super) const MUCH: u64 = 4 << 20;
/// What one move that is tried (or taken back) counts, and how many pieces of the segments count 1 on top.
const MOVE: u64 = 16;
const PIECES: u64 = 128;

/// Holes that are looked at in one search.
const LOOK: usize = 64;

impl Layout {
    /// The map of a private pool's open segments, or of everybody's, and `room` bytes that may be bought for blocks that fit
    /// nowhere. `None` where there are more blocks than `fuel` can look at.
    pub(super) fn of(pool: &Pool, whose: MemPoolId, room: u64, fuel: u64) -> Option<Layout> {
        let fuel = fuel.checked_sub(pool.blocks.len() as u64)?;
        let mut layout = Layout { fuel, ..Layout::default() };
        let movable = |segment: &Segment| segment.state == SegmentState::Open && segment.owner.is_none() && segment.pool == whose;
        for (at, segment) in pool.segments.iter().filter(|(_, segment)| movable(segment)) {
            let mut pieces = Vec::new();
            let mut next = segment.first;
            while next != NONE {
                let block = &pool.blocks[next];
                let kind = match block.state {
                    BlockState::Free => Kind::Free,
                    _ if block.pins > 0 => Kind::Pinned,
                    _ => Kind::Live,
                };
                pieces.push(Piece { offset: block.offset, size: block.size, block: next, kind });
                next = block.next;
            }
            layout.add(at, segment.size, pieces);
        }
        if room > 0 {
            layout.add(NONE, room, vec![Piece { offset: 0, size: room, block: NONE, kind: Kind::Free }]);
        }
        Some(layout)
    }

    fn add(&mut self, segment: u32, size: u64, pieces: Vec<Piece>) {
        let region = self.regions.len() as u32;
        let free = pieces.iter().filter(|piece| piece.kind == Kind::Free);
        self.holes.extend(free.map(|piece| (piece.size, region, piece.offset)));
        self.regions.push(Region { segment, size, pieces });
    }

    /// The smallest hole for `size` bytes outside of `keepouts`; room that is to be bought comes last.
    pub(super) fn hole(&self, size: u64, keepouts: &[Keepout]) -> Option<Spot> {
        let (mut from, mut to_buy) = ((size, 0, 0), None);
        for _ in 0..LOOK {
            let Some((room, region, offset)) = self.holes.range(from..).next().copied() else { break };
            let out = |(other, start, end): &&Keepout| *other == region && *start < offset + room && offset < *end;
            from = match keepouts.iter().find(out) {
                // Holes of one size stand in address order.
                Some((_, _, end)) => (room, region, (*end).max(offset + 1)),
                None if self.regions[region as usize].segment != NONE => return Some((region, offset)),
                None => {
                    to_buy = Some((region, offset));
                    (room, region, offset + 1)
                }
            };
        }
        to_buy
    }

    /// Moves a piece to a free place (its own bytes count as free).
    pub(super) fn relocate(&mut self, from: Spot, to: Spot) {
        let index = self.regions[from.0 as usize].find(from.1);
        let piece = self.regions[from.0 as usize].pieces[index];
        debug_assert!(piece.kind == Kind::Live && piece.offset == from.1, "{piece:?} is not what lies at {from:?}");
        let after = self.shift(piece, from.0, to);
        self.steps.push(Step { block: piece.block, size: piece.size, from, to, after });
        self.bytes += piece.size;
    }

    fn shift(&mut self, piece: Piece, from: u32, to: Spot) -> u32 {
        // Pieces behind the two places are shifted in memory.
        let behind = self.regions[from as usize].pieces.len() + self.regions[to.0 as usize].pieces.len();
        self.fuel = self.fuel.saturating_sub(MOVE + behind as u64 / PIECES);
        self.clear(from, piece.offset);
        self.put(to, piece)
    }

    /// Makes a live piece free, as one with its free neighbours.
    fn clear(&mut self, region: u32, offset: u64) {
        let pieces = &mut self.regions[region as usize].pieces;
        let index = pieces.partition_point(|piece| piece.offset <= offset) - 1;
        let (mut first, mut last) = (index, index);
        if index > 0 && pieces[index - 1].kind == Kind::Free {
            first -= 1;
        }
        if pieces.get(index + 1).is_some_and(|next| next.kind == Kind::Free) {
            last += 1;
        }
        for piece in pieces[first..=last].iter().filter(|piece| piece.kind == Kind::Free) {
            self.holes.remove(&(piece.size, region, piece.offset));
        }
        let size = pieces[last].end() - pieces[first].offset;
        let whole = Piece { offset: pieces[first].offset, size, block: NONE, kind: Kind::Free };
        pieces.splice(first..=last, [whole]);
        self.holes.insert((whole.size, region, whole.offset));
    }

    /// Puts a piece into a free one; returns the block before that.
    fn put(&mut self, to: Spot, piece: Piece) -> u32 {
        let region = &mut self.regions[to.0 as usize];
        let index = region.find(to.1);
        let before = index.checked_sub(1).map_or(NONE, |index| region.pieces[index].block);
        let hole = region.pieces[index];
        debug_assert!(hole.kind == Kind::Free && hole.offset <= to.1 && to.1 + piece.size <= hole.end());
        self.holes.remove(&(hole.size, to.0, hole.offset));
        let placed = Piece { offset: to.1, ..piece };
        let front = Piece { size: to.1 - hole.offset, ..hole };
        let back = Piece { offset: placed.end(), size: hole.end() - placed.end(), ..hole };
        let parts = [front, placed, back].into_iter().filter(|part| part.size > 0);
        region.pieces.splice(index..=index, parts);
        for rest in [front, back].iter().filter(|rest| rest.size > 0) {
            self.holes.insert((rest.size, to.0, rest.offset));
        }
        before
    }

    /// Takes back all moves but the first `count`; returns them in their order.
    pub(super) fn undo(&mut self, count: usize) -> Vec<Step> {
        let undone = self.steps.split_off(count);
        for step in undone.iter().rev() {
            let index = self.regions[step.to.0 as usize].find(step.to.1);
            let piece = self.regions[step.to.0 as usize].pieces[index];
            self.shift(piece, step.to.0, step.from);
            self.bytes -= step.size;
        }
        undone
    }

    /// Does moves again that were taken back.
    pub(super) fn redo(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.relocate(step.from, step.to));
    }

    /// The segment is gone: nothing is put there.
    pub(super) fn forget(&mut self, segment: u32) {
        for (at, region) in self.regions.iter_mut().enumerate().filter(|(_, region)| region.segment == segment) {
            self.holes.retain(|(_, other, _)| *other != at as u32);
            region.pieces.clear();
            region.segment = NONE;
        }
    }
}
