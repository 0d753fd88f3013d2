//! The one place that turns commands into wgpu calls: a batch becomes one command buffer.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::Gpu;
use crate::device::command::PipelineId;
use crate::device::driver::{self, BufferKind};
use crate::ids::SegmentId;
use crate::kernel::ParamPath;
use crate::kernel::pipeline::{BindGroups, Pipelines, Range, Registry, UNIFORM_SIZE};
use crate::kernel::sharing::Textures;
use crate::memory::Place;
use crate::stream::interop::ForeignCommands;
use crate::stream::stage::Stage;
use crate::stream::timestamps::{TimeSet, Timestamps};

/// A command with its places resolved. Nearly all are dispatches, so their size may be every command's size.
#[allow(clippy::large_enum_variant)]
pub(super) enum Resolved {
    Dispatch {
        pipeline: PipelineId,
        ranges: SmallVec<[Range; 6]>,
        /// Where they stand among the batch's.
        params: std::ops::Range<usize>,
        grid: [u32; 3],
    },
    /// From a staging chunk into a segment.
    Upload { chunk: Arc<wgpu::Buffer>, chunk_offset: u64, segment: SegmentId, offset: u64, size: u64 },
    /// From a segment into a staging chunk.
    Download { segment: SegmentId, offset: u64, chunk: Arc<wgpu::Buffer>, chunk_offset: u64, size: u64 },
    /// The status words into a staging chunk.
    Status { chunk: Arc<wgpu::Buffer>, chunk_offset: u64 },
    /// From one place of the pool to another; within a segment the two can overlap, `to` in front.
    Move { from: Place, to: Place },
    /// Sets the status words to 0.
    ClearStatus,
    /// The next time of the batch.
    Time,
    /// Commands of an application.
    Foreign(Box<ForeignCommands>),
}

/// Bytes that a move within a segment copies at a time: large against the cost of two copy commands, small beside a driver's
/// block, and there from the start, so that it cannot fail when memory is short.
pub(crate) const BOUNCE_SIZE: u64 = 1 << 20;

/// Bytes of the status words: code, position, index, length.
pub(crate) const STATUS_SIZE: u64 = 16;

/// What encoding needs and keeps: the buffers of segments, pipelines, bind groups, uniform buffers.
pub(super) struct Encoder {
    pub(super) segments: Vec<Option<wgpu::Buffer>>,
    pub(super) pipelines: Pipelines,
    pub(super) bind_groups: BindGroups,
    uniforms: Vec<Uniform>,
    pub(super) stage: Stage,
    pub(super) timestamps: Timestamps,
    status: wgpu::Buffer,
    /// A copy within one buffer is refused, so the bytes take a rest here.
    bounce: wgpu::Buffer,
    /// The command of the batch that is being encoded, for errors; none while it is about the batch as a whole.
    pub(super) at: Option<usize>,
}

/// Parameters of one submission: written to `staging` (mapped), copied to `buffer` by the device.
pub(super) struct Uniform {
    pub(super) staging: Arc<wgpu::Buffer>,
    buffer: wgpu::Buffer,
    group: wgpu::BindGroup,
    size: u64,
}

/// What a batch was encoded to.
pub(super) struct Encoded {
    pub(super) commands: wgpu::CommandBuffer,
    /// To be mapped again and given back with [`Encoder::recycle`].
    pub(super) uniform: Option<Uniform>,
    /// The times of the batch, where it has any.
    pub(super) times: Option<TimeSet>,
}

impl Encoder {
    pub(super) fn new(gpu: &Gpu, status: wgpu::Buffer, bounce: wgpu::Buffer) -> Encoder {
        Encoder {
            segments: Vec::new(),
            pipelines: Pipelines::new(&gpu.device),
            bind_groups: BindGroups::new(),
            uniforms: Vec::new(),
            stage: Stage::default(),
            timestamps: Timestamps::default(),
            status,
            bounce,
            at: None,
        }
    }

    pub(super) fn add_segment(&mut self, segment: SegmentId, buffer: wgpu::Buffer) {
        let index = segment.0 as usize;
        if self.segments.len() <= index {
            self.segments.resize(index + 1, None);
        }
        self.stage.forget(segment);
        self.segments[index] = Some(buffer);
    }

    pub(super) fn forget_segment(&mut self, segment: SegmentId) {
        self.bind_groups.forget_segment(segment);
        self.stage.forget(segment);
        if let Some(slot) = self.segments.get_mut(segment.0 as usize) {
            *slot = None;
        }
    }

    /// One command buffer for the batch and its parameters. `Err` holds the driver's words where it refuses anything that this takes.
    pub(super) fn encode(
        &mut self,
        gpu: &Gpu,
        registry: &Registry,
        batch: &[Resolved],
        all_params: &[u8],
    ) -> Result<Encoded, String> {
        let device = &gpu.device;
        self.at = None;
        self.pipelines.drop_unused(registry);
        let uniform = self.write_uniforms(gpu, registry, batch, all_params)?;
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("linn") });
        if let Some(uniform) = &uniform {
            encoder.copy_buffer_to_buffer(&uniform.staging, 0, &uniform.buffer, 0, uniform.size);
        }
        let mut params_offset = 0u32;
        let mut times: Option<TimeSet> = None;
        let mut rest = batch;
        while let Some(first) = rest.first() {
            self.at = Some(batch.len() - rest.len());
            if let Resolved::Dispatch { pipeline, ranges, .. } = first {
                // Inputs that are read as textures are copied before the pass, which goes on while none has to be copied.
                let textures = self.pipelines.get(gpu, registry, *pipeline)?.textures;
                let filled = self.stage.fill(gpu, &mut encoder, &self.segments, ranges, textures, &mut self.bind_groups)?;
                let mut slots = Some(filled);
                let mut pass =
                    encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: Some("linn"), timestamp_writes: None });
                let mut current = None;
                while let Some(command @ Resolved::Dispatch { pipeline, ranges, params, grid }) = rest.first() {
                    self.at = Some(batch.len() - rest.len());
                    let textures = self.pipelines.get(gpu, registry, *pipeline)?.textures;
                    let Some(slots) = slots.take().or_else(|| self.stage.held(ranges, textures)) else { break };
                    let group = {
                        let (stage, segments, status) = (&self.stage, &self.segments, &self.status);
                        let ranges = stage.ranges(ranges, textures, &slots);
                        let layout = self.pipelines.layout(device, ranges.len(), textures);
                        let views = stage.views(textures, &slots);
                        self.bind_groups.get(&ranges, || bind(gpu, layout, &ranges, &views, segments, status))?
                    };
                    let compiled = self.pipelines.get(gpu, registry, *pipeline)?;
                    if current != Some(*pipeline) {
                        pass.set_pipeline(&compiled.pipeline);
                        current = Some(*pipeline);
                    }
                    pass.set_bind_group(0, group, &[]);
                    match (compiled.path, &all_params[params.clone()]) {
                        (_, []) => {}
                        (ParamPath::Immediates, bytes) => pass.set_immediates(0, bytes),
                        (ParamPath::Uniform, _) => {
                            pass.set_bind_group(1, uniform.as_ref().map(|uniform| &uniform.group), &[params_offset]);
                            params_offset += UNIFORM_SIZE as u32;
                        }
                    }
                    pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
                    self.encoded(command, textures);
                    rest = &rest[1..];
                }
                continue;
            }
            match first {
                Resolved::Time => {
                    let set = times.take().map_or_else(|| self.timestamps.take(gpu), Ok)?;
                    times.insert(set).write(&mut encoder);
                }
                Resolved::Foreign(foreign) => foreign.record(gpu, &mut encoder, &self.segments)?,
                copy => self.copy(&mut encoder, copy),
            }
            self.encoded(first, 0);
            rest = &rest[1..];
        }
        times.iter().for_each(|set| set.resolve(&mut encoder));
        self.at = None;
        Ok(Encoded { commands: gpu.attempt("linn.commands", || encoder.finish())?, uniform, times })
    }

    /// The one place that learns what commands write: copies of these bytes are out of date for the commands that follow.
    /// All that a dispatch binds as storage counts as written, whether the kernel writes to it or not.
    fn encoded(&mut self, command: &Resolved, textures: Textures) {
        match command {
            Resolved::Dispatch { ranges, .. } => {
                let storage = ranges.iter().enumerate().filter(|(i, _)| textures >> i & 1 == 0);
                storage.filter_map(|(_, range)| *range).for_each(|range| self.stage.written(range));
            }
            Resolved::Upload { segment, offset, size, .. } => self.stage.written((*segment, *offset, *size)),
            Resolved::Move { to, .. } => self.stage.written((to.segment, to.offset, to.size)),
            Resolved::Foreign(foreign) => foreign.written().iter().for_each(|bytes| self.stage.written(*bytes)),
            Resolved::Download { .. } | Resolved::Status { .. } | Resolved::ClearStatus | Resolved::Time => {}
        }
    }

    fn copy(&self, encoder: &mut wgpu::CommandEncoder, command: &Resolved) {
        let segment = |id: &SegmentId| self.segments.get(id.0 as usize).and_then(Option::as_ref);
        match command {
            Resolved::Upload { chunk, chunk_offset, segment: id, offset, size } => {
                if let Some(buffer) = segment(id) {
                    encoder.copy_buffer_to_buffer(chunk, *chunk_offset, buffer, *offset, *size);
                }
            }
            Resolved::Download { segment: id, offset, chunk, chunk_offset, size } => {
                if let Some(buffer) = segment(id) {
                    encoder.copy_buffer_to_buffer(buffer, *offset, chunk, *chunk_offset, *size);
                }
            }
            Resolved::Status { chunk, chunk_offset } => {
                encoder.copy_buffer_to_buffer(&self.status, 0, chunk, *chunk_offset, STATUS_SIZE);
            }
            Resolved::Move { from, to } => {
                let (Some(source), Some(target)) = (segment(&from.segment), segment(&to.segment)) else { return };
                if from.segment != to.segment {
                    return encoder.copy_buffer_to_buffer(source, from.offset, target, to.offset, to.size);
                }
                // Front to back: what is written lies before what is still to be read.
                for start in (0..to.size).step_by(BOUNCE_SIZE as usize) {
                    let size = BOUNCE_SIZE.min(to.size - start);
                    encoder.copy_buffer_to_buffer(source, from.offset + start, &self.bounce, 0, size);
                    encoder.copy_buffer_to_buffer(&self.bounce, 0, target, to.offset + start, size);
                }
            }
            Resolved::ClearStatus => encoder.clear_buffer(&self.status, 0, None),
            Resolved::Dispatch { .. } | Resolved::Foreign(_) | Resolved::Time => {}
        }
    }

    /// Writes the parameters that do not fit immediates, in dispatch order, one slot each.
    fn write_uniforms(
        &mut self,
        gpu: &Gpu,
        registry: &Registry,
        batch: &[Resolved],
        all_params: &[u8],
    ) -> Result<Option<Uniform>, String> {
        let mut slots: Vec<&[u8]> = Vec::new();
        for (at, command) in batch.iter().enumerate() {
            if let Resolved::Dispatch { pipeline, params, .. } = command {
                self.at = Some(at);
                let path = self.pipelines.get(gpu, registry, *pipeline)?.path;
                if path == ParamPath::Uniform && !params.is_empty() {
                    slots.push(&all_params[params.clone()]);
                }
            }
        }
        self.at = None;
        if slots.is_empty() {
            return Ok(None);
        }
        let size = slots.len() as u64 * UNIFORM_SIZE;
        let uniform = match self.uniforms.iter().position(|uniform| uniform.size >= size) {
            Some(index) => self.uniforms.swap_remove(index),
            None => self.new_uniform(gpu, size.next_power_of_two().max(16 << 10))?,
        };
        let mut view = uniform.staging.get_mapped_range_mut(..).map_err(|error| error.to_string())?;
        for (slot, params) in slots.iter().enumerate() {
            let start = slot * UNIFORM_SIZE as usize;
            view.slice(start..start + params.len()).copy_from_slice(params);
        }
        drop(view);
        uniform.staging.unmap();
        Ok(Some(uniform))
    }

    fn new_uniform(&self, gpu: &Gpu, size: u64) -> Result<Uniform, String> {
        let staging = driver::create(gpu, size, BufferKind::Upload)?;
        let buffer = driver::create(gpu, size, BufferKind::Uniform)?;
        let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &buffer,
            offset: 0,
            size: std::num::NonZeroU64::new(UNIFORM_SIZE),
        });
        let group =
            create_group(gpu, "linn.params", self.pipelines.uniform_layout(), &[wgpu::BindGroupEntry { binding: 0, resource }])?;
        Ok(Uniform { staging: Arc::new(staging), buffer, group, size })
    }

    /// The uniform's staging is mapped again.
    pub(super) fn recycle(&mut self, uniform: Uniform) {
        self.uniforms.push(uniform);
    }

    /// Drops the textures, and the bind groups that name them.
    pub(super) fn drop_copies(&mut self) {
        self.bind_groups.clear();
        self.stage = Stage::default();
    }

    /// Nothing of what was encoded runs: forgets the copies that it promised, and frees what can be made again.
    pub(super) fn start_over(&mut self) {
        self.drop_copies();
        self.pipelines.forget_layouts();
        self.timestamps.clear();
    }

    /// Drops what refers to buffers, before the device goes.
    pub(super) fn clear(&mut self) {
        self.start_over();
        self.uniforms.clear();
        self.segments.clear();
    }
}

/// The command to name where a batch is refused as a whole: the only one, or an application's, which has a batch of its own.
pub(super) fn speaks_for(batch: &[Resolved]) -> Option<usize> {
    let foreign = batch.iter().position(|command| matches!(command, Resolved::Foreign(_)));
    foreign.or((batch.len() == 1).then_some(0))
}

fn create_group(
    gpu: &Gpu,
    label: &str,
    layout: &wgpu::BindGroupLayout,
    entries: &[wgpu::BindGroupEntry<'_>],
) -> Result<wgpu::BindGroup, String> {
    let descriptor = wgpu::BindGroupDescriptor { label: Some(label), layout, entries };
    gpu.attempt(label, || gpu.device.create_bind_group(&descriptor))
}

fn bind(
    gpu: &Gpu,
    layout: &wgpu::BindGroupLayout,
    ranges: &[Range],
    textures: &[Option<&wgpu::TextureView>],
    segments: &[Option<wgpu::Buffer>],
    status: &wgpu::Buffer,
) -> Result<wgpu::BindGroup, String> {
    debug_assert!(disjoint(ranges), "overlapping ranges in one dispatch: {ranges:?}");
    let entries: SmallVec<[wgpu::BindGroupEntry<'_>; 8]> = ranges
        .iter()
        .enumerate()
        .map(|(binding, range)| {
            if let Some(Some(view)) = textures.get(binding) {
                return wgpu::BindGroupEntry { binding: binding as u32, resource: wgpu::BindingResource::TextureView(view) };
            }
            let (buffer, offset, size) = match range {
                Some((id, offset, size)) => {
                    // A segment that is bound by a command not yet encoded is never released; see memory::check.
                    let buffer = segments.get(id.0 as usize).and_then(Option::as_ref).unwrap_or(status);
                    (buffer, *offset, std::num::NonZeroU64::new(*size))
                }
                None => (status, 0, std::num::NonZeroU64::new(STATUS_SIZE)),
            };
            let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size });
            wgpu::BindGroupEntry { binding: binding as u32, resource }
        })
        .collect();
    create_group(gpu, "linn.operands", layout, &entries)
}

/// True when no two ranges overlap: browsers refuse it, native drivers give wrong results without a word.
pub(super) fn disjoint(ranges: &[Range]) -> bool {
    ranges.iter().enumerate().all(|(i, a)| {
        ranges[..i].iter().all(|b| match (a, b) {
            (Some((s, x, n)), Some((t, y, m))) => s != t || x + n <= *y || y + m <= *x,
            (None, None) => false,
            _ => true,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_found() {
        let range = |segment, offset, size| Some((SegmentId(segment), offset, size));
        assert!(disjoint(&[range(0, 0, 256), range(0, 256, 256), range(1, 0, 512), None]));
        assert!(!disjoint(&[range(0, 0, 512), range(0, 256, 256)]));
        assert!(!disjoint(&[range(0, 0, 256), range(0, 0, 256)]));
        assert!(!disjoint(&[None, None]));
    }
}
