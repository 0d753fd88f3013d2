//! Order edges by name: the pure timeline knows numbers, the recordings know labels and lines.

use crate::device::Device;
use crate::device::core::Core;
use crate::ids::{Fence, Horizons, StreamId};
use crate::timeline::{CommandName, Edge, OrderEdges};

impl Core {
    /// Notes the edges of the last command of `stream`. What it waits for is not submitted either, or there would be no edge: so
    /// both still stand in the recordings.
    pub(super) fn note_edges(&mut self, stream: StreamId) {
        let Core { edges: Some(noted), timeline, recordings, .. } = self else { return };
        let name = |fence: Fence| {
            let at = fence.number.checked_sub(timeline.submitted(fence.stream) + 1)?;
            let command = recordings.get(fence.stream.0 as usize)?.get(at as usize)?;
            Some(CommandName::new(command.label, fence, command.location))
        };
        for Edge { command, before, kind } in timeline.edges_of_last(stream) {
            if let (Some(command), Some(before)) = (name(command), name(before)) {
                noted.push(command, before, kind);
            }
        }
    }
}

impl Device {
    /// Records which command waits for which of another stream, and why, from now on: the latest `most` of these order edges.
    /// With `None` no longer, and forgets what was recorded. Read them with [`Device::order_edges`].
    ///
    /// What is recorded is what `stats().timeline.order_edges` counts. A command that depends on one that was handed to the
    /// driver already waits for nothing, so a device that keeps up has few edges.
    pub fn record_order_edges(&self, most: Option<usize>) {
        self.shared().lock().edges = most.map(OrderEdges::new);
    }

    /// The order edges recorded so far: prints as text, [`OrderEdges::to_dot`] makes a graph. Empty where none are recorded.
    pub fn order_edges(&self) -> OrderEdges {
        self.shared().lock().edges.clone().unwrap_or_default()
    }
}
