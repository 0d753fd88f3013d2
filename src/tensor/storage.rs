//! Device memory with an owner: what tensors and their views share.

use crate::device::{Device, Memory};
use crate::memory::Category;

/// The memory behind one or more tensors. Dropping the last handle returns it in stream order.
pub struct Storage {
    device: Device,
    /// `None` where there are no bytes.
    memory: Option<Memory>,
}

impl Storage {
    pub(crate) fn new(device: Device, memory: Option<Memory>) -> Storage {
        Storage { device, memory }
    }

    /// The device that the memory belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes that were asked for.
    pub fn size(&self) -> u64 {
        self.memory.as_ref().map_or(0, Memory::size)
    }

    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    pub(crate) fn version(&self) -> u64 {
        self.memory.as_ref().map_or(0, Memory::version)
    }

    pub(crate) fn set_category(&self, category: Category) {
        if let Some(memory) = &self.memory {
            memory.set_category(category);
        }
    }
}
