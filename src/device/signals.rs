//! The signals between the threads that call and the one queue thread, over a state under one lock.
//!
//! A caller changes the state and *wakes* the queue; the queue *sleeps* when it finds nothing to do, and *tells* whoever waits
//! for room, or for something to be gone, that the state has changed. `tests/pure/queue/threads` compiles this file with other
//! primitives and runs it in every order of its threads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sync::{AtomicUsize, Condvar, MutexGuard, PoisonError};

/// A net under a wake-up that is missed: callers look again after this. The model check has no such net.
const MISSED: Duration = Duration::from_millis(50);

/// What the lock protects, as far as the signals know it.
pub(crate) trait Sleeps {
    /// The queue thread sleeps until it is woken.
    fn sleeps(&mut self) -> &mut bool;
}

/// The two signals of one lock.
#[derive(Default)]
pub(crate) struct Signals {
    work: Condvar,
    room: Condvar,
    /// Callers that wait; changed under the lock. A signal to nobody is a call of the system all the same.
    waiting: AtomicUsize,
}

impl Signals {
    /// A caller has changed the state: releases the lock, and the queue looks. It costs nothing while the queue is awake.
    pub(crate) fn wake<T: Sleeps>(&self, mut state: MutexGuard<'_, T>) {
        let sleeps = *state.sleeps();
        drop(state);
        if sleeps {
            self.work.notify_one();
        }
    }

    /// The queue has found nothing to do, under this lock: sleeps until it is woken.
    pub(crate) fn sleep<T: Sleeps>(&self, mut state: MutexGuard<'_, T>) {
        *state.sleeps() = true;
        let mut state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        *state.sleeps() = false;
    }

    /// [`Signals::sleep`] for so long at most.
    pub(crate) fn nap<T: Sleeps>(&self, mut state: MutexGuard<'_, T>, most: Duration) {
        *state.sleeps() = true;
        let mut state = self.work.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0;
        *state.sleeps() = false;
    }

    /// The state has changed, under the lock, in a way that callers wait for. (Who began to wait since has seen the change.)
    pub(crate) fn tell(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.room.notify_all();
        }
    }

    /// A caller cannot go on: lets the queue work until it tells. It has to look at the state again, and may have to wait again.
    pub(crate) fn wait<'a, T: Sleeps>(&self, mut state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if *state.sleeps() {
            self.work.notify_one();
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let state = self.room.wait_timeout(state, MISSED).unwrap_or_else(PoisonError::into_inner).0;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        state
    }
}
