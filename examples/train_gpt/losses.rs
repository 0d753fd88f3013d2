//! Losses read late: the copy to the host is enqueued with the step, a thread collects it when it comes.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Result, anyhow};
use linn::tensor::TensorRead;

/// Steps that may be enqueued beyond the last loss that was read.
pub const MOST_BEHIND: u64 = 8;

/// A loss and when it was there.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub value: f32,
    pub at: Instant,
}

/// Collects the losses of steps on a thread.
pub struct Losses {
    sender: Sender<TensorRead<f32>>,
    /// One message for every step that may be enqueued.
    room: Receiver<()>,
    thread: JoinHandle<linn::Result<Vec<Loss>>>,
    read: Arc<AtomicU64>,
    pushed: Cell<u64>,
    behind: Cell<u64>,
    waits: Arc<AtomicU64>,
}

/// All that was collected.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    pub losses: Vec<Loss>,
    /// How often the host waited because it was 8 steps ahead.
    pub waits: u64,
    /// The most steps that were enqueued beyond the last loss read.
    pub most_behind: u64,
}

impl Losses {
    /// `report` is called with every loss and its number, from 1, on the collecting thread. `waits` counts the waits for room.
    pub fn new(waits: Arc<AtomicU64>, report: impl FnMut(usize, f32) + Send + 'static) -> Losses {
        let (sender, losses) = channel();
        let (give_room, room) = channel();
        for _ in 0..MOST_BEHIND {
            let _ = give_room.send(());
        }
        let read = Arc::new(AtomicU64::new(0));
        let count = read.clone();
        let thread = std::thread::spawn(move || collect(losses, report, &count, &give_room));
        Losses { sender, room, thread, read, pushed: Cell::new(0), behind: Cell::new(0), waits }
    }

    /// To be called before a step is enqueued: waits where that would be 9 steps beyond the last loss read. False: the collector
    /// has stopped, and [`Losses::finish`] says why.
    pub fn wait_for_room(&self) -> bool {
        match self.room.try_recv() {
            Ok(()) => true,
            Err(TryRecvError::Disconnected) => false,
            Err(TryRecvError::Empty) => {
                self.waits.fetch_add(1, Ordering::Release);
                self.room.recv().is_ok()
            }
        }
    }

    /// The loss of a step that was enqueued.
    pub fn push(&self, loss: TensorRead<f32>) {
        self.pushed.set(self.pushed.get() + 1);
        let behind = self.pushed.get() - self.read.load(Ordering::Acquire);
        self.behind.set(self.behind.get().max(behind));
        // A collector that has stopped is found by `wait_for_room`.
        let _ = self.sender.send(loss);
    }

    /// Everything, once the last loss has come.
    pub fn finish(self) -> Result<Collected> {
        drop(self.sender);
        let panicked = |_| anyhow!("the thread that reads losses panicked\nhelp: report this as a bug");
        let losses = self.thread.join().map_err(panicked)??;
        Ok(Collected { losses, waits: self.waits.load(Ordering::Acquire), most_behind: self.behind.get() })
    }
}

fn collect(
    receiver: Receiver<TensorRead<f32>>,
    mut report: impl FnMut(usize, f32),
    read: &AtomicU64,
    give_room: &Sender<()>,
) -> linn::Result<Vec<Loss>> {
    let mut losses = Vec::new();
    for loss in receiver {
        let value = pollster::block_on(loss)?.first().copied().unwrap_or(f32::NAN);
        losses.push(Loss { value, at: Instant::now() });
        report(losses.len(), value);
        read.fetch_add(1, Ordering::Release);
        // Nobody wants room after the last step.
        let _ = give_room.send(());
    }
    Ok(losses)
}
