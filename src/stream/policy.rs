//! When to submit and how much: pure decisions of the queue.

use std::time::Duration;

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
/// Bytes copied in one submission at most.
const MOST_BYTES: u64 = 256 << 20;
/// First guess for a workgroup of a kernel that was never measured, in nanoseconds.
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

/// Workgroups of a dispatch.
pub(super) fn groups(grid: [u32; 3]) -> u64 {
    grid.iter().map(|n| u64::from(*n)).product()
}

/// Measured cost of kernels: nanoseconds per workgroup, by pipeline.
#[derive(Default)]
pub(super) struct Estimates(Vec<f64>);

impl Estimates {
    fn per_group(&self, pipeline: PipelineId) -> f64 {
        self.0.get(pipeline.0 as usize).copied().unwrap_or(FIRST_GUESS)
    }

    /// A submission of this work took so long: scales the guesses of its kernels towards that.
    pub(super) fn learn(&mut self, work: &[(PipelineId, u64)], taken: Duration) {
        let guess: f64 = work.iter().map(|(pipeline, groups)| self.per_group(*pipeline) * *groups as f64).sum();
        if guess <= 0.0 {
            return;
        }
        // Up at once, because submissions that are too long do harm (the first run of a kernel, which compiles it on some
        // drivers, counts too); down half way on a logarithmic scale, so that one odd measurement does little.
        let ratio = (taken.as_nanos() as f64 / guess).clamp(0.01, 100.0);
        let scale = if ratio > 1.0 { ratio } else { ratio.sqrt() };
        for (pipeline, _) in work {
            let index = pipeline.0 as usize;
            if self.0.len() <= index {
                self.0.resize(index + 1, FIRST_GUESS);
            }
            self.0[index] *= scale;
        }
    }
}

/// What a submission may still take.
pub(super) struct Budget {
    commands: usize,
    nanos: f64,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { commands: MOST_COMMANDS, nanos: MOST_WORK.as_nanos() as f64, bytes: MOST_BYTES }
    }
}

impl Budget {
    /// Books a command; false where it has to wait for the next submission.
    pub(super) fn admit(&mut self, estimates: &Estimates, op: &Op) -> bool {
        if let Op::Foreign(_) = op {
            // In a submission of its own: what the driver refuses of it costs nobody else's work.
            return std::mem::take(&mut self.commands) == MOST_COMMANDS;
        }
        let (nanos, bytes) = match op {
            Op::Dispatch { pipeline, grid, .. } => (estimates.per_group(*pipeline) * groups(*grid) as f64, 0),
            Op::Upload { size, .. } | Op::Download { size, .. } => (0.0, *size),
            Op::Move { to, .. } => (0.0, to.size),
            Op::Foreign(_) => (0.0, 0),
        };
        if self.commands == 0 || self.nanos < nanos || self.bytes < bytes {
            return false;
        }
        self.commands -= 1;
        self.nanos -= nanos;
        self.bytes -= bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::command::ParamBytes;

    fn dispatch(pipeline: u32, groups: u32) -> Op {
        let params = ParamBytes::new(&[]).unwrap_or_else(|| unreachable!("no bytes fit"));
        Op::Dispatch { pipeline: PipelineId(pipeline), places: Default::default(), params, grid: [groups, 1, 1] }
    }

    #[test]
    fn a_submission_is_bounded_by_commands() {
        let (estimates, mut budget) = (Estimates::default(), Budget::default());
        let admitted = (0..5000).take_while(|_| budget.admit(&estimates, &dispatch(0, 1))).count();
        assert_eq!(admitted, MOST_COMMANDS);
    }

    #[test]
    fn a_submission_is_bounded_by_estimated_work_and_the_estimate_follows_the_device() {
        let mut estimates = Estimates::default();
        let count = |estimates: &Estimates| {
            let mut budget = Budget::default();
            (0..5000).take_while(|_| budget.admit(estimates, &dispatch(7, 100))).count()
        };
        assert_eq!(count(&estimates), (MOST_WORK.as_nanos() as f64 / (FIRST_GUESS * 100.0)) as usize);
        // Measured: 10 ms for each dispatch of 100 workgroups.
        for _ in 0..20 {
            estimates.learn(&[(PipelineId(7), 100)], Duration::from_millis(10));
        }
        assert!((9..=11).contains(&count(&estimates)), "{}", count(&estimates));
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
