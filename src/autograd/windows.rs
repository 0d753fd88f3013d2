//! Windows over the last dimensions of a picture: what pooling, columns and convolutions have in common.

use super::rearrange::PadMode;
use super::views::signed;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// An operation over the last `dims` dimensions of `x`, for reading its arguments and for its errors.
#[derive(Clone, Copy)]
pub(super) struct Over<'a> {
    pub(super) op: &'static str,
    pub(super) x: &'a Tensor,
    pub(super) dims: usize,
}

/// How windows lie in one dimension. They cover `before + len + after` entries, of which `len` are the tensor's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// Entries of the tensor.
    pub(super) len: usize,
    /// Entries of a window.
    pub(super) size: usize,
    /// From one window to the next.
    pub(super) stride: usize,
    /// From one entry of a window to the next.
    pub(super) dilation: usize,
    /// Padding in front; negative takes entries away.
    pub(super) before: isize,
    /// Padding behind.
    pub(super) after: isize,
}

impl Windows {
    /// From the first entry of a window to behind its last one.
    pub(super) fn span(&self) -> usize {
        self.dilation * (self.size - 1) + 1
    }

    /// How many there are; `None` where not even one fits.
    pub(super) fn count(&self) -> Option<usize> {
        let padded = self.len.checked_add_signed(self.before)?.checked_add_signed(self.after)?;
        Some(padded.checked_sub(self.span())? / self.stride + 1)
    }
}

impl<'a> Over<'a> {
    /// The operation `op` over a batch `[N, C, ..]` or one picture `[C, ..]` with `dims` dimensions behind the channels.
    pub(super) fn pictures(op: &'static str, x: &'a Tensor, dims: usize) -> Result<Over<'a>> {
        if x.rank() == dims + 1 || x.rank() == dims + 2 {
            return Ok(Over { op, x, dims });
        }
        Err(Error::shape(
            op,
            format!("an input of shape {:?}", x.shape()),
            format!("pass {} dimensions, or {} with a batch", dims + 1, dims + 2),
        ))
    }

    /// The first of the dimensions.
    pub(super) fn first(&self) -> usize {
        self.x.rank() - self.dims
    }

    /// The lengths of the dimensions.
    pub(super) fn lens(&self) -> &'a [usize] {
        &self.x.shape()[self.first()..]
    }

    /// An argument with a number per dimension: as many, one for all, or none for `default`; none below `least`.
    pub(super) fn each(&self, name: &str, given: &[isize], default: Option<&[usize]>, least: isize) -> Result<Vec<usize>> {
        let numbers: Vec<isize> = match (given, default) {
            ([], Some(default)) => return Ok(default.to_vec()),
            ([one], _) => vec![*one; self.dims],
            _ => given.to_vec(),
        };
        // (Of products and sums of numbers that fit 32 bits none overflows.)
        let range = least..=i32::MAX as isize;
        if numbers.len() != self.dims || !numbers.iter().all(|number| range.contains(number)) {
            let help = format!("pass {} of them, or one for all, from {least} to {}", self.dims, i32::MAX);
            return Err(self.refused(&format!("{name} is {given:?}"), help));
        }
        Ok(numbers.into_iter().map(|number| number as usize).collect())
    }

    /// An [`Error::Argument`] that names the input too.
    pub(super) fn refused(&self, fact: &str, help: impl Into<String>) -> Error {
        Error::argument(self.op, format!("{fact} for an input of shape {:?}", self.x.shape()), help)
    }

    /// How many windows each dimension has.
    pub(super) fn counts(&self, windows: &[Windows]) -> Result<Vec<usize>> {
        let counts: Option<Vec<usize>> = windows.iter().map(Windows::count).collect();
        counts.ok_or_else(|| {
            let spans: Vec<usize> = windows.iter().map(Windows::span).collect();
            self.refused(&format!("windows of {spans:?} entries"), "pass windows that are not larger than the padded input")
        })
    }

    /// The windows of the input, padded with `value`: `[.., counts, sizes]`. A view where nothing is padded.
    #[track_caller]
    pub(super) fn windows(&self, windows: &[Windows], value: f64) -> Result<Tensor> {
        self.counts(windows)?;
        let amounts: Vec<isize> = windows.iter().rev().flat_map(|window| [window.before, window.after]).collect();
        let mut out = match amounts.iter().all(|amount| *amount == 0) {
            true => self.x.clone(),
            false => self.x.pad_signed(&amounts, PadMode::Constant(value)).map_err(|error| error.of(self.op))?,
        };
        for (i, window) in windows.iter().enumerate() {
            let dim = (self.first() + i) as isize;
            let spans = out.unfold(dim, window.span(), window.stride).map_err(|error| error.of(self.op))?;
            out = spans.slice(-1, .., window.dilation)?;
        }
        Ok(out)
    }

    /// A vector over dimension `i`, in a shape that broadcasts to the input's.
    #[track_caller]
    pub(super) fn along(&self, i: usize, vector: &Tensor) -> Result<Tensor> {
        let mut shape = vec![1; self.dims - i];
        shape[0] = vector.len() as isize;
        vector.reshape(&shape)
    }
}

/// Lengths as [`Tensor::reshape`] takes them.
pub(super) fn sizes(parts: &[&[usize]]) -> Vec<isize> {
    signed(parts.iter().copied().flatten())
}
