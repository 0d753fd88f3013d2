//! Shuttle's primitives under the names that `signals.rs` uses, with signals that can be left out.

use std::cell::Cell;
use std::sync::LockResult;
use std::time::Duration;

pub use shuttle::sync::MutexGuard;
pub use shuttle::sync::atomic::AtomicUsize;
pub use std::sync::PoisonError;

use super::model::Fault;

std::thread_local! {
    /// (Shuttle runs all threads of a scenario on one of the system's.)
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// From now on signals are left out as the fault says.
pub fn mute(fault: Option<Fault>) {
    FAULT.set(fault);
}

#[derive(Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub fn notify_one(&self) {
        if FAULT.get() != Some(Fault::NobodyWakes) {
            self.0.notify_one();
        }
    }

    pub fn notify_all(&self) {
        if FAULT.get() != Some(Fault::NobodyTells) {
            self.0.notify_all();
        }
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    /// Never times out.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, _: Duration) -> LockResult<(MutexGuard<'a, T>, ())> {
        match self.0.wait(guard) {
            Ok(guard) => Ok((guard, ())),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), ()))),
        }
    }
}
