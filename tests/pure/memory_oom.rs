//! What the out-of-memory report says: the facts, and one line of help that is true for the case.

use linn::error::Error;
use linn::ids::StreamId;
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::{Bytes, Category, Compaction, Config, OomCause, OomReport, Tag, Way};

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId(0);

fn alloc(device: &mut SimDevice, bytes: u64, label: &'static str) -> Result<Lease, Box<OomReport>> {
    device.alloc(MAIN, bytes, Tag::here(Category::Activation, label))
}

fn help(report: &OomReport) -> String {
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("help: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert_eq!(text.lines().last(), Some(lines[0]), "help comes last");
    lines[0].to_owned()
}

#[test]
fn the_whole_text() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 64 * MIB, compaction: Compaction::Off, ..Config::default() });
    let parameter = Tag::here(Category::Parameter, "linear.weight");
    let line = parameter.location;
    let _weight = device.alloc(MAIN, 40 * MIB, parameter).expect("fits");
    let mut hidden = alloc(&mut device, 6 * MIB - 100, "gelu").expect("fits");
    device.use_on(MAIN, &mut hidden);
    let (_small, report) = (alloc(&mut device, 1000, "sum").expect("fits"), alloc(&mut device, 32 * MIB, "matmul").unwrap_err());
    let file = line.file();
    let lines: Vec<String> = report.to_string().lines().map(|line| line.replace(file, "FILE")).collect();
    let at = |location: &std::panic::Location| format!("FILE:{}:{}", location.line(), location.column());
    let holder = |at: usize| &report.holders[at];
    assert_eq!(
        lines,
        [
            format!(
                "out of memory: asked 32.0 MiB on stream 0 for matmul at {}; largest free block 3.0 MiB, reserved 49.0 MiB of 64.0 MiB",
                at(report.location)
            ),
            "  allocated 46.0 MiB, cached 3.0 MiB, retiring 0 B, fragmentation 0%".to_owned(),
            "  by category: parameter 40.0 MiB, activation 6.0 MiB, rounding 124 B, cached 3.0 MiB".to_owned(),
            format!("  held: 40.0 MiB in 1 block of linear.weight at {}", at(holder(0).location)),
            format!("  held: 6.0 MiB in 1 block of gelu at {}", at(holder(1).location)),
            format!("  held: 1.0 KiB in 1 block of sum at {}", at(holder(2).location)),
            format!("help: raise the limit to 81 MiB or more, or free the 40.0 MiB held by linear.weight from {}", at(line)),
        ]
    );
    assert_eq!(Error::OutOfMemory(report.clone()).to_string(), report.to_string());
}

#[test]
fn the_limit_that_help_names_is_enough() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 48 * MIB, compaction: Compaction::Off, ..Config::default() });
    let _held = alloc(&mut device, 30 * MIB, "held").expect("fits");
    let report = alloc(&mut device, 20 * MIB, "asked").unwrap_err();
    assert_eq!(report.cause, OomCause::Limit);
    assert!(help(&report).starts_with("help: raise the limit to 50 MiB or more, or free the 30.0 MiB held by held"), "{report}");
    device.pool_mut().set_limit(50 * MIB);
    assert!(alloc(&mut device, 20 * MIB, "asked").is_ok());
}

#[test]
fn help_names_the_limit_as_it_is_set_where_a_share_of_it_counts() {
    let config = Config { limit: 96 * MIB, memory_fraction: 0.5, compaction: Compaction::Off, ..Config::default() };
    let mut device = SimDevice::new(1 << 40, config);
    let _held = alloc(&mut device, 30 * MIB, "held").expect("fits");
    let report = alloc(&mut device, 20 * MIB, "asked").unwrap_err();
    assert_eq!((report.cause, report.limit), (OomCause::Limit, 48 * MIB));
    assert!(help(&report).starts_with("help: raise the limit to 101 MiB or more, or free the 30.0 MiB"), "{report}");
    let report = alloc(&mut device, 50 * MIB, "asked").unwrap_err();
    assert_eq!(report.ways, [Way::Limit(161)], "30 MiB stay, and half of it may be used");
    device.pool_mut().set_limit(101 * MIB);
    assert!(alloc(&mut device, 20 * MIB, "asked").is_ok());
}

#[test]
fn larger_than_the_limit() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 48 * MIB, compaction: Compaction::Off, ..Config::default() });
    let report = alloc(&mut device, 50 * MIB, "asked").unwrap_err();
    assert_eq!(report.cause, OomCause::LargerThanLimit);
    assert_eq!(help(&report), "help: this request alone exceeds the limit; raise the limit to 50 MiB or more");
    assert_eq!(device.waits(), 0, "waiting cannot help");
}

#[test]
fn larger_than_a_buffer() {
    let mut device = SimDevice::new(1 << 40, Config { max_segment: 256 * MIB, compaction: Compaction::Off, ..Config::default() });
    for bytes in [256 * MIB + 1, 1 << 40, u64::MAX] {
        let report = alloc(&mut device, bytes, "asked").unwrap_err();
        assert_eq!(report.cause, OomCause::LargerThanBuffer);
        assert_eq!(report.requested, bytes);
        let expected =
            "help: one buffer of this adapter holds at most 256.0 MiB (max_buffer_size); split the tensor or use a smaller batch";
        assert_eq!(help(&report), expected);
    }
    assert!(alloc(&mut device, 256 * MIB, "asked").is_ok());
}

#[test]
fn the_driver_has_no_more() {
    let mut device = SimDevice::new(64 * MIB, Config::default());
    let _held = alloc(&mut device, 60 * MIB, "held").expect("fits");
    let report = alloc(&mut device, 10 * MIB, "asked").unwrap_err();
    assert_eq!(report.cause, OomCause::Driver);
    assert!(report.to_string().contains("reserved 60.0 MiB, no limit"), "{report}");
    assert!(help(&report).starts_with("help: the driver has no more memory"), "{report}");
    assert_eq!(device.pool().stats().num_alloc_retries, 1, "the last resort was tried");
}

#[test]
fn enough_memory_but_in_pieces() {
    let mut device = SimDevice::new(
        1 << 40,
        Config { limit: 32 * MIB, max_segment: 32 * MIB, compaction: Compaction::Off, ..Config::default() },
    );
    let blocks: Vec<Lease> = (0..32).map(|_| alloc(&mut device, MIB, "piece").expect("fits")).collect();
    let mut kept = Vec::new();
    for (at, lease) in blocks.into_iter().enumerate() {
        if at % 2 == 0 {
            device.free(lease);
        } else {
            kept.push(lease);
        }
    }
    let report = alloc(&mut device, 8 * MIB, "asked").unwrap_err();
    assert_eq!(report.cause, OomCause::Fragmented);
    assert_eq!((report.breakdown.cached, report.largest_free), (16 * MIB, MIB));
    assert_eq!(report.fragmentation(), 15.0 / 16.0);
    let expected = "help: 16.0 MiB are cached but in pieces of at most 1.0 MiB; raise the limit to 40 MiB or more, or free the 16.0 MiB held by piece";
    assert!(help(&report).starts_with(expected), "{report}");
    // The help is true: without the blocks in between, the same request is served.
    kept.into_iter().for_each(|lease| device.free(lease));
    assert!(alloc(&mut device, 8 * MIB, "asked").is_ok());
}

#[test]
fn holders_are_grouped_by_label_and_line_and_at_most_five() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 8 * MIB, compaction: Compaction::Off, ..Config::default() });
    let mut held = Vec::new();
    for count in 1..=3u64 {
        for _ in 0..count {
            held.push(alloc(&mut device, 64 << 10, "loop").expect("fits"));
        }
    }
    for label in ["a", "b", "c", "d", "e"] {
        held.push(alloc(&mut device, 1 << 10, label).expect("fits"));
    }
    let report = alloc(&mut device, 8 * MIB, "asked").unwrap_err();
    assert_eq!(report.holders.len(), 5);
    assert_eq!((report.holders[0].label, report.holders[0].count, report.holders[0].bytes), ("loop", 6, 6 * (64 << 10)));
    assert!(report.to_string().contains("held: 384.0 KiB in 6 blocks of loop at "), "{report}");
}

#[test]
fn everything_goes_on_afterwards() {
    let mut device = SimDevice::new(64 * MIB, Config { limit: 32 * MIB, compaction: Compaction::Off, ..Config::default() });
    for round in 0..10 {
        let mut half = alloc(&mut device, 16 * MIB, "half").expect("fits");
        device.use_on(MAIN, &mut half);
        let report = alloc(&mut device, 20 * MIB, "asked").unwrap_err();
        assert_eq!(report.cause, OomCause::Limit);
        device.free(half);
        let whole = alloc(&mut device, 20 * MIB, "asked").expect("what was freed can be lent, at once or after waiting");
        device.free(whole);
        assert_eq!(device.pool().stats().num_ooms, round + 1);
        device.pool().validate().expect("sound");
    }
}

#[test]
fn sizes_for_people() {
    let table = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (MIB - 1, "1.0 MiB"),
        (96 * MIB, "96.0 MiB"),
        (15 * MIB * 512, "7.5 GiB"),
        (u64::MAX, "16.0 EiB"),
    ];
    for (bytes, text) in table {
        assert_eq!(Bytes(bytes).to_string(), text);
    }
}
