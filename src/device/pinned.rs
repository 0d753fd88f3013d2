//! Pinned memory: staging chunks that a user holds. What is done with them stands in `stream/pinned.rs`.

use crate::device::command::ChunkId;
use crate::device::core::{ReadSlot, StagingBuffer};
use crate::device::driver::BufferKind;
use crate::device::staging::{Direction, size_class};
use crate::device::{Device, Shared};
use crate::error::{Error, Result};

/// A staging chunk with an owner. Dropping it is fine at any time: the next owner gets it when the device is done with it.
pub(crate) struct HeldChunk {
    pub(crate) device: Device,
    pub(crate) id: ChunkId,
}

impl Drop for HeldChunk {
    fn drop(&mut self) {
        let mut core = self.device.shared().lock();
        core.staging.release(self.id);
        if core.staging.has_discarded() {
            self.device.shared().wake(core);
        }
    }
}

/// Bytes that have arrived in a download chunk; they stay mapped while this lives.
pub(crate) struct ReadBytes {
    // Views go before the slot, which gives the chunk back.
    data: Option<wgpu::BufferView>,
    status: Option<wgpu::BufferView>,
    slot: ReadSlot,
}

impl ReadBytes {
    /// Views of a read: its data, and the `status_size` bytes of status words where they came along.
    pub(crate) fn new(slot: ReadSlot, status_size: u64) -> Result<ReadBytes> {
        let view = |offset: u64, size: u64| {
            slot.chunk.buffer.get_mapped_range(offset..offset + size).map_err(|error| Error::Device {
                fact: format!("a read could not be mapped: {error}"),
                help: "read again, or open a new device".into(),
            })
        };
        let status = slot.status.map(|status| view(status.offset, status_size)).transpose()?;
        let data = if slot.size == 0 { None } else { Some(view(slot.offset, slot.size)?) };
        Ok(ReadBytes { data, status, slot })
    }

    pub(crate) fn data(&self) -> &[u8] {
        self.data.as_deref().unwrap_or_default()
    }

    /// The status words, and how many reports they cover.
    pub(crate) fn status(&self) -> Option<(&[u8], u64)> {
        Some((self.status.as_deref()?, self.slot.status?.covers))
    }
}

impl Shared {
    /// Buys a staging buffer.
    pub(crate) fn buy_staging(&self, direction: Direction, size: u64) -> Result<StagingBuffer> {
        let kind = if direction == Direction::Upload { BufferKind::Upload } else { BufferKind::Download };
        // A device that is lost refuses too, and that is what has happened then.
        let refused = |error| match self.lock().alive() {
            Err(lost) => lost,
            Ok(()) => Error::Device {
                fact: format!("no staging memory of {size} bytes: {error}"),
                help: "free host memory; the device stays usable".into(),
            },
        };
        self.create_buffer(size, kind).map(StagingBuffer::new).map_err(refused)
    }
}

impl Device {
    /// Another chunk in place of one that cannot be mapped any more.
    pub(crate) fn replace_chunk(&self, id: ChunkId) -> Result<HeldChunk> {
        let (direction, size) = {
            let core = self.shared().lock();
            core.staging.class_of(id).ok_or_else(|| self.closed(&core))?
        };
        self.hold_chunk("pinned memory", direction, size)
    }

    /// A chunk for `size` bytes: a cached one, or one that is bought.
    pub(crate) fn hold_chunk(&self, op: &'static str, direction: Direction, size: u64) -> Result<HeldChunk> {
        let most = self.limits().max_buffer_size;
        if size > most {
            return Err(Error::Limit {
                op,
                fact: format!("a buffer of {size} bytes is larger than the adapter allows (max_buffer_size is {most})"),
                help: "use several smaller buffers".into(),
            });
        }
        // A buffer that is mapped has a size in words.
        let class = size_class(size).min(most & !3);
        let shared = self.shared();
        {
            let mut core = shared.lock();
            core.alive()?;
            if let Some(id) = core.staging.hold(direction, class) {
                return Ok(HeldChunk { device: self.clone(), id });
            }
        }
        let buffer = shared.buy_staging(direction, class)?;
        let id = shared.lock().staging.add_held(direction, class, buffer);
        Ok(HeldChunk { device: self.clone(), id })
    }
}
