//! Views of all elements: the same memory in another shape or order, with gradients. No kernel runs, except where only a copy
//! can do it. Views of some elements stand in `parts.rs`.

use super::record::{record_unary, record_view};
use super::rules;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops;
use crate::tensor::Tensor;

impl Tensor {
    /// The same memory without history: wants no gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
    /// assert!(!x.detach().requires_grad());
    /// assert!(x.detach().shares_storage(&x));
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn detach(&self) -> Tensor {
        self.without_grad_slot()
    }

    /// This tensor in row-major order: itself where it is already, else a copy.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let columns = x.transpose(0, 1)?;
    /// assert!(!columns.is_contiguous());
    /// assert!(columns.contiguous()?.is_contiguous());
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        record_unary("contiguous", self, &[], ops::copy::contiguous(self)?, |b| Ok(b.grad().clone()))
    }

    /// The same elements in another shape: a view where strides allow it, else a copy. One length may be -1 and follows
    /// from the others.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let y = x.reshape(&[2, -1])?;
    /// assert_eq!(y.shape(), [2, 3]);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Result<Tensor> {
        let shape = completed("reshape", shape, self.shape())?;
        match self.layout.reshape(&shape) {
            Some(layout) => self.viewed("reshape", layout),
            None => self.contiguous()?.viewed("reshape", Layout::contiguous("reshape", &shape)?),
        }
    }

    /// [`Tensor::reshape`] that never copies; an error where strides do not allow a view.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0])?;
    /// let y = x.view(&[2, 2])?;
    /// assert!(y.shares_storage(&x));
    /// assert!(y.transpose(0, 1)?.view(&[4]).is_err());
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn view(&self, shape: &[isize]) -> Result<Tensor> {
        let shape = completed("view", shape, self.shape())?;
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

    /// [`Tensor::view`] in the shape of `other`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0])?;
    /// let y = x.view_as(&Tensor::zeros(&device, &[2, 2])?)?;
    /// assert_eq!(y.shape(), [2, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn view_as(&self, other: &Tensor) -> Result<Tensor> {
        self.view(&signed(other.shape()))
    }

    /// Dimensions `start` to `end` (both included) as one.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[2, 3, 4])?;
    /// assert_eq!(x.flatten(1, -1)?.shape(), [2, 12]);
    /// assert_eq!(x.flatten(0, -1)?.shape(), [24]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        let (start, end) = (self.layout.dim("flatten", start)?, self.layout.dim("flatten", end)?);
        if self.rank() == 0 {
            return self.reshape(&[1]);
        }
        if start > end {
            return Err(Error::argument("flatten", format!("start {start} is behind end {end}"), "pass start <= end"));
        }
        let middle: usize = self.shape()[start..=end].iter().product();
        self.reshape(&signed(&[&self.shape()[..start], &[middle], &self.shape()[end + 1..]].concat()))
    }

    /// Dimension `dim` as several of the lengths `sizes`, of which one may be -1 and follows from the others.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[2, 12])?;
    /// assert_eq!(x.unflatten(1, &[3, -1])?.shape(), [2, 3, 4]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn unflatten(&self, dim: isize, sizes: &[isize]) -> Result<Tensor> {
        const OP: &str = "unflatten";
        let dim = self.existing(OP, dim)?;
        let (before, after) = (&self.shape()[..dim], &self.shape()[dim + 1..]);
        let shape = [before, &completed(OP, sizes, &self.shape()[dim..=dim])?, after].concat();
        match self.layout.reshape(&shape) {
            Some(layout) => self.viewed(OP, layout),
            None => Layout::contiguous(OP, &shape).and_then(|layout| self.contiguous()?.viewed(OP, layout)),
        }
    }

    /// Swaps two dimensions.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// let y = x.transpose(0, 1)?;
    /// assert_eq!(y.shape(), [3, 2]);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        self.swapped("transpose", a, b)
    }

    /// [`Tensor::transpose`] by NumPy's name.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.swapaxes(0, 1)?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn swapaxes(&self, a: isize, b: isize) -> Result<Tensor> {
        self.swapped("swapaxes", a, b)
    }

    /// [`Tensor::transpose`] by another of PyTorch's names.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.swapdims(0, 1)?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn swapdims(&self, a: isize, b: isize) -> Result<Tensor> {
        self.swapped("swapdims", a, b)
    }

    fn swapped(&self, op: &'static str, a: isize, b: isize) -> Result<Tensor> {
        let (a, b) = (self.layout.dim(op, a)?, self.layout.dim(op, b)?);
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        let out = self.with_layout(self.layout.transpose(a, b));
        record_view(op, self, out, move |ctx| Ok(ctx.grad().with_layout(ctx.grad().layout().transpose(a, b))))
    }

    /// A matrix with rows and columns swapped (PyTorch's `t`); vectors and scalars as they are.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.t()?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => self.transpose(0, 1),
            rank => Err(Error::shape("t", format!("a tensor of {rank} dimensions"), "use transpose(-2, -1)")),
        }
    }

    /// The last two dimensions swapped: every matrix of a batch transposed.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[5, 2, 3])?;
    /// assert_eq!(x.mT()?.shape(), [5, 3, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    #[allow(non_snake_case, reason = "PyTorch's name")]
    pub fn mT(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => {
                Err(Error::shape("mT", format!("a tensor of shape {:?}", self.shape()), "pass matrices, or batches of them"))
            }
            _ => self.swapped("mT", -2, -1),
        }
    }

    /// The dimensions in reverse order.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[5, 2, 3])?;
    /// assert_eq!(x.T()?.shape(), [3, 2, 5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    #[allow(non_snake_case, reason = "PyTorch's name")]
    pub fn T(&self) -> Result<Tensor> {
        self.reordered("T", (0..self.rank()).rev().collect())
    }

    /// Dimension `i` of the result is dimension `order[i]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[5, 2, 3])?;
    /// assert_eq!(x.permute(&[1, 2, 0])?.shape(), [2, 3, 5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn permute(&self, order: &[isize]) -> Result<Tensor> {
        self.reordered("permute", order.iter().map(|dim| self.layout.dim("permute", *dim)).collect::<Result<Vec<_>>>()?)
    }

    fn reordered(&self, op: &'static str, order: Vec<usize>) -> Result<Tensor> {
        let out = self.with_layout(self.layout.permute(&order)?);
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
        record_view(op, self, out, move |b| Ok(b.grad().with_layout(b.grad().layout().permute(&inverse)?)))
    }

    /// Dimensions `source` moved to the positions `destination`; the others keep their order.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[5, 2, 3])?;
    /// assert_eq!(x.movedim(&[0], &[-1])?.shape(), [2, 3, 5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn movedim(&self, source: &[isize], destination: &[isize]) -> Result<Tensor> {
        const OP: &str = "movedim";
        let resolve = |dims: &[isize]| dims.iter().map(|dim| self.layout.dim(OP, *dim)).collect::<Result<Vec<_>>>();
        let (from, to) = (resolve(source)?, resolve(destination)?);
        let repeated = |dims: &[usize]| (1..dims.len()).any(|i| dims[..i].contains(&dims[i]));
        if from.len() != to.len() || repeated(&from) || repeated(&to) {
            return Err(Error::shape(
                OP,
                format!("from {source:?} to {destination:?} in a tensor of shape {:?}", self.shape()),
                "name as many positions as dimensions, each once",
            ));
        }
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        let mut order = vec![usize::MAX; self.rank()];
        from.iter().zip(&to).for_each(|(from, to)| order[*to] = *from);
        let mut others = (0..self.rank()).filter(|dim| !from.contains(dim));
        order.iter_mut().filter(|dim| **dim == usize::MAX).for_each(|dim| *dim = others.next().unwrap_or_default());
        self.reordered(OP, order)
    }

    /// Without dimension `dim` where its length is 1; else as it is (PyTorch's rule).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[1, 2, 1])?;
    /// assert_eq!(x.squeeze(0)?.shape(), [2, 1]);
    /// assert_eq!(x.squeeze(1)?.shape(), [1, 2, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn squeeze(&self, dim: isize) -> Result<Tensor> {
        let at = self.layout.dim("squeeze", dim)?;
        match self.shape().get(at) {
            Some(1) => self.viewed("squeeze", self.layout.without(at)),
            _ => Ok(self.clone()),
        }
    }

    /// Without those of the dimensions `dims` whose length is 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[1, 2, 1])?;
    /// assert_eq!(x.squeeze_dims(&[0, 2])?.shape(), [2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn squeeze_dims(&self, dims: &[isize]) -> Result<Tensor> {
        let mut dims = dims.iter().map(|dim| self.layout.dim("squeeze_dims", *dim)).collect::<Result<Vec<_>>>()?;
        dims.sort_unstable();
        dims.dedup();
        let ones = dims.into_iter().rev().filter(|dim| self.shape().get(*dim) == Some(&1));
        let layout = ones.fold(self.layout, |layout, dim| layout.without(dim));
        if layout == self.layout { Ok(self.clone()) } else { self.viewed("squeeze_dims", layout) }
    }

    /// Without all dimensions of length 1 (PyTorch's `squeeze()`).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::zeros(&device, &[1, 2, 1])?;
    /// assert_eq!(x.squeeze_all()?.shape(), [2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn squeeze_all(&self) -> Result<Tensor> {
        self.squeeze_dims(&(0..self.rank() as isize).collect::<Vec<_>>())
    }

    /// With a dimension of length 1 before position `dim` (negative: from the back, -1 is behind the last).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.unsqueeze(0)?.shape(), [1, 2]);
    /// assert_eq!(x.unsqueeze(-1)?.shape(), [2, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32], [2.0]])?;
    /// assert_eq!(x.expand(&[-1, 3])?.to_vec::<f32>()?, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn expand(&self, shape: &[isize]) -> Result<Tensor> {
        self.expanded("expand", shape)
    }

    /// [`Tensor::expand`] to the shape of `other`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.expand_as(&Tensor::zeros(&device, &[2, 2])?)?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        self.expanded("expand_as", &signed(other.shape()))
    }

    /// [`Tensor::expand`] by another of PyTorch's names.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.broadcast_to(&[2, 2])?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[isize]) -> Result<Tensor> {
        self.expanded("broadcast_to", shape)
    }

    fn expanded(&self, op: &'static str, shape: &[isize]) -> Result<Tensor> {
        let added = shape.len().saturating_sub(self.rank());
        let kept = |i: usize| i.checked_sub(added).and_then(|i| self.shape().get(i).copied());
        let length = |(i, len): (usize, &isize)| match (usize::try_from(*len), kept(i)) {
            (Ok(len), _) => Ok(len),
            (Err(_), Some(old)) if *len == -1 => Ok(old),
            _ => Err(Error::argument(op, format!("length {len} in {shape:?}"), "-1 keeps a dimension that exists")),
        };
        let target = shape.iter().enumerate().map(length).collect::<Result<Vec<_>>>()?;
        let out = self.with_layout(self.layout.broadcast_to(op, &target)?);
        let whole = self.layout;
        record_view(op, self, out, move |b| rules::binary::to_shape(b.grad(), whole.shape()))
    }

    /// A view whose gradient only has to be put back into this tensor's shape.
    fn viewed(&self, op: &'static str, layout: Layout) -> Result<Tensor> {
        let whole = self.layout;
        record_view(op, self, self.with_layout(layout), move |b| rules::copy::reshaped(op, b.grad(), whole.shape()))
    }

    /// A dimension of a tensor that has any.
    pub(super) fn existing(&self, op: &'static str, dim: isize) -> Result<usize> {
        if self.rank() == 0 {
            return Err(Error::argument(op, "a 0-d tensor has no dimensions", "use unsqueeze(0) first"));
        }
        self.layout.dim(op, dim)
    }
}

/// Lengths as the arguments of views take them.
pub(super) fn signed<'a>(lens: impl IntoIterator<Item = &'a usize>) -> Vec<isize> {
    lens.into_iter().map(|len| *len as isize).collect()
}

/// `shape` with -1 replaced by the length that fits the elements of shape `from`.
fn completed(op: &'static str, shape: &[isize], from: &[usize]) -> Result<Vec<usize>> {
    let count: usize = from.iter().product();
    let refuse = || {
        Error::shape(
            op,
            format!("shape {shape:?} does not fit {count} elements of shape {from:?}"),
            "the lengths must multiply to the number of elements; at most one may be -1",
        )
    };
    let known = shape.iter().filter(|len| **len >= 0).try_fold(1usize, |known, len| known.checked_mul(*len as usize));
    // What overflows cannot fit, whatever stands beside it.
    let known = known.ok_or_else(refuse)?;
    let open = shape.iter().filter(|len| **len < 0).count();
    let rest = if open == 1 && known > 0 { count / known } else { 1 };
    let fits = shape.iter().all(|len| *len >= -1) && open <= 1 && (open == 0 || known > 0) && known * rest == count;
    if !fits {
        return Err(refuse());
    }
    Ok(shape.iter().map(|len| usize::try_from(*len).unwrap_or(rest)).collect())
}
