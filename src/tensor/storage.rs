//! Device memory with an owner: what tensors and their views share.

use std::sync::Arc;

use crate::device::{Device, Memory};
use crate::memory::Category;

/// The memory behind one or more tensors. Dropping the last handle returns it in stream order.
pub struct Storage(Kind);

enum Kind {
    /// No bytes, so no block.
    Empty(Device),
    /// A block, and the bytes of its elements: the rest of the last word is nobody's.
    Block(Memory, u64),
    /// Some bytes of a block that is too large to be bound: (the storage with the block, offset, bytes).
    Window(Arc<Storage>, u64, u64),
}

impl Storage {
    pub(crate) fn empty(device: Device) -> Storage {
        Storage(Kind::Empty(device))
    }

    /// Memory for elements of so many bytes in all.
    pub(crate) fn new(memory: Memory, elements: u64) -> Storage {
        Storage(Kind::Block(memory, elements))
    }

    /// `size` bytes of `whole` from `offset` on, for kernels.
    pub(crate) fn part(whole: &Arc<Storage>, offset: u64, size: u64) -> Storage {
        Storage(Kind::Window(whole.clone(), offset, size))
    }

    /// The device that the memory belongs to.
    pub fn device(&self) -> &Device {
        match &self.0 {
            Kind::Empty(device) => device,
            Kind::Block(memory, _) => memory.device(),
            Kind::Window(whole, ..) => whole.device(),
        }
    }

    /// Bytes that were asked for; of a window those of the whole.
    pub fn size(&self) -> u64 {
        self.memory().map_or(0, Memory::size)
    }

    /// The block, where there are bytes.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match &self.0 {
            Kind::Empty(_) => None,
            Kind::Block(memory, _) => Some(memory),
            Kind::Window(whole, ..) => whole.memory(),
        }
    }

    /// Offset and size in bytes of what kernels are to see, where that is not all.
    pub(crate) fn window(&self) -> Option<(u64, u64)> {
        match &self.0 {
            Kind::Window(_, offset, size) => Some((*offset, *size)),
            _ => None,
        }
    }

    /// True where the adapter does not let a kernel see all of it.
    pub(crate) fn is_too_large(&self) -> bool {
        match &self.0 {
            Kind::Block(memory, _) => memory.size() > memory.device().limits().max_storage_buffer_binding_size,
            _ => false,
        }
    }

    /// True where no element begins at byte `end` or behind it.
    pub(crate) fn ends_at(&self, end: u64) -> bool {
        match &self.0 {
            Kind::Empty(_) => true,
            Kind::Block(_, elements) => end >= *elements,
            Kind::Window(whole, offset, _) => whole.ends_at(offset + end),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.memory().map_or(0, Memory::version)
    }

    pub(crate) fn set_category(&self, category: Category) {
        if let Some(memory) = self.memory() {
            memory.set_category(category);
        }
    }
}
