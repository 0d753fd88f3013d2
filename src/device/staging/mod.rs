//! Staging: host memory that the device can copy from and to (PyTorch's pinned memory), in chunks that are reused.
//!
//! A chunk is *transient* (it carries the transfers of anybody) or *held* by a user, and *cached* when that user is gone.
//! Small transient uploads share the open chunk; it is *sealed* when the first of its uploads is submitted (it has to be
//! unmapped then), and mapped again when the last has been executed. Large uploads have a chunk of their own. Downloads that
//! are enqueued close together share a chunk; it is ready again when the last reader has copied its bytes. The bytes held for
//! transient uploads are bounded: who floods waits for room.
//!
//! A held chunk goes the same way, once for each time it is filled or read. What the device knows of it are its commands:
//! nothing here depends on when its user drops it (`held.rs`). The table knows no wgpu: `B` is a handle on a buffer, tests use
//! numbers.

mod held;
#[cfg(test)]
mod tests;

use crate::device::command::ChunkId;
use crate::ids::FenceSet;

pub(crate) use held::Held;
pub use held::PinnedStats;

/// Size of a shared chunk, in bytes. Token batches and scalars are a few KiB; 256 KiB hold a submission's worth.
pub(crate) const SHARED_CHUNK: u64 = 256 << 10;
/// Uploads up to this many bytes share a chunk.
pub(crate) const SHARED_UPLOAD: u64 = 32 << 10;
/// Largest piece of a transient upload, in bytes; longer ones are cut.
pub(crate) const LARGEST_CHUNK: u64 = 8 << 20;
/// Most bytes in transient upload chunks; room for a few of the largest pieces in flight.
pub(crate) const MOST_UPLOAD_BYTES: u64 = 64 << 20;
/// Most bytes in transient download chunks that stay when their readers are done.
const MOST_IDLE_DOWNLOAD_BYTES: u64 = 64 << 20;
/// Commands over which downloads share a chunk. It is mapped when all of its commands have been executed, so a read must not
/// wait for reads of much later work: the loss of a step would come with those of the steps enqueued after it.
const DOWNLOAD_SPAN: u64 = 64;
/// Alignment of pieces in a chunk (mapping asks for 8, copies for 4).
const PIECE_ALIGNMENT: u64 = 16;

/// The size of chunk that is bought for `size` bytes: sixteen sizes between a power of two and the next, so that at most a
/// sixteenth of what was asked for is bought in vain, and a request of nearly the same size finds it again.
pub(crate) fn size_class(size: u64) -> u64 {
    let step = size.checked_next_power_of_two().map_or(1 << 58, |power| power >> 5).max(PIECE_ALIGNMENT);
    size.checked_next_multiple_of(step).unwrap_or(size)
}

/// Which way a chunk carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Upload,
    Download,
}

/// Whose chunk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Nobody's: pieces of it carry transfers of anybody.
    Transient,
    /// A user's.
    Held,
    /// It was held; the next user gets it.
    Cached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Free for use; the host may write to it (uploads).
    Ready,
    /// Commands that are not submitted yet use it.
    Filling,
    /// Unmapped: the device reads or will read it.
    Sealed,
    /// Being mapped again.
    Mapping,
    /// A download whose bytes are being read by their owners.
    Reading,
    /// A held chunk that could not be mapped.
    Dead,
}

struct Chunk<B> {
    buffer: B,
    size: u64,
    direction: Direction,
    owner: Owner,
    state: State,
    /// The buffer is mapped, and has to be unmapped before commands that use it are submitted.
    mapped: bool,
    used: u64,
    /// Commands that name the chunk and are not encoded yet.
    unencoded: u32,
    /// Which mapping this is: one that was broken off says so later.
    turn: u32,
    /// The last commands that use a held chunk.
    uses: FenceSet,
}

impl<B> Chunk<B> {
    fn new(buffer: B, size: u64, direction: Direction, owner: Owner) -> Chunk<B> {
        let mapped = direction == Direction::Upload;
        let (used, unencoded, turn) = (0, 0, 0);
        Chunk { buffer, size, direction, owner, state: State::Ready, mapped, used, unencoded, turn, uses: FenceSet::new() }
    }
}

/// A piece of a chunk to copy through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<B> {
    pub(crate) chunk: ChunkId,
    pub(crate) offset: u64,
    /// Bytes of it.
    pub(crate) size: u64,
    pub(crate) buffer: B,
}

/// A turn of a chunk at being mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) chunk: ChunkId,
    turn: u32,
}

/// What a chunk became when it was mapped, or could not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// An upload chunk can be filled again.
    Upload,
    /// A download chunk can be read.
    Download,
    /// It is of no use; its reads have failed.
    Failed,
    /// The mapping was broken off because the chunk is used again.
    Stale,
}

/// All staging chunks of a device; `W` is somebody who waits for a held chunk.
pub(crate) struct Staging<B, W = ()> {
    chunks: Vec<Option<Chunk<B>>>,
    open: [Option<ChunkId>; 2],
    /// Commands enqueued on the device before the open download chunk's first.
    download_opened: u64,
    /// Bytes of transient chunks, by direction.
    transient: [u64; 2],
    pinned: PinnedStats,
    waiters: Vec<(ChunkId, W)>,
    /// Buffers that are given up, to be dropped by the queue.
    discarded: Vec<B>,
}

impl<B, W> Default for Staging<B, W> {
    fn default() -> Staging<B, W> {
        Staging {
            chunks: Vec::new(),
            open: [None; 2],
            download_opened: 0,
            transient: [0; 2],
            pinned: PinnedStats::default(),
            waiters: Vec::new(),
            discarded: Vec::new(),
        }
    }
}

/// Transient chunks.
impl<B: Clone, W> Staging<B, W> {
    /// A piece for `size` bytes (at most [`LARGEST_CHUNK`] for uploads), if a chunk has room.
    pub(crate) fn piece(&mut self, direction: Direction, size: u64) -> Option<Piece<B>> {
        let slot = direction as usize;
        if size <= SHARED_UPLOAD {
            if let Some(open) = self.open[slot].take()
                && self.chunk(open).is_some_and(|chunk| chunk.used + size <= chunk.size)
            {
                self.open[slot] = Some(open);
                return self.take(open, size);
            }
            let ready = self.ready(direction, SHARED_CHUNK, SHARED_CHUNK)?;
            self.open[slot] = Some(ready);
            return self.take(ready, size);
        }
        let ready = self.ready(direction, size, (size * 2).max(SHARED_CHUNK * 2))?;
        self.take(ready, size)
    }

    /// A download is about to be enqueued after `commands` others: closes a chunk whose first piece is too far back.
    pub(crate) fn start_download(&mut self, commands: u64) {
        let open = &mut self.open[Direction::Download as usize];
        if open.is_none() || commands - self.download_opened > DOWNLOAD_SPAN {
            *open = None;
            self.download_opened = commands;
        }
    }

    /// Where no chunk has the size that is wanted and no more may be bought: a piece of the largest chunk that is ready,
    /// shorter than asked for if need be. Without it, chunks of one size would shut out uploads of another for ever.
    pub(crate) fn any_piece(&mut self, direction: Direction, size: u64) -> Option<Piece<B>> {
        let (id, chunk) = self.free(direction).max_by_key(|(_, chunk)| chunk.size)?;
        let size = size.min(chunk.size);
        if size <= SHARED_UPLOAD {
            self.open[direction as usize] = Some(id);
        }
        self.take(id, size)
    }

    /// The smallest ready chunk with a size from `least` to `most`.
    fn ready(&self, direction: Direction, least: u64, most: u64) -> Option<ChunkId> {
        let fits = |(_, chunk): &(ChunkId, &Chunk<B>)| (least..=most).contains(&chunk.size);
        self.free(direction).filter(fits).min_by_key(|(_, chunk)| chunk.size).map(|(id, _)| id)
    }

    /// Transient chunks that are ready.
    fn free(&self, direction: Direction) -> impl Iterator<Item = (ChunkId, &Chunk<B>)> {
        let free = move |chunk: &Chunk<B>| {
            chunk.state == State::Ready && chunk.owner == Owner::Transient && chunk.direction == direction
        };
        self.all().filter(move |(_, chunk)| free(chunk))
    }

    fn take(&mut self, id: ChunkId, size: u64) -> Option<Piece<B>> {
        let chunk = self.chunk_mut(id)?;
        let offset = chunk.used;
        chunk.used += size.next_multiple_of(PIECE_ALIGNMENT);
        chunk.state = State::Filling;
        chunk.unencoded += 1;
        Some(Piece { chunk: id, offset, size, buffer: chunk.buffer.clone() })
    }

    /// Size of the chunk to buy for a piece of `size` bytes; `None` where uploads would hold too much and have to wait.
    pub(crate) fn purchase(&self, direction: Direction, size: u64) -> Option<u64> {
        let wanted = if size <= SHARED_CHUNK { SHARED_CHUNK } else { size_class(size) };
        let held = self.transient[Direction::Upload as usize];
        let waits = direction == Direction::Upload && held + wanted > MOST_UPLOAD_BYTES && held > 0;
        (!waits).then_some(wanted)
    }

    /// A transient chunk was bought; uploads come mapped.
    pub(crate) fn add(&mut self, direction: Direction, size: u64, buffer: B) {
        self.transient[direction as usize] += size;
        self.insert(Chunk::new(buffer, size, direction, Owner::Transient));
    }

    /// Bytes of host memory in transient chunks: (for uploads, for downloads).
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.transient[0], self.transient[1])
    }
}

/// The way of every chunk.
impl<B: Clone, W> Staging<B, W> {
    fn all(&self) -> impl Iterator<Item = (ChunkId, &Chunk<B>)> {
        self.chunks.iter().enumerate().filter_map(|(index, chunk)| Some((ChunkId(index as u32), chunk.as_ref()?)))
    }

    fn chunk(&self, id: ChunkId) -> Option<&Chunk<B>> {
        self.chunks.get(id.0 as usize)?.as_ref()
    }

    fn chunk_mut(&mut self, id: ChunkId) -> Option<&mut Chunk<B>> {
        self.chunks.get_mut(id.0 as usize)?.as_mut()
    }

    fn insert(&mut self, chunk: Chunk<B>) -> ChunkId {
        let index = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        if index == self.chunks.len() {
            self.chunks.push(None);
        }
        self.chunks[index] = Some(chunk);
        ChunkId(index as u32)
    }

    /// Gives up a chunk that is not held.
    fn discard(&mut self, id: ChunkId) {
        let Some(chunk) = self.chunks.get_mut(id.0 as usize).and_then(Option::take) else { return };
        match chunk.owner {
            Owner::Transient => self.transient[chunk.direction as usize] -= chunk.size,
            Owner::Held | Owner::Cached => {
                self.pinned.num_host_free += 1;
                self.pinned.cached_bytes -= chunk.size;
                held::fall(&mut self.pinned.reserved_bytes, chunk.size);
            }
        }
        self.discarded.push(chunk.buffer);
    }

    /// Gives up everything that nobody holds and nothing uses.
    pub(crate) fn empty_cache(&mut self) {
        let idle = |chunk: &Chunk<B>| chunk.state == State::Ready && chunk.owner != Owner::Held;
        let idle: Vec<ChunkId> = self.all().filter(|(_, chunk)| idle(chunk)).map(|(id, _)| id).collect();
        idle.into_iter().for_each(|id| self.discard(id));
    }

    /// Buffers that are given up; the queue drops them.
    pub(crate) fn take_discarded(&mut self) -> Vec<B> {
        std::mem::take(&mut self.discarded)
    }

    /// True when [`Staging::take_discarded`] has something.
    pub(crate) fn has_discarded(&self) -> bool {
        !self.discarded.is_empty()
    }

    /// A command that uses the chunk is about to be encoded. Returns the buffer, and true when it has to be unmapped first.
    pub(crate) fn encode(&mut self, id: ChunkId) -> Option<(B, bool)> {
        for open in &mut self.open {
            *open = open.filter(|open| *open != id);
        }
        let chunk = self.chunk_mut(id)?;
        chunk.unencoded -= 1;
        let mapping = chunk.state == State::Mapping;
        if mapping {
            chunk.turn += 1;
        }
        chunk.state = State::Sealed;
        Some((chunk.buffer.clone(), std::mem::take(&mut chunk.mapped) || mapping))
    }

    /// When no more commands will use the sealed chunk, it can be mapped (again) once the device is done with it.
    pub(crate) fn start_mapping(&mut self, id: ChunkId) -> Option<(Turn, Direction, B)> {
        let chunk = self.chunk_mut(id)?;
        if chunk.unencoded > 0 || chunk.state != State::Sealed {
            return None;
        }
        chunk.state = State::Mapping;
        Some((Turn { chunk: id, turn: chunk.turn }, chunk.direction, chunk.buffer.clone()))
    }

    /// The chunk is mapped, or cannot be.
    pub(crate) fn handle_mapped(&mut self, turn: Turn, ok: bool) -> Mapped {
        let Some(chunk) = self.chunk_mut(turn.chunk) else { return Mapped::Stale };
        if chunk.turn != turn.turn || chunk.state != State::Mapping {
            return Mapped::Stale;
        }
        if !ok && chunk.unencoded > 0 {
            // Copies of it are recorded, and read what it holds without any mapping; it is mapped again behind them.
            chunk.state = State::Sealed;
            return Mapped::Stale;
        }
        if !ok {
            chunk.state = State::Dead;
            if chunk.owner != Owner::Held {
                self.discard(turn.chunk);
            }
            return Mapped::Failed;
        }
        chunk.mapped = true;
        if chunk.direction == Direction::Download {
            chunk.state = State::Reading;
            return Mapped::Download;
        }
        chunk.used = 0;
        chunk.state = if chunk.unencoded > 0 { State::Filling } else { State::Ready };
        if chunk.state == State::Ready {
            chunk.uses.clear();
        }
        Mapped::Upload
    }

    /// All readers are done: a download chunk is ready again (it is unmapped when it is used again), or given up.
    pub(crate) fn handle_read(&mut self, id: ChunkId) {
        let Some(chunk) = self.chunk_mut(id).filter(|chunk| chunk.state == State::Reading) else { return };
        chunk.state = State::Ready;
        chunk.used = 0;
        chunk.uses.clear();
        if chunk.owner == Owner::Transient && self.transient[Direction::Download as usize] > MOST_IDLE_DOWNLOAD_BYTES {
            self.discard(id);
        }
    }

    pub(crate) fn buffer(&self, id: ChunkId) -> Option<B> {
        self.chunk(id).map(|chunk| chunk.buffer.clone())
    }
}
