//! Private pools on a device: scopes, threads, and who keeps them.

use linn::memory::MemPoolOptions;
use linn::{DType, Device, DeviceOptions, MemPool, Tensor};

const MIB: u64 = 1 << 20;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

fn megabytes(device: &Device, count: u64) -> Tensor {
    Tensor::empty(device, &[(count * MIB / 4) as usize], DType::F32).unwrap()
}

fn pool(device: &Device) -> MemPool {
    MemPool::new(device, MemPoolOptions::default())
}

#[test]
fn ids_rise_and_uses_are_counted() {
    let device = open();
    let pools: Vec<MemPool> = std::thread::scope(|scope| {
        let made = [(); 4].map(|()| scope.spawn(|| pool(&device)));
        made.map(|thread| thread.join().unwrap()).into()
    });
    let mut ids: Vec<(u32, u32)> = pools.iter().map(MemPool::id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [(0, 1), (0, 2), (0, 3), (0, 4)]);
    assert_eq!(pools[0].use_count(), 1);
    assert_eq!(pools[0].scope(|| pools[0].use_count()), 2);
    assert_eq!(pools[0].use_count(), 1);
}

#[test]
fn the_innermost_scope_counts_and_other_threads_and_devices_are_left_alone() {
    let (device, elsewhere) = (open(), open());
    let (outer, inner) = (pool(&device), pool(&device));
    let (bytes, held) = outer.scope(|| {
        let mut held = vec![megabytes(&device, 2)];
        inner.scope(|| held.push(megabytes(&device, 3)));
        held.push(megabytes(&device, 1));
        held.push(megabytes(&elsewhere, 5));
        std::thread::scope(|scope| scope.spawn(|| held.push(megabytes(&device, 7))).join().unwrap());
        ([&outer, &inner].map(MemPool::memory_allocated), held)
    });
    assert_eq!(bytes, [3 * MIB, 3 * MIB]);
    assert_eq!((device.memory_allocated(), elsewhere.memory_allocated()), (13 * MIB, 5 * MIB));
    drop(held);
    // Outside of a scope nothing goes there.
    let outside = megabytes(&device, 2);
    assert_eq!((outer.memory_allocated(), inner.memory_allocated(), device.memory_allocated()), (0, 0, 2 * MIB));
    drop(outside);
    device.validate_memory().unwrap();
}

#[test]
fn guards_may_end_in_any_order() {
    let device = open();
    let (first, second) = (pool(&device), pool(&device));
    let (one, two) = (first.enter(), second.enter());
    drop(one);
    let held = megabytes(&device, 1);
    assert_eq!((first.memory_allocated(), second.memory_allocated()), (0, MIB));
    drop(two);
    let outside = megabytes(&device, 1);
    assert_eq!((second.memory_allocated(), device.memory_allocated()), (MIB, 2 * MIB));
    drop((held, outside));
}

#[test]
fn tensors_outlive_their_pool() {
    let device = open();
    let private = pool(&device);
    let live = private.scope(|| megabytes(&device, 4));
    private.scope(|| drop(megabytes(&device, 32)));
    device.empty_cache().unwrap();
    assert_eq!(private.memory_reserved(), 36 * MIB, "its memory is kept while somebody holds it");
    let guard = private.enter();
    drop(private);
    let late = megabytes(&device, 2);
    drop(guard);
    // The last scope is over: what is free is cached memory like any other.
    device.empty_cache().unwrap();
    assert_eq!((device.memory_allocated(), device.memory_reserved()), (6 * MIB, 36 * MIB));
    drop(late);
    device.empty_cache().unwrap();
    assert_eq!(device.memory_reserved(), 4 * MIB);
    drop(live);
    device.empty_cache().unwrap();
    assert_eq!(device.memory_reserved(), 0);
    device.validate_memory().unwrap();
}

#[test]
fn snapshots_say_whose_a_segment_is() {
    let device = open();
    let private = pool(&device);
    let _live = private.scope(|| megabytes(&device, 4));
    let snapshot: serde_json::Value = serde_json::from_str(&device.memory_snapshot().to_json()).unwrap();
    assert_eq!(snapshot["segments"][0]["segment_pool_id"], serde_json::json!([0, 1]));
}
