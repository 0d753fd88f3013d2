//! What callers say: how the pool is set up, who asks for memory and what for.

use std::fmt;
use std::panic::Location;

use super::compact::Compaction;
use super::pytorch;
use crate::ids::{MemPoolId, StreamId};

/// What a block is used for. Every reserved byte is in one of these or in cached, rounding or retiring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// Trained values.
    Parameter,
    /// Gradients, of parameters and in flight.
    Gradient,
    /// Moments, step counts and the like.
    OptimizerState,
    /// Saved for the backward pass.
    Activation,
    /// Uploaded from the host.
    Input,
    /// Anything else.
    Temporary,
}

impl Category {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Category; 6] = [
        Category::Parameter,
        Category::Gradient,
        Category::OptimizerState,
        Category::Activation,
        Category::Input,
        Category::Temporary,
    ];

    /// The name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            Category::Parameter => "parameter",
            Category::Gradient => "gradient",
            Category::OptimizerState => "optimizer state",
            Category::Activation => "activation",
            Category::Input => "input",
            Category::Temporary => "temporary",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who asks for memory and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// What the memory is used for.
    pub category: Category,
    /// The operation that wants it.
    pub label: &'static str,
    /// The line of the user's program.
    pub location: &'static Location<'static>,
}

impl Tag {
    /// A tag with the caller's file and line.
    #[track_caller]
    pub fn here(category: Category, label: &'static str) -> Tag {
        Tag { category, label, location: Location::caller() }
    }
}

/// How the pool is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that may be reserved at most (retiring ones included).
    pub limit: u64,
    /// The share of `limit` that may be reserved; it holds for later limits too.
    pub memory_fraction: f64,
    /// Largest segment that the driver can sell (`max_buffer_size`).
    pub max_segment: u64,
    /// Alignment of blocks in bytes, a power of two, at least 256.
    pub alignment: u64,
    /// Keep freed memory (the default), or give every segment back at once and buy one per request.
    pub caching: Caching,
    /// The rules of placement.
    pub policy: Policy,
    /// Free blocks of this many bytes or more are kept for requests as large (`pytorch` only); `u64::MAX` for no such rule.
    pub max_split_size: u64,
    /// A request of at least `max_split_size` takes a block that is larger by less than this (`pytorch` only).
    pub max_non_split_rounding: u64,
    /// Bytes of a segment for a block between 1 and 10 MiB (`pytorch` only).
    pub large_segment_size: u64,
    /// Sizes are rounded up to this many steps per power of two; 0 and 1 for none. Entry 0 holds for sizes below 2 MiB,
    /// entry k for those from 2^k MiB on, the last one for all from 32 GiB on.
    pub roundup_power2_divisions: [u64; 16],
    /// The share of the limit above which idle segments are given back before one is bought; 0 for never.
    pub garbage_collection_threshold: f64,
    /// When live blocks are moved without being asked to (`linn` only).
    pub compaction: Compaction,
}

/// The rules of placement: which free block serves a request, how much is bought, what is given back when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// linn's own: one pool for all streams and sizes.
    #[default]
    Linn,
    /// Those of PyTorch's native allocator, to compare with.
    Pytorch,
}

impl Config {
    /// Bytes that may be reserved: `memory_fraction` of the limit; no limit has no share.
    pub fn effective_limit(&self) -> u64 {
        match self.limit == u64::MAX || self.memory_fraction >= 1.0 {
            true => self.limit,
            false => (self.limit as f64 * self.memory_fraction) as u64,
        }
    }
}

impl Default for Config {
    /// No limit, segments up to 256 MiB (WebGPU's guaranteed buffer size), blocks aligned to 256 bytes, pooled.
    fn default() -> Config {
        Config {
            limit: u64::MAX,
            memory_fraction: 1.0,
            max_segment: 256 << 20,
            alignment: 256,
            caching: Caching::Pooled,
            policy: Policy::Linn,
            max_split_size: u64::MAX,
            max_non_split_rounding: pytorch::LARGE_SEGMENT,
            large_segment_size: pytorch::LARGE_SEGMENT,
            roundup_power2_divisions: [0; 16],
            garbage_collection_threshold: 0.0,
            compaction: Compaction::default(),
        }
    }
}

/// Whether freed memory is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Caching {
    /// Keep it and lend it again.
    #[default]
    Pooled,
    /// One segment per request, given back at once: to measure what pooling gains.
    Unpooled,
}

/// One wish for memory, from the first [`Pool::alloc`](super::Pool::alloc) to its last answer. It remembers how far
/// down the ladder it has come, so asking again ends.
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) stream: StreamId,
    pub(super) pool: MemPoolId,
    pub(super) bytes: u64,
    pub(super) tag: Tag,
    pub(super) rung: Rung,
    /// The last resort was used.
    pub(super) waited: bool,
    /// Times that segments were emptied for it.
    pub(super) rounds: u32,
    /// A segment was bought to move blocks into, and they were not moved yet.
    pub(super) hosting: bool,
    /// Names it among those that buy; 0 until a segment was asked for.
    pub(super) buyer: u32,
    /// The driver refused a segment.
    pub(super) refused: bool,
    /// All that was idle went back for it.
    pub(super) retried: bool,
    /// Policy `pytorch`: the cache was searched for it.
    pub(super) searched: bool,
}

/// Which purchase comes next. (Policy `pytorch`: a plain one, one after oversize segments went back, one after all cached
/// segments went back, none.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rung {
    /// A segment with room for more.
    Grown,
    /// A segment of just the block's size.
    Exact,
    /// The same, after idle segments that need no waiting went back to the driver.
    Released,
    /// Nothing: the driver refused.
    Refused,
}

impl Rung {
    pub(super) fn next(self) -> Rung {
        match self {
            Rung::Grown => Rung::Exact,
            Rung::Exact => Rung::Released,
            Rung::Released | Rung::Refused => Rung::Refused,
        }
    }
}

impl Request {
    /// `bytes` (> 0) bytes for commands of `stream`.
    pub fn new(stream: StreamId, bytes: u64, tag: Tag) -> Request {
        Request {
            stream,
            pool: MemPoolId::DEFAULT,
            bytes,
            tag,
            rung: Rung::Grown,
            waited: false,
            rounds: 0,
            hosting: false,
            searched: false,
            buyer: 0,
            refused: false,
            retried: false,
        }
    }

    /// The same in a private pool; in everybody's where that one is gone.
    pub fn in_pool(mut self, pool: MemPoolId) -> Request {
        self.pool = pool;
        self
    }
}
