//! device (placeholder by the lead; signatures are final)
use crate::memory::Category;
use std::sync::Arc;

/// A device handle; cheap to clone.
#[derive(Clone)]
pub struct Device(Arc<()>);

/// One block lent by the pool: owned memory of the device.
pub struct Memory {}
impl Memory {
    pub(crate) fn size(&self) -> u64 {
        todo!()
    }
    pub(crate) fn version(&self) -> u64 {
        todo!()
    }
    pub(crate) fn set_category(&self, category: Category) {
        let _ = category;
        todo!()
    }
}
impl Device {
    /// Opens the best adapter.
    pub fn open() -> crate::Result<Device> {
        todo!()
    }
    /// Which kernel variants suit the device.
    pub(crate) fn class(&self) -> crate::kernel::DeviceClass {
        todo!()
    }
    /// Name of the adapter.
    pub fn name(&self) -> &str {
        todo!()
    }
    /// True when both handles mean the same device.
    pub fn same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
