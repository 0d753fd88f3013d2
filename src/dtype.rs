//! Element types of tensors: how they lie in memory, how they look on the host, and PyTorch's rules of promotion.

use std::fmt;

use crate::error::{Error, Result};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// 32-bit floating point.
    F32,
    /// IEEE 754 half precision: two in a word, arithmetic in f32, each result rounded to the nearest.
    F16,
    /// The upper half of an f32 (bfloat16): two in a word, arithmetic in f32, each result rounded to the nearest.
    BF16,
    /// 32-bit signed integer; the type of indices.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// True or false: four in a word, a byte that is 0 or 1 (`u8` on the host).
    Bool,
}

impl DType {
    /// Every type.
    pub const ALL: [DType; 6] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::Bool];

    /// Bytes of one element on the device.
    pub const fn size(self) -> usize {
        4 / self.per_word()
    }

    /// Elements in a word of 32 bits. Where there are several, a kernel writes whole words only.
    pub const fn per_word(self) -> usize {
        match self {
            DType::F32 | DType::I32 | DType::U32 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::Bool => 4,
        }
    }

    /// The WGSL type that kernels compute with.
    pub const fn wgsl(self) -> &'static str {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => "f32",
            DType::I32 => "i32",
            DType::U32 | DType::Bool => "u32",
        }
    }

    /// Its name, as errors and printed tensors have it.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::Bool => "bool",
        }
    }

    /// True for the types that can carry gradients.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    /// The type that holds values of both (PyTorch's `torch.promote_types`): bool < integers < floats, and f32 for the two kinds
    /// of halves. There is none for i32 and u32, as in PyTorch.
    pub const fn promote(self, other: DType) -> Option<DType> {
        use DType::*;
        Some(match (self, other) {
            (I32, U32) | (U32, I32) => return None,
            (F32, F32) | (F16, F16) | (BF16, BF16) | (I32, I32) | (U32, U32) | (Bool, Bool) => self,
            (F16, BF16) | (BF16, F16) | (F32, _) | (_, F32) => F32,
            (F16 | BF16, _) | (_, Bool) => self,
            (_, F16 | BF16) | (Bool, _) => other,
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A host type that tensors can be made from and read into.
pub trait Element: bytemuck::Pod + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The device type that holds it.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($host:ty => $dtype:ident,)*) => { $(
        impl Element for $host {
            const DTYPE: DType = DType::$dtype;
        }
    )* };
}

elements! {
    f32 => F32,
    half::f16 => F16,
    half::bf16 => BF16,
    i32 => I32,
    u32 => U32,
    // 0 is false, everything else true; what is read back is 0 or 1.
    u8 => Bool,
}

/// A number beside tensors. What it is decides the type of the result, as in PyTorch: an i32 tensor plus 2 is i32, plus 2.0 is f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Float(f64),
}

impl Scalar {
    /// The type that it counts as where no tensor of its kind decides.
    pub const fn dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I32,
            Scalar::Float(_) => DType::F32,
        }
    }

    /// The number with the other sign; of true and false, what the numbers 1 and 0 give.
    pub fn minus(self) -> Scalar {
        match self {
            Scalar::Bool(value) => Scalar::Int(-i64::from(value)),
            Scalar::Int(value) => Scalar::Int(value.saturating_neg()),
            Scalar::Float(value) => Scalar::Float(-value),
        }
    }

    /// Its value.
    pub fn value(self) -> f64 {
        match self {
            Scalar::Bool(value) => f64::from(u8::from(value)),
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => value.fmt(f),
            Scalar::Int(value) => value.fmt(f),
            Scalar::Float(value) => fmt::Debug::fmt(value, f),
        }
    }
}

macro_rules! scalars {
    ($($variant:ident: $($host:ty)*;)*) => { $($(
        impl From<$host> for Scalar {
            fn from(value: $host) -> Scalar {
                Scalar::$variant(value.into())
            }
        }
    )*)* };
}

scalars! {
    Bool: bool;
    Int: i64 i32 u32;
    Float: f64 f32;
}

/// Lengths. (One beyond i64 becomes the largest i64, which fits no element type.)
impl From<usize> for Scalar {
    fn from(value: usize) -> Scalar {
        Scalar::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

/// What takes part in the choice of a result's type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A tensor of at least one dimension.
    Tensor(DType),
    /// A tensor of 0 dimensions: decides only where no other tensor is of its kind (bool, integer, float) or a higher one.
    ZeroDim(DType),
    /// A number: decides only where no tensor does.
    Scalar(Scalar),
}

/// The type of the result of `op` on `operands` (PyTorch's `torch.result_type`).
///
/// # Errors
/// [`Error::Argument`] where i32 meets u32.
pub fn result_type(op: &'static str, operands: impl IntoIterator<Item = Operand>) -> Result<DType> {
    let (mut tensors, mut zero_dim, mut scalars) = (None, None, None);
    for operand in operands {
        let (rank, dtype) = match operand {
            Operand::Tensor(dtype) => (&mut tensors, dtype),
            Operand::ZeroDim(dtype) => (&mut zero_dim, dtype),
            Operand::Scalar(scalar) => (&mut scalars, scalar.dtype()),
        };
        *rank = Some(match *rank {
            None => dtype,
            Some(found) => common(op, found, dtype)?,
        });
    }
    let weaker = combine(op, zero_dim, scalars)?;
    Ok(combine(op, tensors, weaker)?.unwrap_or(DType::F32))
}

/// The type of `strong`, unless `weak` is of a higher kind.
fn combine(op: &'static str, strong: Option<DType>, weak: Option<DType>) -> Result<Option<DType>> {
    match (strong, weak) {
        (None, only) | (only, None) => Ok(only),
        (Some(strong), Some(weak)) if !strong.is_float() && (strong == DType::Bool || weak.is_float()) => {
            common(op, strong, weak).map(Some)
        }
        (strong, _) => Ok(strong),
    }
}

fn common(op: &'static str, a: DType, b: DType) -> Result<DType> {
    a.promote(b).ok_or_else(|| {
        Error::argument(op, format!("{a} and {b} have no common type"), "convert one of them with to_dtype before the call")
    })
}
