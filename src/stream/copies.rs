//! Which texture holds a copy of which bytes: a table, without any device.
//!
//! A copy is used again while nobody has written to the bytes it was made from. The table is asked and told in the order in
//! which commands are encoded, and that is the order in which they run: what it says of a texture is true at that point of
//! the queue, whatever is still under way.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ids::SegmentId;

/// A piece of a segment: (segment, offset, size).
pub(super) type Bytes = (SegmentId, u64, u64);
/// The slots of a command's inputs, in their order.
pub(super) type Slots = SmallVec<[usize; 4]>;

/// Rows that are kept for later uses, beside the most that one command has needed: 32 MiB.
const MOST_KEPT: u64 = 2048;
/// Homes that are remembered.
const MOST_HOMES: usize = 8192;

/// Each slot stands for a texture of so many rows, or for none.
#[derive(Default)]
pub(super) struct Copies {
    slots: Vec<Slot>,
    /// Where bytes were last: they go there again, so that what comes again in every step meets the same textures and bind
    /// groups in every step.
    homes: FxHashMap<Bytes, usize>,
    /// Counts commands; a slot of this age belongs to the current one.
    clock: u64,
    /// Rows of all slots, and of what the current command uses; the most that one has used.
    rows: u64,
    used: u64,
    most: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    holds: Option<Bytes>,
    rows: u32,
    used: u64,
}

/// Where a command finds the copy it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The slot, whose texture has so many rows.
    pub(super) slot: usize,
    pub(super) rows: u32,
    /// False where the copy is still to be made.
    pub(super) held: bool,
}

impl Copies {
    /// A command begins: what those before it used may go.
    pub(super) fn begin(&mut self) {
        self.clock += 1;
        self.used = 0;
    }

    /// The slots where copies of all `bytes` are, if they are; then they are the command's.
    pub(super) fn held<'a>(&mut self, bytes: impl Iterator<Item = &'a Bytes>) -> Option<Slots> {
        let slots: Slots = bytes.map(|bytes| self.find(bytes)).collect::<Option<_>>()?;
        slots.iter().for_each(|slot| self.take(*slot));
        Some(slots)
    }

    /// A slot for a copy of `bytes`, which needs so many rows. Slots that lose their texture are added to `gone`.
    pub(super) fn get(&mut self, bytes: Bytes, rows: u32, gone: &mut Slots) -> Found {
        if let Some(slot) = self.find(&bytes) {
            self.take(slot);
            return Found { slot, rows: self.slots[slot].rows, held: true };
        }
        let wanted = class(rows);
        let full = self.rows + u64::from(wanted) > MOST_KEPT.max(self.most);
        let free = |slot: &Slot| slot.used < self.clock && slot.rows >= rows;
        let near = |slot: &Slot| free(slot) && slot.rows <= rows.saturating_mul(2);
        // An empty one, there the smallest, or the one that was not used for longest.
        let empty = |of: &dyn Fn(&Slot) -> bool| {
            self.positions(|slot| of(slot) && slot.holds.is_none()).min_by_key(|i| (self.slots[*i].rows, self.slots[*i].used))
        };
        let oldest = |of: &dyn Fn(&Slot) -> bool| self.positions(of).min_by_key(|i| self.slots[*i].used);
        let home = self.homes.get(&bytes).copied().filter(|slot| free(&self.slots[*slot]));
        let instead = || oldest(&near).or_else(|| empty(&free)).or_else(|| oldest(&free));
        let found = home.or_else(|| empty(&near)).or_else(|| if full { instead() } else { None });
        let slot = found.unwrap_or_else(|| self.add(wanted, gone));
        self.slots[slot].holds = Some(bytes);
        if self.homes.len() >= MOST_HOMES {
            self.homes.clear();
        }
        self.homes.insert(bytes, slot);
        self.take(slot);
        Found { slot, rows: self.slots[slot].rows, held: false }
    }

    /// Something has written to `bytes`: no copy of any of them is used again.
    pub(super) fn written(&mut self, (segment, offset, size): Bytes) {
        let touched = |held: &Bytes| held.0 == segment && held.1 < offset + size && offset < held.1 + held.2;
        self.slots.iter_mut().filter(|slot| slot.holds.as_ref().is_some_and(touched)).for_each(|slot| slot.holds = None);
    }

    /// The segment is another one now.
    pub(super) fn forget(&mut self, segment: SegmentId) {
        self.homes.retain(|bytes, _| bytes.0 != segment);
        let gone = |slot: &&mut Slot| slot.holds.is_some_and(|held| held.0 == segment);
        self.slots.iter_mut().filter(gone).for_each(|slot| slot.holds = None);
    }

    /// Rows of all textures.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    fn find(&self, bytes: &Bytes) -> Option<usize> {
        self.homes.get(bytes).copied().filter(|slot| self.slots[*slot].holds.as_ref() == Some(bytes))
    }

    fn positions(&self, of: impl Fn(&Slot) -> bool) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter(move |(_, slot)| of(slot)).map(|(i, _)| i)
    }

    /// The slot is the current command's.
    fn take(&mut self, slot: usize) {
        if self.slots[slot].used < self.clock {
            self.slots[slot].used = self.clock;
            self.used += u64::from(self.slots[slot].rows);
            self.most = self.most.max(self.used);
        }
    }

    /// A slot for a new texture of so many rows. Takes textures away, the one that was not used for longest first, until
    /// there is room.
    fn add(&mut self, rows: u32, gone: &mut Slots) -> usize {
        while self.rows + u64::from(rows) > MOST_KEPT.max(self.most) {
            let idle = self.positions(|slot| slot.rows > 0 && slot.used < self.clock).min_by_key(|i| self.slots[*i].used);
            let Some(oldest) = idle else { break };
            self.rows -= u64::from(self.slots[oldest].rows);
            self.slots[oldest] = Slot::default();
            gone.push(oldest);
        }
        self.rows += u64::from(rows);
        let slot = self.slots.iter().position(|slot| slot.rows == 0).unwrap_or(self.slots.len());
        self.slots.resize(self.slots.len().max(slot + 1), Slot::default());
        self.slots[slot].rows = rows;
        slot
    }
}

/// Rows of a texture for `rows`: a power of two, so that textures of about one size serve each other, and so that lavapipe
/// compiles each shader once (it has one form for textures whose sizes are powers of two and another for those that are not).
fn class(rows: u32) -> u32 {
    rows.max(4).checked_next_power_of_two().unwrap_or(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEGMENTS: u32 = 3;
    const UNIT: u64 = 1 << 16;
    const UNITS: u64 = 160;

    #[derive(Clone, Debug)]
    enum Step {
        /// A command reads these and then writes those.
        Command(Vec<Bytes>, Vec<Bytes>),
        Forget(u32),
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        (0..SEGMENTS, 0..UNITS, prop_oneof![4 => 1..8u64, 1 => 1..UNITS])
            .prop_map(|(segment, start, len)| (SegmentId(segment), start * UNIT, len.min(UNITS - start).max(1) * UNIT))
    }

    fn step() -> impl Strategy<Value = Step> {
        use proptest::collection::vec;
        prop_oneof![
            60 => (vec(bytes(), 0..4), vec(bytes(), 0..2)).prop_map(|(reads, writes)| Step::Command(reads, writes)),
            1 => (0..SEGMENTS).prop_map(Step::Forget),
        ]
    }

    /// Every unit of memory has a version; a texture holds the versions it was copied from. Small ranges, taken from a few
    /// places, so that they come again.
    fn run(steps: &[Step]) -> Result<u32, TestCaseError> {
        let mut copies = Copies::default();
        let mut memory = vec![vec![0u32; UNITS as usize]; SEGMENTS as usize];
        let mut textures: Vec<Option<(u32, Vec<u32>)>> = Vec::new();
        let (mut version, mut hits) = (0, 0);
        let content = |memory: &[Vec<u32>], (segment, offset, size): Bytes| {
            memory[segment.0 as usize][(offset / UNIT) as usize..((offset + size) / UNIT) as usize].to_vec()
        };
        for step in steps {
            match step {
                Step::Command(reads, writes) => {
                    copies.begin();
                    let held = copies.held(reads.iter());
                    let mut slots = Slots::new();
                    for read in reads {
                        let (rows, mut gone) = ((read.2 / UNIT) as u32 * 4, Slots::new());
                        let found = copies.get(*read, rows, &mut gone);
                        for slot in gone {
                            prop_assert!(!slots.contains(&slot), "taken from the command itself");
                            textures[slot] = None;
                        }
                        let slot = found.slot;
                        textures.resize(textures.len().max(slot + 1), None);
                        let texture = textures[slot].get_or_insert((found.rows, Vec::new()));
                        prop_assert!(texture.0 == found.rows && found.rows >= rows);
                        if found.held {
                            hits += 1;
                        } else {
                            prop_assert!(held.is_none() && !slots.contains(&slot), "{slot} is in use");
                            texture.1 = content(&memory, *read);
                        }
                        slots.push(slot);
                    }
                    if let Some(held) = held {
                        prop_assert_eq!(&held, &slots);
                    }
                    let total: u64 = textures.iter().flatten().map(|(rows, _)| u64::from(*rows)).sum();
                    prop_assert_eq!(total, copies.rows());
                    prop_assert!(total <= MOST_KEPT.max(copies.most), "{} rows", total);
                    // The command runs: what it reads is what the memory holds.
                    for (read, slot) in reads.iter().zip(&slots) {
                        prop_assert_eq!(&textures[*slot].as_ref().unwrap().1, &content(&memory, *read));
                    }
                    for (segment, offset, size) in writes {
                        version += 1;
                        let units = (offset / UNIT) as usize..((offset + size) / UNIT) as usize;
                        memory[segment.0 as usize][units].fill(version);
                        copies.written((*segment, *offset, *size));
                    }
                }
                Step::Forget(segment) => {
                    version += 1;
                    memory[*segment as usize].fill(version);
                    copies.forget(SegmentId(*segment));
                }
            }
        }
        Ok(hits)
    }

    proptest! {
        #[test]
        fn no_copy_is_stale(steps in proptest::collection::vec(step(), 1..300)) {
            run(&steps)?;
        }

        #[test]
        fn no_copy_of_the_same_few_blocks_is_stale(
            picks in proptest::collection::vec((0..6usize, 0..6usize, any::<bool>()), 1..300)
        ) {
            let blocks = [(0, 0, 3), (0, 3, 20), (0, 2, 4), (1, 0, 160), (1, 5, 1), (2, 9, 40)];
            let block = |i: usize| (SegmentId(blocks[i].0), blocks[i].1 * UNIT, blocks[i].2 * UNIT);
            let step = |(a, b, write): &(usize, usize, bool)| {
                Step::Command(vec![block(*a), block(*b)], if *write { vec![block(*a)] } else { vec![] })
            };
            let hits = run(&picks.iter().map(step).collect::<Vec<_>>())?;
            prop_assert!(picks.len() < 50 || hits > 0);
        }
    }

    #[test]
    fn copies_are_used_again_until_something_overlapping_is_written() {
        let (mut copies, mut gone) = (Copies::default(), Slots::new());
        let range = |start, len| (SegmentId(7), start * UNIT, len * UNIT);
        let mut ask = |copies: &mut Copies, bytes: Bytes| {
            copies.begin();
            let found = copies.get(bytes, 8, &mut gone);
            assert_eq!((found.slot, found.rows), (0, 8));
            found.held
        };
        assert!(!ask(&mut copies, range(2, 2)));
        assert!(ask(&mut copies, range(2, 2)));
        copies.written(range(4, 9));
        copies.written(range(0, 2));
        copies.written((SegmentId(8), 0, u64::MAX / 2));
        assert!(ask(&mut copies, range(2, 2)));
        copies.written(range(3, 1));
        assert!(!ask(&mut copies, range(2, 2)));
        copies.forget(SegmentId(7));
        assert!(!ask(&mut copies, range(0, 2)));
        assert_eq!(copies.rows(), 8);
    }

    #[test]
    fn textures_are_powers_of_two_and_less_than_twice_what_is_needed() {
        for rows in 4..5000 {
            assert!(class(rows).is_power_of_two() && (rows..2 * rows).contains(&class(rows)), "{rows}: {}", class(rows));
        }
        assert_eq!([1, 4, 9, 24, 48, 72, 96, u32::MAX].map(class), [4, 4, 16, 32, 64, 128, 128, u32::MAX]);
    }
}
