//! The pool against a slow, obvious reference, over random programs.
//!
//! The reference keeps every use of every byte range that is not yet submitted, and for every command the set of commands
//! that certainly run before it (a number per stream). It knows nothing of blocks, splits or lists.

use std::collections::BTreeMap;

use linn::ids::{Fence, FenceSet, Horizons, MemPoolId, SegmentId, StreamId};
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::{Category, Compaction, Config, MemPoolOptions, OomCause, Policy, Request, Tag, pytorch};
use proptest::prelude::*;

mod program;
use program::{Op, ops};

const STREAMS: u32 = 4;

/// For each stream the number of the last command that certainly ran.
type Clock = [u64; STREAMS as usize];

fn join(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

struct Held {
    lease: Lease,
    bytes: u64,
    category: Category,
    stream: StreamId,
    /// Uses of its memory before it was lent or moved there.
    inherited: FenceSet,
    pins: u32,
}

/// Bytes of a buffer that a command uses, by a storage that is gone.
struct PastUse {
    segment: SegmentId,
    start: u64,
    end: u64,
    fence: Fence,
}

struct World {
    device: SimDevice,
    capacity: u64,
    limit: u64,
    refusals: u32,
    held: Vec<Held>,
    past: Vec<PastUse>,
    clocks: BTreeMap<Fence, Clock>,
    last: [Clock; STREAMS as usize],
    /// The largest sums seen: allocated, reserved.
    peaks: (u64, u64),
    /// Bytes moved.
    moved: u64,
    /// Private pools that were not dropped, everybody's first.
    pools: Vec<(MemPoolId, MemPoolOptions)>,
}

impl World {
    fn new(capacity: u64, config: Config) -> World {
        World {
            device: SimDevice::new(capacity, config),
            capacity,
            limit: u64::MAX,
            refusals: 0,
            held: Vec::new(),
            past: Vec::new(),
            clocks: BTreeMap::new(),
            last: Default::default(),
            peaks: (0, 0),
            moved: 0,
            pools: vec![(MemPoolId::DEFAULT, MemPoolOptions::default())],
        }
    }

    fn pick(&self, which: usize) -> Option<usize> {
        (!self.held.is_empty()).then(|| which % self.held.len())
    }

    fn submitted(&self) -> Clock {
        std::array::from_fn(|stream| self.device.streams().submitted(StreamId(stream as u32)))
    }

    /// What runs before a command that `stream` enqueues now, after these fences.
    fn clock(&self, stream: StreamId, after: impl IntoIterator<Item = Fence>) -> Clock {
        let mut clock = self.last[stream.0 as usize];
        join(&mut clock, &self.submitted());
        for fence in after {
            if let Some(known) = self.clocks.get(&fence) {
                join(&mut clock, known);
            }
        }
        clock
    }

    fn check_covered(&self, place: linn::memory::Place, clock: &Clock) {
        for used in &self.past {
            if used.segment == place.segment && used.start < place.offset + place.size && place.offset < used.end {
                let known = clock[used.fence.stream.0 as usize];
                assert!(known >= used.fence.number, "{place:?} may be used before {:?} is done", used.fence);
            }
        }
    }

    /// The pools that a request of `pool` may be served from.
    fn serves(&self, pool: MemPoolId) -> Vec<MemPoolId> {
        let helps =
            |(other, options): &&(MemPoolId, MemPoolOptions)| *other == pool || pool == MemPoolId::DEFAULT && options.use_on_oom;
        self.pools.iter().filter(helps).map(|(id, _)| *id).collect()
    }

    /// Whose a buffer is.
    fn pool_of(&mut self, segment: SegmentId) -> MemPoolId {
        let snapshot = self.device.pool_mut().snapshot();
        snapshot.segments.iter().find(|known| known.segment == segment).expect("a segment").pool
    }

    fn alloc(&mut self, stream: StreamId, bytes: u64, category: Category, pool: MemPoolId) {
        let reserved = self.device.pool().stats().reserved_bytes.current;
        let ooms = self.device.pool().stats().num_ooms;
        let (live, moved) = (self.device.pool().stats().allocated_bytes.current, self.moved);
        let request = Request::new(stream, bytes, Tag::here(category, "model")).in_pool(pool);
        let answer = self.device.serve(request);
        self.follow_moves(stream);
        // Segments are emptied eight times at most, then a window is cleared; each moves no more than what is live.
        assert!(self.moved - moved <= 9 * live, "{} bytes moved among {live}", self.moved - moved);
        match answer {
            Ok(lease) => {
                let place = lease.place;
                assert!(place.size >= bytes && place.size % 256 == 0 && place.offset % 256 == 0);
                let (_, size) = self.device.buffers().find(|(segment, _)| *segment == place.segment).expect("the buffer exists");
                assert!(place.offset + place.size <= size, "inside its buffer");
                let owner = self.pool_of(place.segment);
                assert!(self.serves(pool).contains(&owner), "a block of {owner:?} for a request in {pool:?}");
                let whole = self.pools.iter().any(|(id, options)| *id == owner && options.no_split);
                assert!(!whole || place.offset == 0 && place.size == size, "a pool that does not split, {place:?} of {size}");
                for other in &self.held {
                    let other = other.lease.place;
                    let apart = other.segment != place.segment
                        || other.offset + other.size <= place.offset
                        || place.offset + place.size <= other.offset;
                    assert!(apart, "{place:?} overlaps {other:?}");
                }
                for fence in lease.after.iter() {
                    assert_ne!(fence.stream, stream, "program order needs no edge");
                    assert!(fence.number > self.device.streams().submitted(fence.stream), "{fence:?} is submitted");
                    let real = self.past.iter().any(|used| {
                        used.fence == fence
                            && used.segment == place.segment
                            && used.start < place.offset + place.size
                            && place.offset < used.end
                    });
                    // A split copies the set, so the bytes used may lie in the block's former neighbourhood.
                    assert!(real || self.past.iter().any(|used| used.fence == fence && used.segment == place.segment));
                }
                self.check_covered(place, &self.clock(stream, lease.after.iter()));
                let inherited = self.device.pool().inherited(lease.block).clone();
                self.held.push(Held { lease, bytes, category, stream, inherited, pins: 0 });
            }
            Err(report) => {
                assert_eq!(self.device.pool().stats().num_ooms, ooms + 1);
                self.check_exhausted(bytes, pool, &report);
            }
        }
        let now = self.device.pool().stats().reserved_bytes.current;
        assert!(now <= reserved || now <= self.limit, "bought beyond the limit");
        self.refusals = 0;
        self.device.refuse_next(0);
    }

    /// What was moved lies where nothing else lies, and nobody else can be using these bytes any more.
    fn follow_moves(&mut self, stream: StreamId) {
        for step in self.device.take_moves() {
            assert_eq!(step.fence.stream, stream);
            let at = self.held.iter().position(|held| held.lease.block == step.block).expect("a live block");
            let held = &self.held[at];
            assert_eq!(held.lease.place, step.from);
            assert_eq!(held.pins, 0, "a pinned block was moved");
            let apart = |other: &Held| !other.lease.place.overlaps(&step.to);
            assert!(self.held.iter().enumerate().all(|(other, held)| other == at || apart(held)), "moved over another block");
            // The move is enqueued as a write: after all uses of the block, as the storage knows them.
            let before: Vec<Fence> = held.lease.uses.iter().chain(held.inherited.iter()).chain(step.after.iter()).collect();
            let mut clock = self.clock(stream, before);
            self.check_covered(step.to, &clock);
            clock[stream.0 as usize] = step.fence.number;
            self.last[stream.0 as usize] = clock;
            self.clocks.insert(step.fence, clock);
            let (start, end) = (step.from.offset, step.from.offset + step.from.size);
            let left = self.held[at].lease.uses.iter().chain([step.fence]);
            self.past.extend(left.map(|fence| PastUse { segment: step.from.segment, start, end, fence }));
            let held = &mut self.held[at];
            (held.lease.place, held.inherited) = (step.to, std::iter::once(step.fence).collect());
            held.lease.uses.insert(step.fence);
            self.moved += step.to.size;
        }
    }

    /// Out of memory must be true: nothing free is large enough, and nothing could be bought.
    fn check_exhausted(&mut self, bytes: u64, pool: MemPoolId, report: &linn::memory::OomReport) {
        let pytorch = self.device.pool().config().policy == Policy::Pytorch;
        let size = if pytorch { report.rounded } else { bytes.max(1).next_multiple_of(256) };
        // PyTorch's rules leave pieces that would fit to other streams and sizes, private pools theirs to their own requests.
        let buffers: Vec<_> = self.device.buffers().collect();
        let mut in_one_segment = 0;
        for (segment, total) in buffers {
            if !self.serves(pool).contains(&self.pool_of(segment)) {
                continue;
            }
            let mut live: Vec<_> =
                self.held.iter().map(|held| held.lease.place).filter(|place| place.segment == segment).collect();
            live.sort_by_key(|place| place.offset);
            let ends = live.iter().map(|place| place.offset + place.size);
            let starts = live.iter().map(|place| place.offset).chain([total]);
            let largest = std::iter::once(0).chain(ends).zip(starts).map(|(end, start)| start - end).max().unwrap_or(0);
            assert!(pytorch || largest < size, "{largest} bytes in one piece, yet {size} were refused: {report}");
            // (For a request, blocks are moved in its own pool only, not in one that helps out.)
            if self.pool_of(segment) == pool {
                in_one_segment = in_one_segment.max(total - live.iter().map(|place| place.size).sum::<u64>());
            }
        }
        let live: u64 = self.held.iter().map(|held| held.lease.place.size).sum();
        assert_eq!(report.allocated, live);
        let room = self.limit.saturating_sub(report.reserved);
        let driver_room = self.capacity.saturating_sub(self.device.driver_bytes());
        match report.cause {
            OomCause::LargerThanBuffer => assert!(size > report.max_segment),
            OomCause::LargerThanLimit => assert!(size > self.limit),
            OomCause::Limit => assert!(size > room && report.breakdown.cached < size),
            OomCause::Stranded => assert!((pytorch || self.pools.len() > 1) && report.largest_free >= size),
            OomCause::Driver => {
                let bought = if pytorch { pytorch::segment_size(size, pytorch::LARGE_SEGMENT) } else { size };
                assert!(self.refusals > 0 || bought > driver_room);
            }
            OomCause::Fragmented => {
                assert!(report.breakdown.cached >= size && report.largest_free < size);
                let config = self.device.pool().config();
                let stuck = pytorch || config.compaction == Compaction::Off || self.held.iter().any(|held| held.pins > 0);
                // Blocks that may move slide together, so there is no segment with that much free.
                assert!(stuck || in_one_segment < size, "{in_one_segment} bytes in one segment: {report}");
            }
            other => panic!("unknown cause {other:?}"),
        }
        let text = report.to_string();
        assert_eq!(text.matches("help: ").count(), 1, "{text}");
    }

    fn touch(&mut self, at: usize, stream: StreamId) {
        let held = &mut self.held[at];
        // The first command carries the edges that came with the block; the next ones follow the storage's own uses.
        let before: Vec<Fence> = if !held.lease.uses.is_empty() {
            held.lease.uses.iter().collect()
        } else if stream == held.stream {
            held.lease.after.iter().collect()
        } else {
            held.inherited.iter().collect()
        };
        let fence = self.device.use_on(stream, &mut held.lease);
        let place = held.lease.place;
        let mut clock = self.clock(stream, before);
        self.check_covered(place, &clock);
        clock[stream.0 as usize] = fence.number;
        self.last[stream.0 as usize] = clock;
        self.clocks.insert(fence, clock);
    }

    fn free(&mut self, at: usize) {
        let held = self.held.swap_remove(at);
        let place = held.lease.place;
        let uses = held.lease.uses.iter();
        self.past.extend(uses.map(|fence| PastUse {
            segment: place.segment,
            start: place.offset,
            end: place.offset + place.size,
            fence,
        }));
        self.device.free(held.lease);
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Alloc { stream, octave, share, category, pool } => {
                // The smallest octave is the empty request.
                let bytes = if octave == 0 { 0 } else { ((1u64 << octave) as f64 * (1.0 + share)) as u64 };
                let pool = self.pools[pool % self.pools.len()].0;
                self.alloc(StreamId(stream), bytes, Category::ALL[category], pool);
            }
            Op::Free { which } => {
                if let Some(at) = self.pick(which) {
                    self.free(at);
                }
            }
            Op::Use { which, stream } => {
                if let Some(at) = self.pick(which) {
                    self.touch(at, StreamId(stream));
                }
            }
            Op::Submit { stream: Some(stream) } => self.submit_with_edges(StreamId(stream)),
            Op::Submit { stream: None } => self.device.submit(),
            Op::Complete => {
                self.device.complete_one();
            }
            Op::Synchronize => {
                self.device.synchronize();
                let stats = self.device.pool().stats();
                assert_eq!(self.device.pool().breakdown().retiring, 0, "nothing is retiring when all is done");
                assert_eq!(self.device.driver_bytes(), stats.reserved_bytes.current, "reserved is what the driver holds");
            }
            Op::EmptyCache => self.device.empty_cache(),
            Op::Refuse { count } => {
                self.refusals = count;
                self.device.refuse_next(count);
            }
            Op::Limit { share } => {
                self.limit = (self.capacity as f64 * share) as u64;
                self.device.pool_mut().set_limit(self.limit);
            }
            Op::SetCategory { which, category } => {
                if let Some(at) = self.pick(which) {
                    let held = &mut self.held[at];
                    held.category = Category::ALL[category];
                    self.device.pool_mut().set_category(held.lease.block, held.category);
                }
            }
            Op::ResetPeaks => {
                self.device.pool_mut().reset_peak_stats();
                self.peaks = (0, 0);
            }
            Op::ResetSums => {
                self.device.pool_mut().reset_accumulated_stats();
                self.moved = 0;
            }
            Op::Compact { stream, share } => {
                let live = self.device.pool().stats().allocated_bytes.current;
                let (stream, budget) = (StreamId(stream), (live as f64 * share) as u64);
                let done = self.device.compact(stream, budget);
                assert!(done.moved_bytes <= budget && (done.moves == 0) == (done.released_bytes == 0), "{done:?}");
                self.follow_moves(stream);
            }
            Op::Pin { which } => {
                if let Some(at) = self.pick(which) {
                    self.device.pool_mut().pin(self.held[at].lease.block);
                    self.held[at].pins += 1;
                }
            }
            Op::Unpin { which } => {
                if let Some(at) = self.pick(which) {
                    self.device.pool_mut().unpin(self.held[at].lease.block);
                    self.held[at].pins = self.held[at].pins.saturating_sub(1);
                }
            }
            Op::NewPool { no_split, use_on_oom } => {
                let options = MemPoolOptions { no_split, use_on_oom };
                let id = self.device.pool_mut().new_mem_pool(options);
                self.pools.push((id, options));
            }
            Op::DropPool { which } => {
                if self.pools.len() > 1 {
                    let (id, _) = self.pools.swap_remove(1 + which % (self.pools.len() - 1));
                    self.device.pool_mut().drop_mem_pool(id);
                }
            }
        }
        self.check(op);
    }

    /// A submission takes what it depends on with it: every command that runs before the last one of `stream`.
    fn submit_with_edges(&mut self, stream: StreamId) {
        let mut target = self.last[stream.0 as usize];
        target[stream.0 as usize] = self.device.streams().enqueued(stream);
        let target = target.iter().enumerate().map(|(stream, number)| Fence { stream: StreamId(stream as u32), number: *number });
        self.device.submit_prefixes(target);
    }

    fn check(&mut self, op: &Op) {
        let submitted = self.submitted();
        self.past.retain(|used| used.fence.number > submitted[used.fence.stream.0 as usize]);
        self.clocks.retain(|fence, _| fence.number > submitted[fence.stream.0 as usize]);
        let snapshot = self.device.pool_mut().snapshot();
        let pool = self.device.pool();
        pool.validate().unwrap_or_else(|sentence| panic!("after {op:?}: {sentence}"));
        assert_eq!(self.device.early_releases(), 0, "a segment was released before its uses were submitted");

        let stats = pool.stats();
        let (allocated, reserved) = (stats.allocated_bytes.current, stats.reserved_bytes.current);
        assert_eq!(allocated, self.held.iter().map(|held| held.lease.place.size).sum::<u64>());
        // What was asked for counts until the block can be lent again (PyTorch's meaning).
        assert_eq!(stats.requested_bytes.current, snapshot.segments.iter().map(|segment| segment.requested_size).sum::<u64>());
        assert_eq!(stats.active_bytes.current, snapshot.segments.iter().map(|segment| segment.active_size).sum::<u64>());
        if stats.active.current == stats.allocation.current {
            assert_eq!(stats.requested_bytes.current, self.held.iter().map(|held| held.bytes).sum::<u64>());
        }
        assert_eq!(stats.allocation.current, self.held.len() as u64);
        assert!(self.device.driver_bytes() <= reserved, "the driver holds more than the pool knows of");

        assert_eq!(stats.moved_bytes, self.moved);

        let breakdown = pool.breakdown();
        assert_eq!(breakdown.sum(), reserved);
        for category in Category::ALL {
            let held = self.held.iter().filter(|held| held.category == category);
            assert_eq!(breakdown.of(category), held.map(|held| held.bytes).sum::<u64>(), "{category}");
        }
        self.peaks = (self.peaks.0.max(allocated), self.peaks.1.max(reserved));
        assert_eq!(stats.allocated_bytes.peak, self.peaks.0);
        // Where a segment is bought for blocks to move into, more is held for a moment.
        let config = pool.config();
        let moves = config.policy == Policy::Linn && config.compaction != Compaction::Off;
        assert!(stats.reserved_bytes.peak == self.peaks.1 || moves && stats.reserved_bytes.peak > self.peaks.1);
        self.peaks.1 = stats.reserved_bytes.peak;
    }
}

fn run(capacity: u64, config: Config, ops: &[Op]) {
    let mut world = World::new(capacity, config);
    for op in ops {
        world.apply(op);
    }
    // Whatever happened: when everything is given back, the driver gets everything back.
    for (id, _) in world.pools.split_off(1) {
        world.device.pool_mut().drop_mem_pool(id);
    }
    while !world.held.is_empty() {
        world.free(0);
    }
    world.device.synchronize();
    world.device.empty_cache();
    assert_eq!(world.device.pool().stats().reserved_bytes.current, 0);
    assert_eq!(world.device.driver_bytes(), 0);
    world.device.pool().validate().expect("the empty pool is sound");
}

/// Steps per random program, and programs per test: 4 x 640 x 400 = 1,024,000 steps, ten times as many with `LINN_LONG=1`.
const STEPS: usize = 400;

fn programs() -> ProptestConfig {
    let cases = if std::env::var_os("LINN_LONG").is_some() { 6_400 } else { 640 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(programs())]

    /// Little memory, so that limits, refusals and the last resort are met all the time.
    #[test]
    fn tight_memory(ops in proptest::collection::vec(ops(21), STEPS), max_segment in 1u64 << 21..1 << 25) {
        run(16 << 20, Config { max_segment, ..Config::default() }, &ops);
    }

    /// Sizes from 1 byte to 4 GiB.
    #[test]
    fn all_sizes(ops in proptest::collection::vec(ops(31), STEPS), max_segment in 1u64 << 28..1 << 34) {
        run(64 << 30, Config { max_segment, ..Config::default() }, &ops);
    }

    /// Blocks are moved also where memory could be bought, or never.
    #[test]
    fn with_a_share_of_moves(
        ops in proptest::collection::vec(ops(22), STEPS),
        compaction in prop_oneof![Just(Compaction::Off), Just(Compaction::Share(0.05)), Just(Compaction::Share(10.0))],
    ) {
        run(32 << 20, Config { compaction, ..Config::default() }, &ops);
    }

    /// PyTorch's rules, all of its settings in play.
    #[test]
    fn pytorchs_rules(
        ops in proptest::collection::vec(ops(27), STEPS),
        max_segment in 1u64 << 24..1 << 34,
        max_split_size in prop_oneof![Just(u64::MAX), 20u64 << 20..200 << 20],
        divisions in prop_oneof![Just(0u64), Just(2), Just(8)],
        garbage_collection_threshold in prop_oneof![Just(0.0), 0.1..0.9],
    ) {
        let config = Config {
            max_segment,
            policy: Policy::Pytorch,
            max_split_size,
            roundup_power2_divisions: [divisions; 16],
            garbage_collection_threshold,
            ..Config::default()
        };
        run(1 << 30, config, &ops);
    }
}
