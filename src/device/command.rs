//! Commands as plain data: what streams record and the queue encodes. Kernels are opaque numbers on this floor.

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

/// One recorded command.
pub(crate) struct Command {
    /// The operation it belongs to, for errors and traces.
    pub(crate) label: &'static str,
    /// The line of the program that called it.
    pub(crate) location: &'static Location<'static>,
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
}

impl Op {
    /// What the submit policy counts.
    pub(crate) fn load(&self) -> Load {
        match self {
            Op::Dispatch { pipeline, work, .. } => Load { kernel: Some((*pipeline, *work)), ..Load::default() },
            Op::Upload { size, .. } | Op::Download { size, .. } => Load { bytes: *size, ..Load::default() },
            Op::Move { to, .. } => Load { bytes: to.size, ..Load::default() },
            Op::Time { .. } => Load { times: 1, ..Load::default() },
        }
    }

    /// Every place the command uses, once per use.
    pub(crate) fn places(&self) -> &[PlaceId] {
        match self {
            Op::Dispatch { places, .. } => places,
            Op::Upload { dst, .. } => std::slice::from_ref(dst),
            Op::Move { place, .. } => std::slice::from_ref(place),
            Op::Download { src, .. } => std::slice::from_ref(src),
            Op::Time { .. } => &[],
        }
    }
}
