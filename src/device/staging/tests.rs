//! The table against a model: a host that fills, a queue that encodes and submits, a device that completes late or refuses.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::ids::{Fence, StreamId};

proptest! {
    #[test]
    fn a_class_wastes_a_sixteenth_at_most(size in prop_oneof![1..4096u64, 1..1u64 << 32, 1..1u64 << 50]) {
        let class = size_class(size);
        prop_assert!(class >= size && class.is_multiple_of(PIECE_ALIGNMENT));
        prop_assert!(class - size < (size / 16).max(PIECE_ALIGNMENT), "{size} bytes in {class}");
        prop_assert!(size < 256 || (class as f64) <= size as f64 * 1.08);
        prop_assert_eq!(size_class(class), class);
    }
}

#[test]
fn classes_are_few_and_grow() {
    let classes: std::collections::BTreeSet<u64> = (1 << 20..2 << 20).step_by(97).map(size_class).collect();
    assert_eq!(classes.len(), 17);
    assert!((1..100_000).all(|size| size_class(size) <= size_class(size + 1)));
    assert_eq!((size_class(129_500_000), size_class(u64::MAX)), (130_023_424, u64::MAX));
}

/// What a buffer is at, as a driver sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Buffer {
    Mapped,
    Unmapped,
    /// Used by work that was submitted; the turn of a mapping that was asked for.
    Busy(Option<Turn>),
}

/// A program, a queue and a device around the table.
#[derive(Default)]
struct World {
    staging: Staging<u32, u32>,
    buffers: BTreeMap<u32, Buffer>,
    /// Chunks of enqueued commands, in order, and what was submitted.
    enqueued: VecDeque<ChunkId>,
    submitted: VecDeque<Vec<u32>>,
    /// Answers of mappings on their way.
    answers: VecDeque<(Turn, bool)>,
    held: Vec<(ChunkId, Direction)>,
    readers: Vec<ChunkId>,
    number: u64,
    waiting: u32,
    woken: u32,
}

impl World {
    fn buy(&mut self, direction: Direction) -> u32 {
        let buffer = self.buffers.len() as u32;
        self.buffers.insert(buffer, if direction == Direction::Upload { Buffer::Mapped } else { Buffer::Unmapped });
        buffer
    }

    /// A transient transfer; false where it has to wait.
    fn transfer(&mut self, direction: Direction, size: u64) -> bool {
        let piece = loop {
            if let Some(piece) = self.staging.piece(direction, size) {
                break piece;
            }
            match self.staging.purchase(direction, size) {
                Some(chunk) => {
                    let buffer = self.buy(direction);
                    self.staging.add(direction, chunk, buffer);
                }
                None => match self.staging.any_piece(direction, size) {
                    Some(piece) => break piece,
                    None => return false,
                },
            }
        };
        if direction == Direction::Upload {
            assert_eq!(self.buffers[&piece.buffer], Buffer::Mapped, "the host writes to mapped memory");
        }
        self.enqueued.push_back(piece.chunk);
        true
    }

    fn hold(&mut self, direction: Direction, size: u64) {
        let class = size_class(size);
        let id = self.staging.hold(direction, class).unwrap_or_else(|| {
            let buffer = self.buy(direction);
            self.staging.add_held(direction, class, buffer)
        });
        assert!(self.held.iter().all(|(held, _)| *held != id), "a chunk has one owner");
        assert!(!self.enqueued.contains(&id) && !self.readers.contains(&id), "a chunk in use was lent");
        self.held.push((id, direction));
    }

    /// Fills or reads a held buffer, as far as it lets; then a command uses it.
    fn use_held(&mut self, nth: usize) {
        let Some((id, direction)) = self.held.get(nth % self.held.len().max(1)).copied() else { return };
        match self.staging.held(id) {
            Held::Ready(buffer) => {
                assert!(!self.enqueued.contains(&id), "commands still use it");
                assert!(!self.submitted.iter().flatten().any(|used| *used == buffer), "the device still uses it");
                assert!(direction == Direction::Download || self.buffers[&buffer] == Buffer::Mapped);
            }
            // An upload may be copied again while it is in flight.
            Held::InFlight if direction == Direction::Upload => {}
            Held::InFlight | Held::Reading => {
                self.waiting += 1;
                assert!(!self.staging.wait(id, self.waiting).is_empty() || self.readers.contains(&id));
                return;
            }
            Held::Gone => return,
        }
        self.number += 1;
        assert!(self.staging.use_held(id, Fence { stream: StreamId(0), number: self.number }));
        self.enqueued.push_back(id);
    }

    /// The queue takes some commands.
    fn submit(&mut self, count: usize) {
        if count == 0 || self.enqueued.is_empty() {
            return;
        }
        let (mut used, mut chunks) = (Vec::new(), Vec::new());
        for _ in 0..count.min(self.enqueued.len()) {
            let id = self.enqueued.pop_front().unwrap();
            let (buffer, unmap) = self.staging.encode(id).unwrap();
            let state = self.buffers.get_mut(&buffer).unwrap();
            match *state {
                Buffer::Mapped => assert!(unmap, "a mapped buffer was submitted"),
                Buffer::Busy(Some(turn)) => {
                    assert!(unmap);
                    self.answers.push_back((turn, false));
                }
                Buffer::Unmapped | Buffer::Busy(None) => {}
            }
            if unmap || *state == Buffer::Unmapped {
                *state = Buffer::Busy(None);
            }
            used.push(buffer);
            if !chunks.contains(&id) {
                chunks.push(id);
            }
        }
        self.submitted.push_back(used);
        for id in chunks {
            if let Some((turn, _, buffer)) = self.staging.start_mapping(id) {
                let state = self.buffers.get_mut(&buffer).unwrap();
                assert_eq!(*state, Buffer::Busy(None));
                *state = Buffer::Busy(Some(turn));
            }
        }
    }

    /// The oldest submission is done; what waited for it alone is mapped, or refused.
    fn complete(&mut self, ok: bool) {
        let Some(done) = self.submitted.pop_front() else { return };
        for buffer in done {
            if self.submitted.iter().flatten().any(|used| *used == buffer) {
                continue;
            }
            let state = self.buffers.get_mut(&buffer).unwrap();
            match *state {
                Buffer::Busy(Some(turn)) => {
                    *state = if ok { Buffer::Mapped } else { Buffer::Unmapped };
                    self.answers.push_back((turn, ok));
                }
                Buffer::Busy(None) => *state = Buffer::Unmapped,
                _ => {}
            }
        }
    }

    /// The queue looks at its mail.
    fn collect(&mut self) {
        while let Some((turn, ok)) = self.answers.pop_front() {
            if self.staging.handle_mapped(turn, ok) == Mapped::Download {
                self.readers.push(turn.chunk);
            }
        }
        self.woken += self.staging.woken().len() as u32;
        self.drop_buffers();
    }

    fn read(&mut self) {
        self.readers.drain(..).for_each(|id| self.staging.handle_read(id));
        self.woken += self.staging.woken().len() as u32;
        self.drop_buffers();
    }

    fn drop_buffers(&mut self) {
        for buffer in self.staging.take_discarded() {
            assert!(!self.submitted.iter().flatten().any(|used| *used == buffer), "the device still uses it");
            self.buffers.insert(buffer, Buffer::Unmapped);
        }
    }

    fn check(&self) {
        let stats = self.staging.pinned();
        let size =
            |of: fn(&Chunk<u32>) -> bool| self.staging.all().filter(|(_, chunk)| of(chunk)).map(|(_, c)| c.size).sum::<u64>();
        assert_eq!(stats.held.current, self.held.len() as u64);
        assert_eq!(stats.held_bytes.current, size(|chunk| chunk.owner == Owner::Held));
        assert_eq!(stats.cached_bytes, size(|chunk| chunk.owner == Owner::Cached));
        assert_eq!(stats.reserved_bytes.current, stats.held_bytes.current + stats.cached_bytes);
        assert!(
            stats.reserved_bytes.peak >= stats.reserved_bytes.current && stats.in_flight_bytes <= stats.reserved_bytes.current
        );
        for stat in [stats.held, stats.held_bytes, stats.reserved_bytes] {
            assert_eq!(stat.allocated - stat.freed, stat.current);
        }
        let (up, down) = self.staging.bytes();
        assert_eq!(up + down, size(|chunk| chunk.owner == Owner::Transient));
        assert!(up <= MOST_UPLOAD_BYTES);
        assert!(self.waiting - self.woken >= self.staging.waiters.len() as u32);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]
    #[test]
    fn chunks_are_used_by_one_at_a_time(steps in proptest::collection::vec((0..14u8, 0..64usize, 1..20_000_000u64), 1..120)) {
        let mut world = World::default();
        for (kind, nth, size) in steps {
            let (small, direction) = (size % 40_000 + 1, if nth % 2 == 0 { Direction::Upload } else { Direction::Download });
            match kind {
                0 => drop(world.transfer(direction, small)),
                1 => drop(world.transfer(direction, size.min(LARGEST_CHUNK))),
                2 => world.hold(direction, small),
                3..=5 => world.use_held(nth),
                6 => if !world.held.is_empty() {
                    let (id, _) = world.held.swap_remove(nth % world.held.len());
                    // Its readers are gone with it.
                    world.read();
                    world.staging.release(id);
                },
                7 | 8 => world.submit(nth % 5),
                9 => world.complete(true),
                10 => world.complete(nth != 0),
                11 => world.collect(),
                12 => world.read(),
                _ => world.staging.empty_cache(),
            }
            world.drop_buffers();
            world.check();
        }
        // Everything comes to its end: who waits is told, nothing is lost.
        while [world.enqueued.len(), world.submitted.len(), world.answers.len(), world.readers.len()].iter().any(|left| *left > 0) {
            world.submit(64);
            world.complete(true);
            world.collect();
            world.read();
        }
        prop_assert!(world.staging.waiters.is_empty());
        world.held.drain(..).for_each(|(id, _)| world.staging.release(id));
        world.staging.empty_cache();
        world.drop_buffers();
        world.check();
        let stats = world.staging.pinned();
        prop_assert_eq!((stats.reserved_bytes.current, world.staging.bytes()), (0, (0, 0)));
        prop_assert_eq!(stats.num_host_alloc, stats.num_host_free);
    }
}
