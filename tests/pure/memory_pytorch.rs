//! Policy `pytorch`: sizes, sequences and recorded programs come out as they do in PyTorch.

use linn::ids::StreamId;
use linn::memory::pytorch::segment_size;
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::size_class::round_size;
use linn::memory::{Category, Config, OomCause, Policy, Tag};
use linn::profile::replay::{Options, replay};

use crate::traces;

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId(0);
const SIDE: StreamId = StreamId(1);

fn pytorch() -> Config {
    Config { policy: Policy::Pytorch, max_segment: 1 << 40, ..Config::default() }
}

#[test]
fn requests_are_rounded() {
    let table = [
        (1, 0, 512),
        (511, 4, 512),
        (512, 0, 512),
        (513, 0, 1024),
        (1200, 4, 1536),
        (3000, 4, 3072),
        (5000, 4, 5120),
        (2048, 4, 2048),
        (84 * MIB, 4, 96 * MIB),
        (84 * MIB, 8, 88 * MIB),
        (400 * MIB, 2, 512 * MIB),
        (514 * MIB, 1, 514 * MIB),
        (514 * MIB, 2, 768 * MIB),
        (512 * MIB, 2, 512 * MIB),
    ];
    for (bytes, divisions, expected) in table {
        assert_eq!(round_size(bytes, 512, &[divisions; 16]), expected, "{bytes} with {divisions} divisions");
    }
    // Entry 0 serves everything below 2 MiB, entry 15 everything from 32 GiB on.
    let mut divisions = [0; 16];
    (divisions[0], divisions[1], divisions[15]) = (2, 4, 2);
    let table = [
        (5 * MIB / 4, 3 * MIB / 2),
        (5 * MIB / 2, 5 * MIB / 2),
        (9 * MIB / 4, 5 * MIB / 2),
        (5 * MIB, 5 * MIB),
        (600 << 10, 768 << 10),
        (80 << 30, 96 << 30),
        (40 << 30, 48 << 30),
        (17 << 30, 17 << 30),
    ];
    for (bytes, expected) in table {
        assert_eq!(round_size(bytes, 512, &divisions), expected, "{bytes}");
    }
}

#[test]
fn segments_have_pytorchs_sizes() {
    let table = [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (84 * MIB, 84 * MIB),
    ];
    for (size, expected) in table {
        assert_eq!(segment_size(size, 20 * MIB), expected, "{size}");
    }
    assert_eq!(segment_size(2 * MIB, 32 * MIB), 32 * MIB);
}

/// One step of a sequence, and what is true after it.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Allocate so many times so many bytes.
    A(usize, u64),
    /// Free the n-th allocation.
    F(usize),
    /// Free everything.
    FreeAll,
    /// The request fails.
    Fails(u64),
    /// Reserved bytes and segments.
    Reserved(u64, u64),
    /// Requested and allocated bytes.
    Live(u64, u64),
    /// num_ooms and num_alloc_retries.
    Failures(u64, u64),
    /// Sizes of the pieces between live blocks, sorted.
    Free(&'static [u64]),
}
use Step::*;

/// Bytes between live blocks, per piece.
fn pieces(device: &SimDevice, leases: &[Option<Lease>]) -> Vec<u64> {
    let mut pieces = Vec::new();
    for (segment, size) in device.buffers() {
        let mut places: Vec<_> =
            leases.iter().flatten().map(|lease| lease.place).filter(|place| place.segment == segment).collect();
        places.sort_by_key(|place| place.offset);
        let mut end = 0;
        for (start, next) in places.iter().map(|place| (place.offset, place.offset + place.size)).chain([(size, size)]) {
            pieces.extend((start > end).then_some(start - end));
            end = next;
        }
    }
    pieces.sort_unstable();
    pieces
}

#[test]
fn sequences_come_out_as_in_pytorch() {
    let oversize = Config { max_split_size: 64 * MIB, ..pytorch() };
    let limited = Config { max_split_size: 40 * MIB, limit: 120 * MIB, ..pytorch() };
    let collected = Config { garbage_collection_threshold: 0.5, limit: 120 * MIB, ..pytorch() };
    let table: Vec<(&str, Config, Vec<Step>)> = vec![
        ("16 then 32", pytorch(), vec![A(8, 16 * MIB), FreeAll, A(4, 32 * MIB), Reserved(256 * MIB, 12)]),
        ("32 then 16", pytorch(), vec![A(4, 32 * MIB), FreeAll, A(8, 16 * MIB), Reserved(128 * MIB, 4)]),
        (
            "5 x 4, then a 6th",
            pytorch(),
            vec![A(5, 4 * MIB), Reserved(20 * MIB, 1), Free(&[]), A(1, 4 * MIB), Reserved(40 * MIB, 2), Free(&[16 * MIB])],
        ),
        ("3 x 1", pytorch(), vec![A(3, MIB), Reserved(4 * MIB, 2)]),
        ("4096 x 512 B, then 1 B", pytorch(), vec![A(4096, 512), Reserved(2 * MIB, 1), A(1, 1), Reserved(4 * MIB, 2)]),
        ("19.5", pytorch(), vec![A(1, 39 * MIB / 2), Live(39 * MIB / 2, 20 * MIB), Free(&[])]),
        (
            "10 and a bit",
            pytorch(),
            vec![A(1, 10 * MIB + 512), Live(10 * MIB + 512, 10_486_272), Reserved(12_582_912, 1), Free(&[2_096_640])],
        ),
        (
            "pieces merge",
            pytorch(),
            vec![A(3, 4 * MIB), F(0), F(2), Free(&[4 * MIB, 12 * MIB]), F(1), Free(&[20 * MIB]), Reserved(20 * MIB, 1)],
        ),
        (
            "oversize",
            oversize,
            vec![
                A(1, 100 * MIB),
                F(0),
                A(1, 30 * MIB),
                Reserved(130 * MIB, 2),
                A(1, 85 * MIB),
                Reserved(130 * MIB, 2),
                Live(115 * MIB, 130 * MIB),
                F(2),
                A(1, 80 * MIB),
                Reserved(210 * MIB, 3),
            ],
        ),
        (
            "limited",
            limited,
            vec![
                A(3, 40 * MIB),
                Fails(40 * MIB),
                Failures(1, 1),
                FreeAll,
                A(1, 120 * MIB),
                Reserved(120 * MIB, 1),
                // Oversize segments went back for it, which is no retry; the model of the recordings counts 1 as well.
                Failures(1, 1),
            ],
        ),
        ("collected", collected, vec![A(2, 40 * MIB), FreeAll, A(1, 80 * MIB), Reserved(80 * MIB, 1), Failures(0, 0)]),
    ];
    for (name, config, steps) in table {
        let mut device = SimDevice::new(1 << 42, config);
        let mut leases: Vec<Option<Lease>> = Vec::new();
        for step in steps {
            let what = format!("{name}, {step:?}");
            let stats = device.pool().stats().clone();
            match step {
                A(count, bytes) => {
                    for _ in 0..count {
                        let lease = device.alloc(MAIN, bytes, Tag::here(Category::Temporary, "vector"));
                        leases.push(Some(lease.unwrap_or_else(|report| panic!("{what}: {report}"))));
                    }
                }
                F(at) => device.free(leases[at].take().expect("freed once")),
                FreeAll => leases.iter_mut().filter_map(Option::take).for_each(|lease| device.free(lease)),
                Fails(bytes) => {
                    let failed = device.alloc(MAIN, bytes, Tag::here(Category::Temporary, "vector"));
                    assert_eq!(failed.unwrap_err().cause, OomCause::Limit, "{what}");
                }
                Reserved(bytes, segments) => {
                    assert_eq!((stats.reserved_bytes.current, stats.segment.current), (bytes, segments), "{what}");
                }
                Live(requested, allocated) => {
                    let live = (stats.requested_bytes.current, stats.allocated_bytes.current);
                    assert_eq!(live, (requested, allocated), "{what}");
                }
                Failures(ooms, retries) => assert_eq!((stats.num_ooms, stats.num_alloc_retries), (ooms, retries), "{what}"),
                Free(sizes) => {
                    assert_eq!(pieces(&device, &leases), sizes, "{what}");
                }
            }
            device.pool().validate().unwrap_or_else(|sentence| panic!("{what}: {sentence}"));
        }
    }
}

/// Buffers of 2 GiB - 1 bytes are the largest of some adapters: the segment ends at the last whole block.
#[test]
fn the_largest_segment_is_whole_blocks() {
    let mut device = SimDevice::new(1 << 42, Config { max_segment: (2 << 30) - 1, ..pytorch() });
    let lease = device.alloc(MAIN, (2 << 30) - MIB, Tag::here(Category::Temporary, "large")).unwrap();
    assert_eq!(device.pool().stats().reserved_bytes.current, (2 << 30) - 512);
    device.free(lease);
    device.pool().validate().unwrap();
}

#[test]
fn streams_share_nothing() {
    let mut device = SimDevice::new(1 << 40, pytorch());
    let tag = || Tag::here(Category::Temporary, "stream");
    let lease = device.alloc(MAIN, 4 * MIB, tag()).unwrap();
    device.free(lease);
    let _other = device.alloc(SIDE, 4 * MIB, tag()).unwrap();
    assert_eq!(device.pool().stats().segment.current, 2);
}

/// What `record_stream` is for: a block that another stream used serves again when that stream has completed what it had
/// enqueued when the block was freed, work after the last use included.
#[test]
fn a_block_used_on_another_stream_waits_for_it() {
    let mut device = SimDevice::new(1 << 40, pytorch());
    let tag = || Tag::here(Category::Temporary, "event");
    let mut lease = device.alloc(MAIN, 20 * MIB, tag()).unwrap();
    let (block, place) = (lease.block, lease.place);
    device.use_on(SIDE, &mut lease);
    device.submit();
    device.enqueue(SIDE);
    device.free(lease);
    assert!(device.pool().is_waiting(block));
    assert_eq!((device.pool().stats().allocated_bytes.current, device.pool().breakdown().retiring), (0, 20 * MIB));
    device.complete_one();
    assert!(device.pool().is_waiting(block), "its last use has completed, what was enqueued behind it has not");
    let other = device.alloc(MAIN, 20 * MIB, tag()).unwrap();
    assert_ne!(other.place.segment, place.segment);
    device.synchronize();
    assert!(!device.pool().is_waiting(block));
    assert_eq!(device.alloc(MAIN, 20 * MIB, tag()).unwrap().place, place);
    device.pool().validate().unwrap();
}

/// The wait of the last resort gives a waiting block back, and it is found (PyTorch asks the driver only).
#[test]
fn what_the_last_resort_waited_for_is_found() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 20 * MIB, ..pytorch() });
    let tag = || Tag::here(Category::Temporary, "event");
    let mut lease = device.alloc(MAIN, 20 * MIB, tag()).unwrap();
    device.use_on(SIDE, &mut lease);
    device.free(lease);
    let again = device.alloc(MAIN, 20 * MIB, tag()).unwrap();
    assert_eq!((again.place.size, device.waits(), device.pool().stats().num_device_alloc), (20 * MIB, 1, 1));
}

/// A block that waits for other streams keeps its segment: what is idle goes back instead.
#[test]
fn a_lower_limit_counts_blocks_that_wait() {
    let mut device = SimDevice::new(1 << 40, pytorch());
    let tag = || Tag::here(Category::Temporary, "event");
    let mut used = device.alloc(MAIN, 20 * MIB, tag()).unwrap();
    let idle = device.alloc(MAIN, 20 * MIB, tag()).unwrap();
    let waits = used.place.segment;
    device.use_on(SIDE, &mut used);
    device.free(used);
    device.free(idle);
    device.pool_mut().set_limit(20 * MIB);
    device.release();
    assert_eq!(device.buffers().map(|(segment, _)| segment).collect::<Vec<_>>(), [waits]);
    assert_eq!(device.pool().stats().reserved_bytes.current, 20 * MIB);
}

/// Many blocks that wait for a late stream cost one look each when it completes, in the order they were freed.
#[test]
fn many_blocks_wait_and_become_free_at_once() {
    const COUNT: usize = 50_000;
    let mut device = SimDevice::new(1 << 40, pytorch());
    let tag = || Tag::here(Category::Temporary, "event");
    let mut leases: Vec<Lease> = (0..COUNT).map(|_| device.alloc(MAIN, 512, tag()).unwrap()).collect();
    for lease in &mut leases {
        device.use_on(SIDE, lease);
    }
    leases.into_iter().for_each(|lease| device.free(lease));
    assert_eq!(device.pool().stats().active.current, COUNT as u64);
    let start = std::time::Instant::now();
    device.synchronize();
    println!("{COUNT} waiting blocks: free after {:?}", start.elapsed());
    let stats = device.pool().stats();
    assert_eq!((stats.active.current, stats.inactive_split.current), (0, 0));
    device.pool().validate().unwrap();
}

#[test]
fn memory_kept_for_another_stream_is_named_in_the_report() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 20 * MIB, ..pytorch() });
    let tag = || Tag::here(Category::Temporary, "stranded");
    let _kept = device.alloc(MAIN, 2 * MIB, tag()).unwrap();
    let report = device.alloc(SIDE, 2 * MIB, tag()).unwrap_err();
    assert_eq!(report.cause, OomCause::Stranded);
    let help = "by policy pytorch for other streams or sizes (policy linn shares them); raise the limit to 40 MiB or more, or free the 2.0 MiB";
    assert!(report.to_string().contains(help), "{report}");
}

/// On every recorded workload the model's peak and its number of purchases, as the table beside the recordings says.
#[test]
fn recorded_programs_reserve_what_the_model_does() {
    for trace in traces::recorded() {
        let figures = replay(&trace.workload, &Options { config: pytorch(), ..Options::default() });
        let mib = |bytes: u64| (bytes as f64 / MIB as f64).round() as u64;
        let seen = (mib(figures.peak_live), mib(figures.peak_reserved), figures.driver_calls, figures.failed);
        let expected = (trace.peak_live_mib, trace.default_reserved_mib, trace.default_driver_calls, 0);
        assert_eq!(seen, expected, "{}", trace.workload.name);
    }
}
