//! Losses read late: the copy to the host is enqueued with its batch, a thread collects it when it comes. The host stays ahead
//! of the device by about a second of work or two batches, so that the device never waits for it and the end never for long.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use linn::tensor::TensorRead;

/// Batches that may be enqueued beyond the last loss that was read.
pub const MOST_BEHIND: u64 = 8;

/// The work that may be enqueued beyond it, where it is more than two batches: what a Ctrl-C waits for.
const WORK_BEHIND: Duration = Duration::from_secs(1);

/// Batches that may always be enqueued beyond it, however long they take: with one, llvmpipe was idle for 5 % of the time.
const LEAST_BEHIND: u64 = 2;

/// A loss and when it was there.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub value: f32,
    pub at: Instant,
}

/// Collects the losses of steps on a thread. A step is one batch or several, whose last loss is the step's.
pub struct Losses {
    sender: Sender<TensorRead<f32>>,
    /// How many batches may be ahead from now on: one message for every loss read.
    room: Receiver<u64>,
    thread: JoinHandle<linn::Result<Vec<Loss>>>,
    batches_per_step: u64,
    ahead: Cell<u64>,
    read: Cell<u64>,
    pushed: Cell<u64>,
    behind: Cell<u64>,
    waits: Arc<AtomicU64>,
}

/// All that was collected.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    pub losses: Vec<Loss>,
    /// How often the host waited because it was far enough ahead.
    pub waits: u64,
    /// The most steps that were enqueued beyond the last loss read.
    pub most_behind: u64,
}

impl Losses {
    /// `report` is called with the loss of every step and its number, from 1, on the collecting thread. `waits` counts the waits
    /// for room.
    pub fn new(batches_per_step: u64, waits: Arc<AtomicU64>, report: impl FnMut(usize, f32) + Send + 'static) -> Losses {
        let (sender, losses) = channel();
        let (give_room, room) = channel();
        let thread = std::thread::spawn(move || collect(losses, batches_per_step, report, &give_room));
        let count = || Cell::new(0);
        let ahead = Cell::new(LEAST_BEHIND);
        Losses { sender, room, thread, batches_per_step, ahead, read: count(), pushed: count(), behind: count(), waits }
    }

    /// To be called before a batch is enqueued: waits where the host is far enough ahead. False: the collector has stopped, and
    /// [`Losses::finish`] says why.
    pub fn wait_for_room(&self) -> bool {
        if !self.look() {
            return false;
        }
        if self.has_room() {
            return true;
        }
        self.waits.fetch_add(1, Ordering::Release);
        while !self.has_room() {
            match self.room.recv() {
                Ok(ahead) => self.take(ahead),
                Err(_) => return false,
            }
        }
        true
    }

    /// The loss of a batch that was enqueued; the last of a step has the step's.
    pub fn push(&self, loss: TensorRead<f32>) {
        self.pushed.set(self.pushed.get() + 1);
        // A collector that has stopped is found by `wait_for_room`.
        let _ = self.sender.send(loss);
        self.look();
        let steps = |batches: &Cell<u64>| batches.get() / self.batches_per_step;
        self.behind.set(self.behind.get().max(steps(&self.pushed) - steps(&self.read)));
    }

    /// Everything, once the last loss has come.
    pub fn finish(self) -> Result<Collected> {
        drop(self.sender);
        let panicked = |_| anyhow!("the thread that reads losses panicked\nhelp: report this as a bug");
        let losses = self.thread.join().map_err(panicked)??;
        Ok(Collected { losses, waits: self.waits.load(Ordering::Acquire), most_behind: self.behind.get() })
    }

    /// Takes what the collector has sent. False: it has stopped.
    fn look(&self) -> bool {
        loop {
            match self.room.try_recv() {
                Ok(ahead) => self.take(ahead),
                Err(why) => return why == TryRecvError::Empty,
            }
        }
    }

    fn take(&self, ahead: u64) {
        self.read.set(self.read.get() + 1);
        self.ahead.set(ahead);
    }

    fn has_room(&self) -> bool {
        self.pushed.get() - self.read.get() < self.ahead.get()
    }
}

fn collect(
    receiver: Receiver<TensorRead<f32>>,
    batches_per_step: u64,
    mut report: impl FnMut(usize, f32),
    give_room: &Sender<u64>,
) -> linn::Result<Vec<Loss>> {
    let mut losses = Vec::new();
    let mut ends = VecDeque::new();
    for (batch, loss) in (1..).zip(receiver) {
        let value = pollster::block_on(loss)?.first().copied().unwrap_or(f32::NAN);
        let at = Instant::now();
        if batch % batches_per_step == 0 {
            losses.push(Loss { value, at });
            report(losses.len(), value);
        }
        // Small batches share a submission and come together, so the time is taken over several.
        ends.push_back(at);
        if ends.len() as u64 > MOST_BEHIND + 1 {
            ends.pop_front();
        }
        // Nobody wants room after the last step.
        let _ = give_room.send(most_ahead(&ends));
    }
    Ok(losses)
}

/// How many batches are [`WORK_BEHIND`], by the times at which the last ones ended.
fn most_ahead(ends: &VecDeque<Instant>) -> u64 {
    let (Some(first), Some(last), 2..) = (ends.front(), ends.back(), ends.len()) else { return LEAST_BEHIND };
    let batch = last.duration_since(*first) / (ends.len() - 1) as u32;
    let fitting = WORK_BEHIND.as_nanos() / batch.as_nanos().max(1);
    fitting.clamp(LEAST_BEHIND.into(), MOST_BEHIND.into()) as u64
}
