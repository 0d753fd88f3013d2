//! Pictures in other sizes, one dimension after the other. Letters: N pictures, C channels.

use super::autocast::in_autocast;
use super::halves::rounded_once;
use super::windows::{Over, sizes};
use crate::error::{Error, Result};
use crate::ops::reduce::{KeepDim, expect_float};
use crate::tensor::Tensor;

/// How [`Tensor::interpolate`] makes an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpolateMode {
    /// The entry at or before its place, as OpenCV rounds.
    Nearest,
    /// The entry nearest to its middle.
    NearestExact,
    /// Two neighbours by distance, in each dimension: PyTorch's linear, bilinear and trilinear.
    Linear,
    /// Four neighbours by cubic convolution with a = -0.75, in two dimensions.
    Bicubic,
    /// The mean of what it covers.
    Area,
}

/// The size that [`Tensor::interpolate`] makes. Lists have a number per dimension, or one for all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resized<'a> {
    /// Lengths.
    Size(&'a [isize]),
    /// Factors of the lengths, which are rounded down; places follow from the factors.
    Scale(&'a [f64]),
    /// [`Resized::Scale`] where places follow from the lengths (`recompute_scale_factor=True`).
    ScaleRecomputed(&'a [f64]),
}

/// Places in the input for the entries of one dimension of the result.
#[derive(Clone, Copy)]
struct Places {
    len: usize,
    count: usize,
    /// Entries of the input per entry of the result, in f32 like PyTorch's.
    step: f32,
    align_corners: bool,
}

impl Tensor {
    /// A picture in another size: `[N, C, ..]` with 1 to 3 more dimensions -> `[N, C, size]`. With `align_corners` (linear and bicubic)
    /// the middles of the outermost entries of both meet, else their edges.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::{InterpolateMode, Resized};
    /// let x = Tensor::new(&device, [[[1.0f32, 3.0]]])?;
    /// assert_eq!(x.interpolate(Resized::Size(&[4]), InterpolateMode::Nearest, false)?.to_vec::<f32>()?, [1.0, 1.0, 3.0, 3.0]);
    /// assert_eq!(x.interpolate(Resized::Size(&[3]), InterpolateMode::Linear, true)?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn interpolate(&self, size: Resized<'_>, mode: InterpolateMode, align_corners: bool) -> Result<Tensor> {
        const OP: &str = "interpolate";
        if mode != InterpolateMode::Area {
            in_autocast!(OP, (x = self), x.interpolate(size, mode, align_corners));
        }
        expect_float(OP, self)?;
        let dims = self.rank().saturating_sub(2);
        let taken = if mode == InterpolateMode::Bicubic { 2..=2 } else { 1..=3 };
        if !taken.contains(&dims) || self.shape()[1..].contains(&0) {
            return Err(Error::shape(
                OP,
                format!("an input of shape {:?} ({mode:?})", self.shape()),
                format!("pass [N, C, ..] with {} to {} more dimensions that have entries", taken.start(), taken.end()),
            ));
        }
        let over = Over { op: OP, x: self, dims };
        if align_corners && !matches!(mode, InterpolateMode::Linear | InterpolateMode::Bicubic) {
            return Err(over.refused(&format!("align_corners with {mode:?}"), "pass false"));
        }
        let (counts, scales) = self.resized(over, size)?;
        rounded_once(OP, [self], |[x]| {
            let mut out = x.clone();
            for (i, (count, scale)) in counts.iter().copied().zip(scales.iter().copied()).enumerate() {
                let (dim, len) = (over.first() + i, over.lens()[i]);
                let step = match (align_corners, scale) {
                    (true, _) if count > 1 => (len - 1) as f32 / (count - 1) as f32,
                    (true, _) => 0.0,
                    (false, Some(scale)) => (1.0 / scale) as f32,
                    (false, None) => len as f32 / count as f32,
                };
                let places = Places { len, count, step, align_corners };
                out = match mode {
                    InterpolateMode::Area => out.means_of_parts(dim, count)?,
                    InterpolateMode::Nearest => out.pick(dim, &places.nearest(0.0))?,
                    InterpolateMode::NearestExact => out.pick(dim, &places.nearest(0.5))?,
                    InterpolateMode::Linear => out.mixed(dim, count, &places.linear())?,
                    InterpolateMode::Bicubic => out.mixed(dim, count, &places.cubic())?,
                };
            }
            Ok(out)
        })
    }

    /// The lengths of the result, and the factors that places follow from.
    fn resized(&self, over: Over<'_>, size: Resized<'_>) -> Result<(Vec<usize>, Vec<Option<f64>>)> {
        let (factors, kept) = match size {
            Resized::Size(size) => return Ok((over.each("size", size, None, 1)?, vec![None; over.dims])),
            Resized::Scale(factors) => (factors, true),
            Resized::ScaleRecomputed(factors) => (factors, false),
        };
        let each = if let [one] = factors { vec![*one; over.dims] } else { factors.to_vec() };
        let counts: Vec<usize> = over.lens().iter().zip(&each).map(|(len, factor)| (*len as f64 * factor) as usize).collect();
        if each.len() != over.dims || each.iter().any(|factor| !factor.is_finite()) || counts.contains(&0) {
            let help = format!("pass {} of them, or one for all, that leave at least 1 entry", over.dims);
            return Err(over.refused(&format!("scale_factor is {factors:?}"), help));
        }
        Ok((counts, each.into_iter().map(|factor| kept.then_some(factor)).collect()))
    }

    /// Dimension `dim` as `count` sums of weighted entries, the same number for each.
    #[track_caller]
    fn mixed(&self, dim: usize, count: usize, parts: &[(i32, f32)]) -> Result<Tensor> {
        let taps = parts.len() / count;
        let (positions, weights): (Vec<i32>, Vec<f32>) = parts.iter().copied().unzip();
        let (before, after) = (&self.shape()[..dim], &self.shape()[dim + 1..]);
        let entries = self.pick(dim, &positions)?.reshape(&sizes(&[before, &[count, taps], after]))?;
        let weights = Tensor::from_slice(self.device(), &[count, taps], &weights)?.to_dtype(self.dtype())?;
        let weights = weights.reshape(&sizes(&[&[count, taps], &vec![1; after.len()]]))?;
        entries.mul(&weights)?.sum(&[dim as isize + 1], KeepDim::Drop)
    }
}

impl Places {
    /// The entry at the place `shift` entries of the result behind the beginning of each.
    fn nearest(&self, shift: f32) -> Vec<i32> {
        let place = |at: usize| (((at as f32 + shift) * self.step).floor() as i32).min(self.len as i32 - 1);
        (0..self.count).map(place).collect()
    }

    /// (entry, distance from it) of the middle of entry `at` of the result, both from the middles of the input's.
    fn middle(&self, at: usize, least: f32) -> (i32, f32) {
        let place = if self.align_corners { at as f32 * self.step } else { (at as f32 + 0.5) * self.step - 0.5 };
        let place = place.max(least);
        let entry = (place.floor() as i32).min(self.len as i32 - 1);
        (entry, (place - entry as f32).clamp(0.0, 1.0))
    }

    /// Entries and their weights, two for each entry of the result.
    fn linear(&self) -> Vec<(i32, f32)> {
        let of = |at: usize| {
            let (entry, apart) = self.middle(at, 0.0);
            [(entry, 1.0 - apart), ((entry + 1).min(self.len as i32 - 1), apart)]
        };
        (0..self.count).flat_map(of).collect()
    }

    /// Entries and their weights, four for each entry of the result; what lies outside is the outermost entry. (Keys, "Cubic
    /// convolution interpolation for digital image processing", 1981.)
    fn cubic(&self) -> Vec<(i32, f32)> {
        const A: f32 = -0.75;
        let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
        let of = |at: usize| {
            let (entry, t) = self.middle(at, f32::NEG_INFINITY);
            let inside = move |by: i32| (entry + by).clamp(0, self.len as i32 - 1);
            [(inside(-1), far(t + 1.0)), (inside(0), near(t)), (inside(1), near(1.0 - t)), (inside(2), far(2.0 - t))]
        };
        (0..self.count).flat_map(of).collect()
    }
}
