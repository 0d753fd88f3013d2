//! placeholder
use crate::ids::{BlockId, FenceSet, Horizons, SegmentId, StreamId};
use std::fmt;
use std::panic::Location;

/// What a block is used for. Every reserved byte is in one of these or in cached, rounding or retiring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    Parameter,
    Gradient,
    OptimizerState,
    Activation,
    Input,
    Temporary,
}

/// Who asks for memory and what for.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    pub category: Category,
    pub label: &'static str,
    pub location: &'static Location<'static>,
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub segment: SegmentId,
    pub offset: u64,
    pub size: u64,
}

/// How the pool is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that may be reserved at most (retiring ones included).
    pub limit: u64,
    /// Largest segment that the driver can sell (`max_buffer_size`).
    pub max_segment: u64,
    /// Alignment of blocks in bytes, a power of two, at least 256.
    pub alignment: u64,
    /// Keep freed memory (the default), or give every segment back at once and buy one per request.
    pub caching: Caching,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    Pooled,
    Unpooled,
}

/// Ask the driver for this many bytes, then report with handle_segment or handle_segment_failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRequest {
    pub size: u64,
}

#[derive(Debug)]
pub enum Answer {
    /// The block may be used by commands of the stream that come after `after`.
    Ready { block: BlockId, place: Place, after: FenceSet },
    /// Buy a segment (first release what `poll_release` hands out), report, and ask again.
    NeedSegment(SegmentRequest),
    /// Last resort: submit everything, wait until the work completed, report it with handle_completed and ask again.
    NeedCompletion,
    /// No memory can be had.
    Exhausted(Box<OomReport>),
}

#[derive(Clone, Debug, Default)]
pub struct OomReport {}
impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory")
    }
}

/// One counter: now, the most so far, and the sums of all that went up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    pub current: u64,
    pub peak: u64,
    pub allocated: u64,
    pub freed: u64,
}

/// Counters of the pool, in bytes or counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of live blocks (rounded sizes).
    pub allocated_bytes: Stat,
    /// Bytes bought from the driver and not yet given back, retiring segments included.
    pub reserved_bytes: Stat,
    /// Bytes that callers asked for.
    pub requested_bytes: Stat,
    /// Live blocks.
    pub allocation: Stat,
    /// Segments.
    pub segment: Stat,
    /// Segments bought so far; segments given back so far.
    pub num_device_alloc: u64,
    pub num_device_free: u64,
    pub num_ooms: u64,
    /// Times the last resort was needed.
    pub num_alloc_retries: u64,
    /// Reuses that brought an order edge to another stream.
    pub order_edges: u64,
}

pub struct Pool {}

impl Pool {
    pub fn new(config: Config) -> Pool {
        let _ = config;
        todo!()
    }
    /// A block of at least `bytes` (> 0) bytes for commands of `stream`.
    pub fn alloc(&mut self, stream: StreamId, bytes: u64, tag: Tag, horizons: &impl Horizons) -> Answer {
        let _ = (stream, bytes, tag, horizons);
        todo!()
    }
    /// Takes a block back; `last_uses` are the commands that may still use it.
    pub fn free(&mut self, block: BlockId, last_uses: FenceSet, horizons: &impl Horizons) {
        let _ = (block, last_uses, horizons);
        todo!()
    }
    /// The driver sold the segment that was asked for.
    pub fn handle_segment(&mut self, request: SegmentRequest) -> SegmentId {
        let _ = request;
        todo!()
    }
    /// The driver refused.
    pub fn handle_segment_failed(&mut self, request: SegmentRequest) {
        let _ = request;
        todo!()
    }
    /// Work has completed: retiring segments may be gone now.
    pub fn handle_completed(&mut self, horizons: &impl Horizons) {
        let _ = horizons;
        todo!()
    }
    /// The next segment whose buffer is to be dropped. Its memory is *retiring* until the work before has completed.
    pub fn poll_release(&mut self, horizons: &impl Horizons) -> Option<SegmentId> {
        let _ = horizons;
        todo!()
    }
    /// Marks every idle segment for release; `poll_release` hands them out.
    pub fn empty_cache(&mut self) {
        todo!()
    }
    pub fn set_limit(&mut self, limit: u64) {
        let _ = limit;
        todo!()
    }
    pub fn set_category(&mut self, block: BlockId, category: Category) {
        let _ = (block, category);
        todo!()
    }
    pub fn place(&self, block: BlockId) -> Place {
        let _ = block;
        todo!()
    }
    pub fn stats(&self) -> &Stats {
        todo!()
    }
    /// Bytes of each category, cached, rounding and retiring; the sum is `reserved`.
    pub fn reset_peak_stats(&mut self) {
        todo!()
    }
    pub fn reset_accumulated_stats(&mut self) {
        todo!()
    }
    /// Checks every invariant; `Err` holds the sentence that does not hold.
    pub fn validate(&self) -> Result<(), String> {
        todo!()
    }
}
