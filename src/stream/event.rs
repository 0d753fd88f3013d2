//! Events: remembered points of streams.

use std::sync::{Mutex, PoisonError};

use crate::device::Device;
use crate::error::Result;
use crate::ids::Fence;
use crate::stream::{Stream, read};

/// A point of a stream. An event that was never recorded counts as done, as in PyTorch.
#[derive(Default)]
pub struct Event(Mutex<Option<(Device, Fence)>>);

impl Event {
    /// An event that is not recorded yet.
    pub fn new() -> Event {
        Event::default()
    }

    pub(super) fn at(device: Device, fence: Fence) -> Event {
        Event(Mutex::new(Some((device, fence))))
    }

    /// Moves the event to this point of `stream`: everything enqueued on it so far.
    pub fn record(&self, stream: &Stream) {
        let recorded = stream.record_event().0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = recorded;
    }

    /// True when everything before the event has been executed.
    pub fn query(&self) -> bool {
        self.fence().is_none_or(|(device, fence)| device.shared().lock().timeline.is_completed(fence))
    }

    /// Blocks until everything before the event has been executed, and reports what went wrong meanwhile.
    pub fn synchronize(&self) -> Result<()> {
        let Some((device, fence)) = self.fence() else { return Ok(()) };
        device.block_on(device.completion(fence)?)?;
        read::check_status(&device)
    }

    pub(super) fn fence(&self) -> Option<(Device, Fence)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
