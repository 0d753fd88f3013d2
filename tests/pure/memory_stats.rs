//! The counters have PyTorch's meaning, and every reserved byte has a category.

use linn::ids::StreamId;
use linn::memory::sim::SimDevice;
use linn::memory::{Category, Config, Stat, Tag};

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId(0);

fn device() -> SimDevice {
    SimDevice::new(1 << 40, Config::default())
}

fn tag(category: Category) -> Tag {
    Tag::here(category, "stats")
}

/// Counters that PyTorch does not have.
const OURS: [&str; 3] = ["order_edges", "moves", "moved_bytes"];

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
    let _lease = device.alloc(MAIN, 1000, tag(Category::Temporary)).expect("fits");
    let flat = device.pool().stats().flat();
    let value = |name: &str| flat.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}")).1;
    assert_eq!(value("allocated_bytes.all.current"), 1024);
    assert_eq!(value("requested_bytes.all.peak"), 1000);
    assert_eq!(value("reserved_bytes.all.allocated"), 2 * MIB);
    assert_eq!(value("allocation.all.freed"), 0);
    assert_eq!(value("segment.all.current"), 1);
    for name in ["num_alloc_retries", "num_device_free", "num_ooms", "order_edges", "moves", "moved_bytes"] {
        assert_eq!(value(name), 0, "{name}");
    }
    assert_eq!(value("num_device_alloc"), 1);
    let names: Vec<&str> = flat.iter().map(|(name, _)| *name).filter(|name| !OURS.contains(name)).collect();
    assert!(names.is_sorted(), "{names:?}");
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
