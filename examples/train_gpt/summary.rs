//! What a run was like: for the report at the end, for `--json`, and for tests.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context, Result};
use linn::device::Device;

use super::losses::Loss;

/// Figures of a run. Bytes and milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// One per step trained in this run.
    pub losses: Vec<f32>,
    /// Mean over the validation batches.
    pub val_loss: f32,
    /// From process start to the first loss read.
    pub first_loss_ms: f64,
    /// Between the completions of two steps.
    pub median_step_ms: f64,
    /// Trained tokens over the time from the first completion to the last.
    pub tokens_per_s: f64,
    pub allocated_peak: u64,
    pub reserved_peak: u64,
    /// Buffers bought from the driver from step 3 to the end of the training.
    pub driver_allocations_after_step_3: u64,
    /// From step 3 on, 0 to 1.
    pub bind_group_hit_rate: f64,
    /// Times a call of linn blocked the host, up to the end of the training.
    pub host_syncs: u64,
    /// Times the trainer paused because it was 8 steps ahead of the last loss: the device had work for all of that time.
    pub loss_waits: u64,
    /// Name, backend, driver.
    pub adapter: [String; 3],
    /// The sampled text.
    pub sample: String,
    /// Ctrl-C ended the training early.
    pub interrupted: bool,
}

/// Counters of a device at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub driver_allocations: u64,
    pub hits: u64,
    pub misses: u64,
    pub host_syncs: u64,
}

impl Counters {
    pub fn of(device: &Device) -> Counters {
        let stats = device.stats();
        Counters {
            driver_allocations: stats.memory.num_device_alloc,
            hits: stats.queue.bind_group_hits,
            misses: stats.queue.bind_group_misses,
            host_syncs: stats.queue.host_syncs,
        }
    }
}

impl Summary {
    /// The figures of the training itself; `early` are the counters after three steps.
    pub fn of_training(device: &Device, losses: &[Loss], tokens_per_step: usize, early: Counters) -> Summary {
        let now = Counters::of(device);
        let (hits, misses) = (now.hits - early.hits, now.misses - early.misses);
        let whole = losses.first().zip(losses.last()).map_or(0.0, |(first, last)| millis(first.at, last.at));
        let info = device.info();
        Summary {
            losses: losses.iter().map(|loss| loss.value).collect(),
            first_loss_ms: losses.first().map_or(0.0, |first| millis(process_started(), first.at)),
            median_step_ms: median_step(losses),
            tokens_per_s: if whole > 0.0 { ((losses.len() - 1) * tokens_per_step) as f64 * 1e3 / whole } else { 0.0 },
            allocated_peak: device.max_memory_allocated(),
            reserved_peak: device.max_memory_reserved(),
            driver_allocations_after_step_3: now.driver_allocations - early.driver_allocations,
            bind_group_hit_rate: if hits + misses == 0 { 1.0 } else { hits as f64 / (hits + misses) as f64 },
            host_syncs: now.host_syncs,
            adapter: [info.name.clone(), info.backend.to_string(), info.driver.clone()],
            ..Summary::default()
        }
    }

    /// Writes the figures for scripts.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        let [name, backend, driver] = &self.adapter;
        let json = serde_json::json!({
            "losses": self.losses,
            // An interrupted run is not validated.
            "val_loss": if self.interrupted { None } else { Some(self.val_loss) },
            "first_loss_ms": self.first_loss_ms,
            "median_step_ms": self.median_step_ms,
            "tokens_per_s": self.tokens_per_s,
            "allocated_peak": self.allocated_peak,
            "reserved_peak": self.reserved_peak,
            "driver_allocations_after_step_3": self.driver_allocations_after_step_3,
            "bind_group_hit_rate": self.bind_group_hit_rate,
            "host_syncs": self.host_syncs,
            "loss_waits": self.loss_waits,
            "adapter": { "name": name, "backend": backend, "driver": driver },
        });
        let text = format!("{json:#}\n");
        std::fs::write(path, text)
            .with_context(|| format!("cannot write {}\nhelp: check the folder and its permissions", path.display()))
    }
}

/// When the process started: the time of the first call, which is the first line of `main`.
pub fn process_started() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// The median time between the completions of two steps. Small steps share a submission and complete together, so the time is
/// taken over spans of up to eight steps.
fn median_step(losses: &[Loss]) -> f64 {
    let span = losses.len().saturating_sub(1).min(8);
    if span == 0 {
        return 0.0;
    }
    let ends = losses.iter().zip(&losses[span..]);
    let mut times: Vec<f64> = ends.map(|(first, last)| millis(first.at, last.at) / span as f64).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Bytes in MiB, for people.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

fn millis(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}
