//! kernel (placeholder: branch `kern` brings the catalogue)
/// A row of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId(pub u16);
/// Which kernel variants suit a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceClass {
    /// True for drivers that run on the CPU.
    pub cpu: bool,
    /// Fixed subgroup size, 0 where there are none.
    pub subgroup: u32,
}
