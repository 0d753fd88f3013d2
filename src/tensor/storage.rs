//! Device memory with an owner: what tensors and their views share.

use crate::device::{Device, Memory};
use crate::memory::Category;

/// The memory behind one or more tensors. Dropping the last handle returns it in stream order.
pub struct Storage(Kind);

enum Kind {
    /// No bytes, so no block.
    Empty(Device),
    Block(Memory),
}

impl Storage {
    pub(crate) fn empty(device: Device) -> Storage {
        Storage(Kind::Empty(device))
    }

    pub(crate) fn new(memory: Memory) -> Storage {
        Storage(Kind::Block(memory))
    }

    /// The device that the memory belongs to.
    pub fn device(&self) -> &Device {
        match &self.0 {
            Kind::Empty(device) => device,
            Kind::Block(memory) => memory.device(),
        }
    }

    /// Bytes that were asked for.
    pub fn size(&self) -> u64 {
        self.memory().map_or(0, Memory::size)
    }

    /// The block, where there are bytes.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match &self.0 {
            Kind::Empty(_) => None,
            Kind::Block(memory) => Some(memory),
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
