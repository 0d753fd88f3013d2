//! NumPy's `.npy`: one array. `\x93NUMPY`, a version, the length of the header, the header (a Python dict of `descr`,
//! `fortran_order` and `shape`), the elements (NumPy Enhancement Proposal 1).
//!
//! Both byte orders and both orders of elements are read. bf16, which NumPy has not, is written as f32.

use std::borrow::Cow;

use super::{Array, Stored, array, damaged, words};
use crate::dtype::DType;
use crate::error::Result;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes of the longest header that is read; NumPy refuses longer ones too.
const LONGEST_HEADER: usize = 10_000;

/// What a header says.
pub(super) struct Header {
    stored: Stored,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// The array of a whole file.
///
/// ```
/// use linn::files::{Array, npy};
///
/// let array = Array::new(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(npy::parse(&npy::write(&array))?, array);
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`](crate::Error::File) for what is no such file, is damaged, or has elements that linn has no type for.
pub fn parse(bytes: &[u8]) -> Result<Array> {
    let (header, data) = Header::parse(bytes).map_err(|why| damaged(".npy", why))?;
    header.array(data).map_err(|why| damaged(".npy", why))
}

/// The file of an array.
pub fn write(array: &Array) -> Vec<u8> {
    let (descr, data) = match array.dtype() {
        DType::F32 => ("<f4", array.to_le_bytes()),
        DType::F16 => ("<f2", array.to_le_bytes()),
        DType::BF16 => {
            let wide = |bytes: [u8; 2]| (u32::from(u16::from_ne_bytes(bytes)) << 16).to_le_bytes();
            ("<f4", Cow::Owned(words(array.bytes(), wide)))
        }
        DType::I32 => ("<i4", array.to_le_bytes()),
        DType::U32 => ("<u4", array.to_le_bytes()),
        DType::Bool => ("|b1", array.to_le_bytes()),
    };
    let lens: String = array.shape().iter().map(|len| format!("{len}, ")).collect();
    // A tuple of one has a comma behind it.
    let lens = if array.shape().len() == 1 { lens.trim_end() } else { lens.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lens}), }}");
    // NumPy leaves room for 21 digits of the first length, so that rows can be appended; then the elements start at a multiple of 64.
    if let Some(first) = array.shape().first() {
        header += &" ".repeat(21 - first.to_string().len());
    }
    let before = MAGIC.len() + 4;
    header += &" ".repeat((before + header.len() + 1).next_multiple_of(64) - before - header.len() - 1);
    header.push('\n');
    let mut out = Vec::with_capacity(before + header.len() + data.len());
    out.extend_from_slice(MAGIC);
    // Version 1 has 2 bytes for the length.
    match u16::try_from(header.len()) {
        Ok(len) => out.extend_from_slice(&[&[1, 0], &len.to_le_bytes()[..]].concat()),
        Err(_) => out.extend_from_slice(&[&[2, 0], &(header.len() as u32).to_le_bytes()[..]].concat()),
    }
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&data);
    out
}

impl Header {
    /// The header, and what lies behind it.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
        let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin as one")?;
        let (len, rest) = match rest {
            [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
            [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
            [version, ..] => return Err(format!("version {version}, or it ends in its first bytes")),
            [] => return Err("it ends in its first bytes".into()),
        };
        if len > LONGEST_HEADER || len > rest.len() {
            return Err(format!("a header of {len} bytes, with {} bytes left and at most {LONGEST_HEADER} allowed", rest.len()));
        }
        let (header, data) = rest.split_at(len);
        let header = std::str::from_utf8(header).map_err(|_| "its header is no text")?;
        Ok((Header::of_text(header)?, data))
    }

    fn of_text(text: &str) -> Result<Header, String> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        let mut rest = text.trim().strip_prefix('{').ok_or("its header is no dict")?.trim_start();
        while !rest.starts_with('}') {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':').ok_or("a key without a value in its header")?.trim_start();
            rest = match key {
                "descr" => {
                    let (value, after) = quoted(value).map_err(|_| "elements of several parts, or a type that is no text")?;
                    descr = Some(value);
                    after
                }
                "fortran_order" => {
                    let (value, after) = value.split_at(value.find([',', '}']).unwrap_or(value.len()));
                    order = Some(match value.trim_end() {
                        "True" => true,
                        "False" => false,
                        other => return Err(format!("fortran_order is {other}")),
                    });
                    after
                }
                "shape" => {
                    let inside = value.strip_prefix('(').ok_or("its shape is no tuple")?;
                    let (lens, after) = inside.split_once(')').ok_or("its shape does not end")?;
                    shape = Some(lens_of(lens)?);
                    after
                }
                other => return Err(format!("its header has a key {other:?}")),
            };
            rest = rest.trim_start();
            rest = match rest.strip_prefix(',') {
                Some(after) => after.trim_start(),
                None if rest.starts_with('}') => rest,
                None => return Err("its header does not end".into()),
            };
        }
        if rest.trim() != "}" {
            return Err("something stands behind its header".into());
        }
        let (Some(descr), Some(fortran_order), Some(shape)) = (descr, order, shape) else {
            return Err("its header lacks descr, fortran_order or shape".into());
        };
        let (stored, big_endian) = stored(descr)?;
        Ok(Header { stored, big_endian, fortran_order, shape })
    }

    /// Bytes of the elements, where a host can count them.
    pub(super) fn size(&self) -> Option<usize> {
        self.stored.bytes_of(&self.shape)
    }

    /// The array with the elements of `data`, which are all that is there.
    pub(super) fn array(self, data: &[u8]) -> Result<Array, String> {
        let size = self.stored.size();
        if self.size() != Some(data.len()) {
            return Err(format!("shape {:?} of elements of {size} bytes, and {} bytes", self.shape, data.len()));
        }
        let swapped: Vec<u8>;
        let mut data = data;
        if self.big_endian && size > 1 {
            swapped = data.chunks_exact(size).flat_map(|element| element.iter().rev().copied()).collect();
            data = &swapped;
        }
        let ordered: Vec<u8>;
        if self.fortran_order && self.shape.len() > 1 && !data.is_empty() {
            ordered = row_major(&self.shape, size, data);
            data = &ordered;
        }
        array(self.stored, self.shape, data)
    }
}

/// The text between the quotes that `text` begins with, and what lies behind. Names of types and keys have no escapes.
fn quoted(text: &str) -> Result<(&str, &str), String> {
    let quote = text.chars().next().filter(|c| *c == '\'' || *c == '"').ok_or("no text where its header should have one")?;
    text[1..].split_once(quote).ok_or_else(|| "a text in its header does not end".into())
}

fn lens_of(text: &str) -> Result<Vec<usize>, String> {
    let text = text.trim();
    let inner = text.strip_suffix(',').unwrap_or(text);
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    // Python 2 wrote 3L.
    let len = |word: &str| {
        let word = word.trim();
        word.strip_suffix('L').unwrap_or(word).parse().map_err(|_| format!("{word:?} in its shape"))
    };
    inner.split(',').map(len).collect()
}

/// The type of a descr such as `<f4`, and whether its bytes begin with the most significant one.
fn stored(descr: &str) -> Result<(Stored, bool), String> {
    let (order, kind) = match descr.split_at_checked(1) {
        Some((order @ ("<" | ">" | "|" | "="), kind)) => (order, kind),
        _ => ("=", descr),
    };
    let stored = match kind {
        "b1" | "?" => Stored::Bool,
        "i1" => Stored::I8,
        "u1" => Stored::U8,
        "i2" => Stored::I16,
        "u2" => Stored::U16,
        "i4" => Stored::I32,
        "u4" => Stored::U32,
        "i8" => Stored::I64,
        "u8" => Stored::U64,
        "f2" => Stored::F16,
        "f4" => Stored::F32,
        "f8" => Stored::F64,
        _ => return Err(format!("elements of type {descr:?}; linn reads bool, integers and floats of up to 64 bits")),
    };
    Ok((stored, order == ">" || order == "=" && cfg!(target_endian = "big")))
}

/// Elements of `size` bytes of which the first index runs fastest, in the order in which the last one does.
fn row_major(shape: &[usize], size: usize, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for len in shape {
        strides.push(stride);
        stride *= len;
    }
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    for _ in 0..data.len() / size {
        out.extend_from_slice(&data[at..at + size]);
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            at += strides[dim];
            if index[dim] < shape[dim] {
                break;
            }
            at -= strides[dim] * shape[dim];
            index[dim] = 0;
        }
    }
    out
}
