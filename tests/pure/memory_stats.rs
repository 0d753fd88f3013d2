//! The counters have PyTorch's meaning, and every reserved byte has a category.

use linn::ids::StreamId;
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::{BlockState, Category, Compaction, Config, OomCause, Policy, Stat, Tag};

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId(0);

fn device() -> SimDevice {
    SimDevice::new(1 << 40, Config::default())
}

fn tag(category: Category) -> Tag {
    Tag::here(category, "stats")
}

#[test]
fn current_peak_allocated_freed() {
    let mut device = device();
    let first = device.alloc(MAIN, 1000, tag(Category::Temporary)).expect("fits");
    let second = device.alloc(MAIN, 3 * MIB, tag(Category::Temporary)).expect("fits");
    device.free(first);
    let stats = device.pool().stats();
    let whole = 3 * MIB + 1024;
    assert_eq!(stats.allocated_bytes, Stat { current: 3 * MIB, peak: whole, allocated: whole, freed: 1024 });
    assert_eq!(stats.requested_bytes, Stat { current: 3 * MIB, peak: 3 * MIB + 1000, allocated: 3 * MIB + 1000, freed: 1000 });
    assert_eq!(stats.allocation, Stat { current: 1, peak: 2, allocated: 2, freed: 1 });
    assert_eq!(stats.segment, Stat { current: 2, peak: 2, allocated: 2, freed: 0 });
    assert_eq!(stats.reserved_bytes, Stat { current: 6 * MIB, peak: 6 * MIB, allocated: 6 * MIB, freed: 0 });
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (2, 0));

    device.empty_cache();
    let stats = device.pool().stats();
    assert_eq!(stats.reserved_bytes, Stat { current: 4 * MIB, peak: 6 * MIB, allocated: 6 * MIB, freed: 2 * MIB });
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (2, 1));
    device.free(second);
}

#[test]
fn every_category_has_a_peak_of_its_own() {
    let mut device = device();
    let first = device.alloc(MAIN, 3000, tag(Category::Activation)).expect("fits");
    device.free(first);
    let second = device.alloc(MAIN, 5000, tag(Category::Temporary)).expect("fits");
    device.pool_mut().set_category(second.block, Category::Gradient);
    let peaks = |device: &SimDevice, names: [Category; 3]| names.map(|name| device.pool().stats().peak_of(name));
    let names = [Category::Activation, Category::Temporary, Category::Gradient];
    assert_eq!(peaks(&device, names), [3000, 5000, 5000]);
    device.pool_mut().reset_peak_stats();
    assert_eq!(peaks(&device, names), [0, 0, 5000]);
    device.free(second);
    assert_eq!(peaks(&device, names), [0, 0, 5000]);
}

#[test]
fn resets() {
    let mut device = device();
    let first = device.alloc(MAIN, 2 * MIB, tag(Category::Temporary)).expect("fits");
    let second = device.alloc(MAIN, 2 * MIB, tag(Category::Temporary)).expect("fits");
    device.free(second);
    device.pool_mut().reset_peak_stats();
    let stats = device.pool().stats();
    assert_eq!((stats.allocated_bytes.peak, stats.allocated_bytes.current), (2 * MIB, 2 * MIB));
    assert_eq!(stats.reserved_bytes.peak, 4 * MIB);
    assert_eq!(stats.allocated_bytes.allocated, 4 * MIB, "sums stay");

    device.pool_mut().reset_accumulated_stats();
    let stats = device.pool().stats();
    assert_eq!(stats.allocated_bytes, Stat { current: 2 * MIB, peak: 2 * MIB, allocated: 0, freed: 0 });
    assert_eq!((stats.num_device_alloc, stats.num_ooms, stats.num_alloc_retries), (0, 0, 0));
    device.free(first);
    assert_eq!(device.pool().stats().allocated_bytes, Stat { current: 0, peak: 2 * MIB, allocated: 0, freed: 2 * MIB });
}

#[test]
fn flat_names_are_pytorchs() {
    let mut device = device();
    let _small = device.alloc(MAIN, 1000, tag(Category::Temporary)).expect("fits");
    let _large = device.alloc(MAIN, MIB + 1, tag(Category::Temporary)).expect("fits");
    let flat = device.pool().stats().flat();

    let mut expected = Vec::new();
    let metrics = ["allocation", "segment", "active", "inactive_split"];
    let bytes = ["allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"];
    let kinds = ["current", "peak", "allocated", "freed"];
    for metric in metrics.into_iter().chain(bytes) {
        for pool in ["all", "large_pool", "small_pool"] {
            expected.extend(kinds.map(|kind| format!("{metric}.{pool}.{kind}")));
        }
    }
    for metric in ["oversize_allocations", "oversize_segments"] {
        expected.extend(kinds.map(|kind| format!("{metric}.{kind}")));
    }
    let scalars = ["num_alloc_retries", "num_ooms", "num_oom_rejections", "num_sync_all_streams", "num_device_alloc"];
    let ours = ["order_edges", "moves", "moved_bytes", "move_plans"];
    expected.extend(scalars.into_iter().chain(["num_device_free", "max_split_size"]).chain(ours).map(String::from));
    expected.sort();
    assert_eq!(flat.keys().cloned().collect::<Vec<_>>(), expected);
    assert_eq!(flat.len(), 108 + 8 + 7 + 4);

    let value = |name: &str| flat[name];
    assert_eq!(value("allocated_bytes.all.current"), (MIB + 256 + 1024) as i64);
    assert_eq!(value("allocated_bytes.small_pool.current"), 1024);
    assert_eq!(value("allocated_bytes.large_pool.peak"), (MIB + 256) as i64);
    assert_eq!(value("requested_bytes.small_pool.peak"), 1000);
    assert_eq!(value("active.large_pool.allocated"), 1);
    assert_eq!(value("reserved_bytes.all.allocated"), 2 * MIB as i64);
    assert_eq!(value("inactive_split.all.current"), 1);
    assert_eq!(value("inactive_split_bytes.large_pool.current"), (MIB - 256 - 1024) as i64);
    assert_eq!(value("segment.large_pool.current"), 1);
    assert_eq!((value("num_device_alloc"), value("num_ooms"), value("max_split_size")), (1, 0, -1));
}

/// A step of the next test: blocks come and go on two streams.
fn random_walk(device: &mut SimDevice, held: &mut Vec<Lease>, step: u64, state: &mut u64) {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let random = *state >> 33;
    if random % 5 < 3 || held.is_empty() {
        let octave = 8 + (random >> 3) % 15;
        let bytes = (1 << octave) + (random >> 8) % (1 << octave);
        let category = Category::ALL[(random % 6) as usize];
        held.push(device.alloc(StreamId((random % 2) as u32), bytes, tag(category)).expect("there is no limit"));
    } else {
        let mut lease = held.swap_remove(random as usize % held.len());
        device.use_on(MAIN, &mut lease);
        device.free(lease);
    }
    match step % 97 {
        31 => device.submit(),
        57 => drop(device.complete_one()),
        73 => device.empty_cache(),
        _ => {}
    }
}

/// PyTorch's test_memory_stats: every counter can be computed again from a snapshot.
#[test]
fn the_counters_are_what_a_snapshot_says() {
    let (mut device, mut held, mut state) = (device(), Vec::new(), 7);
    let mut peaks = [0u64; 3];
    for step in 0..1000 {
        random_walk(&mut device, &mut held, step, &mut state);
        let snapshot = device.pool_mut().snapshot();
        let stats = &snapshot.stats;
        let sum = |size: fn(&linn::memory::SegmentSnapshot) -> u64| snapshot.segments.iter().map(size).sum::<u64>();
        assert_eq!(stats.segment.current, snapshot.segments.len() as u64);
        assert_eq!(stats.reserved_bytes.current, sum(|segment| segment.total_size));
        assert_eq!(stats.allocated_bytes.current, sum(|segment| segment.allocated_size));
        assert_eq!(stats.allocated_bytes.current, sum(|segment| segment.active_size));
        assert_eq!(stats.requested_bytes.current, sum(|segment| segment.requested_size));
        let split = snapshot.segments.iter().filter(|segment| segment.blocks.len() > 1);
        let split = split.flat_map(|segment| &segment.blocks).filter(|block| block.state == BlockState::Inactive);
        let (count, bytes) = split.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.size));
        assert_eq!((stats.inactive_split.current, stats.inactive_split_bytes.current), (count, bytes));
        let live = snapshot.segments.iter().flat_map(|segment| &segment.blocks).filter(|block| block.tag.is_some());
        let small = live.filter(|block| block.requested_size <= MIB);
        let (count, bytes) = small.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.size));
        assert_eq!((stats.small_pool.allocation.current, stats.small_pool.allocated_bytes.current), (count, bytes));

        // The peaks are the largest values at the end of an operation: none saw a step in between.
        let now = [stats.allocated_bytes, stats.inactive_split_bytes, stats.inactive_split];
        for (peak, stat) in peaks.iter_mut().zip(now) {
            *peak = stat.current.max(*peak);
            assert_eq!(stat.peak, *peak);
            assert_eq!(stat.allocated - stat.freed, stat.current);
        }
        assert_eq!(snapshot.breakdown.sum(), stats.reserved_bytes.current);
        device.pool().validate().unwrap_or_else(|sentence| panic!("step {step}: {sentence}"));
    }
    assert!(device.pool().stats().small_pool.allocation.peak > 10 && device.pool().stats().large_pool.allocation.peak > 2);
}

#[test]
fn split_blocks_are_counted_as_pytorch_counts() {
    let mut device = device();
    let of = |device: &SimDevice| (device.pool().stats().inactive_split, device.pool().stats().inactive_split_bytes);
    let whole = device.alloc(MAIN, 4 * MIB, tag(Category::Temporary)).expect("fits");
    assert_eq!(of(&device), (Stat::default(), Stat::default()), "a block that fills its segment is not split");
    device.free(whole);
    assert_eq!(of(&device).0.current, 0, "nor is the free one");

    let first = device.alloc(MAIN, MIB, tag(Category::Temporary)).expect("fits");
    assert_eq!(of(&device).1, Stat { current: 3 * MIB, peak: 3 * MIB, allocated: 3 * MIB, freed: 0 }, "a new rest");
    let second = device.alloc(MAIN, MIB, tag(Category::Temporary)).expect("fits");
    assert_eq!(of(&device).1, Stat { current: 2 * MIB, peak: 3 * MIB, allocated: 3 * MIB, freed: MIB }, "the rest shrinks");
    device.free(first);
    assert_eq!(of(&device).0, Stat { current: 2, peak: 2, allocated: 2, freed: 0 });
    device.free(second);
    assert_eq!(of(&device).0, Stat { current: 0, peak: 2, allocated: 2, freed: 2 }, "merged into a whole segment");
    assert_eq!(of(&device).1, Stat { current: 0, peak: 3 * MIB, allocated: 4 * MIB, freed: 4 * MIB });
}

#[test]
fn the_peak_remembers_its_categories() {
    let mut device = device();
    let weights = device.alloc(MAIN, 4 * MIB, tag(Category::Parameter)).expect("fits");
    let saved = device.alloc(MAIN, 8 * MIB, tag(Category::Activation)).expect("fits");
    device.free(saved);
    let gradient = device.alloc(MAIN, 6 * MIB, tag(Category::Gradient)).expect("fits");
    let stats = device.pool().stats();
    let peak = stats.at_peak_allocated;
    assert_eq!((peak.of(Category::Parameter), peak.of(Category::Activation), peak.of(Category::Gradient)), (4 * MIB, 8 * MIB, 0));
    assert_eq!(peak.allocated(), stats.allocated_bytes.peak);
    assert_eq!(stats.at_peak_reserved.sum(), stats.reserved_bytes.peak);
    assert_eq!(stats.at_peak_reserved.of(Category::Activation), 8 * MIB, "not the moment of the purchase, when it was cached");

    device.pool_mut().reset_peak_stats();
    let stats = device.pool().stats();
    assert_eq!((stats.at_peak_allocated, stats.at_peak_reserved), (device.pool().breakdown(), device.pool().breakdown()));
    assert_eq!(stats.at_peak_allocated.of(Category::Gradient), 6 * MIB);
    device.free(weights);
    device.free(gradient);
}

#[test]
fn every_byte_has_a_category() {
    let mut device = device();
    let parameter = device.alloc(MAIN, 1000, tag(Category::Parameter)).expect("fits");
    let mut saved = device.alloc(MAIN, 500, tag(Category::Temporary)).expect("fits");
    device.pool_mut().set_category(saved.block, Category::Activation);
    let now = device.pool().breakdown();
    assert_eq!((now.of(Category::Parameter), now.of(Category::Activation), now.of(Category::Temporary)), (1000, 500, 0));
    assert_eq!((now.rounding, now.cached, now.retiring), (24 + 12, 2 * MIB - 1536, 0));
    assert_eq!(now.sum(), 2 * MIB);
    let names: Vec<&str> = now.parts().map(|(name, _)| name).collect();
    let expected =
        ["parameter", "gradient", "optimizer state", "activation", "input", "temporary", "rounding", "cached", "retiring"];
    assert_eq!(names, expected);

    // Released while the device still works with it: retiring, and reserved until that is done.
    device.use_on(MAIN, &mut saved);
    device.free(saved);
    device.free(parameter);
    device.empty_cache();
    assert_eq!(device.pool().breakdown().retiring, 2 * MIB);
    assert_eq!(device.buffers().count(), 1, "not submitted: the buffer is still needed");
    device.submit();
    assert_eq!(device.buffers().count(), 0);
    assert_eq!((device.pool().breakdown().retiring, device.driver_bytes()), (2 * MIB, 2 * MIB));
    assert!(device.complete_one());
    assert_eq!((device.pool().breakdown().sum(), device.driver_bytes()), (0, 0));
}

/// num_ooms, num_oom_rejections, num_alloc_retries, num_sync_all_streams.
fn failures(device: &SimDevice) -> (u64, u64, u64, u64) {
    let stats = device.pool().stats();
    (stats.num_ooms, stats.num_oom_rejections, stats.num_alloc_retries, stats.num_sync_all_streams)
}

fn ask(device: &mut SimDevice, bytes: u64) -> Result<Lease, OomCause> {
    device.alloc(MAIN, bytes, tag(Category::Temporary)).map_err(|report| report.cause)
}

#[test]
fn a_request_counts_as_one_retry_however_often_it_waits() {
    // The last resort, which fails; and one that succeeds.
    let mut device = SimDevice::new(1 << 40, Config { limit: 64 * MIB, ..Config::default() });
    let mut half = ask(&mut device, 32 * MIB).unwrap();
    assert_eq!(ask(&mut device, 40 * MIB).unwrap_err(), OomCause::Limit);
    assert_eq!(failures(&device), (1, 1, 1, 1), "our limit: the driver was not asked");
    device.use_on(MAIN, &mut half);
    device.free(half);
    let whole = ask(&mut device, 64 * MIB).unwrap();
    assert_eq!(failures(&device), (1, 1, 2, 2));
    device.free(whole);
    device.empty_cache();
    assert_eq!(failures(&device), (1, 1, 2, 3), "an emptied cache is no retry");
    assert_eq!(ask(&mut device, 65 * MIB).unwrap_err(), OomCause::LargerThanLimit);
    assert_eq!(ask(&mut device, 1 << 50).unwrap_err(), OomCause::LargerThanBuffer);
    assert_eq!(failures(&device), (3, 3, 2, 3), "hopeless at once");

    // Segments that moves empty, one round after the other: every fourth block of 1 MiB lives.
    let config = Config { limit: 64 * MIB, max_segment: 2 * MIB, ..Config::default() };
    let mut device = SimDevice::new(1 << 40, config);
    let blocks: Vec<Lease> = (0..64).map(|_| ask(&mut device, MIB).unwrap()).collect();
    let (kept, freed): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(at, _)| at % 4 == 0);
    freed.into_iter().for_each(|(_, lease)| device.free(lease));
    let two: Vec<Lease> = (0..16).map(|_| ask(&mut device, 2 * MIB).unwrap()).collect();
    let (waits, (ooms, _, retries, syncs)) = (device.waits(), failures(&device));
    assert_eq!(ooms, 0);
    assert_eq!(syncs, waits, "every wait is counted as one");
    assert!(retries <= 16 && retries <= waits, "{retries} retries, {waits} waits");
    drop((kept, two));
}

#[test]
fn what_the_driver_refused_is_no_rejection() {
    // It sells when idle segments are back: a retry without a wait. (Below the peak nothing goes back before it refuses.)
    let mut device = SimDevice::new(64 * MIB, Config::default());
    let peak = ask(&mut device, 60 * MIB).unwrap();
    device.free(peak);
    device.empty_cache();
    let small = [(); 2].map(|()| ask(&mut device, 8 * MIB).unwrap());
    small.into_iter().for_each(|lease| device.free(lease));
    device.refuse_next(1);
    let _held = ask(&mut device, 40 * MIB).unwrap();
    assert_eq!(failures(&device), (0, 0, 1, 1), "one wait was the emptied cache's");
    // It does not.
    assert_eq!(ask(&mut device, 30 * MIB).unwrap_err(), OomCause::Driver);
    assert_eq!(failures(&device), (1, 0, 2, 2));
    // Pieces are not what stood in the way alone: the driver refused as well.
    let config = Config { max_segment: 32 * MIB, compaction: Compaction::Off, ..Config::default() };
    let mut device = SimDevice::new(32 * MIB, config);
    let blocks: Vec<Lease> = (0..32).map(|_| ask(&mut device, MIB).unwrap()).collect();
    let (kept, freed): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
    freed.into_iter().for_each(|(_, lease)| device.free(lease));
    let before = failures(&device);
    assert_eq!(ask(&mut device, 8 * MIB).unwrap_err(), OomCause::Fragmented);
    assert_eq!(failures(&device).1, before.1, "the driver was asked");
    assert_eq!(failures(&device).0, before.0 + 1);
    drop(kept);
}

#[test]
fn moves_at_the_limit_are_one_retry_and_below_it_none() {
    let sparse = |compaction| {
        let config = Config { limit: 64 * MIB, max_segment: 8 * MIB, compaction, ..Config::default() };
        let mut device = SimDevice::new(1 << 40, config);
        let blocks: Vec<Lease> = (0..48).map(|_| ask(&mut device, MIB).unwrap()).collect();
        let (kept, freed): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(at, _)| at % 4 == 0);
        freed.into_iter().for_each(|(_, lease)| device.free(lease));
        (device, kept)
    };
    let (mut device, _kept) = sparse(Compaction::Pressure);
    device.pool_mut().set_limit(48 * MIB);
    let large: Vec<Lease> = (0..3).map(|_| ask(&mut device, 8 * MIB).unwrap()).collect();
    let (ooms, _, retries, syncs) = failures(&device);
    let stats = device.pool().stats();
    assert!(ooms == 0 && stats.moves > 0 && retries <= large.len() as u64 && syncs == device.waits(), "{stats:?}");
    let (mut device, _kept) = sparse(Compaction::Share(10.0));
    device.pool_mut().set_limit(u64::MAX);
    let _large: Vec<Lease> = (0..4).map(|_| ask(&mut device, 8 * MIB).unwrap()).collect();
    let (_, _, retries, syncs) = failures(&device);
    assert!(device.waits() > 0 && syncs == device.waits() && retries == 0, "nothing was refused: {retries} of {syncs}");
}

#[test]
fn oversize_blocks_and_segments_are_counted_and_reset() {
    for policy in [Policy::Linn, Policy::Pytorch] {
        let mut device = SimDevice::new(1 << 40, Config { policy, max_split_size: 40 * MIB, ..Config::default() });
        let of = |device: &SimDevice| (device.pool().stats().oversize_allocations, device.pool().stats().oversize_segments);
        let below = ask(&mut device, 38 * MIB).unwrap();
        assert_eq!(of(&device), (Stat::default(), Stat::default()), "{policy:?}");
        let one = Stat { current: 1, peak: 1, allocated: 1, freed: 0 };
        let large = ask(&mut device, 40 * MIB).unwrap();
        assert_eq!(of(&device), (one, one), "{policy:?}");
        device.free(large);
        assert_eq!(of(&device), (Stat { current: 0, freed: 1, ..one }, one), "{policy:?}: the segment is cached");
        device.empty_cache();
        let gone = Stat { current: 0, freed: 1, ..one };
        assert_eq!(of(&device), (gone, gone), "{policy:?}");
        device.pool_mut().reset_peak_stats();
        assert_eq!(of(&device).0, Stat { peak: 0, ..gone }, "{policy:?}");
        device.pool_mut().reset_accumulated_stats();
        assert_eq!(of(&device), (Stat::default(), Stat::default()), "{policy:?}");
        assert_eq!(device.pool().stats().flat()["max_split_size"], 40 * MIB as i64);
        device.free(below);
    }
}

/// Section 2.3: sums and counters of events start again, values and settings stay.
#[test]
fn sums_reset_every_counter_of_events() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 48 * MIB, ..Config::default() });
    let half = ask(&mut device, 32 * MIB).unwrap();
    assert!(ask(&mut device, 40 * MIB).is_err());
    device.free(half);
    device.empty_cache();
    let _held = ask(&mut device, MIB).unwrap();
    let names =
        ["num_device_alloc", "num_device_free", "num_ooms", "num_oom_rejections", "num_alloc_retries", "num_sync_all_streams"];
    let before = device.pool().stats().flat();
    assert_eq!(names.map(|name| before[name]), [2, 1, 1, 1, 1, 2]);
    device.pool_mut().reset_accumulated_stats();
    let after = device.pool().stats().flat();
    for (name, value) in &after {
        let kept = name.ends_with(".current") || name.ends_with(".peak") || name == "max_split_size";
        assert_eq!(*value, if kept { before[name] } else { 0 }, "{name}");
    }
}

/// As PyTorch's do, only later: the difference of two readings stays right, and nothing panics.
#[test]
fn sums_of_bytes_wrap() {
    const LARGE: u64 = 1 << 50;
    let config = Config { max_segment: LARGE, compaction: Compaction::Share(0.01), ..Config::default() };
    let mut device = SimDevice::new(1 << 60, config);
    for _ in 0..u64::MAX / LARGE {
        let lease = ask(&mut device, LARGE).unwrap();
        device.free(lease);
    }
    assert_eq!(device.pool().stats().allocated_bytes.allocated, u64::MAX - LARGE + 1, "one more and it wraps");
    let lease = ask(&mut device, LARGE).unwrap();
    let Stat { current, allocated, freed, .. } = device.pool().stats().allocated_bytes;
    assert_eq!((current, allocated, allocated.wrapping_sub(freed)), (LARGE, 0, LARGE));
    device.free(lease);
    let second = ask(&mut device, LARGE).unwrap();
    let Stat { allocated, freed, .. } = device.pool().stats().requested_bytes;
    assert_eq!((allocated, freed), (LARGE, 0));
    device.pool_mut().reset_accumulated_stats();
    device.free(second);
    device.pool().validate().unwrap();
}
