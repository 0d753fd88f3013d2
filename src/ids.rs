//! Identifiers and moments: streams, segments, blocks, and the numbers that order everything.
//!
//! Every command gets the next *number* of its stream and a device-wide *ordinal*. A [`Fence`] is a
//! (stream, number) pair: "that command of that stream". A stream has three horizons, each a number:
//! enqueued >= submitted >= completed.

use smallvec::SmallVec;

/// A stream of one device. Stream 0 is the default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The stream that exists from the start and that a thread uses unless it enters another.
    pub const DEFAULT: StreamId = StreamId(0);
}

/// Memory bought from the driver in one piece (one buffer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// A piece of a segment that is lent to one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A pool of segments: everybody's, or one that somebody made for requests of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MemPoolId(pub u32);

impl MemPoolId {
    /// Everybody's.
    pub const DEFAULT: MemPoolId = MemPoolId(0);
}

/// Device-wide position of a command: commands of all streams in the order they were enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ordinal(pub u64);

/// The command `number` of `stream`; numbers start at 1, so number 0 is "before everything".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// The stream the command was enqueued on.
    pub stream: StreamId,
    /// Its place in that stream, from 1.
    pub number: u64,
}

/// What is known about how far each stream has come. `timeline::Timeline` answers it; a test can pretend.
pub trait Horizons {
    /// Number of the last command enqueued on `stream` (0 when there is none).
    fn enqueued(&self, stream: StreamId) -> u64;
    /// Number of the last command handed to the driver.
    fn submitted(&self, stream: StreamId) -> u64;
    /// Number of the last command known to have been executed.
    fn completed(&self, stream: StreamId) -> u64;
    /// True for a stream whose work should wait for no other stream's: its memory is bought where it would.
    fn is_urgent(&self, _stream: StreamId) -> bool {
        false
    }
    /// True for a command that stays here for as long as something outside takes: memory is bought where others would wait for it.
    fn is_held(&self, _fence: Fence) -> bool {
        false
    }
}

/// At most one fence per stream: the latest. An earlier command of the same stream is implied.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct FenceSet(SmallVec<[Fence; 2]>);

impl Clone for FenceSet {
    /// A copy of the bytes: the derived one goes through an iterator, and every request for memory makes one.
    #[inline]
    fn clone(&self) -> FenceSet {
        FenceSet(SmallVec::from_slice(&self.0))
    }
}

impl FenceSet {
    /// The empty set.
    #[inline]
    pub fn new() -> FenceSet {
        FenceSet::default()
    }

    /// Adds one fence; a later one of the same stream absorbs it.
    #[inline]
    pub fn insert(&mut self, fence: Fence) {
        match self.0.iter_mut().find(|known| known.stream == fence.stream) {
            Some(known) => known.number = known.number.max(fence.number),
            None => self.0.push(fence),
        }
    }

    /// Adds all fences of `other`.
    #[inline]
    pub fn merge(&mut self, other: &FenceSet) {
        for fence in &other.0 {
            self.insert(*fence);
        }
    }

    /// Keeps the fences for which `keep` holds.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(Fence) -> bool) {
        self.0.retain(|fence| keep(*fence));
    }

    /// The fence of `stream`, if the set has one.
    pub fn of(&self, stream: StreamId) -> Option<Fence> {
        self.0.iter().copied().find(|fence| fence.stream == stream)
    }

    /// All fences, in no particular order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Fence> + '_ {
        self.0.iter().copied()
    }

    /// True when there is nothing to wait for.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of streams named.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Empties the set and keeps its memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl FromIterator<Fence> for FenceSet {
    fn from_iter<I: IntoIterator<Item = Fence>>(fences: I) -> FenceSet {
        let mut set = FenceSet::new();
        for fence in fences {
            set.insert(fence);
        }
        set
    }
}
