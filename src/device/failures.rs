//! Failures on demand: what a driver refuses once in a year, a test can have at every call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::device::Device;

/// Which calls of the driver a test wants refused: the next `count`, after `pass` others.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    all: Refusals,
    segments: Refusals,
    /// The next submission panics, as wgpu does where a driver loses the device inside a wait.
    panics: AtomicBool,
}

#[derive(Debug, Default)]
struct Refusals {
    pass: AtomicU64,
    count: AtomicU64,
}

impl Refusals {
    fn set(&self, pass: u64, count: u64) {
        self.pass.store(pass, Ordering::Release);
        self.count.store(count, Ordering::Release);
    }

    /// Counts a call; true when it is to fail.
    fn take(&self) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let less = |left: u64| left.checked_sub(1);
        let take = |left: &AtomicU64| left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok();
        !take(&self.pass) && take(&self.count)
    }
}

impl Failures {
    pub(crate) fn new(pass: u64, count: u64) -> Failures {
        let failures = Failures::default();
        failures.all.set(pass, count);
        failures
    }

    /// Asked before every call that a driver can refuse.
    pub(crate) fn check(&self, call: &str) -> Result<(), String> {
        if call == super::driver::SUBMIT && self.panics.swap(false, Ordering::AcqRel) {
            std::panic::panic_any(format!("{call} was made to panic by a test"));
        }
        let refused = self.all.take() || call == super::driver::SEGMENT && self.segments.take();
        if refused { Err(format!("{call} was refused by a test")) } else { Ok(()) }
    }
}

/// For tests of what happens when the driver refuses.
impl Device {
    /// The driver refuses the next `count` segments.
    #[doc(hidden)]
    pub fn refuse_segments(&self, count: u64) {
        self.shared().gpu.failures.segments.set(0, count);
    }

    /// The driver does the next `pass` calls of any kind (buffers, textures, pipelines, bind groups, command buffers,
    /// submissions, mappings) and refuses the next `count`.
    #[doc(hidden)]
    pub fn refuse_driver_calls(&self, pass: u64, count: u64) {
        self.shared().gpu.failures.all.set(pass, count);
    }

    /// The device's own thread panics at the next submission.
    #[doc(hidden)]
    pub fn panic_at_submission(&self) {
        self.shared().gpu.failures.panics.store(true, Ordering::Release);
    }

    /// The device is lost: wgpu's own `destroy`, which is as close as a test can come.
    #[doc(hidden)]
    pub fn lose(&self) {
        self.shared().gpu.device.destroy();
    }

    /// How many calls are still to be refused.
    #[doc(hidden)]
    pub fn driver_refusals_left(&self) -> u64 {
        self.shared().gpu.failures.all.count.load(Ordering::Acquire)
    }

    /// What is always true of the pool, checked.
    #[doc(hidden)]
    pub fn validate_memory(&self) -> Result<(), String> {
        self.shared().lock().pool.validate()
    }
}
