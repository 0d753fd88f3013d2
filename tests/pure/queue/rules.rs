//! The submit policy, rule by rule, and on a simulated clock.

use std::collections::VecDeque;
use std::time::Duration;

use linn::ids::{BlockId, Fence, FenceSet, Horizons, StreamId};
use linn::timeline::{Access, Flush, SubmissionId, Timeline};

use super::policy::{
    BATCH, Budget, Estimates, LIGHT_PATIENCE, LOOK, MOST_BYTES, MOST_COMMANDS, MOST_IN_FLIGHT, MOST_TIMES, MOST_WORK, PATIENCE,
    Policy, WORST_WORK,
};
use crate::chance::Random;
use crate::device::load::{Load, PipelineId};
use crate::device::wishes::Wishes;

const MAIN: StreamId = StreamId::DEFAULT;

fn dispatch(pipeline: u32, groups: u64) -> Load {
    Load { kernel: Some((PipelineId(pipeline), groups)), ..Load::default() }
}

fn copy(bytes: u64) -> Load {
    Load { bytes, ..Load::default() }
}

/// How many commands one submission takes.
fn admitted(estimates: &Estimates, load: Load) -> usize {
    let mut budget = Budget::default();
    (0..5000).take_while(|_| budget.admit(estimates, load)).count()
}

/// A timeline with so many commands on the default stream, and nothing else to decide by.
#[derive(Default)]
struct Case {
    timeline: Timeline,
    wishes: Wishes,
    policy: Policy,
    now: Duration,
}

impl Case {
    fn with(commands: u64) -> Case {
        let mut case = Case::default();
        case.enqueue(MAIN, commands);
        case
    }

    fn enqueue(&mut self, stream: StreamId, commands: u64) {
        (0..commands).for_each(|_| {
            self.timeline.enqueue(stream, []);
        });
    }

    fn want(&mut self, stream: StreamId, number: u64) {
        self.wishes.add(&[Fence { stream, number }].into_iter().collect());
    }

    fn target(&mut self, in_flight: usize) -> Option<Flush> {
        self.policy.target(&self.timeline, &mut self.wishes, in_flight, self.now)
    }

    /// Takes what the policy names, unbounded: (stream, commands) in encoding order.
    fn submit(&mut self, in_flight: usize) -> Vec<(u32, usize)> {
        let Some(flush) = self.target(in_flight) else { return Vec::new() };
        let batch = self.timeline.plan(&flush, |_, _| true);
        self.timeline.handle_submitted(&batch);
        batch.runs.iter().map(|(stream, count)| (stream.0, *count)).collect()
    }
}

#[test]
fn an_idle_device_gets_the_first_command_at_once() {
    assert_eq!(Case::with(0).submit(0), []);
    assert_eq!(Case::with(1).submit(0), [(0, 1)]);
}

#[test]
fn a_busy_device_gets_a_batch_when_it_is_worth_it_or_was_left_long_enough() {
    assert_eq!(Case::with(BATCH).submit(1), [(0, BATCH as usize)]);
    let mut case = Case::with(BATCH - 1);
    assert_eq!(case.submit(1), []);
    case.now += PATIENCE - Duration::from_micros(1);
    assert_eq!(case.submit(1), []);
    case.now += Duration::from_micros(1);
    assert_eq!(case.submit(1), [(0, BATCH as usize - 1)]);
    // What comes after that begins to wait anew.
    case.enqueue(MAIN, 1);
    assert_eq!(case.submit(1), []);
    case.now += PATIENCE;
    assert_eq!(case.submit(1), [(0, 1)]);
    // An empty backlog is not a backlog that is left.
    assert_eq!(case.submit(1), []);
    case.now += PATIENCE;
    case.enqueue(MAIN, 1);
    assert_eq!(case.submit(1), []);
}

#[test]
fn small_uploads_alone_are_left_for_a_moment() {
    for in_flight in [0, 1] {
        let mut case = Case::with(BATCH);
        case.policy.light = true;
        assert_eq!(case.submit(in_flight), []);
        case.now += LIGHT_PATIENCE - Duration::from_micros(1);
        assert_eq!(case.submit(in_flight), []);
        case.now += Duration::from_micros(1);
        assert_eq!(case.submit(in_flight), [(0, BATCH as usize)]);
        // Not where somebody waits, nor where something else was enqueued.
        case.enqueue(MAIN, BATCH);
        assert_eq!(case.submit(in_flight), []);
        case.want(MAIN, BATCH + 1);
        assert_eq!(case.submit(in_flight), [(0, 1)]);
        case.policy.light = false;
        case.enqueue(MAIN, 1);
        assert_eq!(case.submit(in_flight), [(0, BATCH as usize)]);
    }
}

#[test]
fn a_driver_that_has_its_fill_gets_nothing() {
    let mut case = Case::with(1000);
    let urgent = case.timeline.new_stream_with_priority(-3);
    case.enqueue(urgent, 1);
    case.want(MAIN, 1000);
    assert_eq!(case.submit(MOST_IN_FLIGHT), []);
    case.now += Duration::from_secs(10);
    assert_eq!(case.submit(MOST_IN_FLIGHT), []);
    assert_eq!(case.submit(MOST_IN_FLIGHT - 1), [(urgent.0, 1)]);
}

#[test]
fn the_first_wish_goes_first_and_near_ones_join() {
    let mut case = Case::with(1000);
    [100, 140, 500].iter().for_each(|number| case.want(MAIN, *number));
    let taken: Vec<usize> = (0..3).map(|_| case.submit(0)[0].1).collect();
    assert_eq!(taken, [140, 360, 500]);
    assert_eq!(case.submit(0), []);
}

#[test]
fn a_wish_of_many_submissions_takes_turns_with_those_of_other_streams() {
    let mut case = Case::with(1000);
    let (side, idle) = (case.timeline.new_stream(), case.timeline.new_stream());
    case.enqueue(side, 150);
    case.enqueue(idle, 1);
    // 100 commands at a time.
    let submit = |case: &mut Case| {
        let flush = case.target(0).unwrap();
        let mut count = 0;
        let batch = case.timeline.plan(&flush, |_, _| {
            count += 1;
            count <= 100
        });
        case.timeline.handle_submitted(&batch);
        batch.runs[0]
    };
    // The second on the first stream does not go ahead of the first.
    [(MAIN, 250), (MAIN, 1000), (side, 150)].into_iter().for_each(|(stream, number)| case.want(stream, number));
    assert_eq!(submit(&mut case), (MAIN, 100));
    case.want(idle, 1);
    assert_eq!(submit(&mut case), (side, 100));
    let order: Vec<_> = (0..5).map(|_| submit(&mut case)).collect();
    assert_eq!(order, [(MAIN, 100), (idle, 1), (side, 50), (MAIN, 50), (MAIN, 100)]);
}

#[test]
fn a_flush_takes_its_stream_and_what_that_depends_on() {
    let mut case = Case::default();
    let (side, idle) = (case.timeline.new_stream(), case.timeline.new_stream());
    case.timeline.begin_block(BlockId(0), FenceSet::new());
    case.timeline.enqueue(MAIN, [(BlockId(0), Access::Write)]);
    case.enqueue(MAIN, 10);
    case.enqueue(idle, 10);
    case.timeline.enqueue(side, [(BlockId(0), Access::Read)]);
    case.want(side, 1);
    assert_eq!(case.submit(1), [(0, 1), (side.0, 1)]);
    assert_eq!(case.submit(1), [], "the rest is not worth a submission yet");
}

#[test]
fn urgent_streams_go_first_with_what_they_need() {
    let mut case = Case::default();
    let urgent = case.timeline.new_stream_with_priority(-1);
    case.timeline.begin_block(BlockId(0), FenceSet::new());
    for number in 0..1000 {
        case.timeline.enqueue(MAIN, (number == 9).then_some((BlockId(0), Access::Write)));
    }
    case.want(MAIN, 700);
    case.enqueue(urgent, 1);
    assert_eq!(case.submit(1), [(urgent.0, 1)], "at once, before what somebody waits for");
    case.timeline.enqueue(urgent, [(BlockId(0), Access::Read)]);
    assert_eq!(case.submit(1), [(0, 10), (urgent.0, 1)]);
    assert_eq!(case.submit(0), [(0, 690)]);
    assert_eq!(case.submit(0), [(0, 300)]);
}

#[test]
fn streams_go_in_the_order_of_their_priorities() {
    let mut case = Case::with(1);
    let streams = [0, -2, -3, -1, -3].map(|priority| case.timeline.new_stream_with_priority(priority));
    streams.iter().rev().for_each(|stream| case.enqueue(*stream, 2));
    let id = |index: usize| streams[index].0;
    assert_eq!(case.submit(1), [(id(4), 2), (id(2), 2)], "both of the most urgent, as they were enqueued");
    assert_eq!(case.submit(1), [(id(1), 2)]);
    assert_eq!(case.submit(1), [(id(3), 2)]);
    // The last have the same priority: that is nobody's hurry.
    assert_eq!(case.submit(1), []);
    assert_eq!(case.submit(0), [(0, 1), (id(0), 2)]);
}

/// Kernel 7 takes so long for each unit of work.
/// A stream that waits for another device, whatever its priority and whoever waits for it.
#[test]
fn what_is_held_is_left_and_the_rest_goes_on() {
    let mut case = Case::with(1);
    let urgent = case.timeline.new_stream_with_priority(-2);
    let held = {
        case.enqueue(urgent, 2);
        case.timeline.hold(urgent)
    };
    case.enqueue(urgent, 3);
    case.want(urgent, 5);
    // One command of the urgent stream stands before what is held.
    assert_eq!(case.submit(0), [(1, 1)]);
    assert_eq!(case.submit(0), [(0, 1)]);
    assert_eq!((case.submit(0), case.timeline.backlog(), case.timeline.ready()), (vec![], 4, 0));
    // Nobody's patience ends, and what comes after that begins to wait anew.
    case.now += 10 * PATIENCE;
    assert_eq!(case.submit(1), []);
    case.enqueue(MAIN, 1);
    case.want(MAIN, 2);
    assert_eq!(case.submit(1), [(0, 1)]);
    case.timeline.open(held);
    assert_eq!(case.submit(1), [(1, 4)]);
}

fn measured(nanos: u64) -> Estimates {
    let mut estimates = Estimates::default();
    (0..40).for_each(|_| estimates.learn(&[(PipelineId(7), 1000)], Duration::from_nanos(1000 * nanos)));
    estimates
}

#[test]
fn a_submission_is_bounded_by_commands_and_by_times() {
    let (estimates, mut budget) = (measured(1), Budget::default());
    assert_eq!(admitted(&estimates, dispatch(7, 1)), MOST_COMMANDS);
    let time = Load { times: 1, ..Load::default() };
    assert_eq!((0..5000).take_while(|_| budget.admit(&estimates, time)).count(), MOST_TIMES);
    assert!(budget.admit(&estimates, dispatch(7, 1)));
}

#[test]
fn a_submission_is_bounded_by_estimated_work_and_the_estimate_follows_the_device() {
    let mut estimates = measured(5_000);
    assert!((199..=200).contains(&admitted(&estimates, dispatch(7, 100))));
    // Measured: 10 ms for each dispatch of 100 units. Up at once.
    estimates.learn(&[(PipelineId(7), 100)], Duration::from_millis(10));
    assert!((9..=10).contains(&admitted(&estimates, dispatch(7, 100))));
    // Down half way on a logarithmic scale: 100 times as fast is at first believed to be 10 times.
    estimates.learn(&[(PipelineId(7), 100)], Duration::from_micros(100));
    assert!((95..=101).contains(&admitted(&estimates, dispatch(7, 100))));
    // Work that nothing is known of teaches nothing.
    estimates.learn(&[], Duration::from_secs(1));
    assert!((95..=101).contains(&admitted(&estimates, dispatch(7, 100))));
}

/// Kernel 1 has always been beside a hundred of kernel 0, which takes hardly any time.
#[test]
fn a_kernel_that_shares_submissions_is_bounded_by_what_it_may_cost_at_worst() {
    let mut estimates = Estimates::default();
    (0..40).for_each(|_| estimates.learn(&[(PipelineId(0), 100), (PipelineId(1), 1)], Duration::from_millis(10)));
    // Of both together no more than the bound, of kernel 1 so much less that it may be all that takes time.
    assert!((950..=MOST_COMMANDS).contains(&admitted(&estimates, dispatch(0, 1))));
    let fits = (WORST_WORK.as_micros() / 10_000) as usize;
    assert!((fits - 1..=fits).contains(&admitted(&estimates, dispatch(1, 1))), "{}", admitted(&estimates, dispatch(1, 1)));
    // Alone it shows what it costs.
    (0..40).for_each(|_| estimates.learn(&[(PipelineId(1), 100)], Duration::from_micros(100)));
    assert_eq!(admitted(&estimates, dispatch(1, 1)), MOST_COMMANDS);
    // Where even the most of all is too little for what a submission took, it was too little of all.
    estimates.learn(&[(PipelineId(0), 1), (PipelineId(1), 1)], Duration::from_millis(100));
    assert_eq!(admitted(&estimates, dispatch(0, 1)), 1);
    assert!((90..=110).contains(&admitted(&estimates, dispatch(1, 1))), "{}", admitted(&estimates, dispatch(1, 1)));
}

#[test]
fn a_kernel_that_was_never_measured_goes_once() {
    let (estimates, mut budget) = (measured(1), Budget::default());
    let admitted: Vec<bool> = [7, 1, 2, 7, 3].iter().map(|kernel| budget.admit(&estimates, dispatch(*kernel, 1))).collect();
    assert_eq!(admitted, [true; 5]);
    assert!(!budget.admit(&estimates, dispatch(2, 1)) && budget.admit(&estimates, dispatch(7, 1)));
}

/// What was enqueued before it does not wait until it is compiled; what comes after it does.
#[test]
fn a_kernel_that_is_not_compiled_yet_is_the_first_of_its_submission() {
    let (estimates, new) = (measured(1), Load { compiles: true, ..dispatch(1, 1) });
    let mut budget = Budget::default();
    assert!(budget.admit(&estimates, dispatch(0, 1)) && !budget.admit(&estimates, new));
    let mut budget = Budget::default();
    assert!(budget.admit(&estimates, new) && budget.admit(&estimates, dispatch(0, 1)) && !budget.admit(&estimates, new));
}

/// burn, llama.cpp: a chain of large kernels without a wait went to the driver as one submission, which it ended. Here on a
/// device that takes its time, for kernels far longer and shorter than the first guess.
#[test]
fn field_05_a_chain_of_large_kernels_is_cut_into_bounded_submissions() {
    let bound = MOST_WORK.as_nanos() as f64;
    for (amount, nanos) in [(128, 60_000.0), (128, 1_000.0), (128, 100.0), (1, 5e8), (4096, 2e5), (20_000, 2e6)] {
        let (load, work) = (dispatch(3, amount), amount as f64 * nanos);
        let (mut estimates, mut left, mut submissions) = (Estimates::default(), 600, Vec::new());
        let mut in_flight = VecDeque::new();
        while left > 0 {
            if in_flight.len() == MOST_IN_FLIGHT {
                let count: usize = in_flight.pop_front().unwrap_or_default();
                estimates.learn(&[(PipelineId(3), amount * count as u64)], Duration::from_nanos((work * count as f64) as u64));
            }
            let mut budget = Budget::default();
            // As the plan does: the first is always taken.
            budget.admit(&estimates, load);
            let count = 1 + (1..left).take_while(|_| budget.admit(&estimates, load)).count();
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
fn a_submission_is_bounded_by_bytes() {
    let (estimates, mut budget) = (Estimates::default(), Budget::default());
    assert!(budget.admit(&estimates, copy(MOST_BYTES - 4)));
    assert!(!budget.admit(&estimates, copy(8)));
    assert!(budget.admit(&estimates, copy(4)));
}

/// Host, queue and device on a clock of microseconds: the queue looks when it is woken while it sleeps, else every [`LOOK`].
#[derive(Default)]
struct Clocked {
    case: Case,
    estimates: Estimates,
    /// Recorded commands: when they were enqueued, and what they are.
    recorded: VecDeque<(u64, Load)>,
    in_flight: VecDeque<InFlight>,
    /// Until when the driver had its fill, in sum, so that waits for it can be left out.
    full: u64,
    submissions: Vec<Submitted>,
    /// Per command: the time it was left while the driver had room.
    left: Vec<u64>,
    /// What `full` was when each recorded command was enqueued.
    full_then: VecDeque<u64>,
}

struct InFlight {
    /// When it will be done.
    done: u64,
    id: SubmissionId,
    work: Vec<(PipelineId, u64)>,
    micros: u64,
}

struct Submitted {
    commands: usize,
    micros: u64,
}

impl Clocked {
    /// `cost` is what the device really takes for a command, in microseconds.
    fn look(&mut self, now: u64, cost: &dyn Fn(Load) -> u64) {
        while self.in_flight.front().is_some_and(|first| first.done <= now) {
            let Some(InFlight { id, work, micros, .. }) = self.in_flight.pop_front() else { return };
            self.estimates.learn(&work, Duration::from_micros(micros));
            self.case.timeline.handle_completed(id);
        }
        self.case.now = Duration::from_micros(now);
        while let Some(flush) = self.case.target(self.in_flight.len()) {
            let mut budget = Budget::default();
            let batch = self.case.timeline.plan(&flush, |_, n| budget.admit(&self.estimates, self.recorded[n].1));
            let id = self.case.timeline.handle_submitted(&batch);
            let (mut micros, mut work) = (30, Vec::<(PipelineId, u64)>::new());
            for (enqueued, load) in self.recorded.drain(..batch.len) {
                micros += cost(load);
                let kernel = load.kernel.into_iter();
                kernel.for_each(|(pipeline, groups)| match work.iter_mut().find(|(known, _)| *known == pipeline) {
                    Some((_, sum)) => *sum += groups,
                    None => work.push((pipeline, groups)),
                });
                let full = self.full - self.full_then.pop_front().unwrap_or(0);
                self.left.push((now - enqueued).saturating_sub(full));
            }
            let start = self.in_flight.back().map_or(now, |last| last.done.max(now));
            self.in_flight.push_back(InFlight { done: start + micros, id, work, micros });
            self.submissions.push(Submitted { commands: batch.len, micros });
        }
    }

    /// The host enqueues `commands` one after the other, each so many microseconds after the one before.
    fn run(commands: impl Iterator<Item = (u64, Load)>, cost: &dyn Fn(Load) -> u64) -> Clocked {
        let mut clocked = Clocked::default();
        let (mut now, mut next_look) = (0, 0);
        // The queue's looks up to a moment; asleep it looks at nothing.
        let looks = |clocked: &mut Clocked, now: &mut u64, next_look: &mut u64, until: u64| {
            while !clocked.in_flight.is_empty() && *now < until {
                // A look ends when the oldest submission is done.
                let done = clocked.in_flight.front().map_or(u64::MAX, |first| first.done);
                let to = until.min(*next_look).min(done.max(*now + 1));
                if clocked.in_flight.len() >= MOST_IN_FLIGHT {
                    clocked.full += to - *now;
                }
                *now = to;
                if *now == *next_look || *now >= done {
                    *next_look = *now + LOOK.as_micros() as u64;
                    clocked.look(*now, cost);
                }
            }
            *now = until.min(u64::MAX - 1).max(*now);
        };
        for (after, load) in commands {
            let until = now + after;
            looks(&mut clocked, &mut now, &mut next_look, until);
            clocked.case.enqueue(MAIN, 1);
            clocked.recorded.push_back((now, load));
            clocked.full_then.push_back(clocked.full);
            if clocked.in_flight.is_empty() {
                clocked.look(now, cost);
                next_look = now + LOOK.as_micros() as u64;
            }
        }
        let until = now + 1_000_000_000;
        looks(&mut clocked, &mut now, &mut next_look, until);
        assert!(clocked.recorded.is_empty() && clocked.case.timeline.is_idle(), "all is done at the end, and nobody called");
        clocked
    }
}

#[test]
fn batches_grow_with_the_backlog() {
    // A host that is 20 times as fast as the device.
    let clocked = Clocked::run((0..20_000).map(|_| (1, dispatch(0, 1))), &|_| 20);
    let sizes: Vec<usize> = clocked.submissions.iter().map(|submitted| submitted.commands).collect();
    assert_eq!(sizes[0], 1, "at once");
    let largest: Vec<usize> =
        sizes.iter().scan(0, |most, size| Some(std::mem::replace(most, (*most).max(*size)).max(*size))).collect();
    let steps = largest.windows(2).take(8).filter(|pair| pair[1] > pair[0]).count();
    assert!(steps >= 2 && *sizes.iter().max().unwrap() >= 512, "{sizes:?}");
    assert!(sizes.len() <= 20_000 / BATCH as usize, "{} submissions", sizes.len());
    // A host that is slower than the device: every command is worth a submission.
    let slow = Clocked::run((0..100).map(|_| (200, dispatch(0, 1))), &|_| 20);
    assert_eq!(slow.submissions.len(), 100);
}

#[test]
fn what_is_enqueued_reaches_the_driver_within_10_ms_without_any_call() {
    let most = (1..=300).map(|seed| {
        let mut random = Random::new(seed);
        // Pauses and costs of very different sizes; the device is often busy for long.
        let pause = [1, 10, 300, 20_000][random.below(4)];
        let cost = [1, 50, 3_000, 80_000][random.below(4)];
        let commands: Vec<(u64, Load)> = (0..200).map(|_| (random.below(pause + 1) as u64, dispatch(0, 1))).collect();
        let clocked = Clocked::run(commands.into_iter(), &|_| cost);
        clocked.left.into_iter().max().unwrap_or(0)
    });
    let most = Duration::from_micros(most.max().unwrap());
    assert!(most >= PATIENCE, "{most:?}: the rule was never needed");
    assert!(most <= Duration::from_millis(10), "{most:?}");
}

#[test]
fn once_measured_no_submission_takes_longer_than_its_bound() {
    for seed in 1..=300 {
        let mut random = Random::new(seed);
        let kernels = 1 + random.below(8) as u64;
        let micros: Vec<u64> = (0..kernels).map(|_| [1, 20, 500, 30_000][random.below(4)]).collect();
        // In phases, each with kernels of its own: what has shared its submissions with others goes alone later.
        let commands = (0..10).flat_map(|phase| {
            let among: Vec<usize> = (0..1 + random.below(4)).map(|_| random.below(kernels)).collect();
            let mut kernel = || match phase {
                // At first all of them.
                0 => random.below(kernels),
                // One of hundreds.
                _ if phase % 3 == 0 && random.below(200) > 0 => among[0],
                _ => among[random.below(among.len() as u64)],
            };
            let drawn: Vec<usize> = (0..400).map(|_| kernel()).collect();
            drawn.into_iter().map(|kernel| (1, dispatch(kernel as u32, 1 + random.below(3) as u64))).collect::<Vec<_>>()
        });
        let cost = |load: Load| load.kernel.map_or(0, |(pipeline, groups)| micros[pipeline.0 as usize] * groups);
        let clocked = Clocked::run(commands.collect::<Vec<_>>().into_iter(), &cost);
        // The first guess may be far off; a few submissions correct it.
        let settled = clocked.submissions.iter().skip(16).filter(|submitted| submitted.commands > 1);
        let longest = settled.map(|submitted| submitted.micros).max().unwrap_or(0);
        assert!(longest <= 3 * MOST_WORK.as_micros() as u64, "seed {seed}: {longest} us, costs {micros:?}");
    }
}

#[test]
fn a_command_that_exceeds_every_bound_goes_alone() {
    let huge = Clocked::run((0..5).map(|_| (1, dispatch(0, 1 << 30))), &|_| 1000);
    assert!(huge.submissions.iter().all(|submitted| submitted.commands == 1) && huge.submissions.len() == 5);
    assert_eq!(huge.case.timeline.completed(MAIN), 5);
}
