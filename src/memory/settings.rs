//! Settings as text, in PyTorch's names and syntax: `key:value,key:value`, lists as `key:[a:b,c:d]`.
//!
//! | key | value | policy linn | policy pytorch |
//! |---|---|---|---|
//! | `policy` | `linn`, `pytorch` | | |
//! | `limit_mb` | a whole number from 1 | most MiB to reserve | the same |
//! | `per_process_memory_fraction` | 0 to 1 | the share of the limit that may be reserved | the same |
//! | `garbage_collection_threshold` | between 0 and 1 | the share of the limit above which idle segments are given back before one is bought | the same, for unsplit blocks of the large pool, by age |
//! | `roundup_power2_divisions` | a power of two, or a list such as `[256:1,512:2,>:4]` | requests are rounded up to such a part of a power of two | the same |
//! | `max_split_size_mb` | from `large_segment_size_mb` | no effect: idle segments go back before one is bought, so none is split to pieces | larger blocks are not split and serve larger requests only |
//! | `max_non_split_rounding_mb` | from `large_segment_size_mb` | no effect | how much larger a block such a request may take |
//! | `large_segment_size_mb` | from 11 | no effect: segments grow with what is reserved | the segment for blocks between 1 and 10 MiB |
//! | `expandable_segments` | `True`, `False` | no effect: see below | `False` only |
//! | `compaction` | `off`, `pressure`, or a share such as `0.01` | live blocks move never, before a request fails, or also before more is reserved than ever, as long as less than this share of what was allocated moves | no effect |
//!
//! There are no virtual addresses behind wgpu, so segments cannot expand. What expandable segments are for (memory bought
//! for one size serves another) is what policy linn does by itself: all sizes and streams share segments, and idle
//! segments go back before more is bought. `expandable_segments:True` is accepted there and is an error with policy
//! pytorch.

use super::compact::Compaction;
use super::policy::{Config, Policy};
use super::pytorch;
use crate::error::{Error, Result};

const MIB: u64 = 1 << 20;

/// Every key.
const KEYS: [&str; 10] = [
    "policy",
    "limit_mb",
    "per_process_memory_fraction",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "large_segment_size_mb",
    "expandable_segments",
    "compaction",
];

impl Config {
    /// Applies settings written as in `LINN_ALLOC_CONF`. See the [module](super::settings) for keys and values.
    ///
    /// As in PyTorch, applying a text first sets `max_split_size_mb`, `roundup_power2_divisions` and
    /// `garbage_collection_threshold` to their defaults; keys that it does not name keep their values otherwise. Where a key
    /// stands twice, the last one counts, and both must be right.
    ///
    /// # Errors
    /// Nothing is changed then; the error names the key, the value and what is allowed.
    pub fn apply(&mut self, settings: &str) -> Result<()> {
        let pairs = pairs(settings)?;
        let values = |name: &'static str| pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str());
        let defaults = Config::default();
        let mut new = Config {
            max_split_size: defaults.max_split_size,
            roundup_power2_divisions: defaults.roundup_power2_divisions,
            garbage_collection_threshold: defaults.garbage_collection_threshold,
            ..self.clone()
        };
        for value in values("policy") {
            new.policy = match value {
                "linn" => Policy::Linn,
                "pytorch" => Policy::Pytorch,
                _ => return Err(bad("policy", value, "linn or pytorch")),
            };
        }
        for value in values("limit_mb") {
            new.limit = megabytes("limit_mb", value, 1)?;
        }
        for value in values("per_process_memory_fraction") {
            let share = fraction(value).filter(|share| (0.0..=1.0).contains(share));
            new.memory_fraction = share.ok_or_else(|| bad("per_process_memory_fraction", value, "a number from 0 to 1"))?;
        }
        for value in values("garbage_collection_threshold") {
            let share = fraction(value).filter(|share| *share > 0.0 && *share < 1.0);
            let allowed = "a number above 0 and below 1";
            new.garbage_collection_threshold = share.ok_or_else(|| bad("garbage_collection_threshold", value, allowed))?;
        }
        for value in values("roundup_power2_divisions") {
            new.roundup_power2_divisions = divisions(value)?;
        }
        // The two that follow are compared with this one, wherever it stands.
        for value in values("large_segment_size_mb") {
            let slack_is_default = new.max_non_split_rounding == new.large_segment_size;
            new.large_segment_size = megabytes("large_segment_size_mb", value, pytorch::MIN_LARGE_ALLOC / MIB + 1)?;
            if slack_is_default {
                new.max_non_split_rounding = new.large_segment_size;
            }
        }
        let least = new.large_segment_size / MIB;
        for value in values("max_split_size_mb") {
            new.max_split_size = megabytes("max_split_size_mb", value, least)?;
        }
        for value in values("max_non_split_rounding_mb") {
            new.max_non_split_rounding = megabytes("max_non_split_rounding_mb", value, least)?;
        }
        for value in values("expandable_segments") {
            match (value, new.policy) {
                ("False", _) | ("True", Policy::Linn) => {}
                ("True", Policy::Pytorch) => {
                    let allowed =
                        "False with policy:pytorch, for segments cannot expand on wgpu; policy:linn does what they are for";
                    return Err(bad("expandable_segments", value, allowed));
                }
                _ => return Err(bad("expandable_segments", value, "True or False")),
            }
        }
        for value in values("compaction") {
            let share = || fraction(value).filter(|share| *share > 0.0 && share.is_finite()).map(Compaction::Share);
            new.compaction = match value {
                "off" => Compaction::Off,
                "pressure" => Compaction::Pressure,
                _ => share().ok_or_else(|| bad("compaction", value, "off, pressure, or a number above 0"))?,
            };
        }
        *self = new;
        Ok(())
    }
}

fn bad(key: &str, value: &str, allowed: &str) -> Error {
    Error::argument("memory settings", format!("{key} is {value:?}"), format!("allowed: {allowed}"))
}

/// Keys that exist and their values; commas within brackets do not separate.
fn pairs(settings: &str) -> Result<Vec<(String, String)>> {
    let text: String = settings.chars().filter(|c| !c.is_whitespace()).collect();
    let mut depth = 0i32;
    let parts = text.split(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.is_empty());
    parts
        .map(|part| match part.split_once(':').unwrap_or((part, "")) {
            (key, _) if !KEYS.contains(&key) => {
                let help = format!("the keys are {}; write key:value, several separated by commas", KEYS.join(", "));
                Err(Error::argument("memory settings", format!("there is no key {key:?}"), help))
            }
            (key, value) => Ok((key.to_owned(), value.to_owned())),
        })
        .collect()
}

fn fraction(value: &str) -> Option<f64> {
    value.parse().ok()
}

/// Bytes of a value in MiB that is at least `least`.
fn megabytes(key: &str, value: &str, least: u64) -> Result<u64> {
    let bytes = value.parse::<u64>().ok().filter(|megabytes| *megabytes >= least);
    let bytes = bytes.and_then(|megabytes| megabytes.checked_mul(MIB));
    bytes.ok_or_else(|| bad(key, value, &format!("a whole number of MiB from {least}")))
}

fn divisions(value: &str) -> Result<[u64; 16]> {
    const KEY: &str = "roundup_power2_divisions";
    let power_of_two = |text: &str| text.parse::<u64>().ok().filter(|number| number.is_power_of_two());
    let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        let number = power_of_two(value).ok_or_else(|| bad(KEY, value, "a power of two, or a list such as [256:1,512:2,>:4]"))?;
        return Ok([number; 16]);
    };
    let mut entries = [0; 16];
    // The entry of the last boundary.
    let mut last = None;
    for pair in list.split(',') {
        let wrong = || bad(KEY, pair, "in a list: SIZE:N, SIZE in MiB a power of two or >, N a power of two or 0");
        let (boundary, number) = pair.split_once(':').ok_or_else(wrong)?;
        let number = if number == "0" { 0 } else { power_of_two(number).ok_or_else(wrong)? };
        if boundary == ">" {
            entries[last.unwrap_or(0) + 1..].fill(number);
            continue;
        }
        let entry = (power_of_two(boundary).ok_or_else(wrong)?.ilog2() as usize).min(15);
        if last.is_none() {
            entries[..entry].fill(number);
        }
        entries[entry] = number;
        last = Some(entry);
    }
    Ok(entries)
}
