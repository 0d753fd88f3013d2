//! Sizes and placement as tables: what each request becomes, and what a sequence of requests reserves.

use linn::ids::StreamId;
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::size_class::{leaves_whole, round_up, segment_size};
use linn::memory::{Category, Config, Tag};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[test]
fn requests_are_rounded_up() {
    let table = [
        (1, 256, 256),
        (256, 256, 256),
        (257, 256, 512),
        (1000, 256, 1024),
        (1000, 512, 1024),
        (4096, 4096, 4096),
        (4097, 4096, 8192),
        (u64::MAX, 256, u64::MAX - 255),
    ];
    for (bytes, step, expected) in table {
        assert_eq!(round_up(bytes, step), expected, "{bytes} in steps of {step}");
    }
}

#[test]
fn large_blocks_leave_much_larger_idle_segments_whole() {
    let table = [
        (31 * MIB, GIB, false),
        (32 * MIB, 48 * MIB, true),
        (32 * MIB, 48 * MIB - 256, false),
        (900 * MIB, 1800 * MIB, true),
        (900 * MIB, 1000 * MIB, false),
        (GIB, GIB, false),
    ];
    for (size, segment, expected) in table {
        assert_eq!(leaves_whole(size, segment), expected, "{size} in {segment}");
    }
}

#[test]
fn segments_grow_with_what_is_reserved() {
    // block, reserved, largest buffer -> segment
    let table = [
        (256, 0, 256 * MIB, 2 * MIB),
        (2 * MIB, 0, 256 * MIB, 2 * MIB),
        (2 * MIB + 256, 0, 256 * MIB, 4 * MIB),
        (256, 32 * MIB, 256 * MIB, 2 * MIB),
        (256, 33 * MIB, 256 * MIB, 9 * MIB / 4),
        (256, 2 * GIB, GIB, 128 * MIB),
        (256, 2 * GIB, 100 * MIB, 100 * MIB),
        // Growth ends at 256 MiB, and from 16 MiB on a block has a segment of its own.
        (256, 10 * GIB, 2 * GIB, 256 * MIB),
        (15 * MIB, 10 * GIB, 2 * GIB, 256 * MIB),
        (16 * MIB, 10 * GIB, 2 * GIB, 16 * MIB),
        (600 * MIB + 256, 10 * GIB, 2 * GIB, 600 * MIB + MIB / 4),
        // A largest buffer of 2 GiB - 1 byte is rounded down to the alignment.
        (2 * GIB - 256, 0, 2 * GIB - 1, 2 * GIB - 256),
        (256, 0, MIB, MIB),
    ];
    for (block, reserved, largest, expected) in table {
        assert_eq!(segment_size(block, reserved, largest, 256), expected, "{block} with {reserved} reserved, at most {largest}");
    }
}

/// One step of a sequence: allocate so many bytes, or free the n-th allocation.
#[derive(Clone, Copy)]
enum Step {
    A(u64),
    F(usize),
}
use Step::{A, F};

#[test]
fn sequences_reserve_what_the_table_says() {
    let frees = |count: usize| (0..count).map(F).collect::<Vec<_>>();
    let of = |count: usize, bytes: u64| vec![A(bytes); count];
    // name, steps, segments, reserved, allocated
    let table: Vec<(&str, Vec<Step>, u64, u64, u64)> = vec![
        ("one byte", vec![A(1)], 1, 2 * MIB, 256),
        ("2 MiB of 256-byte blocks", of(8192, 1), 1, 2 * MIB, 2 * MIB),
        ("one block more", of(8193, 1), 2, 4 * MIB, 2 * MIB + 256),
        ("3 x 1 MiB", of(3, MIB), 2, 4 * MIB, 3 * MIB),
        ("a freed block is used again", vec![A(MIB), F(0), A(MIB)], 1, 2 * MIB, MIB),
        ("neighbours merge", vec![A(MIB), A(MIB), F(0), F(1), A(2 * MIB)], 1, 2 * MIB, 2 * MIB),
        ("in the other order too", vec![A(MIB), A(MIB), F(1), F(0), A(2 * MIB)], 1, 2 * MIB, 2 * MIB),
        ("4 x 32 MiB, free all, 8 x 16 MiB", [of(4, 32 * MIB), frees(4), of(8, 16 * MIB)].concat(), 4, 128 * MIB, 128 * MIB),
        // PyTorch keeps 256 MiB here: none of the 16 MiB segments fits, and linn gives them back before it buys.
        ("8 x 16 MiB, free all, 4 x 32 MiB", [of(8, 16 * MIB), frees(8), of(4, 32 * MIB)].concat(), 4, 128 * MIB, 128 * MIB),
        (
            "a large idle segment goes back rather than be broken up",
            vec![A(200 * MIB), F(0), A(50 * MIB), A(50 * MIB), F(1), A(200 * MIB)],
            2,
            250 * MIB,
            250 * MIB,
        ),
        (
            "best fit, not first fit",
            vec![A(MIB), A(256), A(512 * KIB), A(256), F(0), F(2), A(512 * KIB)],
            1,
            2 * MIB,
            512 * KIB + 512,
        ),
    ];
    for (name, steps, segments, reserved, allocated) in table {
        let mut device = SimDevice::new(GIB, Config::default());
        let mut leases: Vec<Option<Lease>> = Vec::new();
        for step in steps {
            match step {
                A(bytes) => {
                    let lease = device.alloc(StreamId::DEFAULT, bytes, Tag::here(Category::Temporary, "vector"));
                    leases.push(Some(lease.expect("there is room")));
                }
                F(at) => device.free(leases[at].take().expect("freed once")),
            }
        }
        device.pool().validate().expect("sound");
        let stats = device.pool().stats();
        let now = (stats.segment.current, stats.reserved_bytes.current, stats.allocated_bytes.current);
        assert_eq!(now, (segments, reserved, allocated), "{name}");
    }
}

#[test]
fn best_fit_takes_the_smallest_hole_and_then_the_lowest_address() {
    let mut device = SimDevice::new(GIB, Config::default());
    let tag = || Tag::here(Category::Temporary, "vector");
    let mut alloc = |bytes| device.alloc(StreamId::DEFAULT, bytes, tag()).expect("there is room");
    let holes = [alloc(8 * KIB), alloc(256), alloc(4 * KIB), alloc(256), alloc(4 * KIB), alloc(256)];
    let places = holes.each_ref().map(|lease| lease.place);
    for (at, lease) in holes.into_iter().enumerate() {
        if at % 2 == 0 {
            device.free(lease);
        }
    }
    let mut alloc = |bytes| device.alloc(StreamId::DEFAULT, bytes, tag()).expect("there is room").place;
    assert_eq!(alloc(4 * KIB), places[2]);
    assert_eq!(alloc(4 * KIB), places[4]);
    assert_eq!(alloc(4 * KIB).offset, places[0].offset, "the larger hole is split");
    assert_eq!(alloc(4 * KIB).offset, places[0].offset + 4 * KIB);
}
