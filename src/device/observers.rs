//! Observers: functions of the program that are told before a request for memory fails, and when memory runs short.
//!
//! They run on the thread that asked, without any lock, so they may call whatever they like. A panic in one is caught: the
//! request ends as it would have ended.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use crate::device::{Device, Shared};
use crate::error::{Error, Result};
use crate::memory::{Bytes, OomReport};

type OnFailure = Arc<dyn Fn(&Device, &OomReport) + Send + Sync>;
type OnShortage = Arc<dyn Fn(&Device, &MemoryUse) + Send + Sync>;

/// How much is reserved, and how much may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes bought from the driver.
    pub reserved: u64,
    /// Bytes that may be reserved at most.
    pub limit: u64,
}

/// The observers of a device.
#[derive(Default)]
pub(crate) struct Observers {
    last: u64,
    failure: Vec<(u64, OnFailure)>,
    /// With the share of the limit.
    shortage: Vec<(u64, f64, OnShortage)>,
}

impl Observers {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Who is to be told that `before` has become `now`.
    pub(crate) fn short(&self, before: MemoryUse, now: MemoryUse) -> Shortage {
        let passed =
            |share: f64, state: MemoryUse| state.limit != u64::MAX && state.reserved as f64 >= share * state.limit as f64;
        let whom = self.shortage.iter().filter(|(_, share, _)| passed(*share, now) && !passed(*share, before));
        Shortage { now, whom: whom.map(|(_, _, tell)| tell.clone()).collect() }
    }
}

/// A message on its way to observers: made under the lock, sent without it.
pub(crate) struct Shortage {
    now: MemoryUse,
    whom: Vec<OnShortage>,
}

impl Shortage {
    pub(crate) fn tell(self, device: &Device) {
        self.whom.iter().for_each(|tell| outside(|| tell(device, &self.now)));
    }
}

thread_local! {
    /// An observer runs on this thread: what it does is not observed, so that it cannot call itself for ever.
    static OBSERVING: Cell<bool> = const { Cell::new(false) };
}

/// Runs an observer's function: not within another, and a panic stays inside.
fn outside(work: impl FnOnce()) {
    if OBSERVING.replace(true) {
        return;
    }
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        log::error!("an observer of linn's memory panicked; the request for memory goes on without it");
    }
    OBSERVING.set(false);
}

/// Keeps an observer attached; dropping it detaches. `std::mem::forget` keeps the observer as long as the device lives.
#[must_use = "dropping it detaches the observer"]
pub struct Observer {
    shared: Weak<Shared>,
    id: u64,
}

impl Drop for Observer {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut core = shared.lock();
        let observers = &mut core.observers;
        let failure = observers.failure.iter().position(|(id, _)| *id == self.id).map(|at| observers.failure.remove(at));
        let shortage = observers.shortage.iter().position(|(id, ..)| *id == self.id).map(|at| observers.shortage.remove(at));
        // What they hold may be tensors, whose end takes the lock.
        drop(core);
        drop((failure, shortage));
    }
}

impl Device {
    /// Calls `tell` with the report each time a request for memory is about to fail with [`Error::OutOfMemory`]: on the thread
    /// that asked, before the error is returned. PyTorch's `attach_out_of_memory_observer`.
    ///
    /// It runs without any lock and may use the device it is given: take a [`Device::memory_snapshot`], drop tensors,
    /// [`Device::empty_cache`]. The request fails all the same; the next one finds what was freed. A panic is caught and
    /// logged. An observer that holds handles of the device itself (tensors, for instance) keeps it open until it is detached.
    pub fn attach_out_of_memory_observer(&self, tell: impl Fn(&Device, &OomReport) + Send + Sync + 'static) -> Observer {
        let mut core = self.shared().lock();
        let id = core.observers.next();
        core.observers.failure.push((id, Arc::new(tell)));
        Observer { shared: Arc::downgrade(self.shared()), id }
    }

    /// Calls `tell` when `share` (0 to 1) of the memory limit becomes reserved, and again only after less was: on the
    /// thread whose request or new limit passed it, after that has succeeded. Without a limit it is never called.
    ///
    /// The same holds as for [`Device::attach_out_of_memory_observer`].
    ///
    /// # Errors
    /// [`Error::Argument`] where `share` is not from 0 to 1.
    pub fn attach_memory_limit_observer(
        &self,
        share: f64,
        tell: impl Fn(&Device, &MemoryUse) + Send + Sync + 'static,
    ) -> Result<Observer> {
        if !(0.0..=1.0).contains(&share) {
            let fact = format!("the share is {share}");
            return Err(Error::argument(
                "attach_memory_limit_observer",
                fact,
                "pass a share of the limit from 0 to 1, such as 0.9",
            ));
        }
        let mut core = self.shared().lock();
        let id = core.observers.next();
        core.observers.shortage.push((id, share, Arc::new(tell)));
        Ok(Observer { shared: Arc::downgrade(self.shared()), id })
    }

    /// A request fails; called without the lock.
    pub(super) fn tell_failure(&self, report: &OomReport) {
        let whom: Vec<OnFailure> = self.shared().lock().observers.failure.iter().map(|(_, tell)| tell.clone()).collect();
        whom.iter().for_each(|tell| outside(|| tell(self, report)));
    }
}

impl std::fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} reserved", Bytes(self.reserved), Bytes(self.limit))
    }
}
