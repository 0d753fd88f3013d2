//! Memory of a host application: it has numbers among the pool's, and that is all.

use linn::ids::{BlockId, Fence, FenceSet, SegmentId, StreamId};
use linn::memory::sim::SimDevice;
use linn::memory::{Category, Config, Pool, Tag};
use linn::timeline::{Access, Flush, Timeline};

const MIB: u64 = 1 << 20;

fn tag() -> Tag {
    Tag::here(Category::Input, "import")
}

#[test]
fn imported_memory_is_in_no_book() {
    let mut device = SimDevice::new(64 * MIB, Config::default());
    let lease = device.alloc(StreamId::DEFAULT, MIB, tag()).unwrap();
    let (stats, breakdown) = (device.pool().stats(), device.pool().breakdown());
    let holders = device.pool().largest_holders(9);
    // A size that no block of the pool has.
    let imported: Vec<(BlockId, SegmentId)> = (0..3)
        .map(|i| {
            let (block, place) = device.pool_mut().import(4 * MIB + 16 + i, tag());
            assert_eq!((place.offset, place.size), (0, 4 * MIB + 16 + i));
            (block, place.segment)
        })
        .collect();
    assert!(imported.iter().all(|(block, segment)| *block != lease.block && *segment != lease.place.segment));
    device.pool_mut().set_category(imported[0].0, Category::Parameter);
    device.pool_mut().pin(imported[0].0);
    device.pool_mut().empty_cache();
    device.pool_mut().compact(StreamId::DEFAULT, u64::MAX, &Timeline::new());
    assert_eq!(device.pool().largest_holders(9), holders);
    assert_eq!(device.pool_mut().snapshot().segments.len(), 1);
    device.pool().validate().unwrap();
    for (block, _) in &imported {
        device.pool_mut().free(*block, FenceSet::new(), &Timeline::new());
    }
    device.pool().validate().unwrap();
    let after = device.pool().stats();
    assert_eq!((after.all, after.num_device_alloc, device.pool().breakdown()), (stats.all, stats.num_device_alloc, breakdown));
    device.free(lease);
}

#[test]
fn its_numbers_are_used_again_when_its_last_use_is_submitted() {
    let (mut pool, mut timeline) = (Pool::new(Config::default()), Timeline::new());
    let (block, place) = pool.import(4096, tag());
    timeline.begin_block(block, FenceSet::new());
    timeline.enqueue(StreamId::DEFAULT, [(block, Access::Write)]);
    let uses = timeline.end_block(block);
    assert_eq!(uses.of(StreamId::DEFAULT), Some(Fence { stream: StreamId::DEFAULT, number: 1 }));
    pool.free(block, uses, &timeline);
    assert_eq!(pool.poll_release(&timeline), None, "a command that uses it is not submitted");
    pool.validate().unwrap();
    let (other, other_place) = pool.import(4096, tag());
    assert!(other != block && other_place.segment != place.segment);
    let batch = timeline.plan(&Flush::Everything, |_, _| true);
    timeline.handle_submitted(&batch);
    assert_eq!(pool.poll_release(&timeline), Some(place.segment));
    assert_eq!(pool.poll_release(&timeline), None);
    assert_eq!(pool.import(4096, tag()), (block, place));
    pool.validate().unwrap();
}
