//! What a device can be asked about its memory and its queue; all numbers are of one moment.

use std::collections::BTreeMap;

use crate::device::{Counters, Device, PinnedStats};
use crate::error::Result;
use crate::memory::{Breakdown, Stats};
use crate::timeline::TimelineStats;

/// Counters of one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Of the memory pool.
    pub memory: Stats,
    /// The pool's bytes by category.
    pub breakdown: Breakdown,
    /// Of streams and submissions.
    pub timeline: TimelineStats,
    /// Of the queue and the host's waits.
    pub queue: Counters,
    /// Bytes of host memory in transient upload staging.
    pub staging_upload_bytes: u64,
    /// Bytes of host memory in transient download staging.
    pub staging_download_bytes: u64,
    /// Bytes of live tensors in buffers of an application (`Tensor::from_buffer`): bought by it, and in no counter of the pool.
    pub imported_bytes: u64,
    /// Of pinned buffers.
    pub pinned: PinnedStats,
}

impl DeviceStats {
    /// Share of dispatches whose bind group was in the cache, 0 to 1.
    pub fn bind_group_hit_rate(&self) -> f64 {
        let all = self.queue.bind_group_hits + self.queue.bind_group_misses;
        if all == 0 { 1.0 } else { self.queue.bind_group_hits as f64 / all as f64 }
    }
}

/// What wgpu's own allocator holds of the driver's memory for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverMemory {
    /// Bytes of all buffers and textures that exist: segments, staging, and what linn needs beside them (parameters of
    /// kernels, the bounce buffer of compaction: about 2 MiB).
    pub allocated: u64,
    /// Their number.
    pub allocations: u64,
    /// Bytes that wgpu holds of the driver to put them in: what a system monitor shows, less the driver's own needs.
    pub reserved: u64,
    /// The pieces these were bought in. Small buffers share a piece of 4 to 8 MiB; a large one has its own.
    pub blocks: u64,
}

impl Device {
    /// All counters, of one moment. Getters for single numbers, called one after the other, are of as many moments.
    pub fn stats(&self) -> DeviceStats {
        let core = self.shared().lock();
        let (staging_upload_bytes, staging_download_bytes) = core.staging.bytes();
        DeviceStats {
            memory: core.pool.stats(),
            breakdown: core.pool.breakdown(),
            timeline: core.timeline.stats(),
            queue: core.counters,
            staging_upload_bytes,
            staging_download_bytes,
            imported_bytes: core.imports.iter().map(|(_, place)| place.size).sum(),
            pinned: core.staging.pinned(),
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

    /// What wgpu holds of the driver's memory for this device, beside [`Device::memory_reserved`], which is what of it the pool
    /// has bought. `None` where wgpu does not keep a list: on GL, in browsers and without a driver.
    ///
    /// A buffer that was given back counts until the work that used it has completed. It is asked of wgpu, without linn's lock:
    /// its moment is another one than that of the pool's counters.
    pub fn driver_memory(&self) -> Option<DriverMemory> {
        let report = self.shared().gpu.device.generate_allocator_report()?;
        Some(DriverMemory {
            allocated: report.total_allocated_bytes,
            allocations: report.allocations.len() as u64,
            reserved: report.total_reserved_bytes,
            blocks: report.blocks.len() as u64,
        })
    }

    /// Bytes that can still be reserved, and bytes that can be reserved in all: (free, total).
    ///
    /// wgpu does not tell how much memory an adapter has, or how much of it other programs use. What is known is the limit
    /// (`DeviceOptions::memory_limit`, `limit_mb`, [`Device::set_memory_limit`]): the answer is the limit and what of it is
    /// not reserved, and `None` without one. PyTorch's `mem_get_info` asks the driver instead.
    pub fn mem_get_info(&self) -> Option<(u64, u64)> {
        let now = self.shared().lock().memory_use();
        (now.limit != u64::MAX).then(|| (now.limit.saturating_sub(now.reserved), now.limit))
    }

    /// Counters of pinned memory: the host memory of buffers from [`Device::pinned_upload`] and [`Device::pinned_download`].
    /// PyTorch's `host_memory_stats`.
    pub fn pinned_memory_stats(&self) -> PinnedStats {
        self.shared().lock().staging.pinned()
    }

    /// Peaks become the current values, those of pinned memory too.
    pub fn reset_peak_memory_stats(&self) {
        let mut core = self.shared().lock();
        core.pool.reset_peak_stats();
        core.staging.reset_peaks();
    }

    /// Sums of allocated and freed become 0.
    pub fn reset_accumulated_memory_stats(&self) {
        self.shared().lock().pool.reset_accumulated_stats();
    }

    /// Most bytes to reserve, as set ([`Device::set_memory_limit`]); `u64::MAX` for no limit but the driver's. Where
    /// `per_process_memory_fraction` is set, that share of it may be reserved.
    pub fn memory_limit(&self) -> u64 {
        self.shared().lock().pool.config().limit
    }

    /// Most bytes to reserve from now on. Idle segments above it go back to the driver at once; what live tensors lie in
    /// stays until it is freed.
    pub fn set_memory_limit(&self, bytes: u64) {
        let mut guard = self.shared().lock();
        let core = &mut *guard;
        core.note(None);
        let before = core.memory_use();
        core.pool.set_limit(bytes);
        let shortage = core.shortage(before);
        core.release_segments();
        self.shared().wake(guard);
        shortage.tell(self);
    }

    /// Gives cached memory back to the driver, pinned and other host memory for transfers too; submits and waits first, so
    /// that nothing unused stays behind.
    pub fn empty_cache(&self) -> Result<()> {
        self.wait_for_everything()?;
        {
            let core = &mut *self.shared().lock();
            core.note(None);
            core.pool.empty_cache();
            core.release_segments();
            core.pool.handle_completed(&core.timeline);
            core.drop_copies = true;
        }
        self.shared().wait_until_forgotten();
        self.shared().lock().alive()
    }
}
