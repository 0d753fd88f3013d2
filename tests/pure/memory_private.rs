//! Private pools: PyTorch's `MemPool`, by the tests it has for them.

use linn::ids::{MemPoolId, StreamId};
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::{Category, Compaction, Config, MemPoolOptions, OomCause, OomReport, Policy, PrivateStats, Request, Stat, Tag};

const MIB: u64 = 1 << 20;
const PLAIN: MemPoolOptions = MemPoolOptions { no_split: false, use_on_oom: false };

fn ask(device: &mut SimDevice, pool: MemPoolId, bytes: u64) -> Result<Lease, Box<OomReport>> {
    device.serve(Request::new(StreamId::DEFAULT, bytes, Tag::here(Category::Temporary, "private")).in_pool(pool))
}

fn segments(device: &mut SimDevice, pool: MemPoolId) -> usize {
    device.pool_mut().snapshot().segments.iter().filter(|segment| segment.pool == pool).count()
}

fn both() -> [Config; 2] {
    [Policy::Linn, Policy::Pytorch].map(|policy| Config { policy, ..Config::default() })
}

#[test]
fn a_pool_has_segments_of_its_own() {
    for config in both() {
        let mut device = SimDevice::new(1 << 30, config);
        let pool = device.pool_mut().new_mem_pool(PLAIN);
        let first = ask(&mut device, pool, MIB).unwrap();
        let second = ask(&mut device, pool, MIB).unwrap();
        assert_eq!(segments(&mut device, pool), 1);
        let third = ask(&mut device, pool, MIB).unwrap();
        assert_eq!(segments(&mut device, pool), 2);
        assert_eq!(device.pool().mem_pool_bytes(pool), (4 * MIB, 3 * MIB));
        // What is freed there is lent there again, and nowhere else.
        let place = first.place;
        device.free(first);
        let outside = ask(&mut device, MemPoolId::DEFAULT, MIB).unwrap();
        assert_ne!(outside.place.segment, place.segment);
        assert_eq!(ask(&mut device, pool, MIB).unwrap().place, place);
        let _ = (second, third);
        device.pool().validate().unwrap();
    }
}

#[test]
fn pools_nest() {
    // PyTorch's test: 20 MiB each in 1 > 2 > 3 > 2 > 1.
    let mut device = SimDevice::new(1 << 30, Config::default());
    let pools: Vec<MemPoolId> = (0..3).map(|_| device.pool_mut().new_mem_pool(PLAIN)).collect();
    assert!(pools.windows(2).all(|pair| pair[0] < pair[1]) && pools[0] > MemPoolId::DEFAULT);
    let _held: Vec<Lease> = [0, 1, 2, 1, 0].map(|at| ask(&mut device, pools[at], 20 * MIB).unwrap()).into();
    assert_eq!(pools.iter().map(|pool| segments(&mut device, *pool)).collect::<Vec<_>>(), [2, 2, 1]);
}

#[test]
fn a_pool_that_does_not_split_has_one_block_per_segment() {
    for config in both() {
        let mut device = SimDevice::new(1 << 30, config);
        let options = MemPoolOptions { no_split: true, ..PLAIN };
        let pool = device.pool_mut().new_mem_pool(options);
        let _held = [(); 2].map(|()| ask(&mut device, pool, 4 * MIB).unwrap());
        let snapshot = device.pool_mut().snapshot();
        assert_eq!(snapshot.segments.len(), 2);
        assert!(snapshot.segments.iter().all(|segment| segment.blocks.len() == 1 && segment.pool == pool));
    }
}

#[test]
fn memory_outlives_its_pool() {
    for config in both() {
        let mut device = SimDevice::new(1 << 30, config);
        let pool = device.pool_mut().new_mem_pool(PLAIN);
        let live = ask(&mut device, pool, 4 * MIB).unwrap();
        let freed = ask(&mut device, pool, 32 * MIB).unwrap();
        device.free(freed);
        // While somebody holds the pool its memory stays.
        device.empty_cache();
        assert_eq!(segments(&mut device, pool), 2);
        device.pool_mut().drop_mem_pool(pool);
        assert_eq!((segments(&mut device, pool), segments(&mut device, MemPoolId::DEFAULT)), (0, 2));
        device.pool().validate().unwrap();
        device.empty_cache();
        assert_eq!(device.buffers().map(|(segment, _)| segment).collect::<Vec<_>>(), [live.place.segment]);
        // A request for the pool that is gone is everybody's.
        let late = ask(&mut device, pool, MIB).unwrap();
        assert_eq!(segments(&mut device, pool), 0);
        device.free(late);
        device.free(live);
        device.synchronize();
        device.empty_cache();
        assert_eq!(device.driver_bytes(), 0);
    }
}

#[test]
fn a_pool_that_helps_out_serves_before_a_request_fails() {
    for config in both() {
        let mut device = SimDevice::new(80 * MIB, config);
        let helping = MemPoolOptions { use_on_oom: true, ..PLAIN };
        let (keeps, helps) = (device.pool_mut().new_mem_pool(PLAIN), device.pool_mut().new_mem_pool(helping));
        let theirs = [keeps, helps].map(|pool| ask(&mut device, pool, 40 * MIB).unwrap());
        assert_eq!(ask(&mut device, MemPoolId::DEFAULT, 40 * MIB).unwrap_err().cause, OomCause::Driver);
        let places = theirs.each_ref().map(|lease| lease.place);
        theirs.into_iter().for_each(|lease| device.free(lease));
        let helped = ask(&mut device, MemPoolId::DEFAULT, 30 * MIB).unwrap();
        assert_eq!((helped.place.segment, helped.place.offset), (places[1].segment, 0));
        // The other one's memory is not touched, and the report says whose it is.
        let report = ask(&mut device, MemPoolId::DEFAULT, 30 * MIB).unwrap_err();
        assert_eq!(report.cause, OomCause::Stranded);
        assert!(
            report.to_string().contains(
                "help: 50.0 MiB are cached, but kept by private pools (use_on_oom shares them); drop the private pool (0, 1)"
            ),
            "{report}"
        );
        assert!(ask(&mut device, keeps, 30 * MIB).is_ok(), "its own requests get it");
        device.pool().validate().unwrap();
    }
}

#[test]
fn a_pool_that_is_gone_is_everybodys() {
    let mut device = SimDevice::new(40 * MIB, Config::default());
    let pool = device.pool_mut().new_mem_pool(MemPoolOptions { use_on_oom: true, ..PLAIN });
    let lease = ask(&mut device, pool, 40 * MIB).unwrap();
    let place = lease.place;
    device.pool_mut().drop_mem_pool(pool);
    device.free(lease);
    assert_eq!(ask(&mut device, MemPoolId::DEFAULT, 40 * MIB).unwrap().place, place);
    // Dropping it again, or one that never was, changes nothing.
    device.pool_mut().drop_mem_pool(pool);
    device.pool_mut().drop_mem_pool(MemPoolId(77));
    device.pool_mut().drop_mem_pool(MemPoolId::DEFAULT);
    device.pool().validate().unwrap();
}

#[test]
fn a_pools_idle_segment_serves_what_fits_into_it() {
    let mut device = SimDevice::new(1 << 30, Config::default());
    let pool = device.pool_mut().new_mem_pool(PLAIN);
    let large = ask(&mut device, pool, 64 * MIB).unwrap();
    device.free(large);
    device.synchronize();
    let _smaller = ask(&mut device, pool, 40 * MIB).unwrap();
    assert_eq!(device.pool().mem_pool_bytes(pool), (64 * MIB, 40 * MIB));
}

#[test]
fn a_request_in_a_pool_is_told_of_memory_outside() {
    let mut device = SimDevice::new(1 << 30, Config { limit: 48 * MIB, ..Config::default() });
    let pool = device.pool_mut().new_mem_pool(MemPoolOptions { use_on_oom: true, ..PLAIN });
    let mut held: Vec<Lease> = (0..12).map(|_| ask(&mut device, MemPoolId::DEFAULT, 4 * MIB).unwrap()).collect();
    held.drain(..6).for_each(|lease| device.free(lease));
    // What remains pins every segment.
    held.iter().for_each(|lease| device.pool_mut().pin(lease.block));
    let before = device.pool().reserved().0;
    if let Err(report) = ask(&mut device, pool, 20 * MIB) {
        let text = report.to_string();
        assert_eq!((report.pool, before), (pool, device.pool().reserved().0));
        assert!(report.cause != OomCause::Stranded || text.contains("outside of the private pool; leave its scope"), "{text}");
        assert!(!text.contains("use_on_oom"), "{text}");
    }
    device.pool().validate().unwrap();
}

/// Everybody's blocks move together, so that what they leave goes back and is bought for the private pool.
#[test]
fn everybodys_blocks_make_room_for_a_private_pool() {
    for compaction in [Compaction::Pressure, Compaction::Off] {
        let mut device = SimDevice::new(1 << 40, Config { max_segment: 16 * MIB, compaction, ..Config::default() });
        let pool = device.pool_mut().new_mem_pool(PLAIN);
        let mine = ask(&mut device, pool, 16 * MIB).unwrap();
        let blocks: Vec<Lease> = (0..48).map(|_| ask(&mut device, MemPoolId::DEFAULT, MIB).unwrap()).collect();
        let (mut kept, freed): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(at, _)| at % 3 == 0);
        freed.into_iter().for_each(|(_, lease)| device.free(lease));
        let limit = device.pool().reserved().0;
        device.pool_mut().set_limit(limit);
        let answer = ask(&mut device, pool, 16 * MIB);
        if compaction == Compaction::Off {
            assert_eq!(answer.unwrap_err().cause, OomCause::Fragmented);
            continue;
        }
        let second = answer.unwrap();
        assert_ne!(second.place.segment, mine.place.segment);
        assert_eq!(device.pool().mem_pool_bytes(pool), (32 * MIB, 32 * MIB));
        let stats = device.pool().stats();
        assert!(stats.moves > 0 && stats.moved_bytes <= 16 * MIB && stats.reserved_bytes.peak <= limit, "{stats:?}");
        kept.iter_mut().for_each(|(_, lease)| device.refresh(lease));
        assert!(kept.iter().all(|(_, lease)| ![mine.place.segment, second.place.segment].contains(&lease.place.segment)));
        device.pool().validate().unwrap();
        // What is live in the private pool itself stays where it is, and a request that cannot be served says so.
        assert!(ask(&mut device, pool, 17 * MIB).is_err());
        assert_eq!(device.pool().place(mine.block), mine.place);
    }
}

/// PyTorch's `reserved_bytes_by_private_pools`: 0 from the moment the pool is dropped; what was stays until it is reset.
#[test]
fn what_a_private_pool_reserves_is_counted() {
    for config in both() {
        let pytorch = config.policy == Policy::Pytorch;
        let mut device = SimDevice::new(1 << 40, config);
        let [first, second] = [(); 2].map(|()| device.pool_mut().new_mem_pool(PLAIN));
        assert!(device.pool().stats().private_pools.is_empty(), "neither has bought anything");
        let held = [MIB / 2, 30 * MIB].map(|bytes| ask(&mut device, second, bytes).unwrap());
        let _outside = ask(&mut device, MemPoolId::DEFAULT, 30 * MIB).unwrap();
        let stat = |current, sum| Stat { current, peak: sum, allocated: sum, freed: sum - current };
        // Linn's segments are counted by their size, PyTorch's by what they are for.
        let small = if pytorch { 2 * MIB } else { 0 };
        let expected = |current: u64| PrivateStats {
            pool: second,
            all: stat(current, 32 * MIB),
            large_pool: stat(current.saturating_sub(small), 32 * MIB - small),
            small_pool: stat(current.min(small), small),
        };
        assert_eq!(device.pool().stats().private_pools, [expected(32 * MIB)]);
        assert_eq!(device.pool().mem_pool_reserved(second), 32 * MIB);
        assert_eq!(device.pool().mem_pool_reserved(first), 0);

        let flat = device.pool().stats().flat();
        let ours = flat.iter().filter(|(name, _)| name.starts_with("reserved_bytes_by_private_pools."));
        assert_eq!(ours.count(), 3 * 4);
        for (name, value) in
            [("all.current", 32), ("all.peak", 32), ("large_pool.allocated", 32 - small / MIB), ("small_pool.freed", 0)]
        {
            assert_eq!(flat[&format!("reserved_bytes_by_private_pools.0_2.{name}")], (value * MIB) as i64, "{name}");
        }

        device.pool_mut().drop_mem_pool(second);
        assert_eq!(device.pool().stats().private_pools, [expected(0)], "its segments are everybody's");
        device.pool_mut().reset_peak_stats();
        assert_eq!(device.pool().stats().private_pools[0].all, Stat { peak: 0, ..stat(0, 32 * MIB) });
        device.pool_mut().reset_accumulated_stats();
        assert!(device.pool().stats().private_pools.is_empty(), "nothing is left to tell");
        held.into_iter().for_each(|lease| device.free(lease));
        device.empty_cache();
        device.pool().validate().unwrap();
    }
}
