//! What a run was like: for the report at the end, for `--json`, and for tests.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context, Result};
use linn::device::Device;

use super::losses::{Collected, Loss};
use super::trainer::Trained;

/// Figures of a run. Bytes and milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// One per step trained in this run.
    pub losses: Vec<f32>,
    /// Mean over the validation batches; `None` where the run was ended before.
    pub val_loss: Option<f32>,
    /// From process start to the first loss read.
    pub first_loss_ms: f64,
    /// Between the completions of two steps.
    pub median_step_ms: f64,
    /// Trained tokens over the time from the first completion to the last.
    pub tokens_per_s: f64,
    pub allocated_peak: u64,
    pub reserved_peak: u64,
    /// Buffers bought from the driver after three steps were enqueued, to the end of the training; 0 in a shorter run.
    pub driver_allocations_after_step_3: u64,
    /// Share of bind groups that were in the cache, 0 to 1, counted from the moment the fourth loss was read: by then the
    /// commands of step 3 have been encoded, and up to eight steps more. `None` where nothing came after that.
    pub bind_group_hit_rate: Option<f64>,
    /// Times a call of linn blocked the host, up to the end of the training.
    pub host_syncs: u64,
    /// Times the trainer paused because it was 8 steps ahead of the last loss: the device had work for all of that time.
    pub loss_waits: u64,
    /// The most steps that were enqueued beyond the last loss read.
    pub most_behind: u64,
    /// Name, backend, driver.
    pub adapter: [String; 3],
    /// The sampled text.
    pub sample: String,
    /// The training was ended early.
    pub interrupted: bool,
}

/// Counters from the beginning of a training.
#[derive(Clone, Copy, Debug, Default)]
pub struct Early {
    /// After three steps were enqueued.
    pub driver_allocations: Option<u64>,
    /// When the fourth loss was read.
    pub groups_bound: Option<GroupsBound>,
}

/// Bind groups that were found in the cache, and that were not.
#[derive(Clone, Copy, Debug)]
pub struct GroupsBound {
    hits: u64,
    misses: u64,
}

/// So far.
pub fn groups_bound(device: &Device) -> GroupsBound {
    let queue = device.stats().queue;
    GroupsBound { hits: queue.bind_group_hits, misses: queue.bind_group_misses }
}

impl Summary {
    /// The figures of the training itself.
    pub fn of_training(device: &Device, trained: Trained, tokens_per_step: usize) -> Summary {
        let Trained { collected: Collected { losses, waits, most_behind }, early } = trained;
        let stats = device.stats();
        let allocations = |early: u64| stats.memory.num_device_alloc - early;
        let hit_rate = |early: GroupsBound| {
            let now = groups_bound(device);
            let (hits, misses) = (now.hits - early.hits, now.misses - early.misses);
            (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
        };
        let whole = losses.first().zip(losses.last()).map_or(0.0, |(first, last)| millis(first.at, last.at));
        Summary {
            losses: losses.iter().map(|loss| loss.value).collect(),
            first_loss_ms: losses.first().map_or(0.0, |first| millis(process_started(), first.at)),
            median_step_ms: median_step(&losses),
            tokens_per_s: if whole > 0.0 { ((losses.len() - 1) * tokens_per_step) as f64 * 1e3 / whole } else { 0.0 },
            allocated_peak: device.max_memory_allocated(),
            reserved_peak: device.max_memory_reserved(),
            driver_allocations_after_step_3: early.driver_allocations.map_or(0, allocations),
            bind_group_hit_rate: early.groups_bound.and_then(hit_rate),
            host_syncs: stats.queue.host_syncs,
            loss_waits: waits,
            most_behind,
            ..Summary::of_adapter(device)
        }
    }

    /// No figures yet.
    pub fn of_adapter(device: &Device) -> Summary {
        let info = device.info();
        Summary { adapter: [info.name.clone(), info.backend.clone(), info.driver.clone()], ..Summary::default() }
    }

    /// Writes the figures for scripts.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        let [name, backend, driver] = &self.adapter;
        let json = serde_json::json!({
            "losses": self.losses,
            "val_loss": self.val_loss,
            "first_loss_ms": self.first_loss_ms,
            "median_step_ms": self.median_step_ms,
            "tokens_per_s": self.tokens_per_s,
            "allocated_peak": self.allocated_peak,
            "reserved_peak": self.reserved_peak,
            "driver_allocations_after_step_3": self.driver_allocations_after_step_3,
            "bind_group_hit_rate": self.bind_group_hit_rate,
            "host_syncs": self.host_syncs,
            "loss_waits": self.loss_waits,
            "most_behind": self.most_behind,
            "adapter": { "name": name, "backend": backend, "driver": driver },
        });
        let text = format!("{json:#}\n");
        std::fs::write(path, text).with_context(|| {
            format!("cannot write {}\nhelp: check the folder, its permissions and the free space", path.display())
        })
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
