//! The tables of a device.

use super::summary::{HostMemory, category_summary, driver_line, memory_summary};
use crate::device::Device;

impl Device {
    /// A table for people: PyTorch's, then where the bytes are now and were at the peaks, and, where wgpu tells, what the
    /// driver holds. All but the driver's line is of one moment. `abbreviated` leaves out the shares of large and small
    /// requests.
    pub fn memory_summary(&self, abbreviated: bool) -> String {
        let stats = self.stats();
        let staging = stats.staging_upload_bytes + stats.staging_download_bytes + stats.queue.staging_texture_bytes;
        let table = memory_summary(&stats.memory, 0, abbreviated);
        let pinned = stats.pinned;
        let host = HostMemory { staging, pinned_held: pinned.held_bytes.current, pinned_cached: pinned.cached_bytes };
        let categories = category_summary(&stats.memory, &stats.breakdown, host);
        let (edges, syncs) = (stats.timeline.order_edges, stats.queue.host_syncs);
        let mut driver = String::new();
        if let Some(held) = self.driver_memory() {
            driver = driver_line(held.allocated, held.allocations, held.reserved, held.blocks);
        }
        format!("{}\n{table}\n{categories}{driver}{edges} order edges, {syncs} host syncs\n", self.name())
    }
}
