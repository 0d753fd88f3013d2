//! Elements chosen by what tensors hold. Where the shape of a result depends on it, the host waits for one number (a hidden wait, see
//! [`crate::device::SyncDebug`]).

use super::methods::{cat, stack};
use super::views::signed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::{broadcast_shapes, resolve_dim};
use crate::ops;
use crate::ops::reduce::KeepDim;
use crate::ops::scatter::last_positions;
use crate::ops::sort::{Order, Side};
use crate::tensor::Tensor;

/// What [`Tensor::unique`] found, all sorted.
#[derive(Debug)]
pub struct UniqueOf {
    /// Each value (or entry of the dimension) once.
    pub values: Tensor,
    /// For each element (or entry), the position of its value (i32).
    pub inverse: Tensor,
    /// How often each value occurs (i32).
    pub counts: Tensor,
}

impl Tensor {
    /// Whether all elements of both are close (see [`Tensor::isclose`]). Waits for the answer.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert!(x.allclose(&x.add_scalar(1e-6)?, 1e-5, 1e-8, false)?);
    /// assert!(!x.allclose(&x.add_scalar(0.1)?, 1e-5, 1e-8, false)?);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn allclose(&self, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<bool> {
        let close = self.isclose(other, rtol, atol, equal_nan).map_err(|error| error.of("allclose"))?;
        Ok(close.all(&[], KeepDim::Drop)?.item::<u8>()? != 0)
    }

    /// Whether both have the same shape and elements (NaN equals nothing). Waits for the answer.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert!(x.equal(&x.clone())?);
    /// assert!(!x.equal(&x.neg()?)?);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        if self.dtype() != other.dtype() {
            return Err(Error::DType { op: "equal", got: other.dtype(), expected: self.dtype().name() });
        }
        Ok(self.shape() == other.shape() && self.eq(other)?.all(&[], KeepDim::Drop)?.item::<u8>()? != 0)
    }

    /// The positions of all elements that are not 0, in order: i32 `[count, rank]`. Waits for their count.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[0.0f32, 5.0], [7.0, 0.0]])?;
    /// assert_eq!(x.nonzero()?.to_vec::<i32>()?, [0, 1, 1, 0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let flat = true_positions(&self.detach())?;
        if self.rank() == 0 {
            return flat.unsqueeze(1)?.narrow(1, 0, 0);
        }
        let mut left = flat.clone();
        let mut columns = Vec::new();
        for len in self.shape().iter().rev() {
            let len = ops::copy::full(self.device(), &[], (*len).max(1) as i64, DType::I32)?;
            columns.push(left.fmod(&len)?);
            left = left.div_trunc(&len)?;
        }
        columns.reverse();
        stack(&columns.iter().collect::<Vec<_>>(), 1)
    }

    /// [`Tensor::nonzero`] as one vector for each dimension, as [`Tensor::index`] takes them (PyTorch's `as_tuple=True`); a number counts
    /// as a vector of one element.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[0.0f32, 5.0], [7.0, 0.0]])?;
    /// let positions = x.nonzero_as_tuple()?;
    /// assert_eq!(positions[0].to_vec::<i32>()?, [0, 1]);
    /// assert_eq!(positions[1].to_vec::<i32>()?, [1, 0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn nonzero_as_tuple(&self) -> Result<Vec<Tensor>> {
        match self.rank() {
            0 => self.unsqueeze(0)?.nonzero_as_tuple(),
            _ => self.nonzero()?.unbind(1),
        }
    }

    /// The elements where `mask` (bool) is true, in order, as a vector; broadcast. Waits for their count.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let mask = Tensor::new(&device, [1u8, 0, 1])?;
    /// assert_eq!(x.masked_select(&mask)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        const OP: &str = "masked_select";
        ops::expect_dtype(OP, mask, DType::Bool)?;
        let shape = signed(broadcast_shapes(OP, self.shape(), mask.shape())?.iter());
        let positions = true_positions(&mask.expand(&shape)?)?;
        self.expand(&shape)?.take(&positions)
    }

    /// This tensor with the elements of `source`, in order, where `mask` (bool) is true; mask and self broadcast. That `source` has
    /// enough of them is checked on the device, and reported by the next call that waits for it.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let mask = Tensor::new(&device, [1u8, 0, 1])?;
    /// let source = Tensor::new(&device, [10.0f32, 20.0])?;
    /// assert_eq!(x.masked_scatter(&mask, &source)?.to_vec::<f32>()?, [10.0, 2.0, 20.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        const OP: &str = "masked_scatter";
        ops::expect_dtype(OP, mask, DType::Bool)?;
        if self.dtype() != source.dtype() {
            return Err(Error::DType { op: OP, got: source.dtype(), expected: self.dtype().name() });
        }
        let shape = signed(broadcast_shapes(OP, self.shape(), mask.shape())?.iter());
        let (own, mask) = (self.expand(&shape)?, mask.expand(&shape)?);
        if own.is_empty() || source.is_empty() {
            return own.positive();
        }
        // The how manieth true one it is; none before the first.
        let at = mask.flatten(0, -1)?.to_dtype(DType::I32)?.cumsum(0)?.clamp(1, i64::from(i32::MAX))?.add_scalar(-1)?;
        source.take(&at.reshape(&shape)?)?.where_(&mask, &own)
    }

    /// Each entry i of `dim` (`None`: each element, as if of one dimension) `counts[i]` times (i32, a vector), side by side. Waits for
    /// the sum of the counts, unless `len` tells it.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let counts = Tensor::new(&device, [1i32, 3])?;
    /// assert_eq!(x.repeat_interleave_tensor(&counts, 0, None)?.to_vec::<f32>()?, [1.0, 2.0, 2.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn repeat_interleave_tensor(
        &self,
        counts: &Tensor,
        dim: impl Into<Option<isize>>,
        len: impl Into<Option<usize>>,
    ) -> Result<Tensor> {
        const OP: &str = "repeat_interleave";
        let Some(dim) = dim.into() else { return self.flatten(0, -1)?.repeat_interleave_tensor(counts, 0, len) };
        ops::expect_dtype(OP, counts, DType::I32)?;
        let at = self.existing(OP, dim)?;
        if counts.rank() > 1 || (counts.len() != 1 && counts.len() != self.shape()[at]) {
            return Err(Error::shape(
                OP,
                format!("counts of shape {:?} for dimension {dim} of a tensor of shape {:?}", counts.shape(), self.shape()),
                "pass one count for each entry",
            ));
        }
        let ends = counts.expand(&[self.shape()[at] as isize])?.cumsum(0)?;
        let len = match (len.into(), self.shape()[at]) {
            (Some(len), _) => len,
            (None, 0) => 0,
            (None, _) => ends.select(0, -1)?.item::<i32>()?.max(0) as usize,
        };
        let places = Tensor::arange(self.device(), len, DType::I32)?;
        self.index_select(dim, &ops::sort::searchsorted(OP, &ends, &places, Side::Right)?)
    }

    /// Every value once, sorted, with the positions of all elements in them and their counts; with `dim`, every entry of that dimension
    /// once, in lexicographic order. Waits for the count of values.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [3i32, 1, 3])?;
    /// let found = x.unique(None)?;
    /// assert_eq!(found.values.to_vec::<i32>()?, [1, 3]);
    /// assert_eq!(found.inverse.to_vec::<i32>()?, [1, 0, 1]);
    /// assert_eq!(found.counts.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn unique(&self, dim: impl Into<Option<isize>>) -> Result<UniqueOf> {
        const OP: &str = "unique";
        let x = self.detach();
        let (dim, table) = match dim.into() {
            None => (0, x.flatten(0, -1)?),
            Some(dim) => {
                let dim = resolve_dim(OP, dim, x.rank())?;
                (dim, if x.rank() == 0 { x.unsqueeze(0)? } else { x.movedim(&[dim as isize], &[0])? })
            }
        };
        let n = table.shape()[0];
        let width: usize = table.shape()[1..].iter().product();
        let rows = table.reshape(&[n as isize, width as isize])?;
        // Sorted by the last column first: later sorts keep the order of what is equal.
        let mut order = Tensor::arange(x.device(), n, DType::I32)?;
        for column in (0..width).rev() {
            let keys = rows.select(1, column as isize)?.take(&order)?;
            order = order.take(&keys.argsort(0, Order::Ascending)?)?;
        }
        let sorted = table.index_select(0, &order)?;
        let first = match n {
            0 => ops::copy::full(x.device(), &[0], false, DType::Bool)?,
            _ => {
                let lines = sorted.reshape(&[n as isize, width as isize])?;
                let (before, after) = (lines.narrow(0, 0, n - 1)?, lines.narrow(0, 1, n - 1)?);
                let differs = after.ne(&before)?.any(&[1], KeepDim::Drop)?;
                cat(&[&ops::copy::full(x.device(), &[1], true, DType::Bool)?, &differs], 0)?
            }
        };
        let starts = true_positions(&first)?;
        let group = first.to_dtype(DType::I32)?.cumsum(0)?.add_scalar(-1)?;
        let inverse = ops::copy::full(x.device(), &[n], 0, DType::I32)?.scatter(0, &order, &group)?;
        let ends = cat(&[&starts, &ops::copy::full(x.device(), &[1], n as i64, DType::I32)?], 0)?;
        let mut values = sorted.index_select(0, &starts)?;
        if x.rank() > 0 && dim > 0 {
            values = values.movedim(&[0], &[dim as isize])?;
        }
        let whole = values.rank() != x.rank() || x.rank() == 1;
        let shape = signed(x.shape());
        let inverse = if whole && inverse.len() == x.len() { inverse.reshape(&shape)? } else { inverse };
        Ok(UniqueOf { values, inverse, counts: ends.diff(1, 0, None, None)? })
    }
}

/// The positions of the true elements of `mask` (i32), as if of one dimension.
#[track_caller]
fn true_positions(mask: &Tensor) -> Result<Tensor> {
    let flat = mask.flatten(0, -1)?;
    let n = flat.len();
    if n == 0 {
        return Tensor::arange(mask.device(), 0, DType::I32);
    }
    let hit = flat.to_dtype(DType::Bool)?;
    let counted = hit.to_dtype(DType::I32)?.cumsum(0)?;
    // Each true element names its place, all others the one behind the last.
    let places = ops::binary::where_scalar(&hit, &counted.add_scalar(-1)?, n as i64)?;
    let found = last_positions("nonzero", &places, 0, n + 1)?;
    let count = counted.select(0, -1)?.item::<i32>()?;
    found.narrow(0, 0, count.max(0) as usize)?.add_scalar(-1)
}
