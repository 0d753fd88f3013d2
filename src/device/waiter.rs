//! Who waits for the device: futures of the program, and streams of other devices.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use futures_channel::oneshot;

use crate::device::Shared;
use crate::ids::Fence;

/// Who is told that commands have been executed. Dropped, because they never will be, it is told too.
pub(crate) enum Waiter {
    /// A future.
    Future(oneshot::Sender<()>),
    /// A stream of another device.
    Stream(Held),
}

impl Waiter {
    pub(crate) fn tell(self) {
        match self {
            Waiter::Future(sender) => answer(sender, ()),
            Waiter::Stream(held) => drop(held),
        }
    }
}

/// A command that its device holds back until this is dropped.
pub(crate) struct Held {
    pub(crate) shared: Weak<Shared>,
    pub(crate) fence: Fence,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut core = shared.lock();
            core.timeline.open(self.fence);
            shared.wake(core);
        }
    }
}

/// Answers a future. No lock may be held: its waker is the program's.
pub(crate) fn answer<T>(sender: oneshot::Sender<T>, answer: T) {
    contained(|| _ = sender.send(answer));
}

/// These will never be answered, which wakes whoever waits for them. No lock may be held.
pub(crate) fn abandon<T>(senders: impl IntoIterator<Item = T>) {
    // One by one: were two to panic while a list is dropped, the process would end.
    senders.into_iter().for_each(|sender| contained(|| drop(sender)));
}

/// Runs what wakes futures. A waker that panics, on whatever thread that is, harms nobody else: the hook has said what it said.
fn contained(wake: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(wake)) {
        // What it holds is kept: to drop it could panic again.
        std::mem::forget(panic);
    }
}
