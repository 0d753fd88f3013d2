//! Waiting until points of streams are reached: blocking, for a while, and as a future.

use std::time::Duration;

use crate::device::{Device, WaitKind};
use crate::error::Result;
use crate::ids::FenceSet;
use crate::stream::{Origin, read};

/// Blocks until the device has reached the point, and reports what went wrong meanwhile.
#[track_caller]
pub(super) fn wait(device: &Device, point: FenceSet) -> Result<()> {
    device.block_on(device.completion(point)?, WaitKind::Synchronize, Origin::line())?;
    read::check_status(device)
}

/// [`wait`] for a while; false where that was not enough. Nothing is given up or freed: the work goes on.
#[track_caller]
pub(super) fn wait_at_most(device: &Device, point: FenceSet, timeout: Duration) -> Result<bool> {
    let done = device.completion(point)?;
    match device.block_at_most(done, Some(timeout), WaitKind::Synchronize, Origin::line())? {
        Some(()) => read::take_error(device).map(|()| true),
        None => Ok(false),
    }
}

/// [`wait`] as a future. The work is handed to the driver at the call; dropping the future takes nothing back.
pub(super) fn wait_async(device: &Device, point: FenceSet) -> impl Future<Output = Result<()>> + Send + use<> {
    let done = device.completion(point);
    let device = device.clone();
    async move {
        done?.await.map_err(|_| device.closed(&device.shared().lock()))?;
        read::check_status_async(&device).await
    }
}
