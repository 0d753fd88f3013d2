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
/// The same at worst, for each kernel: were it all that took time in the submissions that it was measured in.
pub(super) const WORST_WORK: Duration = Duration::from_millis(200);
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
        let leaves = flush.is_none() && timeline.ready() > 0;
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
    (timeline.ready() >= worth).then_some(Flush::Everything)
}

/// Measured cost of kernels. `None` where one was never measured.
#[derive(Default)]
pub(super) struct Estimates(Vec<Option<Cost>>);

/// Nanoseconds per unit of work. Kernels that share submissions cannot be told apart, so there are two answers.
#[derive(Clone, Copy)]
struct Cost {
    /// What explains how long submissions took: their kernels are scaled together.
    likely: f64,
    /// All of a submission that it was in; nearly nothing of it, if the others were that cheap.
    most: f64,
}

impl Estimates {
    fn measured(&self, pipeline: PipelineId) -> Option<Cost> {
        self.0.get(pipeline.0 as usize).copied().flatten()
    }

    fn likely(&self, pipeline: PipelineId) -> f64 {
        self.measured(pipeline).map_or(FIRST_GUESS, |cost| cost.likely)
    }

    /// A submission of this work took so long: moves what is known of its kernels towards that.
    pub(super) fn learn(&mut self, work: &[(PipelineId, u64)], taken: Duration) {
        let taken = taken.as_nanos() as f64;
        let sum = |cost: &dyn Fn(PipelineId, f64) -> f64| -> f64 {
            work.iter().map(|(pipeline, amount)| cost(*pipeline, *amount as f64) * *amount as f64).sum()
        };
        let guess = sum(&|pipeline, _| self.likely(pipeline));
        if guess <= 0.0 {
            return;
        }
        let scale = towards(taken / guess);
        // Where even the most of all is too little, it was too little of all.
        let whole = |amount: f64| taken / amount.max(1.0);
        let most = sum(&|pipeline, amount| self.measured(pipeline).map_or(whole(amount), |cost| cost.most));
        let too_little = (taken / most).max(1.0);
        for (pipeline, amount) in work {
            let whole = whole(*amount as f64);
            let most = match self.measured(*pipeline).map_or(FIRST_GUESS, |cost| cost.most) {
                known if whole < known => known * towards(whole / known),
                _ if self.measured(*pipeline).is_none() => whole,
                known => known * too_little,
            };
            let likely = (self.likely(*pipeline) * scale).min(most);
            let index = pipeline.0 as usize;
            if self.0.len() <= index {
                self.0.resize(index + 1, None);
            }
            self.0[index] = Some(Cost { likely, most });
        }
    }
}

/// How far to follow a measurement that is so many times what was known. Up at once, however far, because submissions that are
/// too long do harm (the first run of a kernel, which compiles it on some drivers, counts too); down half way on a logarithmic
/// scale, so that one odd measurement does little.
fn towards(ratio: f64) -> f64 {
    if ratio > 1.0 { ratio } else { ratio.max(0.01).sqrt() }
}

/// What a submission may still take.
pub(super) struct Budget {
    commands: usize,
    nanos: f64,
    bytes: u64,
    times: usize,
    /// What the kernels in it take at worst.
    worst: SmallVec<[(PipelineId, f64); 16]>,
}

impl Default for Budget {
    fn default() -> Budget {
        let nanos = MOST_WORK.as_nanos() as f64;
        Budget { commands: MOST_COMMANDS, nanos, bytes: MOST_BYTES, times: MOST_TIMES, worst: SmallVec::new() }
    }
}

impl Budget {
    /// Books a command; false where it has to wait for the next submission.
    pub(super) fn admit(&mut self, estimates: &Estimates, load: Load) -> bool {
        if load.alone {
            return std::mem::take(&mut self.commands) == MOST_COMMANDS;
        }
        if load.compiles && self.commands < MOST_COMMANDS {
            return false;
        }
        let nanos = load.kernel.map_or(0.0, |(pipeline, work)| estimates.likely(pipeline) * work as f64);
        if self.commands == 0 || self.nanos < nanos || self.bytes < load.bytes || self.times < load.times {
            return false;
        }
        if let Some((pipeline, work)) = load.kernel
            && !self.admit_at_worst(pipeline, estimates.measured(pipeline).map(|cost| cost.most * work as f64))
        {
            return false;
        }
        self.commands -= 1;
        self.nanos -= nanos;
        self.bytes -= load.bytes;
        self.times -= load.times;
        true
    }

    /// What a kernel takes at worst is bounded for each, because not all that share submissions are the slow one. Each goes once. One
    /// that was never measured goes no more: a guess can be wrong by a factor of hundreds, and a chain of it be a submission
    /// that the driver ends.
    fn admit_at_worst(&mut self, pipeline: PipelineId, nanos: Option<f64>) -> bool {
        let bound = WORST_WORK.as_nanos() as f64;
        let nanos = nanos.map_or(bound, |nanos| nanos.min(bound));
        match self.worst.iter_mut().rev().find(|(known, _)| *known == pipeline) {
            Some((_, sum)) if *sum + nanos > bound => return false,
            Some((_, sum)) => *sum += nanos,
            None => self.worst.push((pipeline, nanos)),
        }
        true
    }
}
