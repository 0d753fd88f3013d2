//! Waiting until points of streams are reached: blocking, for a while, as a future, and on another device.

use std::sync::Arc;
use std::time::Duration;

use crate::device::command::{Command, Op};
use crate::device::waiter::{Held, Waiter};
use crate::device::{Device, WaitKind};
use crate::error::Result;
use crate::ids::FenceSet;
use crate::stream::{Origin, Stream, read, submit_some};
use crate::timeline::AccessList;

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

/// What comes next on `stream` is held back until another device has reached the point. Nobody's thread waits.
#[track_caller]
pub(super) fn hold(stream: &Stream, other: &Device, point: FenceSet) -> Result<()> {
    let (device, id) = (stream.device(), stream.0.id);
    {
        let core = other.shared().lock();
        core.alive()?;
        if core.timeline.are_completed(&point) {
            return Ok(());
        }
    }
    let held = {
        let mut core = device.shared().lock();
        core.alive()?;
        let command = Command { label: "wait_event", location: Origin::line(), op: Op::Hold };
        core.enqueue(id, &AccessList::default(), command, &[]);
        Held { shared: Arc::downgrade(device.shared()), fence: core.timeline.hold(id) }
    };
    // No lock of one device is held while the other's is taken.
    other.tell_when_reached(point, Waiter::Stream(held));
    submit_some(device, device.shared().lock(), id)
}
