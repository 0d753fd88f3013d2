//! What `Shared`, `enqueue` and `Queue` do with the signals, without a driver.

use std::time::Duration;

use linn::ids::{Fence, FenceSet, Horizons, StreamId};
use linn::timeline::{Flush, SubmissionId, Timeline};
use shuttle::rand::Rng;
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::thread;

use super::signals::{Signals, Sleeps};
use crate::device::wishes::Wishes;
use crate::queue::policy::{LOOK, MOST_IN_FLIGHT, Policy};

/// Commands at which callers wait for room, and of their own stream, that make them part of the flood.
pub const MOST_RECORDED: u64 = 2;
const FLOODS: u64 = 2;
/// Commands in one submission.
const MOST_COMMANDS: usize = 2;

/// A signal that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The queue is never notified.
    NobodyWakes,
    /// Callers who wait for room are never notified.
    NobodyTells,
    /// The queue goes to sleep without another look.
    SleepsUnasked,
    /// A caller wakes the queue before there is something to see.
    WokenTooSoon,
    /// The last handle does not wake the queue.
    StopNotWoken,
    /// A loss does not answer those who wait for work.
    LossNotAnswered,
    /// A loss is not told to those who wait for room.
    LossNotTold,
    /// A queue that closes does not tell those who wait for room.
    ClosesSilently,
    /// Whoever enqueues in a flood waits for room, though it is another's.
    EverybodyWaits,
    /// The other device has passed the event, and the queue is not woken.
    OpenedSilently,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Lost,
}

/// An answer that somebody waits for: once given it stays.
#[derive(Clone, Default)]
pub struct Answer(Arc<(Mutex<Option<Outcome>>, Condvar)>);

impl Answer {
    fn give(&self, outcome: Outcome) {
        self.0.0.lock().unwrap().get_or_insert(outcome);
        self.0.1.notify_all();
    }

    pub fn wait(&self) -> Outcome {
        let mut answer = self.0.0.lock().unwrap();
        loop {
            match *answer {
                Some(outcome) => return outcome,
                None => answer = self.0.1.wait(answer).unwrap(),
            }
        }
    }
}

#[derive(Default)]
struct Core {
    timeline: Timeline,
    wishes: Wishes,
    waiters: Vec<(FenceSet, Answer)>,
    released: u64,
    released_ever: u64,
    forgotten: u64,
    watchers: Vec<(u64, Answer)>,
    lost: bool,
    stop: bool,
    ended: bool,
    sleeps: bool,
    /// Streams that have waited for room, once for each time.
    room: Vec<StreamId>,
}

impl Sleeps for Core {
    fn sleeps(&mut self) -> &mut bool {
        &mut self.sleeps
    }
}

pub struct Shared {
    core: Mutex<Core>,
    signals: Signals,
    fault: Option<Fault>,
}

/// A handle; the last one ends the queue.
#[derive(Clone)]
pub struct Device(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    queue: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // After a deadlock the scenario is taken apart, and its threads run no more.
        if std::thread::panicking() {
            return;
        }
        let mut core = self.shared.lock();
        core.stop = true;
        if self.shared.has(Fault::StopNotWoken) {
            drop(core);
        } else {
            self.shared.signals.wake(core);
        }
        let queue = self.queue.lock().unwrap().take();
        queue.into_iter().for_each(|queue| queue.join().unwrap());
    }
}

impl Shared {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap()
    }

    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// The end of the process: the queue ends though there are handles.
    pub fn stop(&self) {
        let mut core = self.lock();
        core.stop = true;
        self.signals.wake(core);
    }
}

impl Device {
    pub fn open(fault: Option<Fault>) -> Device {
        let shared = Arc::new(Shared { core: Mutex::default(), signals: Signals::default(), fault });
        let mut queue = Queue { shared: shared.clone(), policy: Policy::default(), in_flight: Vec::new(), now: Duration::ZERO };
        let queue = Mutex::new(Some(thread::spawn(move || queue.run())));
        Device(Arc::new(Handle { shared, queue }))
    }

    pub fn shared(&self) -> Arc<Shared> {
        self.0.shared.clone()
    }

    pub fn new_stream(&self) -> StreamId {
        self.0.shared.lock().timeline.new_stream()
    }

    /// As `stream::enqueue`.
    pub fn enqueue(&self, stream: StreamId) {
        let shared = &self.0.shared;
        let mut core = shared.lock();
        if core.lost {
            return;
        }
        if shared.has(Fault::WokenTooSoon) {
            shared.signals.wake(core);
            core = shared.lock();
        }
        core.timeline.enqueue(stream, []);
        let share = if shared.has(Fault::EverybodyWaits) { 0 } else { FLOODS };
        let flooded = core.timeline.is_flooded(stream, MOST_RECORDED, share);
        match shared.has(Fault::WokenTooSoon) {
            true => drop(core),
            false => shared.signals.wake(core),
        }
        if flooded {
            let mut core = shared.lock();
            while core.timeline.is_flooded(stream, MOST_RECORDED / 2, share) && !core.lost && !core.stop {
                core.room.push(stream);
                core = shared.signals.wait(core);
            }
        }
    }

    /// How often who enqueued on the stream has waited for room.
    pub fn waits_for_room(&self, stream: StreamId) -> usize {
        self.0.shared.lock().room.iter().filter(|waited| **waited == stream).count()
    }

    /// As `wait::hold`: a command that waits for another device.
    pub fn hold(&self, stream: StreamId) -> Fence {
        let mut core = self.0.shared.lock();
        core.timeline.enqueue(stream, []);
        let held = core.timeline.hold(stream);
        self.0.shared.signals.wake(core);
        held
    }

    /// As `Held` is dropped: the other device has come to the point.
    pub fn pass(&self, fence: Fence) {
        let shared = &self.0.shared;
        let mut core = shared.lock();
        core.timeline.open(fence);
        if !shared.has(Fault::OpenedSilently) {
            shared.signals.wake(core);
        }
    }

    /// As `Device::completion`.
    pub fn completion(&self, stream: StreamId) -> Answer {
        let (shared, answer) = (&self.0.shared, Answer::default());
        let mut core = shared.lock();
        let point = core.timeline.record(stream);
        if core.lost {
            answer.give(Outcome::Lost);
        } else if core.timeline.are_completed(&point) {
            answer.give(Outcome::Done);
        } else {
            core.wishes.add(&point);
            core.waiters.push((point, answer.clone()));
            shared.signals.wake(core);
        }
        answer
    }

    pub fn synchronize(&self, stream: StreamId) -> Outcome {
        self.completion(stream).wait()
    }

    /// A segment goes back to the driver.
    pub fn release(&self) {
        let mut core = self.0.shared.lock();
        core.released += 1;
        core.released_ever += 1;
        self.0.shared.signals.wake(core);
    }

    /// As `Shared::wait_until_forgotten`.
    pub fn wait_until_forgotten(&self) {
        let mut core = self.0.shared.lock();
        let released = core.released_ever;
        while core.forgotten < released && !core.stop {
            core = self.0.shared.signals.wait(core);
        }
    }

    /// When the default stream has done so many commands, as somebody sees it who only looks and calls nothing.
    pub fn watch(&self, commands: u64) -> Answer {
        let answer = Answer::default();
        self.0.shared.lock().watchers.push((commands, answer.clone()));
        answer
    }

    /// As `Shared::lost`.
    pub fn lose(&self) {
        let shared = &self.0.shared;
        let mut core = shared.lock();
        if core.stop {
            return;
        }
        core.lost = true;
        let orphans = if shared.has(Fault::LossNotAnswered) { Vec::new() } else { std::mem::take(&mut core.waiters) };
        if !shared.has(Fault::LossNotTold) {
            shared.signals.tell();
        }
        shared.signals.wake(core);
        orphans.iter().for_each(|(_, answer)| answer.give(Outcome::Lost));
    }
}

enum Progress {
    Worked,
    InFlight,
    Idle,
    Stop,
}

struct Queue {
    shared: Arc<Shared>,
    policy: Policy,
    in_flight: Vec<SubmissionId>,
    now: Duration,
}

impl Queue {
    fn run(&mut self) {
        let shared = self.shared.clone();
        loop {
            match self.step() {
                Progress::Worked => {}
                Progress::InFlight => self.look(),
                Progress::Idle => {
                    let core = shared.lock();
                    let nothing_asked = !core.stop && core.released == 0 && core.timeline.ready() == 0;
                    if nothing_asked || shared.has(Fault::SleepsUnasked) {
                        shared.signals.sleep(core);
                    }
                }
                Progress::Stop => return self.close(),
            }
        }
    }

    /// A look at the device, which may have done something.
    fn look(&mut self) {
        self.now += LOOK;
        thread::yield_now();
        if shuttle::rand::thread_rng().gen_range(0..3) == 0 {
            self.complete_first();
        }
    }

    fn complete_first(&mut self) {
        let id = self.in_flight.remove(0);
        let mut core = self.shared.lock();
        core.timeline.handle_completed(id);
        let executed = core.timeline.completed(StreamId::DEFAULT);
        let seen: Vec<_> = core.watchers.extract_if(.., |(commands, _)| *commands <= executed).collect();
        let (done, waiters): (Vec<_>, Vec<_>) =
            std::mem::take(&mut core.waiters).into_iter().partition(|(point, _)| core.timeline.are_completed(point));
        core.waiters = waiters;
        drop(core);
        self.shared.signals.tell();
        done.iter().for_each(|(_, answer)| answer.give(Outcome::Done));
        seen.iter().for_each(|(_, answer)| answer.give(Outcome::Done));
    }

    fn step(&mut self) -> Progress {
        let shared = self.shared.clone();
        let mut core = shared.lock();
        if core.stop {
            return Progress::Stop;
        }
        if core.lost {
            drop_recordings(&mut core);
        }
        let released = std::mem::take(&mut core.released);
        let Core { timeline, wishes, .. } = &mut *core;
        let Some(target) = self.policy.target(timeline, wishes, self.in_flight.len(), self.now) else {
            drop(core);
            self.forget(released);
            return if self.in_flight.is_empty() { Progress::Idle } else { Progress::InFlight };
        };
        let mut left = MOST_COMMANDS;
        let batch = core.timeline.plan(&target, |_, _| {
            left = left.saturating_sub(1);
            left > 0
        });
        let id = core.timeline.handle_submitted(&batch);
        drop(core);
        shared.signals.tell();
        self.forget(released);
        self.in_flight.push(id);
        assert!(self.in_flight.len() <= MOST_IN_FLIGHT);
        Progress::Worked
    }

    fn forget(&self, released: u64) {
        if released > 0 {
            self.shared.lock().forgotten += released;
            self.shared.signals.tell();
        }
    }

    fn close(&mut self) {
        while !self.in_flight.is_empty() {
            self.complete_first();
        }
        let mut core = self.shared.lock();
        drop_recordings(&mut core);
        let waiters = std::mem::take(&mut core.waiters);
        core.ended = true;
        drop(core);
        waiters.iter().for_each(|(_, answer)| answer.give(Outcome::Lost));
        if !self.shared.has(Fault::ClosesSilently) {
            self.shared.signals.tell();
        }
    }
}

fn drop_recordings(core: &mut Core) {
    core.timeline.open_all();
    let rest = core.timeline.plan(&Flush::Everything, |_, _| true);
    if rest.len > 0 {
        let id = core.timeline.handle_submitted(&rest);
        core.timeline.handle_completed(id);
    }
}
