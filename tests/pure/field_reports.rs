//! Public reports against other allocators, on the pretend device; each test is named after its row in the project's
//! collection of field reports. The others of their kind stand in the noop and the gpu tier.

use linn::ids::StreamId;
use linn::memory::sim::SimDevice;
use linn::memory::{Category, Config, Tag};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MAIN: StreamId = StreamId(0);
const SIDE: StreamId = StreamId(1);

fn tag() -> Tag {
    Tag::here(Category::Temporary, "field report")
}

fn device(capacity: u64, limit: u64) -> SimDevice {
    SimDevice::new(capacity, Config { limit, max_segment: 4 * GIB, ..Config::default() })
}

proptest! {
    /// cubecl: sizes with padding never matched the key under which they were kept.
    #[test]
    fn field_17_every_size_is_reused(bytes in prop_oneof![1..4096u64, 1..64 * MIB, 1..4 * GIB]) {
        let mut device = device(64 * GIB, u64::MAX);
        let first = device.alloc(MAIN, bytes, tag()).unwrap();
        device.free(first);
        let (reserved, bought) = (device.driver_bytes(), device.pool().stats().num_device_alloc);
        for _ in 0..1000 {
            let mut again = device.alloc(MAIN, bytes, tag()).unwrap();
            device.use_on(MAIN, &mut again);
            device.free(again);
        }
        prop_assert_eq!(device.driver_bytes(), reserved);
        prop_assert_eq!(device.pool().stats().num_device_alloc, bought);
    }
}

/// pytorch: out of memory although a block had just come back; the identical retry worked.
#[test]
fn field_29_what_has_come_back_is_found() {
    let mut device = device(64 * MIB, 64 * MIB);
    // Uses of both streams, none submitted, fill the limit.
    let mut held: Vec<_> = (0..4).map(|_| device.alloc(MAIN, 16 * MIB, tag()).unwrap()).collect();
    for lease in &mut held {
        device.use_on(MAIN, lease);
        device.use_on(SIDE, lease);
    }
    held.into_iter().for_each(|lease| device.free(lease));
    // As it was, then in one piece, for which everything has to go back to the driver and to be completed first.
    for bytes in [16 * MIB, 64 * MIB, 48 * MIB] {
        let mut lease = device.alloc(StreamId(2), bytes, tag()).unwrap();
        device.use_on(SIDE, &mut lease);
        device.free(lease);
    }
    assert_eq!(device.pool().stats().num_ooms, 0);
    device.pool().validate().unwrap();
}

/// Megatron-LM: 20 GiB that a one-shot side stream had used stayed reserved for ever.
#[test]
fn field_30_a_side_streams_memory_serves_the_rest() {
    let mut device = device(64 * GIB, u64::MAX);
    let mut once = device.alloc(SIDE, GIB, tag()).unwrap();
    device.use_on(SIDE, &mut once);
    device.free(once);
    for bytes in [GIB, GIB / 2, GIB / 4] {
        // At once, while the side stream's work is neither submitted nor completed.
        let mut lease = device.alloc(MAIN, bytes, tag()).unwrap();
        device.use_on(MAIN, &mut lease);
        device.free(lease);
        assert_eq!(device.driver_bytes(), GIB);
    }
}
