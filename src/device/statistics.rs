//! What a device can be asked about its memory and its queue; all numbers are of one moment.

use std::collections::BTreeMap;

use crate::device::{Counters, Device};
use crate::error::Result;
use crate::memory::{Breakdown, Stats};
use crate::timeline::TimelineStats;

/// Counters of one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Of the memory pool.
    pub memory: Stats,
    /// Of streams and submissions.
    pub timeline: TimelineStats,
    /// Of the queue and the host's waits.
    pub queue: Counters,
    /// Bytes of host memory in upload staging.
    pub staging_upload_bytes: u64,
    /// Bytes of host memory in download staging.
    pub staging_download_bytes: u64,
}

impl DeviceStats {
    /// Share of dispatches whose bind group was in the cache, 0 to 1.
    pub fn bind_group_hit_rate(&self) -> f64 {
        let all = self.queue.bind_group_hits + self.queue.bind_group_misses;
        if all == 0 { 1.0 } else { self.queue.bind_group_hits as f64 / all as f64 }
    }
}

impl Device {
    /// All counters at this moment.
    pub fn stats(&self) -> DeviceStats {
        let core = self.shared().lock();
        let (staging_upload_bytes, staging_download_bytes) = core.staging.bytes();
        DeviceStats {
            memory: core.pool.stats(),
            timeline: core.timeline.stats(),
            queue: core.counters,
            staging_upload_bytes,
            staging_download_bytes,
        }
    }

    /// Bytes of live tensors (rounded to blocks).
    pub fn memory_allocated(&self) -> u64 {
        self.shared().lock().pool.allocated().0
    }

    /// Most bytes of live tensors since the last reset.
    pub fn max_memory_allocated(&self) -> u64 {
        self.shared().lock().pool.allocated().1
    }

    /// Bytes bought from the driver and not given back: live, cached and retiring.
    pub fn memory_reserved(&self) -> u64 {
        self.shared().lock().pool.reserved().0
    }

    /// Most bytes reserved since the last reset.
    pub fn max_memory_reserved(&self) -> u64 {
        self.shared().lock().pool.reserved().1
    }

    /// Every counter of the memory pool by PyTorch's names, sorted.
    pub fn memory_stats(&self) -> BTreeMap<String, i64> {
        self.shared().lock().pool.stats().flat()
    }

    /// Bytes by category; the sum is [`Device::memory_reserved`].
    pub fn memory_breakdown(&self) -> Breakdown {
        self.shared().lock().pool.breakdown()
    }

    /// Peaks become the current values.
    pub fn reset_peak_memory_stats(&self) {
        self.shared().lock().pool.reset_peak_stats();
    }

    /// Sums of allocated and freed become 0.
    pub fn reset_accumulated_memory_stats(&self) {
        self.shared().lock().pool.reset_accumulated_stats();
    }

    /// Most bytes that may be reserved; `u64::MAX` for no limit but the driver's.
    pub fn memory_limit(&self) -> u64 {
        self.shared().lock().pool.config().limit
    }

    /// Most bytes to reserve from now on. What is reserved already stays until it is freed.
    pub fn set_memory_limit(&self, bytes: u64) {
        let core = &mut *self.shared().lock();
        core.note(None);
        core.pool.set_limit(bytes);
    }

    /// Gives cached memory back to the driver; submits and waits first, so that nothing unused stays behind.
    pub fn empty_cache(&self) -> Result<()> {
        self.wait_for_everything()?;
        {
            let core = &mut *self.shared().lock();
            core.note(None);
            core.pool.empty_cache();
            core.release_segments();
            core.pool.handle_completed(&core.timeline);
        }
        self.shared().wait_until_forgotten();
        self.shared().lock().alive()
    }
}
