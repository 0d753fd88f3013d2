//! Owned device memory, and the ladder: the only loop that turns the pool's answers into driver calls.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::device::Device;
use crate::device::driver::BufferKind;
use crate::device::mem_pool;
use crate::device::places::PlaceId;
use crate::error::{Error, Result};
use crate::ids::{BlockId, FenceSet, SegmentId, StreamId};
use crate::memory::{Answer, Category, Compacted, Place, Request, Stacks, Tag};

/// One block lent by the pool. Dropping it returns the block in stream order: commands already enqueued still use it.
pub struct Memory {
    device: Device,
    block: BlockId,
    place: PlaceId,
    /// Bytes that were asked for.
    size: u64,
    /// Bytes of the block.
    block_size: u64,
    version: AtomicU64,
}

impl Memory {
    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes that were asked for.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn block(&self) -> BlockId {
        self.block
    }

    pub(crate) fn place(&self) -> PlaceId {
        self.place
    }

    pub(crate) fn block_size(&self) -> u64 {
        self.block_size
    }

    /// How often a command that writes the memory was enqueued.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Called under the core lock, when a command that writes is enqueued.
    pub(crate) fn written(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn set_category(&self, category: Category) {
        let core = &mut *self.device.shared().lock();
        core.note(None);
        core.pool.set_category(self.block, category);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let stack = self.device.shared().capture_stack(Stacks::All);
        let mut guard = self.device.shared().lock();
        let core = &mut *guard;
        core.note(stack);
        let uses = core.timeline.end_block(self.block);
        core.places.release(self.place);
        if !core.imports.is_empty() {
            core.imports.retain(|(block, _)| *block != self.block);
        }
        core.pool.free(self.block, uses, &core.timeline);
        core.release_segments();
        if !core.released.is_empty() {
            // The driver gets its memory back now, not with the next command.
            self.device.shared().wake(guard);
        }
    }
}

impl Device {
    /// Memory for commands of `stream`; `tag` says what for and who asks.
    pub(crate) fn allocate(&self, stream: StreamId, size: u64, tag: Tag) -> Result<Memory> {
        let shared = self.shared();
        let mut request = Request::new(stream, size, tag).in_pool(mem_pool::entered(self));
        let stack = shared.capture_stack(Stacks::Alloc);
        let mut shortages = SmallVec::<[_; 1]>::new();
        let memory = loop {
            let mut guard = shared.lock();
            let core = &mut *guard;
            core.alive()?;
            core.note(stack.clone());
            let answer = core.pool.alloc(&mut request, &core.timeline);
            let moved = core.enqueue_moves(tag.location);
            match answer {
                Answer::Ready { block, place, .. } => {
                    // All former uses, not only those of other streams: the first command may run on another stream.
                    core.timeline.begin_block(block, core.pool.inherited(block).clone());
                    let id = core.places.insert(block, place);
                    let version = AtomicU64::new(0);
                    if moved {
                        shared.wake(guard);
                    }
                    break Ok(Memory { device: self.clone(), block, place: id, size, block_size: place.size, version });
                }
                Answer::NeedSegment(segment) => {
                    core.release_segments();
                    let releasing = core.forgotten < core.released_ever;
                    drop(guard);
                    let mut bought = shared.create_buffer(segment.size, BufferKind::Segment);
                    if bought.is_err() && releasing {
                        shared.wait_until_forgotten();
                        bought = shared.create_buffer(segment.size, BufferKind::Segment);
                    }
                    let core = &mut *shared.lock();
                    match bought {
                        Ok(buffer) => {
                            core.note(None);
                            let before = core.memory_use();
                            let id = core.pool.handle_segment(segment);
                            core.add_segment(id, buffer);
                            shortages.push(core.shortage(before));
                        }
                        Err(_) => core.pool.handle_segment_failed(&mut request, segment, &core.timeline),
                    }
                }
                Answer::NeedCompletion => {
                    core.release_segments();
                    drop(guard);
                    // (A browser's thread cannot: there the request goes on, or fails, with what is free now.)
                    if cfg!(not(target_arch = "wasm32")) {
                        self.wait_for_everything()?;
                        shared.wait_until_forgotten();
                    }
                }
                Answer::Exhausted(report) => {
                    core.release_segments();
                    shared.wake(guard);
                    self.tell_failure(&report);
                    break Err(Error::OutOfMemory(report));
                }
            }
        };
        // Now that the request has its block: an observer may empty the cache.
        shortages.into_iter().for_each(|shortage| shortage.tell(self));
        memory
    }

    /// Memory in an application's buffer, from `offset` on. `tag` says what for and who asks. True beside it where commands that
    /// are recorded may still use the buffer under an earlier name.
    pub(crate) fn import(
        &self,
        buffer: &wgpu::Buffer,
        offset: u64,
        size: u64,
        block_size: u64,
        tag: Tag,
    ) -> Result<(Memory, bool)> {
        let op = tag.label;
        let core = &mut *self.shared().lock();
        core.alive()?;
        let segment = |id: SegmentId| core.segments.get(id.0 as usize).and_then(Option::as_ref);
        let overlaps = |(_, place): &(BlockId, Place)| {
            segment(place.segment) == Some(buffer) && place.offset < offset + block_size && offset < place.offset + place.size
        };
        if core.imports.iter().any(overlaps) {
            let help = "import the bytes once and take views of the tensor";
            return Err(Error::argument(op, "some of these bytes are a tensor already", help));
        }
        let same = core.segments.iter().enumerate().filter(|(_, known)| known.as_ref() == Some(buffer));
        let known: SmallVec<[SegmentId; 4]> = same.map(|(id, _)| SegmentId(id as u32)).collect();
        if known.iter().any(|id| !core.pool.is_imported(*id)) {
            return Err(Error::argument(op, "the buffer is one of linn's own", "use the tensor that was exported"));
        }
        let (block, place) = core.pool.import(block_size, tag);
        let place = Place { offset, ..place };
        core.timeline.begin_block(block, FenceSet::new());
        core.add_segment(place.segment, buffer.clone());
        core.imports.push((block, place));
        let id = core.places.insert(block, place);
        let memory = Memory { device: self.clone(), block, place: id, size, block_size, version: AtomicU64::new(0) };
        Ok((memory, !known.is_empty()))
    }

    /// Moves live memory by commands of `stream`; see `Device::compact`.
    pub(crate) fn compact_on(&self, stream: StreamId, budget: u64, location: &'static Location<'static>) -> Result<Compacted> {
        let shared = self.shared();
        let mut guard = shared.lock();
        let core = &mut *guard;
        core.alive()?;
        core.note(None);
        let done = core.pool.compact(stream, budget, &core.timeline);
        core.enqueue_moves(location);
        core.release_segments();
        shared.wake(guard);
        Ok(done)
    }
}
