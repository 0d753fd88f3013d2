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
    /// From the first line of `main`, a few milliseconds after the process started, to the first loss read; `None` where no step
    /// was trained.
    pub first_loss_ms: Option<f64>,
    /// Between the completions of two steps; `None` where there were fewer.
    pub median_step_ms: Option<f64>,
    /// Trained tokens over the time from the first completion to the last; `None` as above.
    pub tokens_per_s: Option<f64>,
    /// Of the training, or of what was done instead.
    pub allocated_peak: u64,
    pub reserved_peak: u64,
    /// Buffers bought from the driver after three steps were enqueued, to the end of the training; 0 in a shorter run.
    pub driver_allocations_after_step_3: u64,
    /// Share of bind groups that were in the cache, 0 to 1, counted from the moment the fourth loss was read: by then the
    /// commands of step 3 have been encoded, and up to eight steps more. `None` where nothing came after that.
    pub bind_group_hit_rate: Option<f64>,
    /// Times the host blocked, up to the end of the training or, where none was left, of the run: in calls of linn, and in
    /// `loss_waits`.
    pub host_syncs: u64,
    /// Times the trainer paused because it was 8 batches, or a second of work, ahead of the last loss: the device had work for
    /// all of that time.
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
        let whole = losses.first().zip(losses.last()).map(|(first, last)| millis(first.at, last.at)).filter(|whole| *whole > 0.0);
        Summary {
            losses: losses.iter().map(|loss| loss.value).collect(),
            first_loss_ms: losses.first().map(|first| millis(process_started(), first.at)),
            median_step_ms: median_step(&losses),
            tokens_per_s: whole.map(|whole| ((losses.len() - 1) * tokens_per_step) as f64 * 1e3 / whole),
            driver_allocations_after_step_3: early.driver_allocations.map_or(0, allocations),
            bind_group_hit_rate: early.groups_bound.and_then(hit_rate),
            host_syncs: stats.queue.host_syncs + waits,
            loss_waits: waits,
            most_behind,
            ..Summary::of_device(device)
        }
    }

    /// What there is to say without a training: the adapter, and the memory and the waits so far.
    pub fn of_device(device: &Device) -> Summary {
        let info = device.info();
        Summary {
            allocated_peak: device.max_memory_allocated(),
            reserved_peak: device.max_memory_reserved(),
            host_syncs: device.stats().queue.host_syncs,
            adapter: [info.name.clone(), info.backend.clone(), info.driver.clone()],
            ..Summary::default()
        }
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
fn median_step(losses: &[Loss]) -> Option<f64> {
    let span = losses.len().saturating_sub(1).min(8);
    if span == 0 {
        return None;
    }
    let ends = losses.iter().zip(&losses[span..]);
    let mut times: Vec<f64> = ends.map(|(first, last)| millis(first.at, last.at) / span as f64).collect();
    times.sort_by(f64::total_cmp);
    Some(times[times.len() / 2])
}

/// Bytes in MiB, for people.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

fn millis(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}
