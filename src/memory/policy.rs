//! What callers say: how the pool is set up, who asks for memory and what for.

use std::fmt;
use std::panic::Location;

use crate::ids::StreamId;

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
    /// Largest segment that the driver can sell (`max_buffer_size`).
    pub max_segment: u64,
    /// Alignment of blocks in bytes, a power of two, at least 256.
    pub alignment: u64,
    /// Keep freed memory (the default), or give every segment back at once and buy one per request.
    pub caching: Caching,
}

impl Default for Config {
    /// No limit, segments up to 256 MiB (WebGPU's guaranteed buffer size), blocks aligned to 256 bytes, pooled.
    fn default() -> Config {
        Config { limit: u64::MAX, max_segment: 256 << 20, alignment: 256, caching: Caching::Pooled }
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
    pub(super) bytes: u64,
    pub(super) tag: Tag,
    pub(super) rung: Rung,
    /// The last resort was used.
    pub(super) waited: bool,
}

/// Which purchase comes next.
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

impl Request {
    /// `bytes` (> 0) bytes for commands of `stream`.
    pub fn new(stream: StreamId, bytes: u64, tag: Tag) -> Request {
        Request { stream, bytes, tag, rung: Rung::Grown, waited: false }
    }
}
