//! Losses read late: the copy to the host is enqueued with the step, a thread collects it when it comes.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Result, anyhow};
use linn::tensor::TensorRead;

/// Steps that may be on their way before `push` waits.
const MOST_BEHIND: usize = 8;

/// A loss and when it was there.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub value: f32,
    pub at: Instant,
}

/// Collects the losses of steps on a thread.
pub struct Losses {
    sender: SyncSender<TensorRead<f32>>,
    thread: JoinHandle<linn::Result<Vec<Loss>>>,
    waits: Cell<u64>,
}

impl Losses {
    /// `report` is called with every loss, on the collecting thread.
    pub fn new(report: impl Fn(usize, f32) + Send + 'static) -> Losses {
        // The thread itself holds one more.
        let (sender, receiver) = sync_channel(MOST_BEHIND - 1);
        Losses { sender, thread: std::thread::spawn(move || collect(receiver, report)), waits: Cell::new(0) }
    }

    /// The loss of the next step; waits only where the host is more than 8 steps ahead. False: the collector has stopped, and
    /// [`Losses::finish`] says why.
    pub fn push(&self, loss: TensorRead<f32>) -> bool {
        match self.sender.try_send(loss) {
            Ok(()) => true,
            Err(TrySendError::Full(loss)) => {
                self.waits.set(self.waits.get() + 1);
                self.sender.send(loss).is_ok()
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// All losses, once the last has come, and how often `push` waited.
    pub fn finish(self) -> Result<(Vec<Loss>, u64)> {
        drop(self.sender);
        let losses =
            self.thread.join().map_err(|_| anyhow!("the thread that reads losses panicked\nhelp: report this as a bug"))??;
        Ok((losses, self.waits.get()))
    }
}

fn collect(receiver: Receiver<TensorRead<f32>>, report: impl Fn(usize, f32)) -> linn::Result<Vec<Loss>> {
    let mut losses = Vec::new();
    for read in receiver {
        let value = pollster::block_on(read)?.first().copied().unwrap_or(f32::NAN);
        losses.push(Loss { value, at: Instant::now() });
        report(losses.len(), value);
    }
    Ok(losses)
}
