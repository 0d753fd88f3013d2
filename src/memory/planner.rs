//! Which blocks to move where, so that a request fits. Plans are tried out on a [`Layout`] and cost the bytes they move.
//!
//! - **A window**: a run of neighbouring blocks of one segment. Its live blocks go to holes elsewhere; those that fit
//!   nowhere pack at its front; what is left is one free block.
//! - **Emptying** segments: all their live blocks go to holes of other segments; the segments go back to the driver and one
//!   of the right size is bought.
//!
//! Where a block fits no hole, a window is cleared for it first, to a small depth.

use super::layout::{Keepout, Kind, Layout, Spot, Step, is_kept_out};

/// Windows that are looked at closely, by depth.
const CANDIDATES: [usize; 3] = [4, 4, 16];
/// How deep windows are cleared to make windows.
const DEPTH: usize = 2;

impl Layout {
    /// Does the moves of the cheapest window found for `size` bytes and returns where they are free.
    pub(super) fn make_window(&mut self, size: u64, most: u64) -> Option<Spot> {
        self.window(size, &mut Vec::new(), DEPTH, most)
    }

    fn window(&mut self, size: u64, keepouts: &mut Vec<Keepout>, depth: usize, most: u64) -> Option<Spot> {
        let mut windows = self.windows(size, keepouts, false, CANDIDATES[depth]);
        // Sliding always works where there is enough in one segment.
        windows.extend(self.windows(size, keepouts, true, 1));
        self.cheapest(windows, most, |layout, (cost, region, offset), most| {
            let worth = layout.bytes + cost <= most && layout.fuel > 0;
            worth.then(|| layout.clear_from((region, offset), size, keepouts, depth, most)).flatten()
        })
    }

    /// Tries every candidate with the bytes that may be moved for it, each cheaper than the best so far, and does the last
    /// that worked.
    fn cheapest<C, T>(
        &mut self,
        candidates: impl IntoIterator<Item = C>,
        most: u64,
        mut attempt: impl FnMut(&mut Layout, C, u64) -> Option<T>,
    ) -> Option<T> {
        let start = self.steps.len();
        let mut best: Option<(u64, Vec<Step>, T)> = None;
        for candidate in candidates {
            let most = best.as_ref().map_or(most, |(bytes, ..)| bytes.saturating_sub(1));
            let done = attempt(self, candidate, most);
            let bytes = self.bytes;
            let steps = self.undo(start);
            if let Some(done) = done {
                best = Some((bytes, steps, done));
            }
        }
        let (_, steps, done) = best?;
        self.redo(&steps);
        Some(done)
    }

    /// Runs of pieces with `size` bytes, free ones alone when `sliding`: (bytes to move at least, region, offset), the
    /// `count` cheapest first.
    fn windows(&mut self, size: u64, keepouts: &[Keepout], sliding: bool, count: usize) -> Vec<(u64, u32, u64)> {
        let mut windows = Vec::with_capacity(count + 1);
        let mut keep = |window: (u64, u32, u64)| {
            if windows.len() < count || windows.last().is_some_and(|worst| window < *worst) {
                windows.insert(windows.partition_point(|known| *known < window), window);
                windows.truncate(count);
            }
        };
        for (at, region) in self.regions.iter().enumerate() {
            let at = at as u32;
            if region.size < size || region.segment == super::block::NONE {
                continue;
            }
            let pieces = &region.pieces;
            self.fuel = self.fuel.saturating_sub(pieces.len() as u64);
            if self.fuel == 0 {
                break;
            }
            let stays = |index: usize| {
                let piece = &pieces[index];
                piece.kind == Kind::Pinned || is_kept_out(keepouts, at, piece.offset, piece.end())
            };
            let live = |index: usize| if pieces[index].kind == Kind::Free { 0 } else { pieces[index].size };
            let (mut end, mut total, mut cost) = (0, 0, 0);
            for start in 0..pieces.len() {
                if end < start {
                    (end, total, cost) = (start, 0, 0);
                }
                while end < pieces.len() && !stays(end) && total - if sliding { cost } else { 0 } < size {
                    total += pieces[end].size;
                    cost += live(end);
                    end += 1;
                }
                if total - if sliding { cost } else { 0 } >= size {
                    keep((cost, at, pieces[start].offset));
                }
                if end > start {
                    total -= pieces[start].size;
                    cost -= live(start);
                }
            }
        }
        windows
    }

    /// Clears `size` bytes from a piece on. Leaves the moves it tried where it fails.
    fn clear_from(&mut self, start: Spot, size: u64, keepouts: &mut Vec<Keepout>, depth: usize, most: u64) -> Option<Spot> {
        let region = &self.regions[start.0 as usize];
        let mut first = region.find(start.1);
        // A free block before the window belongs to it: it becomes one with what is cleared.
        if first > 0 && region.pieces[first - 1].kind == Kind::Free {
            first -= 1;
        }
        let begin = region.pieces[first].offset;
        if is_kept_out(keepouts, start.0, begin, begin + 1) {
            return None;
        }
        // Nothing is put where the window may come to lie: as far as sliding would need.
        let (mut free, mut reach) = (0, first);
        while reach < region.pieces.len() && free < size && region.pieces[reach].kind != Kind::Pinned {
            free += if region.pieces[reach].kind == Kind::Free { region.pieces[reach].size } else { 0 };
            reach += 1;
        }
        let reach = region.pieces.get(reach).map_or(region.size, |piece| piece.end());
        let outer = keepouts.len();
        keepouts.push((start.0, begin, reach));
        let cleared = self.clear_run((start.0, begin), size, keepouts, outer, depth, most);
        keepouts.truncate(outer);
        cleared
    }

    fn clear_run(
        &mut self,
        start: Spot,
        size: u64,
        keepouts: &mut Vec<Keepout>,
        outer: usize,
        depth: usize,
        most: u64,
    ) -> Option<Spot> {
        let mut stays: Vec<(u64, u64)> = Vec::new();
        let (mut cursor, mut kept) = (start.1, 0);
        while cursor - start.1 - kept < size {
            if self.fuel == 0 {
                return None;
            }
            let region = &self.regions[start.0 as usize];
            if cursor >= region.size {
                return None;
            }
            let piece = region.pieces[region.find(cursor)];
            cursor = piece.end();
            if is_kept_out(&keepouts[..outer], start.0, piece.offset, piece.end()) {
                return None;
            }
            match piece.kind {
                Kind::Free => continue,
                Kind::Pinned => return None,
                Kind::Live => {}
            }
            if self.bytes + kept + piece.size > most {
                return None;
            }
            if !self.evict((start.0, piece.offset), keepouts, depth, most - kept) {
                kept += piece.size;
                stays.push((piece.offset, piece.size));
            }
        }
        // What lay before may have gone meanwhile: blocks go to the front of a hole.
        let region = &self.regions[start.0 as usize];
        let piece = region.pieces[region.find(start.1)];
        let mut front = if piece.kind == Kind::Free { piece.offset } else { start.1 };
        if is_kept_out(&keepouts[..outer], start.0, front, start.1) {
            return None;
        }
        for (offset, size) in stays {
            if self.fuel == 0 {
                return None;
            }
            if offset != front {
                self.relocate((start.0, offset), (start.0, front));
            }
            front += size;
        }
        Some((start.0, front))
    }

    /// Moves the piece to a hole, or to a window that is cleared for it. False, and nothing is done, where there is none.
    fn evict(&mut self, from: Spot, keepouts: &mut Vec<Keepout>, depth: usize, most: u64) -> bool {
        if self.fuel == 0 {
            return false;
        }
        let region = &self.regions[from.0 as usize];
        let size = region.pieces[region.find(from.1)].size;
        if let Some(to) = self.hole(size, keepouts) {
            self.relocate(from, to);
            return true;
        }
        if depth == 0 || self.fuel == 0 {
            return false;
        }
        let start = self.steps.len();
        let most = most.saturating_sub(size);
        match self.window(size, keepouts, depth - 1, most) {
            Some(to) => {
                self.relocate(from, to);
                true
            }
            None => {
                self.undo(start);
                false
            }
        }
    }

    /// Does the moves that empty segments of at least `needed` bytes in all (what is bought for their blocks counts
    /// against it) and returns these.
    pub(super) fn empty(&mut self, needed: u64, most: u64) -> Option<Vec<u32>> {
        let candidates = self.emptying_candidates(most);
        let mut single: Vec<_> = candidates.iter().filter(|(_, size, _)| *size >= needed).copied().collect();
        single.sort_unstable();
        single.truncate(CANDIDATES[DEPTH]);
        let sets = single.chunks(1).chain([candidates.as_slice()]);
        self.cheapest(sets, most, |layout, set, most| layout.empty_set(set, needed, most))
    }

    /// Segments that can be emptied, as (live bytes, size, region), the sparsest first.
    fn emptying_candidates(&self, most: u64) -> Vec<(u64, u64, u32)> {
        let mut candidates: Vec<(u64, u64, u32)> = Vec::new();
        for (at, region) in self.regions.iter().enumerate() {
            let live = region.live();
            if region.segment != super::block::NONE && !region.is_pinned() && live > 0 && self.bytes + live <= most {
                candidates.push((live, region.size, at as u32));
            }
        }
        candidates.sort_by(|a, b| (a.0 as f64 / a.1 as f64).total_cmp(&(b.0 as f64 / b.1 as f64)));
        candidates
    }

    fn empty_set(&mut self, candidates: &[(u64, u64, u32)], needed: u64, most: u64) -> Option<Vec<u32>> {
        let (emptied, gain) = self.empty_while(candidates, needed, most);
        (gain >= needed).then_some(emptied)
    }

    /// Does moves that empty segments until `needed` bytes are gained, or as many as can be, and returns them and the gain.
    pub(super) fn gain(&mut self, needed: u64, most: u64) -> (Vec<u32>, u64) {
        let candidates = self.emptying_candidates(most);
        self.empty_while(&candidates, needed, most)
    }

    fn empty_while(&mut self, candidates: &[(u64, u64, u32)], needed: u64, most: u64) -> (Vec<u32>, u64) {
        let mut keepouts: Vec<Keepout> = Vec::new();
        let mut emptied = Vec::new();
        let (mut freed, mut gain) = (0, 0);
        for (_, bytes, region) in candidates {
            if gain >= needed || self.fuel == 0 {
                break;
            }
            let start = self.steps.len();
            if self.steps.iter().any(|step| step.to.0 == *region) {
                continue;
            }
            keepouts.push((*region, 0, u64::MAX));
            let pieces = &self.regions[*region as usize].pieces;
            let mut live: Vec<(u64, u64)> =
                pieces.iter().filter(|piece| piece.kind == Kind::Live).map(|piece| (piece.size, piece.offset)).collect();
            live.sort_unstable_by(|a, b| b.cmp(a));
            let moved = live
                .iter()
                .all(|(size, offset)| self.bytes + size <= most && self.evict((*region, *offset), &mut keepouts, DEPTH, most));
            if moved && freed + bytes > gain + self.to_buy() {
                emptied.push(self.regions[*region as usize].segment);
                freed += bytes;
                gain = freed - self.to_buy();
            } else {
                self.undo(start);
                keepouts.pop();
            }
        }
        (emptied, gain)
    }

    /// Bytes of the segment that has to be bought for the moves.
    pub(super) fn to_buy(&self) -> u64 {
        self.regions.last().filter(|region| region.segment == super::block::NONE).map_or(0, |region| {
            let live = region.pieces.iter().filter(|piece| piece.kind != Kind::Free);
            live.map(|piece| piece.end()).max().unwrap_or(0)
        })
    }
}
