//! Enqueueing a program's own kernel.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::Device;
use crate::device::command::{Command, Op, Own};
use crate::error::{Error, Result};
use crate::kernel::Role;
use crate::kernel::grid::Work;
use crate::kernel::own::OwnKernel;
use crate::kernel::wgsl::{Allowed, KernelSource};
use crate::stream::interop::Part;
use crate::stream::{Origin, enqueue, queue};
use crate::timeline::{Access, AccessList};

/// Checks the kernel, or finds it among those that the device knows.
pub(crate) fn kernel(device: &Device, source: &KernelSource<'_>) -> Result<Arc<OwnKernel>> {
    let registry = queue::registry(device.shared()).ok_or_else(|| Error::DeviceLost { fact: "the device is closed".into() })?;
    registry.own(source, &Allowed { limits: device.limits(), subgroups: device.has_subgroups() })
}

/// Enqueues one dispatch of `kernel` on the current stream: windows of memory in the order of its arguments, none of which
/// overlap, and its parameters as bytes.
#[track_caller]
pub(crate) fn dispatch(device: &Device, kernel: &Arc<OwnKernel>, windows: &[Part<'_>], params: &[u8], work: Work) -> Result<()> {
    let label = kernel.checked.name;
    let mut accesses = AccessList::default();
    let parts = || windows.iter().zip(&kernel.checked.args);
    for (window, arg) in parts() {
        accesses.push(window.memory.block(), if arg.role == Role::In { Access::Read } else { Access::Write });
    }
    let op = Op::Own(Box::new(Own {
        pipeline: kernel.id,
        kernel: kernel.clone(),
        places: windows.iter().map(|window| window.memory.place()).collect(),
        windows: windows.iter().map(|window| (window.offset, window.size)).collect(),
        params: SmallVec::from_slice(params),
        grid: work.grid,
        work: work.amount,
    }));
    let command = Command { label, location: Origin::line(), op };
    let core = device.shared().lock();
    core.alive()?;
    core.usable(label, &accesses)?;
    parts().filter(|(_, arg)| arg.role != Role::In).for_each(|(window, _)| window.memory.written());
    enqueue(device, core, &accesses, command, &[])
}
