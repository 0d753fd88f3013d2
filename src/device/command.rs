//! Commands as plain data: what streams record and the queue encodes. Kernels are opaque numbers on this floor.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::device::load::Load;
pub(crate) use crate::device::load::PipelineId;
use crate::device::places::PlaceId;
use crate::memory::Place;

/// A chunk of staging memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChunkId(pub(crate) u32);

/// The most bytes of parameters that a command can have.
pub(crate) const MAX_PARAMS: usize = 256;

/// When the device passed a point, in its own ticks: empty until it has, and for ever where the submission failed.
#[derive(Debug, Default)]
pub(crate) struct Stamp(OnceLock<u64>);

impl Stamp {
    /// The device has passed it.
    pub(crate) fn set(&self, ticks: u64) {
        let _ = self.0.set(ticks);
    }

    pub(crate) fn ticks(&self) -> Option<u64> {
        self.0.get().copied()
    }
}

/// The bytes of a tensor in a buffer, from its first element to its last.
///
/// Many tensors share a buffer. wgpu lets a dispatch or a render pass use a buffer either for reading only or for writing too,
/// whatever bytes of it are meant: bind windows as writable storage where one of the same buffer is written. A tensor made in a
/// [`MemPool`](crate::MemPool) with `no_split` has a buffer of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Window {
    /// The buffer. A clone that outlives its use keeps the memory from the driver.
    pub buffer: wgpu::Buffer,
    /// Bytes from the buffer's start to the tensor's first element. That of a tensor that is no view is a multiple of 256.
    pub offset: u64,
    /// Bytes from the first element of the tensor to its last.
    pub size: u64,
}

impl Window {
    /// The window for a bind group.
    pub fn binding(&self) -> wgpu::BindingResource<'_> {
        let size = std::num::NonZeroU64::new(self.size);
        wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer: &self.buffer, offset: self.offset, size })
    }

    /// The window for vertices, indices or a copy.
    pub fn slice(&self) -> wgpu::BufferSlice<'_> {
        self.buffer.slice(self.offset..self.offset + self.size)
    }
}

/// Records commands of an application, given the windows it asked for.
pub(crate) type Record = Box<dyn FnOnce(&mut wgpu::CommandEncoder, &[Window]) + Send>;

/// Commands of an application.
pub(crate) struct Foreign {
    pub(crate) places: SmallVec<[PlaceId; 6]>,
    /// Offset and size of the window in each place.
    pub(crate) windows: SmallVec<[(u64, u64); 6]>,
    /// How many of the windows, from the first, are read only.
    pub(crate) reads: usize,
    pub(crate) record: Record,
}

/// A dispatch of a program's own kernel, which sees a part of each place.
pub(crate) struct Own {
    pub(crate) pipeline: PipelineId,
    /// What has to live until it is encoded: the kernel that the pipeline is made from.
    pub(crate) kernel: Arc<dyn Any + Send + Sync>,
    pub(crate) places: SmallVec<[PlaceId; 6]>,
    /// Offset and size of the window in each place.
    pub(crate) windows: SmallVec<[(u64, u64); 6]>,
    pub(crate) params: SmallVec<[u8; 32]>,
    pub(crate) grid: [u32; 3],
    pub(crate) work: u64,
}

/// Offset and size in bytes of what is bound of each place.
pub(crate) type Windows = SmallVec<[(u64, u64); 4]>;

/// One recorded command.
pub(crate) struct Command {
    /// The operation it belongs to, for errors and traces.
    pub(crate) label: &'static str,
    /// The line of the program that called it.
    pub(crate) location: &'static Location<'static>,
    pub(crate) op: Op,
}

/// What a command does. Places are resolved when it is encoded.
pub(crate) enum Op {
    Dispatch {
        pipeline: PipelineId,
        places: SmallVec<[PlaceId; 6]>,
        /// Where not all of every place is bound.
        windows: Option<Box<Windows>>,
        /// Bytes of parameters, which stand in the recording.
        params: u16,
        grid: [u32; 3],
        /// How much that is, in the kernel floor's units.
        work: u64,
    },
    Upload {
        chunk: ChunkId,
        chunk_offset: u64,
        dst: PlaceId,
        dst_offset: u64,
        size: u64,
    },
    /// The memory lies at `to` for the commands that are encoded after this one.
    Move {
        place: PlaceId,
        to: Place,
    },
    Download {
        src: PlaceId,
        src_offset: u64,
        chunk: ChunkId,
        chunk_offset: u64,
        size: u64,
    },
    /// The device says what time it is.
    Time {
        stamp: Arc<Stamp>,
    },
    /// Nothing: it waits for another device (`Timeline::hold`), and what comes after it waits with it.
    Hold,
    Foreign(Box<Foreign>),
    Own(Box<Own>),
}

/// The commands of a stream that are not encoded yet, and their parameters, which are of very different length.
#[derive(Default)]
pub(crate) struct Recording {
    commands: VecDeque<Command>,
    params: VecDeque<u8>,
}

impl Recording {
    /// Appends a command; `params` are those of a dispatch.
    pub(crate) fn push(&mut self, command: Command, params: &[u8]) {
        self.commands.push_back(command);
        self.params.extend(params);
    }

    /// The next command; its parameters are appended to `params`.
    pub(crate) fn pop(&mut self, params: &mut Vec<u8>) -> Option<Command> {
        let command = self.commands.pop_front()?;
        if let Op::Dispatch { params: len, .. } = command.op {
            params.extend(self.params.drain(..usize::from(len)));
        }
        Some(command)
    }

    /// The `n`th of the commands to come, from 0.
    pub(crate) fn get(&self, n: usize) -> Option<&Command> {
        self.commands.get(n)
    }

    /// The commands to come.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter()
    }
}

impl Op {
    /// What the submit policy counts.
    pub(crate) fn load(&self) -> Load {
        match self {
            Op::Dispatch { pipeline, work, .. } => Load { kernel: Some((*pipeline, *work)), ..Load::default() },
            Op::Own(own) => Load { kernel: Some((own.pipeline, own.work)), ..Load::default() },
            Op::Upload { size, .. } | Op::Download { size, .. } => Load { bytes: *size, ..Load::default() },
            Op::Move { to, .. } => Load { bytes: to.size, ..Load::default() },
            Op::Time { .. } => Load { times: 1, ..Load::default() },
            Op::Hold => Load::default(),
            Op::Foreign(_) => Load { alone: true, ..Load::default() },
        }
    }

    /// Every place the command uses, once per use.
    pub(crate) fn places(&self) -> &[PlaceId] {
        match self {
            Op::Dispatch { places, .. } => places,
            Op::Upload { dst, .. } => std::slice::from_ref(dst),
            Op::Move { place, .. } => std::slice::from_ref(place),
            Op::Download { src, .. } => std::slice::from_ref(src),
            Op::Time { .. } | Op::Hold => &[],
            Op::Foreign(foreign) => &foreign.places,
            Op::Own(own) => &own.places,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of them wait at a time: what a command grows by, the host's cache pays for.
    #[test]
    fn a_command_is_small() {
        assert!(size_of::<Command>() <= 96, "{} bytes", size_of::<Command>());
    }

    #[test]
    fn a_recording_gives_commands_back_with_their_own_parameters() {
        let command = |len: usize| Command {
            label: "test",
            location: Location::caller(),
            op: Op::Dispatch {
                pipeline: PipelineId(len as u32),
                places: SmallVec::new(),
                windows: None,
                params: len as u16,
                grid: [1; 3],
                work: 1,
            },
        };
        let bytes = |len: usize| (0..len).map(|i| (i * 7 + len) as u8).collect::<Vec<u8>>();
        let mut recording = Recording::default();
        let mut params = Vec::new();
        // Several rounds, one command behind, so that the bytes go round the ring.
        let lens = [32, 0, MAX_PARAMS, 1, 112, 32, 5].repeat(20);
        recording.push(command(lens[0]), &bytes(lens[0]));
        for (len, next) in lens.iter().zip(&lens[1..]) {
            recording.push(command(*next), &bytes(*next));
            params.clear();
            let taken = recording.pop(&mut params).map(|command| command.op);
            assert!(matches!(taken, Some(Op::Dispatch { pipeline: PipelineId(id), .. }) if id as usize == *len));
            assert_eq!(params, bytes(*len));
        }
        assert_eq!(recording.iter().count(), 1);
    }
}
