//! Views: the same memory under another layout, with gradients. No kernel runs, except where only a copy can do it.

use super::record::{record_unary, record_view, record_views};
use super::rules;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops;
use crate::tensor::Tensor;

impl Tensor {
    /// The same memory without history: wants no gradient.
    pub fn detach(&self) -> Tensor {
        self.without_grad_slot()
    }

    /// This tensor in row-major order: itself where it is already, else a copy.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        record_unary("contiguous", self, &[], ops::copy::contiguous(self)?, |b| Ok(b.grad().clone()))
    }

    /// The same elements in another shape: a view where strides allow it, else a copy. One length may be -1 and follows
    /// from the others.
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Result<Tensor> {
        let shape = self.completed("reshape", shape)?;
        match self.layout.reshape(&shape) {
            Some(layout) => self.viewed("reshape", layout),
            None => self.contiguous()?.viewed("reshape", Layout::contiguous("reshape", &shape)?),
        }
    }

    /// [`Tensor::reshape`] that never copies; an error where strides do not allow a view.
    #[track_caller]
    pub fn view(&self, shape: &[isize]) -> Result<Tensor> {
        let shape = self.completed("view", shape)?;
        let layout = self.layout.reshape(&shape).ok_or_else(|| {
            Error::shape(
                "view",
                format!(
                    "shape {shape:?} needs a copy of a tensor of shape {:?}, strides {:?}",
                    self.shape(),
                    self.layout.strides()
                ),
                "use reshape, or call contiguous first",
            )
        })?;
        self.viewed("view", layout)
    }

    /// Dimensions `start` to `end` (both included) as one.
    #[track_caller]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        let (start, end) = (self.layout.dim("flatten", start)?, self.layout.dim("flatten", end)?);
        if self.rank() == 0 {
            return self.reshape(&[1]);
        }
        if start > end {
            return Err(Error::argument("flatten", format!("start {start} is behind end {end}"), "pass start <= end"));
        }
        let length = |dims: &[usize]| dims.iter().map(|len| *len as isize).collect::<Vec<_>>();
        let middle: usize = self.shape()[start..=end].iter().product();
        let shape = [length(&self.shape()[..start]), vec![middle as isize], length(&self.shape()[end + 1..])].concat();
        self.reshape(&shape)
    }

    /// Swaps two dimensions.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let (a, b) = (self.layout.dim("transpose", a)?, self.layout.dim("transpose", b)?);
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        let out = self.with_layout(self.layout.transpose(a, b));
        record_view("transpose", self, out, move |ctx| Ok(ctx.grad().with_layout(ctx.grad().layout().transpose(a, b))))
    }

    /// A matrix with rows and columns swapped (PyTorch's `t`); vectors and scalars as they are.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => self.transpose(0, 1),
            rank => Err(Error::shape("t", format!("a tensor of {rank} dimensions"), "use transpose(-2, -1)")),
        }
    }

    /// Dimension `i` of the result is dimension `order[i]`.
    #[track_caller]
    pub fn permute(&self, order: &[isize]) -> Result<Tensor> {
        let order = order.iter().map(|dim| self.layout.dim("permute", *dim)).collect::<Result<Vec<_>>>()?;
        let out = self.with_layout(self.layout.permute(&order)?);
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
        record_view("permute", self, out, move |b| Ok(b.grad().with_layout(b.grad().layout().permute(&inverse)?)))
    }

    /// The `len` entries of dimension `dim` from `start` on.
    #[track_caller]
    pub fn narrow(&self, dim: isize, start: usize, len: usize) -> Result<Tensor> {
        let dim = self.existing("narrow", dim)?;
        if start == 0 && len == self.shape()[dim] {
            return Ok(self.clone());
        }
        let (out, whole) = (self.with_layout(self.layout.narrow(dim, start, len)?), self.layout);
        record_view("narrow", self, out, move |b| rules::copy::narrow(b.grad(), whole.shape(), dim, start))
    }

    /// Entry `index` of dimension `dim`; the dimension is gone.
    #[track_caller]
    pub fn select(&self, dim: isize, index: usize) -> Result<Tensor> {
        let len = self.shape()[self.existing("select", dim)?];
        if index >= len {
            return Err(Error::shape(
                "select",
                format!("index {index} is out of range for dimension {dim} of shape {:?}", self.shape()),
                format!("use an index below {len}"),
            ));
        }
        self.narrow(dim, index, 1)?.squeeze(dim)
    }

    /// Parts of `size` along `dim`, the last one shorter where it does not divide. One node: the gradients of all parts are
    /// joined by one copy.
    #[track_caller]
    pub fn split(&self, size: usize, dim: isize) -> Result<Vec<Tensor>> {
        let dim = self.existing("split", dim)?;
        if size == 0 {
            return Err(Error::argument("split", "size is 0", "pass a size of at least 1"));
        }
        let len = self.shape()[dim];
        let starts = (0..len.max(1)).step_by(size);
        let layouts = starts.map(|start| self.layout.narrow(dim, start, size.min(len - start))).collect::<Result<Vec<_>>>()?;
        let shapes: Vec<Vec<usize>> = layouts.iter().map(|layout| layout.shape().to_vec()).collect();
        let outs = layouts.into_iter().map(|layout| self.with_layout(layout)).collect();
        record_views("split", self, outs, move |b| rules::copy::split(b.grads(), &shapes, dim))
    }

    /// At most `count` parts along `dim`, all of the same length but the last, which may be shorter (PyTorch's rule: 5 entries in
    /// 4 chunks are 2, 2 and 1).
    #[track_caller]
    pub fn chunk(&self, count: usize, dim: isize) -> Result<Vec<Tensor>> {
        let at = self.existing("chunk", dim)?;
        match (count, self.shape()[at]) {
            (0, _) => Err(Error::argument("chunk", "count is 0", "pass a count of at least 1")),
            // PyTorch gives as many empty parts as were asked for.
            (_, 0) => Ok(vec![self.clone(); count]),
            (_, len) => self.split(len.div_ceil(count), dim),
        }
    }

    /// Without dimension `dim` where its length is 1; else as it is (PyTorch's rule).
    #[track_caller]
    pub fn squeeze(&self, dim: isize) -> Result<Tensor> {
        let at = self.layout.dim("squeeze", dim)?;
        match self.shape().get(at) {
            Some(1) => self.viewed("squeeze", self.layout.without(at)),
            _ => Ok(self.clone()),
        }
    }

    /// With a dimension of length 1 before position `dim` (negative: from the back, -1 is behind the last).
    #[track_caller]
    pub fn unsqueeze(&self, dim: isize) -> Result<Tensor> {
        let at = crate::layout::resolve_dim("unsqueeze", dim, self.rank() + 1)?;
        let layout = self.layout.unsqueeze(at).ok_or_else(|| {
            Error::shape(
                "unsqueeze",
                format!("shape {:?} has {} dimensions already", self.shape(), self.rank()),
                format!("use at most {} dimensions", crate::layout::MAX_RANK),
            )
        })?;
        self.viewed("unsqueeze", layout)
    }

    /// Dimensions of length 1 repeated, and dimensions added in front, until the shape is `shape`; -1 keeps a length.
    #[track_caller]
    pub fn expand(&self, shape: &[isize]) -> Result<Tensor> {
        let added = shape.len().saturating_sub(self.rank());
        let kept = |i: usize| i.checked_sub(added).and_then(|i| self.shape().get(i).copied());
        let length = |(i, len): (usize, &isize)| match (usize::try_from(*len), kept(i)) {
            (Ok(len), _) => Ok(len),
            (Err(_), Some(old)) if *len == -1 => Ok(old),
            _ => Err(Error::argument("expand", format!("length {len} in {shape:?}"), "-1 keeps a dimension that exists")),
        };
        let target = shape.iter().enumerate().map(length).collect::<Result<Vec<_>>>()?;
        let out = self.with_layout(self.layout.broadcast_to("expand", &target)?);
        let whole = self.layout;
        record_view("expand", self, out, move |b| rules::binary::to_shape(b.grad(), whole.shape()))
    }

    /// A view whose gradient only has to be put back into this tensor's shape.
    fn viewed(&self, op: &'static str, layout: Layout) -> Result<Tensor> {
        let whole = self.layout;
        record_view(op, self, self.with_layout(layout), move |b| rules::copy::reshaped(op, b.grad(), whole.shape()))
    }

    /// `shape` with -1 replaced by the length that fits.
    fn completed(&self, op: &'static str, shape: &[isize]) -> Result<Vec<usize>> {
        let refuse = || {
            Error::shape(
                op,
                format!("shape {shape:?} does not fit {} elements of shape {:?}", self.len(), self.shape()),
                "the lengths must multiply to the number of elements; at most one may be -1",
            )
        };
        let known = shape.iter().filter(|len| **len >= 0).try_fold(1usize, |known, len| known.checked_mul(*len as usize));
        // What overflows cannot fit, whatever stands beside it.
        let known = known.ok_or_else(refuse)?;
        let open = shape.iter().filter(|len| **len < 0).count();
        let rest = if open == 1 && known > 0 { self.len() / known } else { 1 };
        let fits = shape.iter().all(|len| *len >= -1) && open <= 1 && (open == 0 || known > 0) && known * rest == self.len();
        if !fits {
            return Err(refuse());
        }
        Ok(shape.iter().map(|len| usize::try_from(*len).unwrap_or(rest)).collect())
    }

    /// A dimension of a tensor that has any.
    fn existing(&self, op: &'static str, dim: isize) -> Result<usize> {
        if self.rank() == 0 {
            return Err(Error::argument(op, "a 0-d tensor has no dimensions", "use unsqueeze(0) first"));
        }
        self.layout.dim(op, dim)
    }
}
