//! What the queue takes at a time: commands whose places are resolved, and what has to be done around them.

use std::any::Any;
use std::panic::Location;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::command::{ChunkId, Command, Op, PipelineId, Stamp};
use crate::device::core::{Core, PendingRead, Reports, StatusCopy};
use crate::device::places::PlaceId;
use crate::ids::{SegmentId, StreamId};
use crate::stream::encode::Resolved;
use crate::stream::interop::ForeignCommands;

/// A batch with its places resolved.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) commands: Vec<Resolved>,
    /// The parameters of its dispatches.
    pub(super) params: Vec<u8>,
    pub(super) unmap: SmallVec<[Arc<wgpu::Buffer>; 4]>,
    pub(super) chunks: SmallVec<[ChunkId; 4]>,
    /// The reads of the batch, by where their bytes go.
    pub(super) reads: SmallVec<[(ChunkId, u64); 4]>,
    pub(super) work: SmallVec<[(PipelineId, u64); 16]>,
    /// Who wants the times of the batch, in order.
    pub(super) stamps: Vec<Arc<Stamp>>,
    /// What its pipelines are made from, where somebody could drop it.
    kernels: Vec<Arc<dyn Any + Send + Sync>>,
    /// The operation of each of the commands, for errors.
    labels: Vec<&'static str>,
}

impl Taken {
    /// For errors: the operation of the command at this place.
    pub(super) fn label(&self, at: usize) -> String {
        let label = self.labels.get(at).copied().unwrap_or("an empty batch");
        match self.commands.get(at) {
            Some(Resolved::Foreign(foreign)) => format!("{label} at {}", foreign.location()),
            _ => label.to_owned(),
        }
    }

    /// True when encoding the batch again would do the same: an application records its commands once.
    pub(super) fn can_repeat(&self) -> bool {
        let recorded = |command: &Resolved| matches!(command, Resolved::Foreign(foreign) if foreign.is_recorded());
        !self.commands.iter().any(recorded)
    }

    /// Takes the next `count` commands of a stream.
    pub(super) fn take(&mut self, core: &mut Core, stream: StreamId, count: usize) {
        for _ in 0..count {
            if let Some(command) = core.take_recorded(stream, &mut self.params) {
                self.resolve(core, command);
            }
        }
    }

    fn resolve(&mut self, core: &mut Core, command: Command) {
        self.resolve_op(core, command.op, command.location);
        self.labels.resize(self.commands.len(), command.label);
    }

    fn resolve_op(&mut self, core: &mut Core, op: Op, location: &'static Location<'static>) {
        let range = |core: &Core, place| core.places.resolve(place).map(|place| (place.segment, place.offset, place.size));
        let window = |core: &Core, place, (start, size): &(u64, u64)| {
            range(core, place).map(|(segment, offset, _)| (segment, offset + start, *size))
        };
        match op {
            Op::Dispatch { pipeline, places, windows, params, grid, work } => {
                self.count_work(pipeline, work);
                let ranges = match windows {
                    None => places.iter().map(|place| range(core, *place)).collect(),
                    Some(windows) => places.iter().zip(&*windows).map(|(place, part)| window(core, *place, part)).collect(),
                };
                places.iter().for_each(|place| core.places.release(*place));
                core.reports.encoded += u64::from(places.contains(&PlaceId::STATUS));
                let params = self.params.len() - usize::from(params)..self.params.len();
                self.commands.push(Resolved::Dispatch { pipeline, ranges, params, grid });
            }
            Op::Own(own) => {
                self.count_work(own.pipeline, own.work);
                let ranges = own.places.iter().zip(&own.windows).map(|(place, part)| window(core, *place, part)).collect();
                own.places.iter().for_each(|place| core.places.release(*place));
                let start = self.params.len();
                self.params.extend_from_slice(&own.params);
                let params = start..self.params.len();
                self.commands.push(Resolved::Dispatch { pipeline: own.pipeline, ranges, params, grid: own.grid });
                self.kernels.push(own.kernel);
            }
            Op::Upload { chunk, chunk_offset, dst, dst_offset, size } => {
                if let (Some(buffer), Some((segment, offset, _))) = (self.chunk(core, chunk), range(core, dst)) {
                    let offset = offset + dst_offset;
                    self.upload(buffer, chunk_offset, segment, offset, size);
                }
                core.places.release(dst);
            }
            Op::Move { place, to } => {
                let from = core.places.relocate(place, to);
                core.places.release(place);
                self.commands.push(Resolved::Move { from, to });
            }
            Op::Download { src, src_offset, chunk, chunk_offset, size } => {
                self.reads.push((chunk, chunk_offset));
                let Reports { encoded, read, .. } = core.reports;
                let offset = chunk_offset + size.next_multiple_of(STATUS_ALIGNMENT);
                let status = (encoded > read).then_some(StatusCopy { offset, covers: encoded });
                let same = |read: &&mut PendingRead| (read.chunk, read.offset) == (chunk, chunk_offset);
                core.reads.iter_mut().filter(same).for_each(|read| read.status = status);
                if let Some(buffer) = self.chunk(core, chunk) {
                    if let Some((segment, offset, _)) = range(core, src) {
                        let (chunk, offset) = (buffer.clone(), offset + src_offset);
                        self.commands.push(Resolved::Download { segment, offset, chunk, chunk_offset, size });
                    }
                    let status = status.map(|status| Resolved::Status { chunk: buffer, chunk_offset: status.offset });
                    self.commands.extend(status);
                }
                core.places.release(src);
            }
            Op::Time { stamp } => {
                self.stamps.push(stamp);
                self.commands.push(Resolved::Time);
            }
            Op::Hold => {}
            Op::Foreign(foreign) => {
                let windows = foreign.places.iter().zip(&foreign.windows).filter_map(|(place, part)| window(core, *place, part));
                let resolved = ForeignCommands::new(windows.collect(), foreign.reads, location, foreign.record);
                foreign.places.iter().for_each(|place| core.places.release(*place));
                self.commands.push(Resolved::Foreign(Box::new(resolved)));
            }
        }
    }

    fn count_work(&mut self, pipeline: PipelineId, work: u64) {
        match self.work.iter_mut().find(|(known, _)| *known == pipeline) {
            Some((_, sum)) => *sum += work,
            None => self.work.push((pipeline, work)),
        }
    }

    /// Small uploads one after the other lie side by side in their chunk, and often in their segment: then one copy does.
    fn upload(&mut self, chunk: Arc<wgpu::Buffer>, chunk_offset: u64, segment: SegmentId, offset: u64, size: u64) {
        if let Some(Resolved::Upload { chunk: known, chunk_offset: from, segment: to, offset: at, size: so_far }) =
            self.commands.last_mut()
            && (&*known, *from + *so_far) == (&chunk, chunk_offset)
            && (*to, *at + *so_far) == (segment, offset)
        {
            *so_far += size;
            return;
        }
        self.commands.push(Resolved::Upload { chunk, chunk_offset, segment, offset, size });
    }

    fn chunk(&mut self, core: &mut Core, id: ChunkId) -> Option<Arc<wgpu::Buffer>> {
        let (buffer, unmap) = core.staging.encode(id)?;
        if unmap {
            self.unmap.push(buffer.clone());
        }
        if !self.chunks.contains(&id) {
            self.chunks.push(id);
        }
        Some(buffer)
    }
}

/// Alignment of the status words behind a download.
pub(super) const STATUS_ALIGNMENT: u64 = 16;
