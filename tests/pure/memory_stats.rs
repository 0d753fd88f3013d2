//! The counters have PyTorch's meaning, and every reserved byte has a category.

use linn::ids::StreamId;
use linn::memory::sim::SimDevice;
use linn::memory::{BlockState, Category, Config, Stat, Tag};

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
    expected.extend(
        scalars.into_iter().chain(["num_device_free", "max_split_size", "order_edges", "moves", "moved_bytes"]).map(String::from),
    );
    expected.sort();
    assert_eq!(flat.keys().cloned().collect::<Vec<_>>(), expected);
    assert_eq!(flat.len(), 108 + 8 + 7 + 3);

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
fn random_walk(device: &mut SimDevice, held: &mut Vec<linn::memory::sim::Lease>, step: u64, state: &mut u64) {
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
