//! The example `replay` on the device: allocations, streams and completion are real.

use clap::Parser;

#[path = "../../examples/replay.rs"]
#[allow(dead_code)]
mod example;

#[test]
fn a_workload_is_replayed_on_the_device() {
    // Two streams hand blocks of a few sizes to each other; some are larger than a kernel may see on some drivers.
    let mut rows = String::from("op,id,size,stream\n");
    for id in 0..120 {
        rows += &format!("a,{id},{},{}\n", 1 + id * id * 700 % 900_000, id % 3);
        if id >= 10 {
            rows += &format!("f,{},,\n", id - 10);
        }
    }
    rows += "c,,,\na,900,150000000,2\nf,900,,\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("three_streams.csv");
    std::fs::write(&file, rows).unwrap();
    for policy in ["linn", "pytorch"] {
        let line = format!("replay --device --json --limit 1.5xlive+32MiB --policy {policy} {}", file.display());
        let args = example::Args::try_parse_from(line.split_whitespace()).unwrap();
        let (json, errors) = example::run(&args);
        assert!(errors.is_empty(), "{errors:?}");
        let object: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
        let number = |key: &str| object[key].as_f64().unwrap();
        assert_eq!((number("allocations"), number("failed")), (121.0, 0.0), "{json}");
        assert!(number("peak_reserved") >= number("peak_live") && number("driver_calls") >= 1.0, "{json}");
        assert!(number("allocated_bytes") >= 150_000_000.0, "{json}");
    }
}
