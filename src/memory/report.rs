//! Why a request failed, for people: facts, then one line of help that is true for the case.

use std::fmt;
use std::panic::Location;

use super::policy::Tag;
use super::stats::Breakdown;
use super::ways::Way;
use crate::ids::{MemPoolId, StreamId};

/// What stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OomCause {
    /// The request is larger than the largest buffer of the adapter.
    LargerThanBuffer,
    /// The request alone is larger than the limit.
    LargerThanLimit,
    /// The limit leaves no room, though no larger part of it lies idle.
    Limit,
    /// Enough bytes are cached, but not in one piece.
    Fragmented,
    /// Enough bytes are cached in one piece, but kept for others: by a private pool, or for other streams or sizes by policy
    /// `pytorch`.
    Stranded,
    /// The driver has no more memory.
    Driver,
}

/// All live blocks with one label and one line of the user's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The operation that asked for them.
    pub label: &'static str,
    /// The line it was called from.
    pub location: &'static Location<'static>,
    /// Their number.
    pub count: u64,
    /// Their bytes (rounded sizes).
    pub bytes: u64,
}

impl Holder {
    /// True for a block of theirs.
    pub(super) fn has(&self, tag: &Tag) -> bool {
        (self.label, self.location) == (tag.label, tag.location)
    }

    /// Adds up blocks by label and caller's line, the largest sum first.
    pub(super) fn sum(blocks: impl Iterator<Item = (Tag, u64)>) -> Vec<Holder> {
        let one = |(tag, bytes): (Tag, u64)| Holder { label: tag.label, location: tag.location, count: 1, bytes };
        let mut all: Vec<Holder> = blocks.map(one).collect();
        let name = |holder: &Holder| (holder.location.file(), holder.location.line(), holder.location.column(), holder.label);
        all.sort_by_key(name);
        all.dedup_by(|next, first| {
            let same = name(next) == name(first);
            if same {
                first.count += next.count;
                first.bytes += next.bytes;
            }
            same
        });
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| name(a).cmp(&name(b))));
        all
    }
}

/// The state of the pool when a request failed. `Display` is the text of the error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OomReport {
    /// What stood in the way.
    pub cause: OomCause,
    /// Bytes asked for.
    pub requested: u64,
    /// The same, rounded up to a block.
    pub rounded: u64,
    /// The stream that asked.
    pub stream: StreamId,
    /// The pool it asked in.
    pub pool: MemPoolId,
    /// The operation that asked.
    pub label: &'static str,
    /// The line it was called from.
    pub location: &'static Location<'static>,
    /// Bytes that may be reserved at most; `u64::MAX` for no limit.
    pub limit: u64,
    /// Bytes of the largest buffer of the adapter.
    pub max_segment: u64,
    /// Bytes of live blocks.
    pub allocated: u64,
    /// Bytes bought from the driver.
    pub reserved: u64,
    /// Bytes that other threads are buying at this moment.
    pub pending: u64,
    /// The largest piece of cached memory.
    pub largest_free: u64,
    /// Where the reserved bytes are.
    pub breakdown: Breakdown,
    /// The largest holders, largest first, at most five.
    pub holders: Vec<Holder>,
    /// What would make the request succeed: each alone, the simplest first. None where nothing simple is sure to.
    pub ways: Vec<Way>,
}

impl OomReport {
    /// The share of the cached bytes that is not in the largest free block: 0 is one piece, near 1 is dust.
    pub fn fragmentation(&self) -> f64 {
        match self.breakdown.cached {
            0 => 0.0,
            cached => 1.0 - self.largest_free as f64 / cached as f64,
        }
    }

    /// Facts, then what would make the request succeed; where the pool knows of nothing, what people do.
    fn help(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cached, piece) = (Bytes(self.breakdown.cached), Bytes(self.largest_free));
        match self.cause {
            OomCause::LargerThanBuffer => {
                let most = Bytes(self.max_segment);
                write!(f, "one buffer of this adapter holds at most {most} (max_buffer_size); split the tensor or ")?;
            }
            OomCause::LargerThanLimit => write!(f, "this request alone exceeds the limit; ")?,
            OomCause::Limit => {}
            OomCause::Fragmented => write!(f, "{cached} are cached but in pieces of at most {piece}; ")?,
            OomCause::Stranded if self.pool != MemPoolId::DEFAULT => {
                write!(f, "{cached} are cached, {piece} of them in one piece, but outside of the private pool; ")?;
            }
            OomCause::Stranded if self.ways.iter().any(|way| matches!(way, Way::DropPool(_))) => {
                write!(f, "{cached} are cached, but kept by private pools (use_on_oom shares them); ")?;
            }
            OomCause::Stranded => {
                write!(
                    f,
                    "{cached} are cached, but kept by policy pytorch for other streams or sizes (policy linn shares them); "
                )?;
            }
            OomCause::Driver => write!(f, "the driver has no more memory; close other programs that use this adapter, or ")?,
        }
        for (at, way) in self.ways.iter().enumerate() {
            write!(f, "{}{way}", if at == 0 { "" } else { ", or " })?;
        }
        if self.ways.is_empty() { f.write_str("use a smaller batch") } else { Ok(()) }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Limit(megabytes) => write!(f, "raise the limit to {megabytes} MiB or more"),
            Way::Free(Holder { label, location, bytes, .. }) => {
                write!(f, "free the {} held by {label} from {location}", Bytes(*bytes))
            }
            Way::LeavePool => f.write_str("leave its scope for this request"),
            Way::DropPool(MemPoolId(number)) => write!(f, "drop the private pool (0, {number})"),
        }
    }
}

impl std::error::Error for OomReport {}

impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: asked {}", Bytes(self.requested))?;
        if self.rounded != self.requested {
            write!(f, " (rounded to {})", Bytes(self.rounded))?;
        }
        write!(f, " on stream {} for {} at {}", self.stream.0, self.label, self.location)?;
        write!(f, "; largest free block {}, reserved {}", Bytes(self.largest_free), Bytes(self.reserved))?;
        match self.limit {
            u64::MAX => writeln!(f, ", no limit")?,
            limit => writeln!(f, " of {}", Bytes(limit))?,
        }
        write!(f, "  allocated {}", Bytes(self.allocated))?;
        write!(f, ", cached {}, retiring {}", Bytes(self.breakdown.cached), Bytes(self.breakdown.retiring))?;
        writeln!(f, ", fragmentation {:.0}%", 100.0 * self.fragmentation())?;
        let mut used = self.breakdown.parts().filter(|(_, bytes)| *bytes > 0).peekable();
        if used.peek().is_some() {
            write!(f, "  by category:")?;
            for (at, (name, bytes)) in used.enumerate() {
                write!(f, "{} {name} {}", if at == 0 { "" } else { "," }, Bytes(bytes))?;
            }
            writeln!(f)?;
        }
        for holder in &self.holders {
            writeln!(
                f,
                "  held: {} in {} of {} at {}",
                Bytes(holder.bytes),
                blocks(holder.count),
                holder.label,
                holder.location
            )?;
        }
        write!(f, "help: ")?;
        self.help(f)
    }
}

fn blocks(count: u64) -> String {
    if count == 1 { "1 block".to_owned() } else { format!("{count} blocks") }
}

/// Bytes for people: `512 B`, `1.5 KiB`, `96.0 MiB`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        // 1023.95 would print as 1024.0.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}
