//! Parameter structs: what a kernel is told besides its bindings.
//!
//! Each struct is written once, here; the composer prints the WGSL declaration from [`ParamsInfo`]. The same bytes go
//! through immediates or through a uniform buffer, so every struct obeys the stricter rules of uniforms: scalars, and
//! vectors of four at multiples of 16 bytes; the size is a multiple of 16 (`pad` fields fill up, and must be 0).

use std::mem::offset_of;

/// Immediates hold at least this many bytes where there are any; a larger struct always goes through a uniform buffer.
pub const IMMEDIATES_SIZE: usize = 128;

/// One member of a parameter struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, the same on both sides.
    pub name: &'static str,
    /// Its WGSL type.
    pub wgsl: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
}

/// A parameter struct as the composer and the tests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamsInfo {
    /// Name of the Rust struct and of the WGSL struct.
    pub name: &'static str,
    /// Bytes, a multiple of 16.
    pub size: usize,
    /// Members in order.
    pub fields: &'static [Field],
}

/// A parameter struct of a kernel: plain bytes with a known layout.
pub trait Params: bytemuck::Pod {
    /// Its layout.
    const INFO: ParamsInfo;
}

/// A Rust member type with a WGSL counterpart of the same layout.
trait Member {
    const WGSL: &'static str;
}
impl Member for u32 {
    const WGSL: &'static str = "u32";
}
impl Member for i32 {
    const WGSL: &'static str = "i32";
}
impl Member for f32 {
    const WGSL: &'static str = "f32";
}
impl Member for [u32; 4] {
    const WGSL: &'static str = "vec4<u32>";
}
impl Member for [[u32; 4]; 2] {
    const WGSL: &'static str = "array<vec4<u32>, 2>";
}

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)* }

        impl Params for $name {
            const INFO: ParamsInfo = ParamsInfo {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[$(Field {
                    name: stringify!($field),
                    wgsl: <$ty as Member>::WGSL,
                    offset: offset_of!($name, $field),
                },)*],
            };
        }
    )*};
}

params! {
    /// Element-wise kernels over contiguous operands whose offsets are multiples of 4.
    Contiguous {
        /// Elements of the result.
        len: u32,
        /// `vec4`s per invocation.
        rounds: u32,
        /// First scalar operand, the bits of an `elem`.
        s: u32,
        /// Second scalar operand, the bits of an `elem`.
        t: u32,
        /// Where each input starts and, last, where the result starts; in `vec4`s.
        offsets: [u32; 4],
    }

    /// Element-wise kernels over views of up to 4 dimensions (innermost last), counted in items (elements or `vec4`s).
    Strided {
        /// Lengths of the dimensions.
        shape: [u32; 4],
        /// Strides of the first input.
        a_strides: [u32; 4],
        /// Strides of the second input, where there is one.
        b_strides: [u32; 4],
        /// Strides of the third input, where there is one.
        c_strides: [u32; 4],
        /// Strides of the result.
        out_strides: [u32; 4],
        /// Where each input starts and, last, where the result starts.
        offsets: [u32; 4],
        /// Invocations needed: rows of the innermost dimension times `chunks`.
        jobs: u32,
        /// Invocations that share one innermost row; neighbours in a row belong to neighbouring invocations.
        chunks: u32,
        /// First scalar operand, the bits of an `elem`.
        s: u32,
        /// Second scalar operand, the bits of an `elem`.
        t: u32,
    }
}
