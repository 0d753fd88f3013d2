//! Times of the device for events with timing. A submission that holds some writes them into a query set of its own, copies
//! them to a buffer that the host reads, and gives the set back when it has: there are as many sets as submissions under way.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::device::Gpu;
use crate::device::command::Stamp;
use crate::device::driver::{self, BufferKind};
use crate::stream::policy::MOST_TIMES;
use crate::timeline::SubmissionId;

/// Bytes of one time.
const TIME: u64 = wgpu::QUERY_SIZE as u64;

/// The times of one submission.
pub(super) struct TimeSet {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    pub(super) read: Arc<wgpu::Buffer>,
    /// Times written so far.
    len: u32,
}

impl TimeSet {
    fn new(gpu: &Gpu) -> Result<TimeSet, String> {
        let size = MOST_TIMES as u64 * TIME;
        Ok(TimeSet {
            queries: driver::create_query_set(gpu, MOST_TIMES as u32)?,
            resolved: driver::create(gpu, size, BufferKind::Times)?,
            read: Arc::new(driver::create(gpu, size, BufferKind::Download)?),
            len: 0,
        })
    }

    /// The next time is that at which all commands before this one have been executed. An empty pass carries it: times at the
    /// ends of passes are what all adapters have that have any.
    pub(super) fn write(&mut self, encoder: &mut wgpu::CommandEncoder) {
        let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: None,
            end_of_pass_write_index: Some(self.len),
        });
        drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: Some("linn.time"), timestamp_writes }));
        self.len += 1;
    }

    /// The last commands of the submission: the times go to where the host can read them.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.resolve_query_set(&self.queries, 0..self.len, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.read, 0, u64::from(self.len) * TIME);
    }

    /// Hands the times out, now that the buffer is mapped.
    fn tell(&self, stamps: &[Arc<Stamp>]) {
        if let Ok(view) = self.read.get_mapped_range(..u64::from(self.len) * TIME) {
            let times: Vec<u64> = bytemuck::pod_collect_to_vec(&view);
            stamps.iter().zip(times).for_each(|(stamp, ticks)| stamp.set(ticks));
        }
        self.read.unmap();
    }
}

/// The sets of a device.
#[derive(Default)]
pub(super) struct Timestamps {
    free: Vec<TimeSet>,
    /// Submissions whose times are not read yet, oldest first.
    awaited: VecDeque<SubmissionId>,
}

impl Timestamps {
    /// An empty set.
    pub(super) fn take(&mut self, gpu: &Gpu) -> Result<TimeSet, String> {
        self.free.pop().map_or_else(|| TimeSet::new(gpu), Ok)
    }

    /// The submission's times are on their way.
    pub(super) fn await_times(&mut self, of: SubmissionId) {
        self.awaited.push_back(of);
    }

    /// The submission's times are there, or will never be: a stamp that stays empty says so.
    pub(super) fn handle_mapped(&mut self, of: SubmissionId, mut set: TimeSet, stamps: &[Arc<Stamp>], ok: bool) {
        if ok {
            set.tell(stamps);
            set.len = 0;
            self.free.push(set);
        }
        self.awaited.retain(|submission| *submission != of);
    }

    /// Nothing more is learned about this submission and those before it.
    pub(super) fn give_up(&mut self, of: SubmissionId) {
        self.awaited.retain(|submission| *submission > of);
    }

    /// How much of what is done up to `done` has its times read.
    pub(super) fn read_up_to(&self, done: SubmissionId) -> SubmissionId {
        self.awaited.front().map_or(done, |first| done.min(SubmissionId(first.0 - 1)))
    }

    /// Sets, in use or free.
    pub(super) fn len(&self) -> usize {
        self.free.len() + self.awaited.len()
    }

    /// Drops the free sets.
    pub(super) fn clear(&mut self) {
        self.free.clear();
    }
}
