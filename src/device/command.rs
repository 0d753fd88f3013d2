//! Commands as plain data: what streams record and the queue encodes. Kernels are opaque numbers on this floor.

use smallvec::SmallVec;

pub(crate) use crate::device::load::PipelineId;
use crate::device::load::{Load, groups};
use crate::device::places::PlaceId;
use crate::memory::Place;

/// A chunk of staging memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChunkId(pub(crate) u32);

/// Bytes of parameters that a command can carry.
pub(crate) const MAX_PARAMS: usize = 256;

/// Parameter bytes, held inline so that recording allocates nothing.
#[derive(Clone, Copy)]
pub(crate) struct ParamBytes {
    len: u16,
    bytes: [u8; MAX_PARAMS],
}

impl ParamBytes {
    /// `None` where there are more than [`MAX_PARAMS`] bytes.
    pub(crate) fn new(params: &[u8]) -> Option<ParamBytes> {
        let mut out = ParamBytes { len: params.len() as u16, bytes: [0; MAX_PARAMS] };
        out.bytes.get_mut(..params.len())?.copy_from_slice(params);
        Some(out)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// One recorded command.
pub(crate) struct Command {
    /// The operation it belongs to, for errors and traces.
    pub(crate) label: &'static str,
    pub(crate) op: Op,
}

/// What a command does. Places are resolved when it is encoded.
///
/// Nearly all commands are dispatches, so their size is every command's size: no allocation while recording.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Op {
    Dispatch {
        pipeline: PipelineId,
        places: SmallVec<[PlaceId; 6]>,
        params: ParamBytes,
        grid: [u32; 3],
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
}

impl Op {
    /// What the submit policy counts.
    pub(crate) fn load(&self) -> Load {
        match self {
            Op::Dispatch { pipeline, grid, .. } => Load { kernel: Some((*pipeline, groups(*grid))), bytes: 0 },
            Op::Upload { size, .. } | Op::Download { size, .. } => Load { kernel: None, bytes: *size },
            Op::Move { to, .. } => Load { kernel: None, bytes: to.size },
        }
    }

    /// Every place the command uses, once per use.
    pub(crate) fn places(&self) -> &[PlaceId] {
        match self {
            Op::Dispatch { places, .. } => places,
            Op::Upload { dst, .. } => std::slice::from_ref(dst),
            Op::Move { place, .. } => std::slice::from_ref(place),
            Op::Download { src, .. } => std::slice::from_ref(src),
        }
    }
}
