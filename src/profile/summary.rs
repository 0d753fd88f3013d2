//! The table of `memory_summary` that PyTorch users know, and below it where the bytes are.

use std::fmt::Write as _;

use crate::memory::{Breakdown, Bytes, PoolStats, Stat, Stats};

/// Between the bars.
const WIDTH: usize = 75;

/// Columns of one metric, in a unit that the first row of a column chooses.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Bytes,
    Count,
}

impl Unit {
    /// `value` in the largest unit that leaves `total` readable; whole units, rounded down.
    fn show(self, value: u64, total: u64) -> String {
        let (step, most, names) = match self {
            Unit::Bytes => (1024, 768 * 1024, ["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"].as_slice()),
            Unit::Count => (1000, 750_000, [" ", "K", "M"].as_slice()),
        };
        let (mut value, mut total, mut at) = (value, total, 0);
        while total >= most && at + 1 < names.len() {
            (value, total, at) = (value / step, total / step, at + 1);
        }
        match self {
            Unit::Bytes => format!("{value:6} {}", names[at]),
            Unit::Count => format!("{value:7} {} ", names[at]),
        }
    }
}

type Metric = (&'static str, Unit, fn(&PoolStats) -> Stat);

const METRICS: [Metric; 9] = [
    ("Allocated memory", Unit::Bytes, |stats| stats.allocated_bytes),
    ("Active memory", Unit::Bytes, |stats| stats.active_bytes),
    ("Requested memory", Unit::Bytes, |stats| stats.requested_bytes),
    ("GPU reserved memory", Unit::Bytes, |stats| stats.reserved_bytes),
    ("Non-releasable memory", Unit::Bytes, |stats| stats.inactive_split_bytes),
    ("Allocations", Unit::Count, |stats| stats.allocation),
    ("Active allocs", Unit::Count, |stats| stats.active),
    ("GPU reserved segments", Unit::Count, |stats| stats.segment),
    ("Non-releasable allocs", Unit::Count, |stats| stats.inactive_split),
];

struct Table(String);

impl Table {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.0, "|{text:WIDTH$}|");
    }

    fn rule(&mut self, of: char) {
        self.line(&String::from(of).repeat(WIDTH));
    }

    fn row(&mut self, name: &str, unit: Unit, stat: Stat, total: Stat) {
        let column = |of: fn(&Stat) -> u64| unit.show(of(&stat), of(&total));
        let columns = [column(|s| s.current), column(|s| s.peak), column(|s| s.allocated), column(|s| s.freed)];
        self.line(&format!(" {name:<21} | {} ", columns.join(" | ")));
    }
}

/// PyTorch's table: every metric with its current value, peak, and the sums of what came and went. Unless `abbreviated`,
/// each is followed by the shares of large and small requests. `device` is the number in the title.
pub fn memory_summary(stats: &Stats, device: u64, abbreviated: bool) -> String {
    let mut table = Table(String::new());
    table.rule('=');
    let title = format!("linn GPU memory summary, device ID {device}");
    table.line(&format!("{title:^WIDTH$}"));
    table.rule('-');
    let (ooms, retries) = (format!("GPU OOMs: {}", stats.num_ooms), format!("driver retries: {}", stats.num_alloc_retries));
    table.line(&format!("{ooms:^37}|{retries:^37}"));
    table.rule('=');
    table.line("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ");
    for (name, unit, of) in METRICS {
        table.rule('-');
        table.row(name, unit, of(&stats.all), of(&stats.all));
        if !abbreviated {
            table.row("      from large pool", unit, of(&stats.large_pool), of(&stats.all));
            table.row("      from small pool", unit, of(&stats.small_pool), of(&stats.all));
        }
    }
    for (name, stat) in [("Oversize allocations", stats.oversize_allocations), ("Oversize GPU segments", stats.oversize_segments)]
    {
        table.rule('-');
        table.row(name, Unit::Count, stat, stat);
    }
    table.rule('=');
    table.0
}

/// Host memory beside the pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// Staging of transfers, and copies of operands that kernels of some CPU drivers read.
    pub staging: u64,
    /// Pinned buffers that somebody holds.
    pub pinned_held: u64,
    /// Pinned buffers kept for reuse.
    pub pinned_cached: u64,
}

/// Where the reserved bytes are now, and were at the peaks; `host` is memory beside them. Rows without bytes are left out.
pub fn category_summary(stats: &Stats, now: &Breakdown, host: HostMemory) -> String {
    let mut out = format!("{:<18}{:>12}{:>22}{:>22}\n", "category", "now", "at peak allocated", "at peak reserved");
    let mut row = |name: &str, values: [u64; 3]| {
        if values != [0; 3] {
            let [now, allocated, reserved] = values.map(|bytes| Bytes(bytes).to_string());
            let _ = writeln!(out, "{name:<18}{now:>12}{allocated:>22}{reserved:>22}");
        }
    };
    let all = [now, &stats.at_peak_allocated, &stats.at_peak_reserved];
    for ((name, now), ((_, allocated), (_, reserved))) in all[0].parts().zip(all[1].parts().zip(all[2].parts())) {
        row(name, [now, allocated, reserved]);
    }
    row("= reserved", all.map(Breakdown::sum));
    if host.staging > 0 {
        let _ = writeln!(out, "{:<18}{:>12}  (host memory, not part of reserved)", "staging", Bytes(host.staging).to_string());
    }
    let pinned = host.pinned_held + host.pinned_cached;
    if pinned > 0 {
        let (all, held, cached) = (Bytes(pinned).to_string(), Bytes(host.pinned_held), Bytes(host.pinned_cached));
        let _ = writeln!(out, "{:<18}{all:>12}  (host memory, not part of reserved; {held} held, {cached} cached)", "pinned");
    }
    out
}

/// The driver's view below the categories: so many bytes in buffers and textures, in so many bytes of its memory.
pub fn driver_line(allocated: u64, allocations: u64, reserved: u64, blocks: u64) -> String {
    let (inside, held) = (Bytes(allocated).to_string(), Bytes(reserved));
    format!(
        "{:<18}{inside:>12}  (reserved + staging + pinned + linn's own; {allocations} buffers in {blocks} pieces of {held})\n",
        "driver"
    )
}
