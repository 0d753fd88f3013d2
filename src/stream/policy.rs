//! When to submit and how much: pure decisions of the queue.

use std::time::Duration;

use smallvec::SmallVec;

use crate::device::command::{Op, PipelineId};
use crate::device::core::Core;
use crate::ids::{FenceSet, Horizons};
use crate::timeline::Flush;

/// Submissions under way at most: one runs while the next is ready.
pub(super) const MOST_IN_FLIGHT: usize = 2;
/// Commands that make a second submission worth its cost (30 to 70 us on software drivers, a few tiny dispatches).
const BATCH: u64 = 64;
/// Commands in one submission at most: bounds the time the lock is held to take them, and bind groups alive.
const MOST_COMMANDS: usize = 1024;
/// Estimated work of one submission at most. Drivers end submissions of a few seconds (GL: calls beside one of 6 s fail).
const MOST_WORK: Duration = Duration::from_millis(100);
/// Times in one submission at most: they fit one query set, and its buffers are 2 KiB each.
pub(super) const MOST_TIMES: usize = 256;
/// Bytes copied in one submission at most.
const MOST_BYTES: u64 = 256 << 20;
/// First guess for a unit of work of a kernel that was never measured, in nanoseconds.
const FIRST_GUESS: f64 = 5_000.0;

/// What to submit next; `None` when it is better to wait.
pub(super) fn target(core: &mut Core, in_flight: usize) -> Option<Flush> {
    if in_flight >= MOST_IN_FLIGHT {
        return None;
    }
    let timeline = &core.timeline;
    // Also before what somebody waits for: an urgent command waits for the submissions in flight, and for nothing else.
    if let Some(point) = timeline.urgent() {
        return Some(Flush::To(point));
    }
    let submitted = |fences: &FenceSet| fences.iter().all(|fence| fence.number <= timeline.submitted(fence.stream));
    while core.wanted.front().is_some_and(submitted) {
        core.wanted.pop_front();
    }
    if let Some(first) = core.wanted.front() {
        return Some(Flush::To(first.clone()));
    }
    let backlog = timeline.backlog();
    let worth = if in_flight == 0 { 1 } else { BATCH };
    (backlog >= worth).then_some(Flush::Everything)
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
    pub(super) fn admit(&mut self, estimates: &Estimates, op: &Op) -> bool {
        let (nanos, bytes, times) = match op {
            Op::Dispatch { pipeline, work, .. } => (estimates.per_unit(*pipeline) * *work as f64, 0, 0),
            Op::Upload { size, .. } | Op::Download { size, .. } => (0.0, *size, 0),
            Op::Move { to, .. } => (0.0, to.size, 0),
            Op::Time { .. } => (0.0, 0, 1),
        };
        if self.commands == 0 || self.nanos < nanos || self.bytes < bytes || self.times < times {
            return false;
        }
        if let Op::Dispatch { pipeline, .. } = op
            && estimates.measured(*pipeline).is_none()
        {
            if self.unknown.contains(pipeline) {
                return false;
            }
            self.unknown.push(*pipeline);
        }
        self.commands -= 1;
        self.nanos -= nanos;
        self.bytes -= bytes;
        self.times -= times;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::command::ParamBytes;

    fn dispatch(pipeline: u32, groups: u32) -> Op {
        let params = ParamBytes::new(&[]).unwrap_or_else(|| unreachable!("no bytes fit"));
        let (grid, work) = ([groups, 1, 1], u64::from(groups));
        Op::Dispatch { pipeline: PipelineId(pipeline), places: Default::default(), params, grid, work }
    }

    /// Kernel 7 takes so long for each unit of work.
    fn measured(nanos: u64) -> Estimates {
        let mut estimates = Estimates::default();
        (0..40).for_each(|_| estimates.learn(&[(PipelineId(7), 1000)], Duration::from_nanos(1000 * nanos)));
        estimates
    }

    #[test]
    fn a_submission_is_bounded_by_commands_and_by_times() {
        let (estimates, mut budget) = (measured(1), Budget::default());
        let admitted = (0..5000).take_while(|_| budget.admit(&estimates, &dispatch(7, 1))).count();
        assert_eq!(admitted, MOST_COMMANDS);
        let (stamp, mut budget) = (std::sync::Arc::default(), Budget::default());
        let time = Op::Time { stamp };
        assert_eq!((0..5000).take_while(|_| budget.admit(&estimates, &time)).count(), MOST_TIMES);
        assert!(budget.admit(&estimates, &dispatch(7, 1)));
    }

    #[test]
    fn a_submission_is_bounded_by_estimated_work_and_the_estimate_follows_the_device() {
        let mut estimates = measured(5_000);
        let count = |estimates: &Estimates| {
            let mut budget = Budget::default();
            (0..5000).take_while(|_| budget.admit(estimates, &dispatch(7, 100))).count()
        };
        assert!((199..=200).contains(&count(&estimates)), "{}", count(&estimates));
        // Measured: 10 ms for each dispatch of 100 workgroups, and at once.
        estimates.learn(&[(PipelineId(7), 100)], Duration::from_millis(10));
        assert!((9..=10).contains(&count(&estimates)), "{}", count(&estimates));
        // Back to half a millisecond: slowly.
        estimates.learn(&[(PipelineId(7), 100)], Duration::from_micros(500));
        assert!((40..=50).contains(&count(&estimates)), "{}", count(&estimates));
    }

    #[test]
    fn a_kernel_that_was_never_measured_goes_once() {
        let (estimates, mut budget) = (measured(1), Budget::default());
        let admitted: Vec<bool> = [7, 1, 2, 7, 3].iter().map(|kernel| budget.admit(&estimates, &dispatch(*kernel, 1))).collect();
        assert_eq!(admitted, [true; 5]);
        assert!(!budget.admit(&estimates, &dispatch(2, 1)) && budget.admit(&estimates, &dispatch(7, 1)));
    }

    /// burn, llama.cpp: a chain of large kernels without a wait went to the driver as one submission, which it ended. Here on a
    /// device that takes its time, for kernels far longer and shorter than the first guess.
    #[test]
    fn field_05_a_chain_of_large_kernels_is_cut_into_bounded_submissions() {
        let bound = MOST_WORK.as_nanos() as f64;
        for (amount, nanos) in [(128, 60_000.0), (128, 1_000.0), (128, 100.0), (1, 5e8), (4096, 2e5), (20_000, 2e6)] {
            let (op, work) = (dispatch(3, amount), f64::from(amount) * nanos);
            let (mut estimates, mut left, mut submissions) = (Estimates::default(), 600, Vec::new());
            let mut in_flight = std::collections::VecDeque::new();
            while left > 0 {
                if in_flight.len() == MOST_IN_FLIGHT {
                    let count: usize = in_flight.pop_front().unwrap_or_default();
                    let taken = Duration::from_nanos((work * count as f64) as u64);
                    estimates.learn(&[(PipelineId(3), u64::from(amount) * count as u64)], taken);
                }
                let mut budget = Budget::default();
                // As the plan does: the first is always taken.
                budget.admit(&estimates, &op);
                let count = 1 + (1..left).take_while(|_| budget.admit(&estimates, &op)).count();
                assert!(count == 1 || work * count as f64 <= 1.01 * bound, "{amount} of {nanos}: {count} after {submissions:?}");
                submissions.push(count);
                in_flight.push_back(count);
                left -= count;
            }
            // And none is much smaller than it could be, once it is known how long a kernel takes.
            let fewest = (work * 600.0 / bound).max(600.0 / MOST_COMMANDS as f64);
            assert!(submissions.len() as f64 <= 1.5 * fewest.min(600.0) + 12.0, "{amount} of {nanos}: {submissions:?}");
        }
    }

    #[test]
    fn the_first_wish_goes_first_and_near_ones_join() {
        use crate::ids::{Fence, StreamId};
        let mut core = Core::new(crate::memory::Pool::new(crate::memory::Config::default()));
        (0..1000).for_each(|_| {
            core.timeline.enqueue(StreamId::DEFAULT, []);
        });
        let wish = |number| [Fence { stream: StreamId::DEFAULT, number }].into_iter().collect::<FenceSet>();
        [100, 140, 500].iter().for_each(|number| core.want(&wish(*number)));
        let reached = |target: Option<Flush>| match target {
            Some(Flush::To(fences)) => fences.of(StreamId::DEFAULT).map_or(0, |fence| fence.number),
            Some(Flush::Everything) => 1000,
            None => 0,
        };
        let submit = |core: &mut Core| {
            let target = target(core, 0);
            if let Some(flush) = &target {
                let batch = core.timeline.plan(flush, |_, _| true);
                core.timeline.handle_submitted(&batch);
            }
            reached(target)
        };
        assert_eq!([submit(&mut core), submit(&mut core), submit(&mut core), submit(&mut core)], [140, 500, 1000, 0]);
        assert_eq!(reached(target(&mut core, MOST_IN_FLIGHT)), 0);
    }

    #[test]
    fn urgent_streams_go_first_with_what_they_need() {
        use crate::ids::{BlockId, Fence, StreamId};
        use crate::timeline::Access;
        let mut core = Core::new(crate::memory::Pool::new(crate::memory::Config::default()));
        let urgent = core.timeline.new_stream_with_priority(-1);
        core.timeline.begin_block(BlockId(0), FenceSet::new());
        for number in 0..1000 {
            core.timeline.enqueue(StreamId::DEFAULT, (number == 9).then_some((BlockId(0), Access::Write)));
        }
        core.want(&[Fence { stream: StreamId::DEFAULT, number: 700 }].into_iter().collect());
        core.timeline.enqueue(urgent, []);
        let submit = |core: &mut Core, in_flight| {
            let flush = target(core, in_flight)?;
            let batch = core.timeline.plan(&flush, |_, _| true);
            core.timeline.handle_submitted(&batch);
            Some(batch.runs)
        };
        assert_eq!(submit(&mut core, 1), Some(vec![(urgent, 1)]), "at once, before what somebody waits for");
        assert_eq!(submit(&mut core, MOST_IN_FLIGHT), None);
        core.timeline.enqueue(urgent, [(BlockId(0), Access::Read)]);
        assert_eq!(submit(&mut core, 1), Some(vec![(StreamId::DEFAULT, 10), (urgent, 1)]));
        assert_eq!(submit(&mut core, 0), Some(vec![(StreamId::DEFAULT, 690)]));
        assert_eq!(submit(&mut core, 0), Some(vec![(StreamId::DEFAULT, 300)]));
    }

    #[test]
    fn copies_are_bounded_by_bytes() {
        let (estimates, mut budget) = (Estimates::default(), Budget::default());
        let upload = |size| Op::Upload {
            chunk: crate::device::command::ChunkId(0),
            chunk_offset: 0,
            dst: crate::device::places::PlaceId(0),
            dst_offset: 0,
            size,
        };
        assert!(budget.admit(&estimates, &upload(MOST_BYTES - 4)));
        assert!(!budget.admit(&estimates, &upload(8)));
        assert!(budget.admit(&estimates, &upload(4)));
    }
}
