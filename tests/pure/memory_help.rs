//! Help is true: whatever an out-of-memory report says would make the request succeed does so, in random programs.

use linn::ids::{MemPoolId, StreamId};
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::{Caching, Category, Compaction, Config, MemPoolOptions, OomReport, Policy, Request, Tag, Way};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const LABELS: [&str; 4] = ["weights", "saved", "cache", "log"];

#[derive(Clone, Debug)]
enum Op {
    Alloc { label: usize, quarters: u64, stream: u32, pool: usize },
    Free { which: usize },
    Use { which: usize, stream: u32 },
    Pin { which: usize },
    Submit,
    Complete,
    Limit { megabytes: u64 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let quarters = prop_oneof![3 => 1u64..8, 2 => 8u64..80, 1 => 80u64..400];
    let op = prop_oneof![
        12 => (0usize..4, quarters, 0u32..2, 0usize..6)
            .prop_map(|(label, quarters, stream, pool)| Op::Alloc { label, quarters, stream, pool }),
        7 => any::<usize>().prop_map(|which| Op::Free { which }),
        4 => (any::<usize>(), 0u32..2).prop_map(|(which, stream)| Op::Use { which, stream }),
        1 => any::<usize>().prop_map(|which| Op::Pin { which }),
        1 => Just(Op::Submit),
        1 => Just(Op::Complete),
        1 => (1u64..64).prop_map(|megabytes| Op::Limit { megabytes }),
    ];
    proptest::collection::vec(op, 60)
}

/// A device, what is held there, and its private pools.
struct World {
    device: SimDevice,
    held: Vec<(usize, Lease)>,
    pools: [MemPoolId; 2],
}

impl World {
    fn new(capacity: u64, config: &Config) -> World {
        let mut device = SimDevice::new(capacity, config.clone());
        let options = [MemPoolOptions::default(), MemPoolOptions { no_split: true, use_on_oom: false }];
        let pools = options.map(|options| device.pool_mut().new_mem_pool(options));
        World { device, held: Vec::new(), pools }
    }

    fn request(&self, op: &Op) -> Request {
        let Op::Alloc { label, quarters, stream, pool } = *op else { panic!("{op:?} asks for nothing") };
        let request = Request::new(StreamId(stream), quarters * MIB / 4 - 7, Tag::here(Category::Temporary, LABELS[label]));
        // Most of them are everybody's.
        request.in_pool(self.pools.get(pool).copied().unwrap_or_default())
    }

    fn apply(&mut self, op: &Op) -> Result<(), Box<OomReport>> {
        let pick = |which: usize| (!self.held.is_empty()).then(|| which % self.held.len());
        match *op {
            Op::Alloc { label, .. } => {
                let lease = self.device.serve(self.request(op))?;
                self.held.push((label, lease));
            }
            Op::Free { which } => {
                if let Some(at) = pick(which) {
                    self.device.free(self.held.swap_remove(at).1);
                }
            }
            Op::Use { which, stream } => {
                if let Some(at) = pick(which) {
                    self.device.use_on(StreamId(stream), &mut self.held[at].1);
                }
            }
            Op::Pin { which } => {
                if let Some(at) = pick(which) {
                    self.device.pool_mut().pin(self.held[at].1.block);
                }
            }
            Op::Submit => self.device.submit(),
            Op::Complete => drop(self.device.complete_one()),
            Op::Limit { megabytes } => {
                if self.device.pool().limit() != u64::MAX {
                    self.device.pool_mut().set_limit(megabytes * MIB);
                }
            }
        }
        Ok(())
    }

    /// Does what help says, and asks again.
    fn follow(mut self, way: &Way, failed: &Op) -> Result<Lease, Box<OomReport>> {
        let mut request = self.request(failed);
        match way {
            Way::Limit(megabytes) => self.device.pool_mut().set_limit(megabytes * MIB),
            Way::Free(holder) => {
                for (label, lease) in self.held.drain(..) {
                    if LABELS[label] == holder.label {
                        self.device.free(lease);
                    }
                }
            }
            Way::LeavePool => request = request.in_pool(MemPoolId::DEFAULT),
            Way::DropPool(pool) => self.device.pool_mut().drop_mem_pool(*pool),
            other => panic!("{other:?}"),
        }
        self.device.serve(request)
    }
}

/// Ways followed, by kind: limit, free, leave, drop.
fn run(ops: &[Op], capacity: u64, config: &Config) -> [u64; 4] {
    let mut world = World::new(capacity, config);
    let mut followed = [0; 4];
    for (at, op) in ops.iter().enumerate() {
        let Err(report) = world.apply(op) else { continue };
        for way in &report.ways {
            // The same program once more, up to the failure.
            let mut again = World::new(capacity, config);
            ops[..=at].iter().for_each(|op| drop(again.apply(op)));
            if let Err(second) = again.follow(way, op) {
                panic!("{way:?} did not help: {report}\nafterwards: {second}");
            }
            followed[match way {
                Way::Limit(_) => 0,
                Way::Free(_) => 1,
                Way::LeavePool => 2,
                _ => 3,
            }] += 1;
        }
    }
    followed
}

fn config(policy: Policy, compaction: Compaction, unpooled: bool, share: f64, limit: u64, max_segment: u64) -> Config {
    let caching = if unpooled { Caching::Unpooled } else { Caching::Pooled };
    let (limit, max_segment) = (limit * MIB, max_segment * MIB);
    Config { policy, compaction, caching, memory_fraction: share, limit, max_segment, ..Config::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Below a limit.
    #[test]
    fn what_help_says_helps_below_a_limit(
        ops in ops(),
        policy in prop_oneof![3 => Just(Policy::Linn), 1 => Just(Policy::Pytorch)],
        compaction in prop_oneof![Just(Compaction::Off), Just(Compaction::Pressure), Just(Compaction::Share(0.1))],
        unpooled in proptest::bool::weighted(0.1),
        share in prop_oneof![3 => Just(1.0), 1 => 0.1..1.0],
        limit in 4u64..96,
        max_segment in 16u64..256,
    ) {
        run(&ops, 1 << 50, &config(policy, compaction, unpooled, share, limit, max_segment));
    }

    /// Where the driver has no more.
    #[test]
    fn what_help_says_helps_with_a_small_driver(
        ops in ops(),
        compaction in prop_oneof![Just(Compaction::Off), Just(Compaction::Pressure)],
        capacity in 4u64..64,
    ) {
        let config = Config { compaction, ..Config::default() };
        run(&ops, capacity * MIB, &config);
    }
}

/// One program for each kind of way, so that none of them is never said.
#[test]
fn every_way_is_said() {
    let alloc = |label, quarters, pool| Op::Alloc { label, quarters, stream: 0, pool };
    let off = config(Policy::Linn, Compaction::Off, false, 1.0, 48, 256);
    let limit_and_free = [alloc(0, 80, 5), alloc(1, 120, 5)];
    assert_eq!(run(&limit_and_free, 1 << 50, &off), [1, 1, 0, 0]);
    // (A block beside what is free keeps the segment from going back.)
    let outside = [alloc(0, 60, 5), Op::Free { which: 0 }, alloc(0, 8, 5), alloc(1, 120, 5), alloc(3, 32, 0)];
    assert_eq!(run(&outside, 1 << 50, &off)[2], 1);
    let inside = [alloc(0, 120, 0), Op::Free { which: 0 }, alloc(1, 100, 5)];
    assert_eq!(run(&inside, 1 << 50, &off)[3], 1);
}
