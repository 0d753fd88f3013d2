//! Recorded workloads: outside the repository, in `$LINN_TRACES` or `../shared/traces`.

use std::io::{Read, Write};
use std::path::PathBuf;

use linn::profile::replay::Workload;

pub struct Trace {
    pub workload: Workload,
    /// The figures of the table in the README beside the recordings.
    pub peak_live_mib: u64,
    pub default_reserved_mib: u64,
    pub default_driver_calls: u64,
}

/// Every recorded workload; none, and a line that says so, where there are no recordings.
pub fn recorded() -> Vec<Trace> {
    let named = std::env::var_os("LINN_TRACES").map(PathBuf::from);
    let folder = named.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/traces"));
    let Ok(readme) = std::fs::read_to_string(folder.join("README.md")) else {
        assert!(named.is_none(), "LINN_TRACES names {}, which has no README.md", folder.display());
        // Past the harness, which keeps what a test that passes prints to itself.
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let line = format!("SKIPPED {test}: no recorded workloads in {}; LINN_TRACES can name a folder\n", folder.display());
        let _ = std::io::stderr().write_all(line.as_bytes());
        return Vec::new();
    };
    let rows = readme.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let rows = rows.filter(|cells| cells.len() > 8 && cells[4].parse::<u64>().is_ok());
    let traces: Vec<Trace> = rows
        .map(|cells| {
            let number = |at: usize| cells[at].parse().expect("a number");
            Trace {
                workload: read(&folder.join(format!("{}.workload.csv.gz", cells[1]))),
                peak_live_mib: number(4),
                default_reserved_mib: number(5),
                default_driver_calls: number(6),
            }
        })
        .collect();
    assert!(!traces.is_empty(), "the table of {} was not understood", folder.display());
    traces
}

fn read(path: &std::path::Path) -> Workload {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip text");
    let name = path.file_name().unwrap().to_string_lossy().replace(".workload.csv.gz", "");
    Workload::parse(&name, &text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
