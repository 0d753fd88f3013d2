//! Tensors as text, in PyTorch's form. Printing reads the elements that it shows, so it waits for the device.
//!
//! Floats have four digits behind the point, or as many as the format asks for (`{:.2}`); an exponent where the largest is more than
//! 1000 times the smallest, above 10^8 or below 10^-4; and no digits where all are whole. Of more than 1000 elements only the first and
//! last three of each dimension are read and shown, unless the format asks for all (`{:#}`).

use std::fmt::{self, Write};

use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::layout::Layout;
use crate::tensor::Tensor;

/// More elements than this are printed as their edges.
const SUMMARISE: usize = 1000;
/// Entries shown at each edge of a summarised dimension.
const EDGE: usize = 3;
/// Characters of a line.
const LINE: usize = 80;
/// Digits behind the point.
const PRECISION: usize = 4;
/// What stands before the elements; further lines are indented by its length.
const PREFIX: &str = "tensor(";

/// Writes `tensor(elements, suffixes)`. Where the elements cannot be had, the error stands in their place.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, tensor: &Tensor, more: &[String]) -> fmt::Result {
    let (empty, dtype) = (tensor.is_empty(), tensor.dtype());
    let elements = match empty {
        true => Ok("[]".to_owned()),
        false => elements(tensor, f.precision().unwrap_or(PRECISION), f.alternate()),
    };
    let (text, failed) = match elements {
        Ok(text) => (text, false),
        Err(error) => (format!("<not readable: {error}>"), true),
    };
    let mut suffixes = Vec::new();
    if failed || empty && tensor.rank() != 1 {
        let lens: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
        suffixes.push(format!("size=({}{})", lens.join(", "), if lens.len() == 1 { "," } else { "" }));
    }
    // Without elements nothing tells that they would be true or false.
    if dtype != DType::F32 && (dtype != DType::Bool || empty) {
        suffixes.push(format!("dtype={}", torch_name(dtype)));
    }
    suffixes.extend_from_slice(more);
    let mut out = format!("{PREFIX}{text}");
    let line_start = out.rfind('\n');
    let mut line = line_start.map_or(out.len() + 2, |at| out.len() - at + 1);
    for suffix in suffixes {
        if line + suffix.len() + 2 > LINE {
            let _ = write!(out, ",\n{:indent$}{suffix}", "", indent = PREFIX.len());
            line = PREFIX.len() + suffix.len();
        } else {
            let _ = write!(out, ", {suffix}");
            line += suffix.len() + 2;
        }
    }
    out.push(')');
    f.write_str(&out)
}

/// The name under which PyTorch prints a type.
fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "torch.float32",
        DType::F16 => "torch.float16",
        DType::BF16 => "torch.bfloat16",
        DType::I32 => "torch.int32",
        DType::U32 => "torch.uint32",
        DType::Bool => "torch.bool",
    }
}

fn elements(tensor: &Tensor, precision: usize, all: bool) -> Result<String> {
    let shown = Shown::of(tensor, all);
    let floats = |values: Vec<f64>| floats(&values, precision);
    let (words, width) = match tensor.dtype() {
        DType::F32 => floats(shown.read(tensor, |v: f32| f64::from(v))?),
        DType::F16 => floats(shown.read(tensor, |v: half::f16| v.to_f64())?),
        DType::BF16 => floats(shown.read(tensor, |v: half::bf16| v.to_f64())?),
        DType::I32 => plain(shown.read(tensor, |v: i32| v.to_string())?),
        DType::U32 => plain(shown.read(tensor, |v: u32| v.to_string())?),
        DType::Bool => plain(shown.read(tensor, |v: u8| if v == 0 { "False" } else { "True" }.to_owned())?),
    };
    let mut out = String::new();
    match tensor.rank() {
        0 => pad(&mut out, words.first().map_or("", String::as_str), width),
        _ => shown.block(&mut out, &words, width, 0, PREFIX.len()),
    }
    Ok(out)
}

/// Which elements are shown.
struct Shown {
    /// How many of each dimension.
    lens: Vec<usize>,
    /// True for a dimension of which the middle is left out.
    cut: Vec<bool>,
}

impl Shown {
    fn of(tensor: &Tensor, all: bool) -> Shown {
        let short = tensor.len() > SUMMARISE && !all;
        let cut: Vec<bool> = tensor.shape().iter().map(|len| short && *len > 2 * EDGE).collect();
        let lens = tensor.shape().iter().zip(&cut).map(|(len, cut)| if *cut { 2 * EDGE } else { *len }).collect();
        Shown { lens, cut }
    }

    /// The elements in row-major order. Each corner of the dimensions that are cut is a copy of its own; all are enqueued before the
    /// first is waited for.
    fn read<T: Element, U: Clone>(&self, tensor: &Tensor, convert: impl Fn(T) -> U) -> Result<Vec<U>> {
        let cuts: Vec<usize> = (0..self.lens.len()).filter(|dim| self.cut[*dim]).collect();
        if cuts.is_empty() {
            return Ok(tensor.to_vec::<T>()?.into_iter().map(convert).collect());
        }
        let mut corners = Vec::new();
        for corner in 0..1usize << cuts.len() {
            let mut layout = *tensor.layout();
            let mut starts = vec![0; self.lens.len()];
            for (bit, dim) in cuts.iter().enumerate() {
                let last = corner >> bit & 1;
                layout = layout.narrow(*dim, last * (tensor.shape()[*dim] - EDGE), EDGE)?;
                starts[*dim] = last * EDGE;
            }
            corners.push((starts, layout, tensor.with_layout(layout).to_vec_async::<T>()?));
        }
        let places = Layout::contiguous("Display", &self.lens)?;
        let mut out: Vec<Option<U>> = vec![None; places.len()];
        tensor.device().hidden_wait("to_vec", "to_vec_async", crate::stream::Origin::line())?;
        for (starts, layout, read) in corners {
            for (i, value) in read.wait()?.into_iter().enumerate() {
                let (mut rest, mut at) = (i, 0);
                for dim in (0..starts.len()).rev() {
                    let len = layout.shape()[dim];
                    at += (starts[dim] + rest % len) * places.strides()[dim];
                    rest /= len;
                }
                out[at] = Some(convert(value));
            }
        }
        Ok(out.into_iter().flatten().collect())
    }

    /// The elements of `words` from dimension `dim` on, whose lines are indented by `indent`.
    fn block(&self, out: &mut String, words: &[String], width: usize, dim: usize, indent: usize) {
        let (len, inner) = (self.lens[dim], self.lens.len() - dim - 1);
        let step = words.len() / len.max(1);
        // Entries, where the middle is left out with one more in its place.
        let entries = (0..len).flat_map(|i| {
            let gap = self.cut[dim] && i == EDGE;
            gap.then_some(None).into_iter().chain([Some(i)])
        });
        let per_line = if inner > 0 { 1 } else { (LINE.saturating_sub(indent) / (width + 2)).max(1) };
        let new_line = format!(",{}{}", "\n".repeat(inner.max(1)), " ".repeat(indent + 1));
        out.push('[');
        for (number, entry) in entries.enumerate() {
            match number {
                0 => {}
                _ if number.is_multiple_of(per_line) => out.push_str(&new_line),
                _ => out.push_str(", "),
            }
            match entry {
                Some(i) if inner == 0 => pad(out, &words[i], width),
                Some(i) => self.block(out, &words[i * step..(i + 1) * step], width, dim + 1, indent + 1),
                None => out.push_str(if inner == 0 { " ..." } else { "..." }),
            }
        }
        out.push(']');
    }
}

fn pad(out: &mut String, word: &str, width: usize) {
    let _ = write!(out, "{word:>width$}"); // writing to a String cannot fail
}

/// Words, and the width of the widest.
fn plain(words: Vec<String>) -> (Vec<String>, usize) {
    let width = words.iter().map(String::len).max().unwrap_or(0);
    (words, width)
}

/// How floats are written, and how wide those that are finite and not 0 are.
fn floats(values: &[f64], precision: usize) -> (Vec<String>, usize) {
    let counted = || values.iter().copied().filter(|v| v.is_finite() && *v != 0.0);
    let (least, most) = counted().fold((f64::INFINITY, 0f64), |(least, most), v| (least.min(v.abs()), most.max(v.abs())));
    let whole = counted().all(|v| v.fract() == 0.0);
    let exponent = most > 0.0 && (most / least > 1000.0 || most > 1e8 || least < 1e-4);
    let word = |v: f64| match v {
        _ if v.is_nan() => "nan".to_owned(),
        _ if v.is_infinite() => format!("{v}"),
        _ if exponent => with_exponent(v, precision),
        _ if whole => format!("{v:.0}."),
        _ => format!("{v:.precision$}"),
    };
    (values.iter().map(|v| word(*v)).collect(), counted().map(|v| word(v).len()).max().unwrap_or(1))
}

/// `1.5000e-06`: a sign and at least two digits of exponent.
fn with_exponent(v: f64, precision: usize) -> String {
    let text = format!("{v:.precision$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text,
    }
}
