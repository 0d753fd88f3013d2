//! Element types of tensors and how they look on the host.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// 32-bit floating point; the only type that gradients have for now.
    F32,
    /// 32-bit signed integer; the type of indices.
    I32,
    /// 32-bit unsigned integer.
    U32,
}

impl DType {
    /// Bytes of one element on the device.
    pub const fn size(self) -> usize {
        4
    }

    /// The WGSL name of the type.
    pub const fn wgsl(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::I32 => "i32",
            DType::U32 => "u32",
        }
    }

    /// True for the types that can carry gradients.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wgsl())
    }
}

/// A host type that tensors can be made from and read into.
pub trait Element: bytemuck::Pod + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The device type that holds it.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}
impl Element for u32 {
    const DTYPE: DType = DType::U32;
}
