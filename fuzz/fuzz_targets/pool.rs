//! Bytes become a program for the pool on a pretend device: after each step the pool's own invariants hold, live blocks do
//! not overlap, and the books are those of a list.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linn::ids::{MemPoolId, StreamId};
use linn::memory::sim::{Lease, SimDevice};
use linn::profile::replay::Workload;
use linn::memory::{Caching, Category, Compaction, Config, HistoryOptions, MemPoolOptions, OomCause, Policy, Request, Tag};

const MIB: u64 = 1 << 20;
/// Steps of one program; longer inputs say nothing new.
const STEPS: usize = 400;

struct Held {
    lease: Lease,
    bytes: u64,
    category: Category,
    pins: u32,
}

/// At most so many events are kept, while they are.
fn history(a: u8) -> Option<HistoryOptions> {
    let mut options = HistoryOptions::default();
    options.max_entries = [1, 7, 100, usize::MAX][usize::from(a / 2 % 4)];
    (a % 2 == 1).then_some(options)
}

/// The settings, from the first four bytes.
fn config(head: [u8; 4]) -> Config {
    let [kind, limit, segment, setting] = head;
    let mut config = Config { max_segment: 2 * MIB << (segment % 6), ..Config::default() };
    if limit % 3 == 0 {
        config.limit = u64::from(limit) * MIB / 4 + MIB;
    }
    config.policy = if kind % 4 == 3 { Policy::Pytorch } else { Policy::Linn };
    config.caching = if kind % 16 == 4 { Caching::Unpooled } else { Caching::Pooled };
    config.compaction = [Compaction::Off, Compaction::Pressure, Compaction::Share(0.05), Compaction::Share(10.0)][usize::from(setting % 4)];
    config.roundup_power2_divisions = [[0u64, 1, 2, 8][usize::from(setting / 4 % 4)]; 16];
    config.garbage_collection_threshold = [0.0, 0.3, 0.8][usize::from(setting / 16 % 3)];
    config.max_split_size = [u64::MAX, 20 * MIB, 24 * MIB, 40 * MIB][usize::from(setting / 64)];
    config.max_non_split_rounding = [20, 32][usize::from(segment / 6 % 2)] * MIB;
    config
}

fn check(device: &mut SimDevice, held: &mut [Held]) {
    held.iter_mut().for_each(|held| device.refresh(&mut held.lease));
    let pool = device.pool();
    if let Err(sentence) = pool.validate() {
        panic!("{sentence}");
    }
    assert_eq!(device.early_releases(), 0);
    let (stats, breakdown) = (pool.stats(), pool.breakdown());
    assert_eq!(stats.allocated_bytes.current, held.iter().map(|held| held.lease.place.size).sum::<u64>());
    assert_eq!(stats.allocation.current, held.len() as u64);
    assert_eq!(breakdown.sum(), stats.reserved_bytes.current);
    for category in Category::ALL {
        let bytes = held.iter().filter(|held| held.category == category).map(|held| held.bytes).sum::<u64>();
        assert_eq!(breakdown.of(category), bytes, "{category}");
    }
    assert!(device.driver_bytes() <= stats.reserved_bytes.current);
    let mut places: Vec<_> = held.iter().map(|held| held.lease.place).collect();
    places.sort_by_key(|place| (place.segment, place.offset));
    assert!(places.windows(2).all(|two| two[0].segment != two[1].segment || two[0].offset + two[0].size <= two[1].offset));
}

/// The ring keeps to its bound, and what a snapshot says of allocations is a sound workload.
fn check_snapshot(device: &mut SimDevice) {
    let snapshot = device.pool_mut().snapshot();
    assert!(snapshot.trace.len() <= snapshot.history.map_or(0, |options| options.max_entries));
    if let Ok(workload) = Workload::from_snapshot("fuzz", &snapshot.to_json()) {
        Workload::parse("fuzz", &workload.to_text()).expect("a sound workload");
    }
}

fn step(device: &mut SimDevice, held: &mut Vec<Held>, pools: &mut Vec<MemPoolId>, [op, a, b, c]: [u8; 4]) {
    let stream = StreamId(u32::from(a % 4));
    let at = (!held.is_empty()).then(|| (usize::from(a) | usize::from(b) << 8) % held.len().max(1));
    match op % 37 {
        0..12 => {
            // From one byte to beyond the largest segment.
            let bytes = (1u64 << (b % 26)) + ((1u64 << (b % 26)) * u64::from(c) >> 8);
            let category = Category::ALL[usize::from(a / 4) % Category::ALL.len()];
            let pool = match pools.len() {
                len if len > 0 && a >= 160 => pools[usize::from(c) % len],
                _ => MemPoolId::DEFAULT,
            };
            match device.serve(Request::new(stream, bytes, Tag::here(category, "fuzz")).in_pool(pool)) {
                Ok(lease) => held.push(Held { lease, bytes, category, pins: 0 }),
                Err(report) => {
                    let text = report.to_string();
                    assert_eq!(text.matches("help: ").count(), 1, "{text}");
                    assert!(report.cause != OomCause::LargerThanBuffer || report.rounded > report.max_segment);
                }
            }
            device.refuse_next(0);
        }
        12..18 => {
            if let Some(at) = at {
                device.free(held.swap_remove(at).lease);
            }
        }
        18..22 => {
            if let Some(at) = at {
                device.use_on(StreamId(u32::from(c % 4)), &mut held[at].lease);
            }
        }
        22 => device.submit(),
        23 | 24 => _ = device.complete_one(),
        25 => device.synchronize(),
        26 => device.empty_cache(),
        27 => device.refuse_next(u32::from(a % 8)),
        28 => device.pool_mut().set_limit(if a == 255 { u64::MAX } else { u64::from(a) * MIB / 2 }),
        29 => {
            let budget = u64::from(b) * MIB / 8;
            let done = device.compact(stream, budget);
            assert!(done.moved_bytes <= budget, "{done:?}");
        }
        30 => {
            if let Some(at) = at {
                let held = &mut held[at];
                held.category = Category::ALL[usize::from(c) % Category::ALL.len()];
                device.pool_mut().set_category(held.lease.block, held.category);
            }
        }
        31 => {
            if pools.len() < 4 {
                pools.push(device.pool_mut().new_mem_pool(MemPoolOptions { no_split: a % 2 == 1, use_on_oom: b % 2 == 1 }));
            }
        }
        32 => {
            if !pools.is_empty() {
                let pool = pools.swap_remove(usize::from(a) % pools.len());
                device.pool_mut().drop_mem_pool(pool);
            }
        }
        33 => device.pool_mut().record_history(history(a)),
        34 => check_snapshot(device),
        _ => {
            if let Some(at) = at {
                let held = &mut held[at];
                if c % 2 == 0 {
                    device.pool_mut().pin(held.lease.block);
                    held.pins += 1;
                } else if held.pins > 0 {
                    device.pool_mut().unpin(held.lease.block);
                    held.pins -= 1;
                }
            }
        }
    }
    check(device, held);
}

fuzz_target!(|data: &[u8]| {
    let (words, _) = data.as_chunks::<4>();
    let Some((head, steps)) = words.split_first() else { return };
    let mut device = SimDevice::new(64 * MIB, config(*head));
    let (mut held, mut pools) = (Vec::new(), Vec::new());
    for word in steps.iter().take(STEPS) {
        step(&mut device, &mut held, &mut pools, *word);
    }
    check_snapshot(&mut device);
    // Blocks outlive the pools they came from.
    pools.into_iter().for_each(|pool| device.pool_mut().drop_mem_pool(pool));
    held.into_iter().for_each(|held| device.free(held.lease));
    device.synchronize();
    device.empty_cache();
    device.synchronize();
    assert_eq!(device.pool().stats().reserved_bytes.current, 0);
    assert_eq!(device.driver_bytes(), 0);
    device.pool().validate().expect("the empty pool is sound");
});
