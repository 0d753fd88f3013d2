//! Replays: the format, the generator, and the example with its options.

use clap::Parser;
use linn::ids::StreamId;
use linn::memory::sim::SimDevice;
use linn::memory::size_class::MAX_SEGMENT;
use linn::memory::{Category, Compaction, Config, HistoryOptions, Policy, Tag};
use linn::profile::replay::{Figures, Options, Row, Workload, replay};
use linn::profile::synthetic::{FAMILIES, generate};
use proptest::prelude::*;

#[path = "../../examples/replay.rs"]
#[allow(dead_code)]
mod example;
use example::words::in_words;

use crate::memory_snapshot::story::Story;

#[test]
fn rows_are_read_and_written() {
    let text = "# name=x\nop,id,size,stream\na,3,100,1\nc,,,\nr,,,\no,,4096,0\nf,3,,\n";
    let workload = Workload::parse("x", text).unwrap();
    assert_eq!(workload.to_text(), "op,id,size,stream\na,3,100,1\nc,,,\nf,3,,\n");
    assert_eq!(Workload::parse("x", &workload.to_text()).unwrap(), workload);
    assert_eq!((workload.peak_live(u64::MAX), workload.peak_live(99)), (512, 0));
}

#[test]
fn bad_rows_are_named() {
    let table = [
        ("a,1,2", "line 1: stream is \"\", not a number"),
        ("a,1,x,0", "line 1: size is \"x\", not a number"),
        ("a,1,0,0", "line 1: id 1 is allocated again or with 0 bytes"),
        ("a,1,2,0\na,1,2,0", "line 2: id 1 is allocated again or with 0 bytes"),
        ("f,1,,", "line 1: id 1 is freed but not live"),
        ("a,1,2,5000000000", "line 1: there is no stream 5000000000"),
        ("b,1,2,0", "line 1: unknown operation \"b\""),
    ];
    for (text, fact) in table {
        let error = Workload::parse("bad", text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{fact}\nhelp: rows are op,id,size,stream")), "{text}: {error}");
    }
}

/// Programs from seeds are smaller than the recorded ones, and caches that grow by concatenation are a third of their
/// memory: not 6% but 8% in the mean; much less than PyTorch.
#[test]
fn synthetic_programs_reserve_less_than_in_pytorch() {
    let (mut log, mut pytorch_log, mut count) = (0.0, 0.0, 0.0);
    for family in FAMILIES {
        for seed in 1..=4 {
            let workload = generate(family, seed, 1).expect("a family");
            let options = |policy| Options { config: Config { policy, ..Options::default().config }, late: 0 };
            let (linn, pytorch) = (replay(&workload, &options(Policy::Linn)), replay(&workload, &options(Policy::Pytorch)));
            assert_eq!((linn.failed, pytorch.failed), (0, 0), "{}", workload.name);
            assert!(linn.peak_reserved >= linn.peak_live);
            log += (linn.peak_reserved as f64 / linn.peak_live as f64).ln();
            pytorch_log += (pytorch.peak_reserved as f64 / linn.peak_live as f64).ln();
            count += 1.0;
        }
    }
    let (mean, pytorch) = ((log / count).exp(), (pytorch_log / count).exp());
    assert!(mean <= 1.08 && mean < pytorch - 0.1, "{mean}, PyTorch {pytorch}");
}

fn run(line: &str) -> anyhow::Result<String> {
    let (out, mut errors) = run_all(line)?;
    if errors.is_empty() { Ok(out) } else { Err(errors.swap_remove(0)) }
}

fn run_all(line: &str) -> anyhow::Result<(String, Vec<anyhow::Error>)> {
    Ok(example::run(&example::Args::try_parse_from(format!("replay {line}").split_whitespace())?))
}

#[test]
fn the_example_prints_a_table_or_json() {
    let table = run("").unwrap();
    for family in FAMILIES {
        assert!(table.contains(&format!("syn_{family}_1 ")), "{table}");
    }
    assert!(table.contains("6 workloads: peak reserved / peak live 1.0"), "{table}");
    let json = run("--json --policy pytorch --late 50 --max-segment 2GiB --limit 1.5xlive+8MiB").unwrap();
    assert_eq!(json.lines().count(), FAMILIES.len());
    for line in json.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let keys =
            ["allocations", "peak_live", "peak_reserved", "driver_calls", "edges", "waits", "moved_bytes", "allocated_bytes"];
        for key in keys.into_iter().chain(["failed", "ns_per_pair"]) {
            assert!(object[key].is_number(), "{key} in {line}");
        }
        assert!(object["workload"].as_str().unwrap().starts_with("syn_"));
        assert!(object["peak_reserved"].as_f64().unwrap() <= 1.5 * object["peak_live"].as_f64().unwrap() + 8388608.0);
    }
}

#[test]
fn the_example_reads_what_it_writes_and_explains_what_it_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    run(&format!("--seed 7 --write {}", folder.path().display())).unwrap();
    let file = folder.path().join("syn_kv_concat_7.workload.csv.gz");
    let plain = folder.path().join("plain.csv");
    std::fs::write(&plain, generate("kv_concat", 7, 1).unwrap().to_text()).unwrap();
    let table = run(&format!("{} {}", file.display(), plain.display())).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[1].starts_with("syn_kv_concat_7 ") && lines[2].starts_with("plain "), "{table}");
    let figures = |line: &str| line.split_whitespace().skip(1).take(8).map(String::from).collect::<Vec<_>>();
    assert_eq!(figures(lines[1]), figures(lines[2]));
    std::fs::write(&plain, "z,1\n").unwrap();
    let error = in_words(&run(&plain.display().to_string()).unwrap_err());
    assert!(error.contains("plain.csv") && error.contains("unknown operation \"z\""), "{error}");
}

/// Files that cannot be read or replayed are named; the others have their rows.
#[test]
fn a_bad_file_keeps_no_other_from_being_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("good.csv"), "a,1,4096,0\nf,1,,\n").unwrap();
    std::fs::write(path("bad.csv"), "z,1\n").unwrap();
    std::fs::write(path("last.csv"), "a,1,1048576,0\n").unwrap();
    let line = [path("bad.csv"), path("good.csv"), path("none.csv"), path("last.csv")].join(" ");
    let (table, errors) = run_all(&line).unwrap();
    let rows: Vec<&str> = table.lines().filter_map(|row| row.split_whitespace().next()).collect();
    assert_eq!(rows, ["workload", "good", "last", "2"], "{table}");
    let errors: Vec<String> = errors.iter().map(in_words).collect();
    assert_eq!(errors.len(), 2);
    assert!(errors[0].contains("bad.csv") && errors[0].contains("unknown operation \"z\""), "{errors:?}");
    assert!(errors[1].contains("none.csv"), "{errors:?}");
    let (json, errors) = run_all(&format!("--json {line}")).unwrap();
    assert_eq!((json.lines().count(), errors.len()), (2, 2));
    // What is wrong with the arguments is no file's fault, and is said once.
    for wrong in ["--limit 3parsec", "--max-segment 1", "--alloc-conf nothing:1"] {
        let (table, errors) = run_all(&format!("{wrong} {line}")).unwrap();
        assert_eq!((table.as_str(), errors.len()), ("", 1), "{wrong}");
    }
}

/// What cannot be meant is refused, with what to write instead.
#[test]
fn arguments_out_of_range_are_explained() {
    let table = [
        ("--limit", "infxlive"),
        ("--limit", "nanxlive"),
        ("--limit", "-1xlive"),
        ("--limit", "0xlive"),
        ("--limit", "1e3xlive"),
        ("--limit", "1xlive+"),
        ("--limit", "1xlive-5MiB"),
        ("--limit", "1xlive5MiB"),
        ("--limit", "-5MiB"),
        ("--limit", "infMiB"),
        ("--limit", "3parsec"),
        ("--limit", "0"),
        ("--limit", "99999999999GiB"),
        ("--max-segment", "0"),
        ("--max-segment", "3"),
        ("--max-segment", "-1"),
        ("--max-segment", "nanGiB"),
    ];
    for (option, value) in table {
        let error = in_words(&run(&format!("{option} {value}")).expect_err(value));
        assert!(error.contains(&format!("{option} is {value:?}\nhelp: pass ")), "{error}");
    }
}

#[test]
fn one_policy_is_named() {
    let only = |line: &str| run(&format!("{line} --seed 3")).map(|table| table.lines().last().unwrap_or_default().to_owned());
    let (linn, pytorch) = (only("").unwrap(), only("--policy pytorch").unwrap());
    assert_ne!(linn, pytorch);
    assert_eq!(only("--alloc-conf policy:pytorch").unwrap(), pytorch, "it is honoured");
    assert_eq!(only("--alloc-conf policy:pytorch --policy pytorch").unwrap(), pytorch);
    assert_eq!(only("--alloc-conf garbage_collection_threshold:0.9 --policy linn").unwrap(), linn);
    let error = in_words(&run("--policy pytorch --alloc-conf expandable_segments:True").unwrap_err());
    assert!(error.contains("expandable_segments is \"True\"\nhelp: allowed: False with policy:pytorch"), "{error}");
    for line in ["--policy linn --alloc-conf policy:pytorch", "--policy pytorch --alloc-conf compaction:off,policy:linn"] {
        let error = in_words(&run(line).unwrap_err());
        assert!(error.contains("name two policies\nhelp: leave one of them out"), "{error}");
    }
}

/// A program with a history: what lives before it, two streams, a move, an empty cache.
fn snapshot() -> linn::memory::Snapshot {
    let mut device = SimDevice::new(1 << 30, Config::default());
    let tag = || Tag::here(Category::Temporary, "history");
    let early = device.alloc(StreamId(0), 5000, tag()).unwrap();
    let stays = device.alloc(StreamId(0), 7000, tag()).unwrap();
    device.pool_mut().record_history(Some(HistoryOptions::default()));
    let first = device.alloc(StreamId(2), 3 << 20, tag()).unwrap();
    let second = device.alloc(StreamId(0), 1 << 20, tag()).unwrap();
    device.free(early);
    device.free(first);
    device.synchronize();
    device.empty_cache();
    let third = device.alloc(StreamId(2), 2 << 20, tag()).unwrap();
    device.free(second);
    let snapshot = device.pool_mut().snapshot();
    device.free(third);
    device.free(stays);
    snapshot
}

#[test]
fn histories_become_workloads() {
    let workload = Workload::from_snapshot("program", &snapshot().to_json()).unwrap();
    let expected =
        "op,id,size,stream\na,2,5000,0\na,4,7000,0\na,0,3145728,1\na,1,1048576,0\nf,2,,\nf,0,,\na,3,2097152,1\nf,1,,\n";
    assert_eq!(workload.to_text(), expected);
    assert_eq!(workload.peak_live(u64::MAX), 5120 + 7168 + (4 << 20));
    let figures = replay(&workload, &Options::default());
    assert_eq!((figures.allocations, figures.failed), (5, 0));
    assert_eq!(figures.peak_live, workload.peak_live(u64::MAX));
    // PyTorch's: streams are handles, frees may be missing from the ring, other actions are its own affair.
    let pytorch = r#"{"segments": [{"device": 1, "stream": 0, "blocks": [
            {"address": 1024, "size": 512, "requested_size": 400, "state": "active_allocated", "frames": []},
            {"address": 4096, "size": 512, "requested_size": 300, "state": "inactive", "frames": []}]}],
        "device_traces": [[], [
            {"action": "segment_alloc", "addr": 0, "size": 2097152, "stream": 0, "frames": []},
            {"action": "alloc", "addr": 2048, "size": 1000, "stream": 94560123456789, "time_us": 3},
            {"action": "free_requested", "addr": 2048, "size": 1000, "stream": 94560123456789},
            {"action": "free_completed", "addr": 2048, "size": 1000, "stream": 94560123456789},
            {"action": "oom", "size": 20971520, "device_free": 0, "stream": 0},
            {"action": "alloc", "addr": 2048, "size": 2000, "stream": 94560999999999},
            {"action": "alloc", "addr": 2048, "size": 3000, "stream": 0},
            {"action": "segment_free", "addr": 0, "size": 2097152, "stream": 0},
            {"action": "snapshot", "addr": 0, "size": 0, "stream": 0}]]}"#;
    let workload = Workload::from_snapshot("torch", pytorch).unwrap();
    assert_eq!(workload.to_text(), "op,id,size,stream\na,3,400,0\na,0,1000,1\nf,0,,\na,1,2000,2\nf,1,,\na,2,3000,0\n");
    for (text, fact) in [("{", "is no snapshot"), ("{\"device_traces\": [[]]}", "holds no history of allocations")] {
        let error = Workload::from_snapshot("bad", text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("bad {fact}")) && error.contains("\nhelp: "), "{error}");
    }
}

/// The longest history there is: the story that pages are tested with.
#[test]
fn a_long_history_replays_to_what_was_live() {
    let mut options = HistoryOptions::default();
    for most in [usize::MAX, 3000] {
        options.max_entries = most;
        let story = Story::new(options, |_| {});
        let snapshot = story.run(6000);
        let workload = Workload::from_snapshot("story", &snapshot.to_json()).unwrap();
        Workload::parse("story", &workload.to_text()).expect("a sound workload");
        let mut live = std::collections::HashMap::new();
        for row in &workload.rows {
            match *row {
                Row::Alloc { id, size, .. } => _ = live.insert(id, size),
                Row::Free { id } => _ = live.remove(&id),
                Row::EmptyCache => {}
            }
        }
        assert_eq!(live.values().sum::<u64>(), snapshot.stats.all.requested_bytes.current, "at the end, {most} kept");
        let figures = replay(&workload, &Options::default());
        assert_eq!(figures.failed, 0);
    }
}

#[test]
fn the_example_reads_histories() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, pickle) = (folder.path().join("program.json"), folder.path().join("torch.pickle"));
    std::fs::write(&plain, snapshot().to_json()).unwrap();
    std::fs::write(&pickle, [0x80, 4, 0x7d]).unwrap();
    let table = run(&plain.display().to_string()).unwrap();
    assert!(table.lines().nth(1).unwrap().starts_with("program "), "{table}");
    let error = in_words(&run(&pickle.display().to_string()).unwrap_err());
    assert!(error.contains("this is a pickle\nhelp: write it as JSON"), "{error}");
    std::fs::write(&plain, [0xff]).unwrap();
    let error = in_words(&run(&plain.display().to_string()).unwrap_err());
    let (fact, help) = error.split_once("\nhelp: ").unwrap();
    assert!(fact.contains("program.json: this is no text: invalid utf-8"), "the cause is among the facts: {error}");
    assert_eq!(help, "pass rows op,id,size,stream or a snapshot as JSON", "the help stands last");
}

/// A program that asks for nothing is replayed like any other, also under a limit that is a share of what is live.
#[test]
fn a_workload_without_allocations_has_figures() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.csv");
    std::fs::write(&file, "# nothing\nop,id,size,stream\nc,,,\n").unwrap();
    let json = run(&format!("{} --json --limit 1.03xlive --compact --late 3", file.display())).unwrap();
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&object["workload"], &object["peak_reserved"], &object["failed"]), (&"empty".into(), &0.into(), &0.into()));
}

/// Submissions that never complete within the workload.
#[test]
fn completion_may_be_as_late_as_a_number_can_say() {
    let workload = generate("stream_prefetch", 3, 1).expect("a family");
    let late = |late| Figures { ns_per_pair: 0.0, ..replay(&workload, &Options { late, ..Options::default() }) };
    assert_eq!(late(u64::MAX), late(workload.rows.len() as u64));
    assert_eq!(late(u64::MAX).failed, 0);
}

proptest! {
    /// Whatever a file holds: any sizes, a stream for each request, caches emptied, all settings. Nothing panics, limits hold.
    #[test]
    fn any_workload_is_replayed(
        steps in prop::collection::vec((0..10u8, any::<u64>(), 0..64u32, any::<u32>()), 1..300),
        policy in prop_oneof![Just(Policy::Linn), Just(Policy::Pytorch)],
        compaction in prop_oneof![Just(Compaction::Off), Just(Compaction::Pressure), Just(Compaction::Share(0.05))],
        (limit, max_segment) in (prop_oneof![Just(u64::MAX), 1..1u64 << 45], prop_oneof![Just(u64::MAX), 512..1u64 << 40]),
        late in prop_oneof![Just(0), 1..50u64, Just(u64::MAX)],
    ) {
        let (mut rows, mut live) = (Vec::new(), Vec::new());
        for (id, (op, random, bits, stream)) in (0..).zip(steps) {
            match op {
                0..6 => {
                    live.push(id);
                    rows.push(Row::Alloc { id, size: (random >> bits).max(1), stream: StreamId(if op < 3 { stream % 3 } else { stream }) });
                }
                6..9 if !live.is_empty() => rows.push(Row::Free { id: live.swap_remove(random as usize % live.len()) }),
                _ => rows.push(Row::EmptyCache),
            }
        }
        let workload = Workload { name: "any".into(), rows };
        prop_assert_eq!(Workload::parse("any", &workload.to_text()), Ok(workload.clone()));
        let config = Config { policy, compaction, limit, max_segment, ..Config::default() };
        let figures = replay(&workload, &Options { config, late });
        prop_assert!(figures.peak_reserved <= limit && figures.beyond_segment <= figures.failed, "{:?}", figures);
        prop_assert!(figures.failed > 0 || figures.peak_reserved >= figures.peak_live / 2, "{:?}", figures);
    }
}

/// Sizes that no driver sells are left out, and no sum wraps.
#[test]
fn peak_live_of_sizes_beyond_every_driver() {
    let peak = |sizes: &[u64], largest: u64| {
        let rows = sizes.iter().enumerate().map(|(at, size)| format!("a,{at},{size},0\n"));
        Workload::parse("large", &rows.collect::<String>()).expect("rows").peak_live(largest)
    };
    let most = MAX_SEGMENT;
    assert_eq!(peak(&[u64::MAX, 1000, 1 << 63, 1 << 63, most + 1], u64::MAX), 1024);
    assert_eq!(peak(&[most, 1000], u64::MAX), most + 1024);
    assert_eq!(peak(&vec![most; 1 << 13], u64::MAX), u64::MAX, "2^13 of them are beyond a u64");
    let workload = Workload::parse("large", "a,1,18446744073709551615,0\na,2,72057594037927937,0\na,3,512,0\n").expect("rows");
    let figures =
        replay(&workload, &Options { config: Config { max_segment: u64::MAX, ..Config::default() }, ..Options::default() });
    assert_eq!((figures.peak_live, figures.failed, figures.beyond_segment), (512, 2, 2));
}
