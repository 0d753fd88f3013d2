//! The host's waits: how often, for how long, from which lines of the program, and what is done about hidden ones.

use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_channel::oneshot;
use rustc_hash::FxHashMap;

use crate::device::Device;
use crate::error::{Error, Result};

/// What a hidden wait does: a call that reads elements (`item`, `to_vec`, printing) and so waits for the device, though nothing
/// in its name says so. PyTorch's `set_sync_debug_mode`. Calls of `synchronize` are not hidden, and neither are futures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncDebug {
    /// It is counted, as every wait is.
    #[default]
    Off,
    /// It is also logged, once for each line of the program.
    Warn,
    /// It is an error, and nothing is done.
    Error,
}

/// Why the host waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitKind {
    /// For elements that were read.
    Read,
    /// In `synchronize` of a stream, an event or the device.
    Synchronize,
    /// In `Tensor::export`, until work had been handed to the driver.
    Submission,
    /// For room: too much was recorded or on its way in staging (back-pressure).
    Room,
    /// For a pinned buffer that was to be filled while a copy of it was in flight.
    Pinned,
}

/// The waits of one line of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostWait {
    /// Why.
    pub kind: WaitKind,
    /// The line that called linn.
    pub location: &'static Location<'static>,
    /// How often.
    pub count: u64,
    /// How long, in all.
    pub waited: Duration,
}

/// All waits since the last reset, and what hidden ones do. There are no more entries than lines in the program.
#[derive(Default)]
pub(crate) struct Waits {
    debug: SyncDebug,
    places: FxHashMap<(WaitKind, &'static Location<'static>), (u64, Duration)>,
    /// Lines that were warned about.
    warned: Vec<&'static Location<'static>>,
}

impl Waits {
    /// The host waited once more.
    pub(crate) fn add(&mut self, kind: WaitKind, location: &'static Location<'static>, waited: Duration) {
        let (count, total) = self.places.entry((kind, location)).or_default();
        *count += 1;
        *total += waited;
    }

    /// A hidden wait is about to happen: whether to warn, or the error.
    fn hidden(&mut self, op: &'static str, instead: &'static str, location: &'static Location<'static>) -> Result<bool> {
        match self.debug {
            SyncDebug::Off => Ok(false),
            SyncDebug::Warn if self.warned.contains(&location) => Ok(false),
            SyncDebug::Warn => {
                self.warned.push(location);
                Ok(true)
            }
            SyncDebug::Error => Err(Error::argument(
                op,
                format!("would wait for the device at {location}, which SyncDebug::Error forbids"),
                format!("await {instead} there, or allow it: set_sync_debug(SyncDebug::Off)"),
            )),
        }
    }
}

/// So long a waiting thread stays awake: to wake a sleeping one costs tens of microseconds, which most reads of a few bytes take.
const AWAKE: Duration = Duration::from_micros(100);

/// The answer, if it comes soon; gives way to other threads meanwhile.
pub(super) fn soon<T>(answer: &mut oneshot::Receiver<T>, timeout: Option<Duration>) -> Option<Result<T, oneshot::Canceled>> {
    let start = web_time::Instant::now();
    let most = timeout.map_or(AWAKE, |timeout| timeout.min(AWAKE));
    loop {
        match answer.try_recv() {
            Ok(None) if start.elapsed() >= most => return None,
            Ok(None) => std::thread::yield_now(),
            answer => return answer.transpose(),
        }
    }
}

/// Blocks this thread until the future is ready, for so long at most.
pub(super) fn block_at_most<F: Future>(future: F, timeout: Duration) -> Option<F::Output> {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    let start = web_time::Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        // (A timeout beyond what a clock can count is none.)
        let left = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero())?;
        std::thread::park_timeout(left);
    }
}

impl Device {
    /// What hidden waits of this device do from now on, on all threads. `Warn` warns about every line anew.
    pub fn set_sync_debug(&self, debug: SyncDebug) {
        let mut core = self.shared().lock();
        core.waits.debug = debug;
        core.waits.warned.clear();
    }

    /// What hidden waits do.
    pub fn sync_debug(&self) -> SyncDebug {
        self.shared().lock().waits.debug
    }

    /// The lines that made the host wait for this device, the longest wait first.
    pub fn host_waits(&self) -> Vec<HostWait> {
        let all = |(key, (count, waited)): (&(WaitKind, &'static Location<'static>), &(u64, Duration))| HostWait {
            kind: key.0,
            location: key.1,
            count: *count,
            waited: *waited,
        };
        let mut waits: Vec<HostWait> = self.shared().lock().waits.places.iter().map(all).collect();
        waits.sort_by(|a, b| b.waited.cmp(&a.waited).then_with(|| a.location.cmp(b.location)).then(a.kind.cmp(&b.kind)));
        waits
    }

    /// Forgets the waits so far; the counters of [`Device::stats`] go on.
    pub fn reset_host_waits(&self) {
        self.shared().lock().waits.places.clear();
    }

    /// `op`, called at `location`, is about to wait though its name does not say so; `instead` is the call that does not.
    pub(crate) fn hidden_wait(
        &self,
        op: &'static str,
        instead: &'static str,
        location: &'static Location<'static>,
    ) -> Result<()> {
        let warn = self.shared().lock().waits.hidden(op, instead, location)?;
        if warn {
            log::warn!("{op} at {location} waits for the device\nhelp: await {instead}, or read later");
        }
        Ok(())
    }
}
