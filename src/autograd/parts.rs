//! Views of some elements: ranges, entries, pieces, diagonals and windows, with gradients. No kernel runs.

use std::ops::{Bound, RangeBounds};

use super::record::{record_view, record_views};
use super::rules;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::tensor::Tensor;

/// Parts that a call gives at most where it can give empty ones.
const MOST_PARTS: usize = 1 << 20;

fn too_many(op: &'static str, x: &Tensor, count: usize) -> Error {
    let fact = format!("{count} parts of a tensor of shape {:?}", x.shape());
    Error::argument(op, fact, format!("ask for {MOST_PARTS} at most"))
}

impl Tensor {
    /// The `len` entries of dimension `dim` from `start` on (negative: from the back).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.narrow(0, 1, 2)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// assert_eq!(x.narrow(0, -2, 2)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn narrow(&self, dim: isize, start: isize, len: usize) -> Result<Tensor> {
        const OP: &str = "narrow";
        let dim = self.existing(OP, dim)?;
        let whole = self.shape()[dim];
        let from = if start < 0 { start.checked_add_unsigned(whole) } else { Some(start) };
        let from = from.and_then(|from| usize::try_from(from).ok()).filter(|from| *from <= whole).ok_or_else(|| {
            Error::shape(
                OP,
                format!("start {start} is out of range for dimension {dim} of shape {:?}", self.shape()),
                format!("use a start from -{whole} to {whole}"),
            )
        })?;
        if from == 0 && len == whole {
            return Ok(self.clone());
        }
        self.partial(OP, move |layout| layout.narrow(dim, from, len))
    }

    /// [`Tensor::narrow`] from a position that is on the device, a 0-d i32 tensor: waits for it.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0])?;
    /// let start = Tensor::new(&device, 1)?;
    /// assert_eq!(x.narrow_tensor(0, &start, 2)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn narrow_tensor(&self, dim: isize, start: &Tensor, len: usize) -> Result<Tensor> {
        if start.rank() != 0 || start.dtype() != DType::I32 {
            let fact = format!("a start of shape {:?} and type {} for shape {:?}", start.shape(), start.dtype(), self.shape());
            return Err(Error::shape("narrow", fact, "pass a 0-d i32 tensor"));
        }
        self.narrow(dim, start.item::<i32>()? as isize, len)
    }

    /// Entry `index` of dimension `dim` (negative: from the back); the dimension is gone.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.select(0, 1)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// assert_eq!(x.select(1, -1)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn select(&self, dim: isize, index: isize) -> Result<Tensor> {
        const OP: &str = "select";
        let dim = self.existing(OP, dim)?;
        let len = self.shape()[dim];
        let index = position(index, len).ok_or_else(|| {
            Error::shape(
                OP,
                format!("index {index} is out of range for dimension {dim} of shape {:?}", self.shape()),
                format!("use an index below {len}, or from -{len} to -1"),
            )
        })?;
        self.partial(OP, move |layout| layout.select(dim, index))
    }

    /// Every `step`-th entry of dimension `dim` in `range`, by Python's rules: negative bounds count from the back, and what
    /// lies outside is cut off. `x.slice(0, 1..-1, 2)` is PyTorch's `x[1:-1:2]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0, 5.0])?;
    /// assert_eq!(x.slice(0, 1..-1, 1)?.to_vec::<f32>()?, [2.0, 3.0, 4.0]);
    /// assert_eq!(x.slice(0, .., 2)?.to_vec::<f32>()?, [1.0, 3.0, 5.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn slice(&self, dim: isize, range: impl RangeBounds<isize>, step: usize) -> Result<Tensor> {
        const OP: &str = "slice";
        let dim = self.existing(OP, dim)?;
        if step == 0 {
            return Err(Error::argument(
                OP,
                format!("step 0 in a tensor of shape {:?}", self.shape()),
                "pass a step of at least 1",
            ));
        }
        let len = self.shape()[dim];
        let start = match range.start_bound() {
            Bound::Included(start) => from_python(*start, len),
            Bound::Excluded(before) => from_python(*before, len).saturating_add(1).min(len),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            // -1 as the last entry that is in: nothing is cut off.
            Bound::Included(-1) | Bound::Unbounded => len,
            Bound::Included(last) => from_python(last.saturating_add(1), len),
            Bound::Excluded(end) => from_python(*end, len),
        };
        let kept = end.saturating_sub(start);
        if kept == len && step == 1 {
            return Ok(self.clone());
        }
        self.partial(OP, move |layout| layout.slice(dim, start, kept, step))
    }

    /// Parts of `size` along `dim`, the last one shorter where it does not divide. One node: the gradients of all parts are
    /// joined by one copy.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let parts = x.split(2, 0)?;
    /// assert_eq!(parts[0].to_vec::<f32>()?, [1.0, 2.0]);
    /// assert_eq!(parts[1].to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, size: usize, dim: isize) -> Result<Vec<Tensor>> {
        let dim = self.existing("split", dim)?;
        // Parts of 0 are all that there is of a dimension of length 0.
        let size = if self.shape()[dim] == 0 { size.max(1) } else { size };
        if size == 0 {
            return Err(Error::argument("split", "size is 0", "pass a size of at least 1"));
        }
        let len = self.shape()[dim];
        let starts = (0..len.max(1)).step_by(size);
        self.pieces("split", dim, &starts.map(|start| size.min(len - start)).collect::<Vec<_>>())
    }

    /// Parts of the lengths `sizes` along `dim`; they must add up to its length.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let parts = x.split_with_sizes(&[1, 2], 0)?;
    /// assert_eq!(parts[1].to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn split_with_sizes(&self, sizes: &[usize], dim: isize) -> Result<Vec<Tensor>> {
        const OP: &str = "split_with_sizes";
        let dim = self.existing(OP, dim)?;
        let sum = sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
        if sum != Some(self.shape()[dim]) {
            return Err(Error::shape(
                OP,
                format!("sizes {sizes:?} do not add up to dimension {dim} of shape {:?}", self.shape()),
                format!("pass sizes whose sum is {}", self.shape()[dim]),
            ));
        }
        self.pieces(OP, dim, sizes)
    }

    /// At most `count` parts along `dim`, all of the same length but the last, which may be shorter (PyTorch's rule: 5 entries in
    /// 4 chunks are 2, 2 and 1).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0, 5.0])?;
    /// let parts = x.chunk(4, 0)?;
    /// assert_eq!(parts.len(), 3);
    /// assert_eq!(parts[0].to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn chunk(&self, count: usize, dim: isize) -> Result<Vec<Tensor>> {
        let at = self.existing("chunk", dim)?;
        match (count, self.shape()[at]) {
            (0, _) => Err(Error::argument("chunk", "count is 0", "pass a count of at least 1")),
            (_, 0) if count > MOST_PARTS => Err(too_many("chunk", self, count)),
            // PyTorch gives as many empty parts as were asked for.
            (_, 0) => Ok(vec![self.clone(); count]),
            (_, len) => self.split(len.div_ceil(count), dim),
        }
    }

    /// `sections` parts along `dim` whose lengths differ by at most 1, longer ones first.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let parts = x.tensor_split(2, 0)?;
    /// assert_eq!(parts[0].to_vec::<f32>()?, [1.0, 2.0]);
    /// assert_eq!(parts[1].to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn tensor_split(&self, sections: usize, dim: isize) -> Result<Vec<Tensor>> {
        const OP: &str = "tensor_split";
        let dim = self.existing(OP, dim)?;
        if sections == 0 {
            return Err(Error::argument(OP, "0 sections", "pass at least 1 section"));
        }
        if sections > MOST_PARTS {
            return Err(too_many(OP, self, sections));
        }
        let len = self.shape()[dim];
        let size = |i| len / sections + usize::from(i < len % sections);
        self.pieces(OP, dim, &(0..sections).map(size).collect::<Vec<_>>())
    }

    /// Parts along `dim` between the positions `cuts`, by Python's rules (PyTorch's `tensor_split` with indices): `[2, 4]` gives
    /// the entries `..2`, `2..4` and `4..`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let parts = x.tensor_split_at(&[1], 0)?;
    /// assert_eq!(parts[0].to_vec::<f32>()?, [1.0]);
    /// assert_eq!(parts[1].to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn tensor_split_at(&self, cuts: &[isize], dim: isize) -> Result<Vec<Tensor>> {
        const OP: &str = "tensor_split";
        let at = self.existing(OP, dim)?;
        let len = self.shape()[at];
        let cuts: Vec<usize> = [0].into_iter().chain(cuts.iter().map(|cut| from_python(*cut, len))).chain([len]).collect();
        if cuts.is_sorted() {
            return self.pieces(OP, at, &cuts.windows(2).map(|cut| cut[1] - cut[0]).collect::<Vec<_>>());
        }
        let part = |cut: &[usize]| {
            let (start, kept) = (cut[0], cut[1].saturating_sub(cut[0]));
            self.partial(OP, move |layout| layout.narrow(at, start, kept))
        };
        cuts.windows(2).map(part).collect()
    }

    /// The entries of dimension `dim`, one by one; the dimension is gone.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let rows = x.unbind(0)?;
    /// assert_eq!(rows[1].to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn unbind(&self, dim: isize) -> Result<Vec<Tensor>> {
        const OP: &str = "unbind";
        let dim = self.existing(OP, dim)?;
        let parts = self.pieces(OP, dim, &vec![1; self.shape()[dim]])?;
        parts.iter().map(|part| part.squeeze(dim as isize)).collect()
    }

    /// The entries where the index of dimension `dim2` is that of `dim1` plus `offset`, as the last dimension; `dim1` and `dim2`
    /// are gone. PyTorch's defaults are 0, 0 and 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.diagonal(0, 0, 1)?.to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(x.diagonal(1, 0, 1)?.to_vec::<f32>()?, [2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn diagonal(&self, offset: isize, dim1: isize, dim2: isize) -> Result<Tensor> {
        const OP: &str = "diagonal";
        let (a, b) = (self.existing(OP, dim1)?, self.existing(OP, dim2)?);
        if a == b {
            return Err(Error::shape(
                OP,
                format!("dimensions {dim1} and {dim2} of shape {:?} are the same", self.shape()),
                "name two dimensions",
            ));
        }
        self.partial(OP, move |layout| Ok(layout.diagonal(offset, a, b)))
    }

    /// Windows of `size` entries of dimension `dim`, one every `step` entries; the entries of a window are the last dimension.
    /// Windows may overlap: written in place, such a view holds what came last.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let windows = x.unfold(0, 2, 1)?;
    /// assert_eq!(windows.shape(), [2, 2]);
    /// assert_eq!(windows.to_vec::<f32>()?, [1.0, 2.0, 2.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn unfold(&self, dim: isize, size: usize, step: usize) -> Result<Tensor> {
        const OP: &str = "unfold";
        let dim = self.layout.dim(OP, dim)?;
        if self.rank() == 0 && size == 1 {
            return self.reshape(&[1]);
        }
        let layout = match step {
            0 => None,
            _ if self.rank() == 0 => None,
            _ => self.layout.unfold(dim, size, step),
        };
        let layout = layout.ok_or_else(|| {
            Error::shape(
                OP,
                format!("windows of {size} every {step} in dimension {dim} of shape {:?}", self.shape()),
                format!(
                    "pass a step of at least 1 and a size of at most the dimension's length; at most {} dimensions",
                    crate::layout::MAX_RANK
                ),
            )
        })?;
        let whole = self.layout;
        let rule = move |b: &super::graph::Backward<'_>| rules::copy::unfold(b.grad(), whole.shape(), dim, size, step);
        record_view(OP, self, self.with_layout(layout), rule)
    }

    /// What `of` leaves of this tensor, each element at most once.
    pub(super) fn partial(
        &self,
        op: &'static str,
        of: impl Fn(&Layout) -> Result<Layout> + Send + Sync + 'static,
    ) -> Result<Tensor> {
        let (out, whole) = (self.with_layout(of(&self.layout)?), self.layout);
        record_view(op, self, out, move |b| rules::copy::part(b.grad(), whole.shape(), &of))
    }

    /// Parts of the lengths `sizes`, which fill dimension `dim`.
    fn pieces(&self, op: &'static str, dim: usize, sizes: &[usize]) -> Result<Vec<Tensor>> {
        let mut start = 0;
        let piece = |size: &usize| {
            let layout = self.layout.narrow(dim, start, *size);
            start += size;
            layout
        };
        let layouts = sizes.iter().map(piece).collect::<Result<Vec<_>>>()?;
        let shapes: Vec<Vec<usize>> = layouts.iter().map(|layout| layout.shape().to_vec()).collect();
        let outs = layouts.into_iter().map(|layout| self.with_layout(layout)).collect();
        record_views(op, self, outs, move |b| rules::copy::split(b.grads(), &shapes, dim))
    }
}

/// A bound in a dimension of `len` entries: negative ones count from the back, what lies outside is cut off.
pub(super) fn from_python(bound: isize, len: usize) -> usize {
    let bound = if bound < 0 { bound.saturating_add_unsigned(len) } else { bound };
    usize::try_from(bound).unwrap_or(0).min(len)
}

/// An entry of a dimension of `len` entries: negative ones count from the back; `None` where there is no such entry.
pub(super) fn position(index: isize, len: usize) -> Option<usize> {
    let from_front = if index < 0 { index.checked_add_unsigned(len)? } else { index };
    usize::try_from(from_front).ok().filter(|index| *index < len)
}
