//! Compaction with contents: the pool, the timeline and a table of places as a device has them, on pretend buffers.
//!
//! Every block is written with values of its own and read again; commands take effect when they are encoded, moves too. A
//! move that comes too early or too late, or to a place still in use, shows as a wrong value.

use std::collections::{BTreeMap, VecDeque};

use linn::ids::{BlockId, FenceSet, SegmentId, StreamId};
use linn::memory::sim::SimDevice;
use linn::memory::{Answer, Category, Compacted, Compaction, Config, Place, Pool, Request, Tag};
use linn::timeline::{Access, AccessList, Flush, SubmissionId, Timeline};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const STREAMS: u32 = 3;
/// Bytes that one pretend word stands for.
const WORD: u64 = 4096;

fn tag() -> Tag {
    Tag::here(Category::Temporary, "compact")
}

#[derive(Debug)]
enum Command {
    Write {
        place: usize,
        value: u64,
    },
    Read {
        place: usize,
        value: u64,
    },
    /// By somebody who knows the place and not its name: what `record_stream` is for.
    Foreign {
        at: Place,
        value: u64,
    },
    Move {
        place: usize,
        to: Place,
    },
}

struct Held {
    block: BlockId,
    place: usize,
    /// What the last write enqueued puts there.
    value: Option<u64>,
    /// Foreign reads are enqueued: it is not written any more, for nobody orders that after them.
    foreign: bool,
}

struct World {
    pool: Pool,
    timeline: Timeline,
    recordings: Vec<VecDeque<Command>>,
    /// Resolved when a command is encoded.
    places: Vec<Place>,
    of_block: BTreeMap<BlockId, usize>,
    buffers: BTreeMap<SegmentId, Vec<u64>>,
    held: Vec<Held>,
    in_flight: VecDeque<SubmissionId>,
    values: u64,
    moves: u64,
    /// Of blocks that a recorded stream may still read.
    foreign_moves: u64,
}

impl World {
    fn new(config: Config) -> World {
        let mut timeline = Timeline::new();
        (1..STREAMS).for_each(|_| {
            timeline.new_stream();
        });
        World {
            pool: Pool::new(config),
            timeline,
            recordings: (0..STREAMS).map(|_| VecDeque::new()).collect(),
            places: Vec::new(),
            of_block: BTreeMap::new(),
            buffers: BTreeMap::new(),
            held: Vec::new(),
            in_flight: VecDeque::new(),
            values: 0,
            moves: 0,
            foreign_moves: 0,
        }
    }

    fn enqueue(&mut self, stream: StreamId, block: BlockId, access: Access, command: Command) {
        let mut accesses = AccessList::default();
        accesses.push(block, access);
        self.timeline.enqueue(stream, accesses.iter());
        self.recordings[stream.0 as usize].push_back(command);
    }

    fn enqueue_moves(&mut self) {
        while let Some(step) = self.pool.poll_move() {
            let place = self.of_block[&step.block];
            self.timeline.wait(step.fence.stream, &step.after);
            let foreign = self.timeline.foreign_uses(step.block);
            self.timeline.wait(step.fence.stream, &foreign);
            self.foreign_moves += u64::from(!foreign.is_empty());
            self.enqueue(step.fence.stream, step.block, Access::Write, Command::Move { place, to: step.to });
            assert_eq!(self.timeline.last(step.fence.stream), step.fence);
            self.moves += 1;
        }
    }

    fn release(&mut self) {
        while let Some(segment) = self.pool.poll_release(&self.timeline) {
            self.buffers.remove(&segment);
        }
    }

    fn alloc(&mut self, stream: StreamId, bytes: u64, refuse: bool) {
        let mut request = Request::new(stream, bytes, tag());
        loop {
            let answer = self.pool.alloc(&mut request, &self.timeline);
            self.enqueue_moves();
            match answer {
                Answer::Ready { block, place, .. } => {
                    self.timeline.begin_block(block, self.pool.inherited(block).clone());
                    self.places.push(place);
                    self.of_block.insert(block, self.places.len() - 1);
                    self.held.push(Held { block, place: self.places.len() - 1, value: None, foreign: false });
                    return;
                }
                Answer::NeedSegment(segment) => {
                    self.release();
                    if refuse {
                        self.pool.handle_segment_failed(&mut request, segment, &self.timeline);
                    } else {
                        let size = segment.size;
                        let id = self.pool.handle_segment(segment);
                        assert!(self.buffers.insert(id, vec![0; (size / WORD) as usize]).is_none());
                    }
                }
                Answer::NeedCompletion => {
                    self.submit(&Flush::Everything);
                    self.complete(usize::MAX);
                }
                Answer::Exhausted(_) => return,
            }
        }
    }

    fn write(&mut self, at: usize, stream: StreamId) {
        if self.held[at].foreign {
            return;
        }
        self.values += 1;
        let (block, place) = (self.held[at].block, self.held[at].place);
        self.held[at].value = Some(self.values);
        self.enqueue(stream, block, Access::Write, Command::Write { place, value: self.values });
    }

    fn read(&mut self, at: usize, stream: StreamId) {
        let held = &self.held[at];
        if let (block, place, Some(value)) = (held.block, held.place, held.value) {
            self.enqueue(stream, block, Access::Read, Command::Read { place, value });
        }
    }

    /// A command that the timeline knows nothing of reads the block where it lies, after all that is enqueued.
    fn read_foreign(&mut self, at: usize, stream: StreamId) {
        let (block, Some(value)) = (self.held[at].block, self.held[at].value) else { return };
        self.held[at].foreign = true;
        self.timeline.record_stream(block, stream);
        let before = self.timeline.everything();
        self.timeline.wait(stream, &before);
        self.timeline.enqueue(stream, []);
        self.recordings[stream.0 as usize].push_back(Command::Foreign { at: self.pool.place(block), value });
    }

    fn free(&mut self, at: usize) {
        let held = self.held.swap_remove(at);
        self.pool.free(held.block, self.timeline.end_block(held.block), &self.timeline);
    }

    /// Encodes and executes in the order of the plan.
    fn submit(&mut self, target: &Flush) {
        let batch = self.timeline.plan(target, |_, _| true);
        for (stream, count) in &batch.runs {
            for _ in 0..*count {
                let command = self.recordings[stream.0 as usize].pop_front().expect("a recorded command");
                self.execute(&command);
            }
        }
        self.in_flight.push_back(self.timeline.handle_submitted(&batch));
        self.release();
    }

    fn words(&mut self, place: Place) -> &mut [u64] {
        let buffer = self.buffers.get_mut(&place.segment).expect("the buffer of a command that is encoded exists");
        &mut buffer[(place.offset / WORD) as usize..((place.offset + place.size) / WORD) as usize]
    }

    fn execute(&mut self, command: &Command) {
        match *command {
            Command::Write { place, value } => {
                let words = self.words(self.places[place]);
                words.iter_mut().enumerate().for_each(|(i, word)| *word = value << 20 | i as u64);
            }
            Command::Read { place, value } => {
                let words = self.words(self.places[place]);
                assert!(words.iter().enumerate().all(|(i, word)| *word == value << 20 | i as u64), "wrong contents");
            }
            Command::Foreign { at, value } => {
                let words = self.words(at);
                assert!(words.iter().enumerate().all(|(i, word)| *word == value << 20 | i as u64), "wrong contents");
            }
            Command::Move { place, to } => {
                let from = std::mem::replace(&mut self.places[place], to);
                assert_eq!(from.size, to.size);
                let bytes = self.words(from).to_vec();
                self.words(to).copy_from_slice(&bytes);
            }
        }
    }

    fn complete(&mut self, count: usize) {
        for _ in 0..count {
            let Some(done) = self.in_flight.pop_front() else { return };
            self.timeline.handle_completed(done);
            self.pool.handle_completed(&self.timeline);
        }
    }

    fn compact(&mut self, stream: StreamId, budget: u64) -> Compacted {
        let done = self.pool.compact(stream, budget, &self.timeline);
        self.enqueue_moves();
        self.release();
        done
    }

    fn verify(&mut self) {
        (0..self.held.len()).for_each(|at| self.read(at, StreamId(0)));
        self.submit(&Flush::Everything);
        self.complete(usize::MAX);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Alloc { stream: u32, words: u64, refuse: bool },
    Free { which: usize },
    Write { which: usize, stream: u32 },
    Read { which: usize, stream: u32 },
    RecordStream { which: usize, stream: u32 },
    Submit { stream: Option<u32>, back: u64 },
    Complete,
    Compact { stream: u32, budget: u64 },
    Limit { megabytes: u64 },
    Pin { which: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let stream = 0..STREAMS;
    let words = prop_oneof![1u64..40, 40u64..400];
    let op = prop_oneof![
        30 => (stream.clone(), words, proptest::bool::weighted(0.05)).prop_map(|(stream, words, refuse)| Op::Alloc { stream, words, refuse }),
        26 => any::<usize>().prop_map(|which| Op::Free { which }),
        30 => (any::<usize>(), stream.clone()).prop_map(|(which, stream)| Op::Write { which, stream }),
        15 => (any::<usize>(), stream.clone()).prop_map(|(which, stream)| Op::Read { which, stream }),
        4 => (any::<usize>(), stream.clone()).prop_map(|(which, stream)| Op::RecordStream { which, stream }),
        5 => (proptest::option::of(stream.clone()), 0u64..4).prop_map(|(stream, back)| Op::Submit { stream, back }),
        4 => Just(Op::Complete),
        3 => (stream, 0u64..4 * MIB).prop_map(|(stream, budget)| Op::Compact { stream, budget }),
        1 => (2u64..14).prop_map(|megabytes| Op::Limit { megabytes }),
        1 => any::<usize>().prop_map(|which| Op::Pin { which }),
    ];
    proptest::collection::vec(op, 300)
}

fn run(ops: &[Op], compaction: Compaction) -> u64 {
    let mut world = World::new(Config { limit: 8 * MIB, alignment: WORD, compaction, ..Config::default() });
    for op in ops {
        let pick = |which: usize, world: &World| (!world.held.is_empty()).then(|| which % world.held.len());
        match *op {
            Op::Alloc { stream, words, refuse } => world.alloc(StreamId(stream), words * WORD, refuse),
            Op::Free { which } => pick(which, &world).into_iter().for_each(|at| world.free(at)),
            Op::Write { which, stream } => pick(which, &world).into_iter().for_each(|at| world.write(at, StreamId(stream))),
            Op::Read { which, stream } => pick(which, &world).into_iter().for_each(|at| world.read(at, StreamId(stream))),
            Op::RecordStream { which, stream } => {
                pick(which, &world).into_iter().for_each(|at| world.read_foreign(at, StreamId(stream)));
            }
            Op::Submit { stream: None, .. } => world.submit(&Flush::Everything),
            Op::Submit { stream: Some(stream), back } => {
                let mut last = world.timeline.last(StreamId(stream));
                last.number = last.number.saturating_sub(back);
                world.submit(&Flush::To(std::iter::once(last).collect::<FenceSet>()));
            }
            Op::Complete => world.complete(1),
            Op::Compact { stream, budget } => {
                let done = world.compact(StreamId(stream), budget);
                assert!(done.moved_bytes <= budget);
            }
            Op::Limit { megabytes } => world.pool.set_limit(megabytes * MIB),
            Op::Pin { which } => pick(which, &world).into_iter().for_each(|at| world.pool.pin(world.held[at].block)),
        }
        world.pool.validate().unwrap_or_else(|sentence| panic!("after {op:?}: {sentence}"));
        assert_eq!(world.pool.stats().moves, world.moves);
    }
    world.verify();
    world.moves
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn contents_survive_every_move(ops in ops(), share in prop_oneof![Just(Compaction::Pressure), Just(Compaction::Share(5.0))]) {
        run(&ops, share);
    }
}

/// One segment of 16 blocks, every other of which is free.
fn comb(block: u64, gap: u64) -> World {
    let mut world = World::new(Config { limit: 8 * (block + gap), alignment: WORD, ..Config::default() });
    world.alloc(StreamId(0), 8 * (block + gap), false);
    world.free(0);
    for _ in 0..8 {
        world.alloc(StreamId(0), block, false);
        world.alloc(StreamId(0), gap, false);
    }
    (0..16).for_each(|at| world.write(at, StreamId(at as u32 % STREAMS)));
    (0..8).rev().for_each(|at| world.free(2 * at + 1));
    world
}

#[test]
fn blocks_move_to_other_holes() {
    let mut world = comb(MIB, MIB);
    world.alloc(StreamId(0), 3 * MIB, false);
    assert_eq!((world.held.len(), world.moves, world.pool.stats().num_device_alloc), (9, 1, 1));
    world.verify();
}

/// What a recorded stream has enqueued reads the old place before its bytes serve somebody else.
#[test]
fn blocks_move_after_foreign_uses() {
    let mut world = comb(MIB, MIB);
    let late = StreamId(2);
    (0..8).for_each(|at| world.read_foreign(at, late));
    world.alloc(StreamId(0), 3 * MIB, false);
    assert_eq!((world.held.len(), world.moves, world.foreign_moves), (9, 1, 1));
    // The new block is written on another stream, and nothing of the recorded one was submitted.
    let new = world.held.len() - 1;
    world.write(new, StreamId(1));
    let last = world.timeline.last(StreamId(1));
    world.submit(&Flush::To(std::iter::once(last).collect::<FenceSet>()));
    world.verify();
}

#[test]
fn blocks_that_fit_nowhere_slide() {
    let mut world = comb(MIB, MIB / 2);
    world.alloc(StreamId(1), 2 * MIB, false);
    assert_eq!((world.held.len(), world.pool.stats().num_device_alloc), (9, 1));
    assert!(world.moves <= 4, "{} moves", world.moves);
    world.verify();
}

#[test]
fn all_of_the_limit_can_be_used() {
    let mut world = comb(MIB, MIB / 2);
    world.alloc(StreamId(1), 4 * MIB, false);
    assert_eq!((world.held.len(), world.pool.breakdown().cached), (9, 0));
    world.verify();
}

/// A plan that was not found is not looked for again until something has changed, however often it is asked for.
#[test]
fn what_cannot_be_planned_is_planned_once() {
    let mut world = comb(MIB, MIB);
    let blocks: Vec<BlockId> = world.held.iter().map(|held| held.block).collect();
    blocks.iter().for_each(|block| world.pool.pin(*block));
    let fail = |world: &mut World, sizes: &[u64]| {
        let before = (world.held.len(), world.pool.stats().move_plans);
        sizes.iter().for_each(|size| world.alloc(StreamId(1), *size, false));
        assert_eq!(world.held.len(), before.0, "all of them fail");
        world.pool.stats().move_plans - before.1
    };
    assert_eq!(fail(&mut world, &[3 * MIB; 500]), 1);
    assert_eq!(fail(&mut world, &[4 * MIB; 500]), 0, "more does not fit either");
    assert_eq!(fail(&mut world, &[2 * MIB; 500]), 1, "less might");
    assert_eq!(fail(&mut world, &[2 * MIB, 5 * MIB, 3 * MIB].repeat(100)), 0);
    // Blocks that are lent only stand in the way.
    world.alloc(StreamId(0), MIB, false);
    assert_eq!((world.held.len(), fail(&mut world, &[2 * MIB; 50])), (9, 0));
    world.free(8);
    assert_eq!(fail(&mut world, &[2 * MIB; 50]), 1, "something was freed");
    world.pool.set_limit(17 * MIB);
    assert_eq!(fail(&mut world, &[2 * MIB; 50]), 1, "there is more to buy");
    assert_eq!(fail(&mut world, &[2 * MIB; 50]), 0);
    world.alloc(StreamId(0), 2 * MIB, true);
    assert_eq!(fail(&mut world, &[2 * MIB; 50]), 0, "the driver refused, so nothing was bought");
    world.pool.unpin(blocks[4]);
    world.alloc(StreamId(0), 3 * MIB, false);
    assert_eq!((world.held.len(), world.moves), (9, 1), "a pin was gone");
    world.verify();
}

#[test]
fn pinned_blocks_stay_until_they_are_unpinned() {
    let mut world = comb(MIB, MIB);
    let blocks: Vec<BlockId> = world.held.iter().map(|held| held.block).collect();
    blocks.iter().for_each(|block| world.pool.pin(*block));
    world.alloc(StreamId(0), 3 * MIB, false);
    assert_eq!((world.held.len(), world.moves), (8, 0));
    world.pool.unpin(blocks[4]);
    world.alloc(StreamId(0), 3 * MIB, false);
    assert_eq!((world.held.len(), world.moves), (9, 1));
    world.verify();
}

#[test]
fn compacting_empties_sparse_segments_within_its_budget() {
    let mut device = SimDevice::new(1 << 40, Config::default());
    let mut leases: VecDeque<_> = (0..32).filter_map(|_| device.alloc(StreamId(0), MIB, tag()).ok()).collect();
    // Every segment of two blocks keeps one.
    for at in 0..32 {
        let mut lease = leases.pop_front().expect("32 leases");
        device.use_on(StreamId(0), &mut lease);
        if at % 2 == 0 { device.free(lease) } else { leases.push_back(lease) }
    }
    let before = device.pool().stats().reserved_bytes.current;
    let done = device.compact(StreamId(0), 4 * MIB);
    assert_eq!((done.moves, done.moved_bytes, done.released_bytes), (4, 4 * MIB, 8 * MIB));
    device.synchronize();
    assert_eq!(device.pool().stats().reserved_bytes.current, before - 8 * MIB);
    device.compact(StreamId(0), u64::MAX);
    device.synchronize();
    assert_eq!(device.pool().stats().reserved_bytes.current, 16 * MIB, "no byte is free");
}

/// One segment with 60,000 blocks, every second one free: a plan is bounded in work (without that, this takes half a minute).
#[test]
fn a_plan_within_a_segment_of_many_blocks_ends() {
    const COUNT: usize = 60_000;
    let config = Config { limit: (COUNT as u64) * 4096 + (4 << 30) + (256 << 10), max_segment: 64 << 30, ..Config::default() };
    let mut device = SimDevice::new(1 << 40, config);
    let ballast = device.alloc(StreamId(0), 4 << 30, tag()).unwrap();
    let mut leases: Vec<_> = (0..COUNT).map(|_| device.alloc(StreamId(0), 4096, tag()).unwrap()).collect();
    for at in (0..COUNT).rev().step_by(2) {
        device.free(leases.swap_remove(at));
    }
    device.synchronize();
    for share in [20, 5, 2] {
        // Served or refused, it ends, and the books are right.
        let answer = device.alloc(StreamId(0), COUNT as u64 * 4096 * share / 100, tag());
        assert!(answer.is_ok() || share > 2, "{}% of the bytes, of which half are free", share);
        device.synchronize();
    }
    device.free(ballast);
    device.pool().validate().unwrap();
}
