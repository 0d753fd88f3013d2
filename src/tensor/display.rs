//! Printing tensors. Printing reads the elements, so it waits for the device.

use std::fmt::{self, Display};

use crate::dtype::{DType, Element};
use crate::tensor::Tensor;

/// More elements than this are printed as their edges.
const SUMMARISE: usize = 1000;
/// Entries shown at each edge of a summarised dimension.
const EDGE: usize = 3;

impl Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.dtype() {
            DType::F32 => values(self, floats),
            DType::F16 => values(self, |all: &[half::f16]| floats(&all.iter().map(|v| v.to_f32()).collect::<Vec<_>>())),
            DType::BF16 => values(self, |all: &[half::bf16]| floats(&all.iter().map(|v| v.to_f32()).collect::<Vec<_>>())),
            DType::I32 => values(self, |all: &[i32]| all.iter().map(i32::to_string).collect()),
            DType::U32 => values(self, |all: &[u32]| all.iter().map(u32::to_string).collect()),
            DType::Bool => values(self, |all: &[u8]| all.iter().map(|v| (*v != 0).to_string()).collect()),
        };
        match text {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "Tensor({:?}, {}, not readable: {error})", self.shape(), self.dtype()),
        }
    }
}

impl fmt::Debug for Tensor {
    /// Shape, type and device; does not read the elements and does not wait.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?}, {}, {})", self.shape(), self.dtype(), self.device().name())
    }
}

/// Four digits; with an exponent where some would lose theirs otherwise (PyTorch's rule).
fn floats(all: &[f32]) -> Vec<String> {
    let sizes = all.iter().map(|v| v.abs()).filter(|v| v.is_finite() && *v > 0.0);
    let (least, most) = sizes.fold((f32::INFINITY, 0f32), |(least, most), v| (least.min(v), most.max(v)));
    let short = most > 0.0 && (most / least > 1e3 || most > 1e8 || least < 1e-4);
    all.iter().map(|v| if short { format!("{v:.4e}") } else { format!("{v:.4}") }).collect()
}

fn values<T: Element>(tensor: &Tensor, print: impl Fn(&[T]) -> Vec<String>) -> crate::Result<String> {
    let data = tensor.to_vec::<T>()?;
    let words = print(&data);
    let width = words.iter().map(String::len).max().unwrap_or(0);
    let mut out = String::new();
    block(&mut out, tensor.shape(), &words, width, data.len() > SUMMARISE, 0);
    if tensor.dtype() != DType::F32 || data.is_empty() {
        out += &format!("  (shape {:?}, {})", tensor.shape(), tensor.dtype());
    }
    Ok(out)
}

fn block(out: &mut String, shape: &[usize], words: &[String], width: usize, short: bool, depth: usize) {
    let Some((len, inner)) = shape.split_first() else {
        out.push_str(words.first().map_or("", String::as_str));
        return;
    };
    let step: usize = inner.iter().product();
    let (separator, more) = match inner.len() {
        0 => (", ".to_owned(), "...".to_owned()),
        rank => (format!(",{}{}", "\n".repeat(rank), " ".repeat(depth + 1)), "...".to_owned()),
    };
    out.push('[');
    let mut first = true;
    for i in 0..*len {
        let hidden = short && *len > 2 * EDGE && (EDGE..*len - EDGE).contains(&i);
        if hidden && i != EDGE {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push_str(&separator);
        }
        if hidden {
            out.push_str(&more);
        } else if inner.is_empty() {
            *out += &format!("{:>width$}", words[i]);
        } else {
            block(out, inner, &words[i * step..(i + 1) * step], width, short, depth + 1);
        }
    }
    out.push(']');
}
