//! Arrays in files: NumPy's `.npy` ([`npy`]) and `.npz` ([`npz`]), and safetensors ([`safetensors`]); bytes to arrays and back.
//!
//! What is read may be damaged or made to do harm: every length is compared with what is there before memory is asked for, and
//! whatever is wrong is an error. Types that the device does not have are converted where that loses nothing or is what everybody
//! expects: integers of 8 and 16 bits become i32, those of 64 bits i32 where each fits (else an error), f64 is rounded to f32.
//! `tensor::files` puts arrays on a device.

pub mod npy;
pub mod npz;
pub mod safetensors;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};

/// Arrays by name.
pub type Arrays = BTreeMap<String, Array>;

/// An array on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    /// An array of `shape` with the elements of `data` in row-major order.
    ///
    /// # Errors
    /// [`Error::Shape`] where `data` has another length than the product of `shape`.
    pub fn new<T: Element>(shape: &[usize], data: &[T]) -> Result<Array> {
        if len_of(shape) != Some(data.len()) {
            return Err(Error::shape(
                "Array",
                format!("shape {shape:?} for {} elements", data.len()),
                "pass a shape whose product is the number of elements",
            ));
        }
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let bytes = match T::DTYPE {
            DType::Bool => truths(bytes),
            _ => bytes.to_vec(),
        };
        Ok(Array { dtype: T::DTYPE, shape: shape.to_vec(), bytes })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in row-major order, as the host has them in memory; of bool a byte for each.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements as files have them: little-endian.
    pub fn to_le_bytes(&self) -> Cow<'_, [u8]> {
        if cfg!(target_endian = "little") {
            return Cow::Borrowed(&self.bytes);
        }
        Cow::Owned(match self.dtype.size() {
            4 => words(&self.bytes, |bytes: [u8; 4]| u32::from_ne_bytes(bytes).to_le_bytes()),
            2 => words(&self.bytes, |bytes: [u8; 2]| u16::from_ne_bytes(bytes).to_le_bytes()),
            _ => self.bytes.clone(),
        })
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// [`Error::DType`] where the array has another element type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype != T::DTYPE {
            return Err(Error::DType { op: "to_vec", got: self.dtype, expected: T::DTYPE.name() });
        }
        Ok(bytemuck::pod_collect_to_vec(&self.bytes))
    }
}

/// How elements lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    BF16,
    F32,
    F64,
}

impl Stored {
    /// Bytes of an element.
    fn size(self) -> usize {
        match self {
            Stored::Bool | Stored::I8 | Stored::U8 => 1,
            Stored::I16 | Stored::U16 | Stored::F16 | Stored::BF16 => 2,
            Stored::I32 | Stored::U32 | Stored::F32 => 4,
            Stored::I64 | Stored::U64 | Stored::F64 => 8,
        }
    }

    /// Bytes of an array of this shape, where a host can count them.
    fn bytes_of(self, shape: &[usize]) -> Option<usize> {
        len_of(shape)?.checked_mul(self.size())
    }
}

fn len_of(shape: &[usize]) -> Option<usize> {
    // A length of 0 makes the product 0, whatever the others multiply to.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |product, len| product.checked_mul(*len))
}

/// The array of little-endian elements in row-major order; the error says which element is in the way.
pub(crate) fn array(stored: Stored, shape: Vec<usize>, data: &[u8]) -> Result<Array, String> {
    if stored.bytes_of(&shape) != Some(data.len()) {
        return Err(format!("shape {shape:?} of {stored:?} does not fit {} bytes", data.len()));
    }
    let (dtype, bytes) = match stored {
        Stored::Bool => (DType::Bool, truths(data)),
        Stored::F16 => (DType::F16, words(data, u16::from_le_bytes)),
        Stored::BF16 => (DType::BF16, words(data, u16::from_le_bytes)),
        Stored::F32 => (DType::F32, words(data, u32::from_le_bytes)),
        Stored::I32 => (DType::I32, words(data, u32::from_le_bytes)),
        Stored::U32 => (DType::U32, words(data, u32::from_le_bytes)),
        Stored::F64 => (DType::F32, words(data, |bytes: [u8; 8]| f64::from_le_bytes(bytes) as f32)),
        Stored::I8 => (DType::I32, words(data, |bytes: [u8; 1]| i32::from(i8::from_le_bytes(bytes)))),
        Stored::U8 => (DType::I32, words(data, |bytes: [u8; 1]| i32::from(u8::from_le_bytes(bytes)))),
        Stored::I16 => (DType::I32, words(data, |bytes: [u8; 2]| i32::from(i16::from_le_bytes(bytes)))),
        Stored::U16 => (DType::I32, words(data, |bytes: [u8; 2]| i32::from(u16::from_le_bytes(bytes)))),
        Stored::I64 => (DType::I32, narrowed(data, i64::from_le_bytes)?),
        Stored::U64 => (DType::I32, narrowed(data, u64::from_le_bytes)?),
    };
    Ok(Array { dtype, shape, bytes })
}

/// Bools as bytes that are 0 or 1.
fn truths(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| u8::from(*byte != 0)).collect()
}

fn words<const N: usize, T: bytemuck::NoUninit>(data: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<u8> {
    let (elements, _) = data.as_chunks::<N>();
    let mut out = Vec::with_capacity(elements.len() * size_of::<T>());
    elements.iter().for_each(|element| out.extend_from_slice(bytemuck::bytes_of(&from(*element))));
    out
}

fn narrowed<T: Copy + TryInto<i32> + std::fmt::Display>(data: &[u8], from: fn([u8; 8]) -> T) -> Result<Vec<u8>, String> {
    let (elements, _) = data.as_chunks::<8>();
    let mut out = Vec::with_capacity(elements.len() * 4);
    for element in elements {
        let wide = from(*element);
        let narrow: i32 = wide.try_into().map_err(|_| format!("it holds {wide}, which does not fit i32"))?;
        out.extend_from_slice(&narrow.to_ne_bytes());
    }
    Ok(out)
}

fn damaged(kind: &str, why: impl std::fmt::Display) -> Error {
    Error::file(format!("damaged, or no {kind} file: {why}"), "use another copy of the file, or write it anew")
}
