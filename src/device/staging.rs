//! Staging: host memory that the device can copy from and to (PyTorch's pinned memory), in chunks that are reused.
//!
//! Small uploads share the open chunk; a chunk is *sealed* when the first of its uploads is submitted (it has to be
//! unmapped then), and mapped again when the last has been executed. Large uploads have a chunk of their own. Downloads
//! that are enqueued close together share a chunk; it is given back when the last reader has copied its bytes.
//! The bytes held for uploads are bounded: who floods waits for room.

use std::sync::Arc;

use crate::device::command::ChunkId;

/// Size of a shared chunk, in bytes. Token batches and scalars are a few KiB; 256 KiB hold a submission's worth.
pub(crate) const SHARED_CHUNK: u64 = 256 << 10;
/// Uploads up to this many bytes share a chunk.
pub(crate) const SHARED_UPLOAD: u64 = 32 << 10;
/// Largest piece of an upload, in bytes; longer ones are cut.
pub(crate) const LARGEST_CHUNK: u64 = 8 << 20;
/// Most bytes in upload chunks; room for a few of the largest pieces in flight.
pub(crate) const MOST_UPLOAD_BYTES: u64 = 64 << 20;
/// Commands over which downloads share a chunk. It is mapped when all of its commands have been executed, so a read must not
/// wait for reads of much later work: the loss of a step would come with those of the steps enqueued after it.
const DOWNLOAD_SPAN: u64 = 64;
/// Alignment of pieces in a chunk (mapping asks for 8, copies for 4).
const PIECE_ALIGNMENT: u64 = 16;

/// Which way a chunk carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Upload,
    Download,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Mapped (uploads) or unmapped (downloads), and free for use.
    Ready,
    /// Taking pieces of commands that are not submitted yet.
    Filling,
    /// Unmapped: the device reads or will read it.
    Sealed,
    /// Being mapped again.
    Mapping,
    /// A download whose bytes are being read by their owners.
    Reading,
    /// It could not be mapped: its number serves the next chunk that is bought.
    Dead,
}

struct Chunk {
    buffer: Arc<wgpu::Buffer>,
    size: u64,
    direction: Direction,
    state: State,
    used: u64,
    /// Commands that name the chunk and are not encoded yet.
    unencoded: u32,
}

/// A piece of a chunk to copy through.
pub(crate) struct Piece {
    pub(crate) chunk: ChunkId,
    pub(crate) offset: u64,
    /// Bytes of it.
    pub(crate) size: u64,
    pub(crate) buffer: Arc<wgpu::Buffer>,
}

/// All staging chunks of a device.
#[derive(Default)]
pub(crate) struct Staging {
    chunks: Vec<Chunk>,
    open: [Option<ChunkId>; 2],
    /// Commands enqueued on the device before the open download chunk's first.
    download_opened: u64,
    upload_bytes: u64,
    download_bytes: u64,
}

impl Staging {
    /// A piece for `size` bytes (at most [`LARGEST_CHUNK`] for uploads), if a chunk has room.
    pub(crate) fn piece(&mut self, direction: Direction, size: u64) -> Option<Piece> {
        let slot = direction as usize;
        if size <= SHARED_UPLOAD {
            if let Some(open) = self.open[slot] {
                if self.chunks[open.0 as usize].used + size <= self.chunks[open.0 as usize].size {
                    return Some(self.take(open, size));
                }
                self.open[slot] = None;
            }
            let ready = self.ready(direction, SHARED_CHUNK, SHARED_CHUNK)?;
            self.open[slot] = Some(ready);
            return Some(self.take(ready, size));
        }
        let ready = self.ready(direction, size, (size * 2).max(SHARED_CHUNK * 2))?;
        Some(self.take(ready, size))
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
    pub(crate) fn any_piece(&mut self, direction: Direction, size: u64) -> Option<Piece> {
        let ready = |(_, chunk): &(usize, &Chunk)| chunk.state == State::Ready && chunk.direction == direction;
        let largest = self.chunks.iter().enumerate().filter(ready).max_by_key(|(_, chunk)| chunk.size);
        let (id, most) = largest.map(|(index, chunk)| (ChunkId(index as u32), chunk.size))?;
        if size <= SHARED_UPLOAD {
            self.open[direction as usize] = Some(id);
        }
        Some(self.take(id, size.min(most)))
    }

    /// The smallest ready chunk with a size from `least` to `most`.
    fn ready(&self, direction: Direction, least: u64, most: u64) -> Option<ChunkId> {
        let fits =
            |chunk: &Chunk| chunk.state == State::Ready && chunk.direction == direction && (least..=most).contains(&chunk.size);
        let best = self.chunks.iter().enumerate().filter(|(_, chunk)| fits(chunk)).min_by_key(|(_, chunk)| chunk.size);
        best.map(|(index, _)| ChunkId(index as u32))
    }

    fn take(&mut self, id: ChunkId, size: u64) -> Piece {
        let chunk = &mut self.chunks[id.0 as usize];
        let offset = chunk.used;
        chunk.used += size.next_multiple_of(PIECE_ALIGNMENT);
        chunk.state = State::Filling;
        chunk.unencoded += 1;
        Piece { chunk: id, offset, size, buffer: chunk.buffer.clone() }
    }

    /// Size of the chunk to buy for a piece of `size` bytes; `None` where uploads would hold too much and have to wait.
    pub(crate) fn purchase(&self, direction: Direction, size: u64) -> Option<u64> {
        let wanted = if size <= SHARED_UPLOAD { SHARED_CHUNK } else { size.next_multiple_of(SHARED_CHUNK) };
        let waits = direction == Direction::Upload && self.upload_bytes + wanted > MOST_UPLOAD_BYTES && self.upload_bytes > 0;
        (!waits).then_some(wanted)
    }

    /// A chunk was bought; uploads come mapped.
    pub(crate) fn add(&mut self, direction: Direction, size: u64, buffer: wgpu::Buffer) {
        let chunk = Chunk { buffer: Arc::new(buffer), size, direction, state: State::Ready, used: 0, unencoded: 0 };
        match direction {
            Direction::Upload => self.upload_bytes += size,
            Direction::Download => self.download_bytes += size,
        }
        match self.chunks.iter_mut().find(|chunk| chunk.state == State::Dead) {
            Some(dead) => *dead = chunk,
            None => self.chunks.push(chunk),
        }
    }

    /// The chunk could not be mapped and is of no more use.
    pub(crate) fn handle_unmappable(&mut self, id: ChunkId) {
        let chunk = &mut self.chunks[id.0 as usize];
        chunk.state = State::Dead;
        match chunk.direction {
            Direction::Upload => self.upload_bytes -= chunk.size,
            Direction::Download => self.download_bytes -= chunk.size,
        }
    }

    /// A command that uses the chunk is about to be encoded. Returns the buffer, and true when it has to be unmapped first.
    pub(crate) fn encode(&mut self, id: ChunkId) -> (Arc<wgpu::Buffer>, bool) {
        for open in &mut self.open {
            *open = open.filter(|open| *open != id);
        }
        let chunk = &mut self.chunks[id.0 as usize];
        chunk.unencoded -= 1;
        let unmap = chunk.direction == Direction::Upload && chunk.state == State::Filling;
        chunk.state = State::Sealed;
        (chunk.buffer.clone(), unmap)
    }

    /// True when no more commands will use the sealed chunk: it can be mapped (again) once the device is done with it.
    pub(crate) fn start_mapping(&mut self, id: ChunkId) -> Option<Arc<wgpu::Buffer>> {
        let chunk = &mut self.chunks[id.0 as usize];
        if chunk.unencoded > 0 || chunk.state != State::Sealed {
            return None;
        }
        chunk.state = State::Mapping;
        Some(chunk.buffer.clone())
    }

    /// The chunk is mapped: an upload chunk is ready again, a download chunk can be read.
    pub(crate) fn handle_mapped(&mut self, id: ChunkId) {
        let chunk = &mut self.chunks[id.0 as usize];
        match chunk.direction {
            Direction::Upload => {
                chunk.state = State::Ready;
                chunk.used = 0;
            }
            Direction::Download => chunk.state = State::Reading,
        }
    }

    /// All readers are done and the chunk is unmapped: a download chunk is ready again.
    pub(crate) fn handle_read(&mut self, id: ChunkId) {
        let chunk = &mut self.chunks[id.0 as usize];
        chunk.state = State::Ready;
        chunk.used = 0;
    }

    pub(crate) fn buffer(&self, id: ChunkId) -> Arc<wgpu::Buffer> {
        self.chunks[id.0 as usize].buffer.clone()
    }

    pub(crate) fn direction(&self, id: ChunkId) -> Direction {
        self.chunks[id.0 as usize].direction
    }

    /// Bytes of host memory held: (for uploads, for downloads).
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.upload_bytes, self.download_bytes)
    }
}
