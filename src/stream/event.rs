//! Events: remembered points of streams.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::device::Device;
use crate::error::Result;
use crate::ids::FenceSet;
use crate::stream::{Stream, wait};

/// A point of a stream. An event that was never recorded counts as done, as in PyTorch.
#[derive(Default)]
pub struct Event(Mutex<Option<(Device, FenceSet)>>);

impl Event {
    /// An event that is not recorded yet.
    pub fn new() -> Event {
        Event::default()
    }

    pub(super) fn at(device: Device, point: FenceSet) -> Event {
        Event(Mutex::new(Some((device, point))))
    }

    /// Moves the event to this point of `stream`: everything enqueued on it so far.
    pub fn record(&self, stream: &Stream) {
        let recorded = stream.record_event().0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = recorded;
    }

    /// True when everything before the event has been executed; also on a lost device, see [`Stream::query`].
    pub fn query(&self) -> bool {
        self.point().is_none_or(|(device, point)| device.has_reached(&point))
    }

    /// Blocks until everything before the event has been executed, and reports what went wrong meanwhile.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        match self.point() {
            Some((device, point)) => wait::wait(&device, point),
            None => Ok(()),
        }
    }

    /// [`Event::synchronize`] for so long at most: false where work is left, which goes on. An index out of range is only
    /// reported by the next call that waits without a bound.
    #[track_caller]
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<bool> {
        match self.point() {
            Some((device, point)) => wait::wait_at_most(&device, point, timeout),
            None => Ok(true),
        }
    }

    /// [`Event::synchronize`] as a future; the point waited for is where the event stands at this call.
    pub fn synchronize_async(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let waiting = self.point().map(|(device, point)| wait::wait_async(&device, point));
        async move {
            match waiting {
                Some(waiting) => waiting.await,
                None => Ok(()),
            }
        }
    }

    pub(super) fn point(&self) -> Option<(Device, FenceSet)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
