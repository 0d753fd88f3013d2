//! Chunks that users hold, and the account of them.

use smallvec::SmallVec;

use super::{Chunk, ChunkId, Direction, Owner, Staging, State};
use crate::ids::{Fence, FenceSet};
use crate::memory::Stat;

/// Pinned memory: host memory in buffers that users hold (`pinned_upload`, `pinned_download`), apart from transient staging
/// (`DeviceStats::staging_upload_bytes`, `staging_download_bytes`) and from device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedStats {
    /// Buffers that somebody holds. PyTorch's `active_requests`.
    pub held: Stat,
    /// Bytes of these, as bought (up to a sixteenth more than asked for). PyTorch's `active_bytes`.
    pub held_bytes: Stat,
    /// Bytes bought and not given back: held and cached. PyTorch's `allocated_bytes`.
    pub reserved_bytes: Stat,
    /// Bytes that nobody holds, kept for the next buffer of their size; `empty_cache` gives them back.
    pub cached_bytes: u64,
    /// Bytes, held or not, that the device uses now or that are being mapped again.
    pub in_flight_bytes: u64,
    /// Buffers bought so far.
    pub num_host_alloc: u64,
    /// Buffers given back so far.
    pub num_host_free: u64,
}

fn rise(stat: &mut Stat, amount: u64) {
    stat.current += amount;
    stat.allocated += amount;
    stat.peak = stat.peak.max(stat.current);
}

pub(super) fn fall(stat: &mut Stat, amount: u64) {
    stat.current -= amount;
    stat.freed += amount;
}

/// What a held chunk is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held<B> {
    /// The host may use it.
    Ready(B),
    /// The device uses it, or it is being mapped again.
    InFlight,
    /// What came from the device is still being read.
    Reading,
    /// It cannot be mapped any more, or the device is closed.
    Gone,
}

impl<B: Clone, W> Staging<B, W> {
    /// A cached chunk of this class, which is the caller's from now on.
    pub(crate) fn hold(&mut self, direction: Direction, class: u64) -> Option<ChunkId> {
        let fits = |chunk: &Chunk<B>| {
            chunk.owner == Owner::Cached && chunk.state == State::Ready && (chunk.direction, chunk.size) == (direction, class)
        };
        let (id, _) = self.all().find(|(_, chunk)| fits(chunk))?;
        self.chunk_mut(id)?.owner = Owner::Held;
        self.pinned.cached_bytes -= class;
        self.count_held(class);
        Some(id)
    }

    /// A chunk was bought for the caller; uploads come mapped.
    pub(crate) fn add_held(&mut self, direction: Direction, size: u64, buffer: B) -> ChunkId {
        self.pinned.num_host_alloc += 1;
        rise(&mut self.pinned.reserved_bytes, size);
        self.count_held(size);
        self.insert(Chunk::new(buffer, size, direction, Owner::Held))
    }

    fn count_held(&mut self, size: u64) {
        rise(&mut self.pinned.held, 1);
        rise(&mut self.pinned.held_bytes, size);
    }

    /// Whoever held the chunk is gone; the device may still use it, and a future may still wait for that.
    pub(crate) fn release(&mut self, id: ChunkId) {
        let Some(chunk) = self.chunk_mut(id).filter(|chunk| chunk.owner == Owner::Held) else { return };
        chunk.owner = Owner::Cached;
        let (size, dead) = (chunk.size, chunk.state == State::Dead);
        fall(&mut self.pinned.held, 1);
        fall(&mut self.pinned.held_bytes, size);
        self.pinned.cached_bytes += size;
        if dead {
            self.discard(id);
        }
    }

    /// What a held chunk is at.
    pub(crate) fn held(&self, id: ChunkId) -> Held<B> {
        match self.chunk(id) {
            None => Held::Gone,
            Some(chunk) => match chunk.state {
                State::Ready => Held::Ready(chunk.buffer.clone()),
                State::Dead => Held::Gone,
                State::Reading => Held::Reading,
                State::Filling | State::Sealed | State::Mapping => Held::InFlight,
            },
        }
    }

    /// A command, the next one of `fence`, will use the held chunk. False where it is gone.
    pub(crate) fn use_held(&mut self, id: ChunkId, fence: Fence) -> bool {
        let Some(chunk) = self.chunk_mut(id) else { return false };
        chunk.unencoded += 1;
        chunk.uses.insert(fence);
        if chunk.state == State::Ready {
            chunk.state = State::Filling;
        }
        true
    }

    /// Direction and size of a chunk.
    pub(crate) fn class_of(&self, id: ChunkId) -> Option<(Direction, u64)> {
        self.chunk(id).map(|chunk| (chunk.direction, chunk.size))
    }

    /// `waiter` is told by [`Staging::woken`] when the chunk is neither in flight nor being read. Returns the commands that use
    /// it.
    pub(crate) fn wait(&mut self, id: ChunkId, waiter: W) -> FenceSet {
        self.waiters.push((id, waiter));
        self.chunk(id).map(|chunk| chunk.uses.clone()).unwrap_or_default()
    }

    /// Those whose chunks are neither in flight nor being read any more.
    pub(crate) fn woken(&mut self) -> SmallVec<[W; 2]> {
        if self.waiters.is_empty() {
            return SmallVec::new();
        }
        let mut waiters = std::mem::take(&mut self.waiters);
        let woken =
            waiters.extract_if(.., |(id, _)| !matches!(self.held(*id), Held::InFlight | Held::Reading)).map(|(_, waiter)| waiter);
        let woken = woken.collect();
        self.waiters = waiters;
        woken
    }

    /// Everybody who waits: nothing will come.
    pub(crate) fn take_waiters(&mut self) -> Vec<(ChunkId, W)> {
        std::mem::take(&mut self.waiters)
    }

    /// Counters of held and cached chunks.
    pub(crate) fn pinned(&self) -> PinnedStats {
        let in_flight = |id| matches!(self.held(id), Held::InFlight);
        let pinned = self.all().filter(|(id, chunk)| chunk.owner != Owner::Transient && in_flight(*id));
        PinnedStats { in_flight_bytes: pinned.map(|(_, chunk)| chunk.size).sum(), ..self.pinned }
    }

    /// Peaks become the current values.
    pub(crate) fn reset_peaks(&mut self) {
        let PinnedStats { held, held_bytes, reserved_bytes, .. } = &mut self.pinned;
        [held, held_bytes, reserved_bytes].into_iter().for_each(|stat| stat.peak = stat.current);
    }
}
