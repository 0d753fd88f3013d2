//! Recorded allocations fed to the very pool that devices use, one row at a time, on a pretend device.
//!
//! The format is a text of rows `op,id,size,stream` after a head line; lines that start with `#` are remarks. `a` allocates
//! `size` bytes on `stream` and names them `id` (each id once), `f` frees `id`, `c` says that the program emptied its
//! cache. Rows `r` (the recorded allocator had to drop its cache) and `o` (an allocation failed there) are skipped.
//! [`Workload::from_snapshot`] reads the history of a snapshot instead.
//!
//! ```
//! use linn::profile::replay::{Options, Workload, replay};
//!
//! let workload = Workload::parse("two", "op,id,size,stream\na,0,1048576,0\nf,0,,\na,1,1048576,1\n").unwrap();
//! let figures = replay(&workload, &Options::default());
//! assert_eq!((figures.allocations, figures.peak_live, figures.peak_reserved), (2, 1 << 20, 2 << 20));
//! ```

use std::collections::{HashMap, VecDeque};
use std::fmt;

use web_time::Instant;

use crate::ids::StreamId;
use crate::memory::sim::{Lease, SimDevice};
use crate::memory::size_class::{MAX_SEGMENT, round_up};
use crate::memory::{Category, Config, Tag};

/// One line of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Allocate.
    Alloc {
        /// Its name; used once.
        id: u64,
        /// Bytes, at least 1.
        size: u64,
        /// The stream it is allocated and used on.
        stream: StreamId,
    },
    /// Free what has this name.
    Free {
        /// The name.
        id: u64,
    },
    /// The program emptied its cache.
    EmptyCache,
}

/// A sequence of allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// What ran.
    pub name: String,
    /// What it asked for, in order.
    pub rows: Vec<Row>,
}

/// A line that is no row of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub fact: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "line {}: {}", self.line, self.fact)?;
        f.write_str(
            "help: rows are op,id,size,stream with op one of a, f, c, r, o; an id is allocated once, then freed at most once",
        )
    }
}

impl std::error::Error for BadRow {}

impl Workload {
    /// Reads the text of a workload file. Fails at the first line that is no row, or frees what is not live.
    pub fn parse(name: &str, text: &str) -> Result<Workload, BadRow> {
        let mut rows = Vec::new();
        let mut live: HashMap<u64, bool> = HashMap::new();
        // Some editors begin a file with a mark of its encoding.
        for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let bad = |fact: String| BadRow { line: at + 1, fact };
            if line.starts_with('#') || line.starts_with("op,") || line.trim().is_empty() {
                continue;
            }
            let mut cells = line.trim_end().split(',');
            let op = cells.next().unwrap_or_default();
            let mut number = |name: &str| -> Result<u64, BadRow> {
                let cell = cells.next().unwrap_or_default();
                cell.parse().map_err(|_| bad(format!("{name} is \"{cell}\", not a number")))
            };
            match op {
                "a" => {
                    let (id, size, stream) = (number("id")?, number("size")?, number("stream")?);
                    if size == 0 || live.insert(id, true).is_some() {
                        return Err(bad(format!("id {id} is allocated again or with 0 bytes")));
                    }
                    let stream = u32::try_from(stream).map_err(|_| bad(format!("there is no stream {stream}")))?;
                    rows.push(Row::Alloc { id, size, stream: StreamId(stream) });
                }
                "f" => {
                    let id = number("id")?;
                    if live.insert(id, false) != Some(true) {
                        return Err(bad(format!("id {id} is freed but not live")));
                    }
                    rows.push(Row::Free { id });
                }
                "c" => rows.push(Row::EmptyCache),
                "r" | "o" => {}
                other => return Err(bad(format!("unknown operation \"{other}\""))),
            }
        }
        Ok(Workload { name: name.into(), rows })
    }

    /// The text that [`Workload::parse`] reads.
    pub fn to_text(&self) -> String {
        let mut text = String::from("op,id,size,stream\n");
        for row in &self.rows {
            text += &match row {
                Row::Alloc { id, size, stream } => format!("a,{id},{size},{}\n", stream.0),
                Row::Free { id } => format!("f,{id},,\n"),
                Row::EmptyCache => String::from("c,,,\n"),
            };
        }
        text
    }

    /// The most bytes live at one time, sizes rounded up to 512 bytes: no allocator with blocks of that grain can reserve less
    /// (linn's are of 256). Requests of more than `max_segment` bytes (or [`MAX_SEGMENT`]), which cannot be served, are left
    /// out. Where the sum is beyond a `u64` it is `u64::MAX`.
    pub fn peak_live(&self, max_segment: u64) -> u64 {
        let mut sizes = HashMap::new();
        let (mut live, mut peak) = (0u128, 0);
        for row in &self.rows {
            match *row {
                Row::Alloc { size, .. } if size > max_segment.min(MAX_SEGMENT) => {}
                Row::Alloc { id, size, .. } => {
                    let size = u128::from(round_up(size, 512));
                    sizes.insert(id, size);
                    live += size;
                    peak = peak.max(live);
                }
                Row::Free { id } => live -= sizes.remove(&id).unwrap_or(0),
                Row::EmptyCache => {}
            }
        }
        u64::try_from(peak).unwrap_or(u64::MAX)
    }
}

/// How a workload is replayed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Settings of the pool. Its limit is in force from the first row.
    pub config: Config,
    /// A submission completes when so many rows have gone by. 0: everything is done at once. Otherwise work is submitted
    /// whenever fewer than two submissions are in flight, as the queue of a device does, so a backlog builds up.
    pub late: u64,
}

impl Default for Options {
    /// Default settings, segments up to 64 GiB, nothing is late.
    fn default() -> Options {
        Options { config: Config { max_segment: 64 << 30, ..Config::default() }, late: 0 }
    }
}

/// What a replay came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Requests made.
    pub allocations: u64,
    /// [`Workload::peak_live`].
    pub peak_live: u64,
    /// The most bytes bought from the driver at one time.
    pub peak_reserved: u64,
    /// Segments bought.
    pub driver_calls: u64,
    /// Order edges that came with blocks.
    pub edges: u64,
    /// Times the host waited for the device.
    pub waits: u64,
    /// Bytes of live blocks that were moved.
    pub moved_bytes: u64,
    /// Sum of the sizes of all blocks lent.
    pub allocated_bytes: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Of these, requests of more than `max_segment` bytes.
    pub beyond_segment: u64,
    /// Nanoseconds of the whole replay, the pretend device included, per allocation.
    pub ns_per_pair: f64,
}

/// Submissions in flight at a time, as in `stream::policy`.
const IN_FLIGHT: usize = 2;

/// Bytes of the pretend device: more than there will be, and far from where sums of sizes overflow.
const CAPACITY: u64 = 1 << 62;

/// Replays a workload. Every block is used once when it is lent and once before it is freed, on its stream.
pub fn replay(workload: &Workload, options: &Options) -> Figures {
    let mut device = SimDevice::new(CAPACITY, options.config.clone());
    let mut live: HashMap<u64, (Lease, StreamId)> = HashMap::new();
    let mut in_flight: VecDeque<u64> = VecDeque::new();
    let mut figures = Figures { peak_live: workload.peak_live(options.config.max_segment), ..Figures::default() };
    let tag = Tag::here(Category::Temporary, "replay");
    let start = Instant::now();
    for (now, row) in (0u64..).zip(&workload.rows) {
        match *row {
            Row::Alloc { id, size, stream } => {
                figures.allocations += 1;
                match device.alloc(stream, size, tag) {
                    Ok(mut lease) => {
                        device.use_on(stream, &mut lease);
                        live.insert(id, (lease, stream));
                    }
                    Err(_) => {
                        figures.failed += 1;
                        if size > device.pool().config().max_segment {
                            figures.beyond_segment += 1;
                        }
                    }
                }
            }
            Row::Free { id } => {
                if let Some((mut lease, stream)) = live.remove(&id) {
                    device.use_on(stream, &mut lease);
                    device.free(lease);
                }
            }
            Row::EmptyCache => device.empty_cache(),
        }
        if options.late == 0 {
            device.synchronize();
            continue;
        }
        while in_flight.front().is_some_and(|submitted| now - submitted >= options.late) {
            in_flight.pop_front();
            device.complete_one();
        }
        if in_flight.len() < IN_FLIGHT {
            device.submit();
            in_flight.push_back(now);
        }
    }
    let elapsed = start.elapsed();
    let stats = device.pool().stats();
    figures.peak_reserved = stats.reserved_bytes.peak;
    figures.driver_calls = stats.num_device_alloc;
    figures.edges = stats.order_edges;
    figures.waits = device.waits();
    figures.moved_bytes = stats.moved_bytes;
    figures.allocated_bytes = stats.allocated_bytes.allocated;
    figures.ns_per_pair = elapsed.as_nanos() as f64 / figures.allocations.max(1) as f64;
    figures
}
