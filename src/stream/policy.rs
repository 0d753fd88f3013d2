//! When to submit and how much: pure decisions of the queue.

use std::time::Duration;

use smallvec::SmallVec;

use crate::device::load::{Load, PipelineId};
use crate::device::wishes::Wishes;
use crate::timeline::{Flush, Timeline};

/// Submissions under way at most: one runs while the next is ready.
pub(super) const MOST_IN_FLIGHT: usize = 2;
/// Commands that make a second submission worth its cost (30 to 70 us on software drivers, a few tiny dispatches).
pub(super) const BATCH: u64 = 64;
/// How long one look at the device lasts while work is in flight; new wishes are noticed in between.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// How long commands are left for a larger batch while the device is busy. With a look more before and after they reach the
/// driver within 10 ms of their call, unless the driver has its fill.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);
/// How long small uploads alone are left for more: nobody can see them yet, and a submission costs as much as dozens of them.
pub(super) const LIGHT_PATIENCE: Duration = Duration::from_millis(2);
/// Commands in one submission at most: bounds the time the lock is held to take them, and bind groups alive.
pub(super) const MOST_COMMANDS: usize = 1024;
/// Estimated work of one submission at most. Drivers end submissions of a few seconds (GL: calls beside one of 6 s fail).
pub(super) const MOST_WORK: Duration = Duration::from_millis(100);
/// Times in one submission at most: they fit one query set, and its buffers are 2 KiB each.
pub(super) const MOST_TIMES: usize = 256;
/// Bytes copied in one submission at most.
pub(super) const MOST_BYTES: u64 = 256 << 20;
/// First guess for a unit of work of a kernel that was never measured, in nanoseconds.
pub(super) const FIRST_GUESS: f64 = 5_000.0;

/// When to submit; it remembers since when commands have been left.
#[derive(Default)]
pub(super) struct Policy {
    left_since: Option<Duration>,
    /// Nothing but small uploads is recorded.
    pub(super) light: bool,
}

impl Policy {
    /// What to submit next; `None` when it is better to wait. `now` is the time since anything.
    pub(super) fn target(&mut self, timeline: &Timeline, wishes: &mut Wishes, in_flight: usize, now: Duration) -> Option<Flush> {
        let left = self.left_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let flush = choose(timeline, wishes, in_flight, left, self.light);
        let leaves = flush.is_none() && timeline.backlog() > 0;
        self.left_since = leaves.then(|| self.left_since.unwrap_or(now));
        flush
    }
}

fn choose(timeline: &Timeline, wishes: &mut Wishes, in_flight: usize, left: Duration, light: bool) -> Option<Flush> {
    if in_flight >= MOST_IN_FLIGHT {
        return None;
    }
    // Also before what somebody waits for: an urgent command waits for the submissions in flight, and for nothing else.
    if let Some(point) = timeline.urgent() {
        return Some(Flush::To(point));
    }
    if let Some(next) = wishes.next(timeline) {
        return Some(Flush::To(next));
    }
    if light && left < LIGHT_PATIENCE {
        return None;
    }
    let worth = if in_flight == 0 || left >= PATIENCE { 1 } else { BATCH };
    (timeline.backlog() >= worth).then_some(Flush::Everything)
}

/// Measured cost of kernels: nanoseconds per unit of work, by pipeline. `None` where it was never measured.
#[derive(Default)]
pub(super) struct Estimates(Vec<Option<f64>>);

impl Estimates {
    fn measured(&self, pipeline: PipelineId) -> Option<f64> {
        self.0.get(pipeline.0 as usize).copied().flatten()
    }

    fn per_unit(&self, pipeline: PipelineId) -> f64 {
        self.measured(pipeline).unwrap_or(FIRST_GUESS)
    }

    /// A submission of this work took so long: scales the guesses of its kernels towards that.
    pub(super) fn learn(&mut self, work: &[(PipelineId, u64)], taken: Duration) {
        let guess: f64 = work.iter().map(|(pipeline, amount)| self.per_unit(*pipeline) * *amount as f64).sum();
        if guess <= 0.0 {
            return;
        }
        // Up at once, however far, because submissions that are too long do harm (the first run of a kernel, which compiles it
        // on some drivers, counts too); down half way on a logarithmic scale, so that one odd measurement does little.
        let ratio = (taken.as_nanos() as f64 / guess).max(0.01);
        let scale = if ratio > 1.0 { ratio } else { ratio.sqrt() };
        for (pipeline, _) in work {
            let index = pipeline.0 as usize;
            if self.0.len() <= index {
                self.0.resize(index + 1, None);
            }
            self.0[index] = Some(self.per_unit(*pipeline) * scale);
        }
    }
}

/// What a submission may still take.
pub(super) struct Budget {
    commands: usize,
    nanos: f64,
    bytes: u64,
    times: usize,
    /// Kernels in it that were never measured.
    unknown: SmallVec<[PipelineId; 8]>,
}

impl Default for Budget {
    fn default() -> Budget {
        let nanos = MOST_WORK.as_nanos() as f64;
        Budget { commands: MOST_COMMANDS, nanos, bytes: MOST_BYTES, times: MOST_TIMES, unknown: SmallVec::new() }
    }
}

impl Budget {
    /// Books a command; false where it has to wait for the next submission. A kernel that was never measured goes once: the
    /// guess can be wrong by a factor of hundreds, and a chain of it be a submission that the driver ends.
    pub(super) fn admit(&mut self, estimates: &Estimates, load: Load) -> bool {
        if load.alone {
            return std::mem::take(&mut self.commands) == MOST_COMMANDS;
        }
        let nanos = load.kernel.map_or(0.0, |(pipeline, work)| estimates.per_unit(pipeline) * work as f64);
        if self.commands == 0 || self.nanos < nanos || self.bytes < load.bytes || self.times < load.times {
            return false;
        }
        if let Some((pipeline, _)) = load.kernel
            && estimates.measured(pipeline).is_none()
        {
            if self.unknown.contains(&pipeline) {
                return false;
            }
            self.unknown.push(pipeline);
        }
        self.commands -= 1;
        self.nanos -= nanos;
        self.bytes -= load.bytes;
        self.times -= load.times;
        true
    }
}
