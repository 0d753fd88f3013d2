//! Sorted order, places in it, and medians.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::resolve_dim;
use crate::ops;
use crate::ops::reduce::KeepDim;
use crate::ops::sort::{Order, Side};
use crate::tensor::Tensor;

impl Tensor {
    /// Positions (i32) of the elements of `dim` in sorted order; equal elements keep their order, NaN is the largest.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::sort::Order;
    /// let x = Tensor::new(&device, [3.0f32, 1.0, 2.0])?;
    /// assert_eq!(x.argsort(0, Order::Ascending)?.to_vec::<i32>()?, [1, 2, 0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort(&self, dim: isize, order: Order) -> Result<Tensor> {
        let at = resolve_dim("argsort", dim, self.rank())?;
        if self.rank() == 0 {
            return ops::copy::full(self.device(), &[], 0, DType::I32);
        }
        let words = match self.dtype() {
            DType::F16 | DType::BF16 => DType::F32,
            DType::Bool => DType::I32,
            other => other,
        };
        let last = self.detach().to_dtype(words)?.movedim(&[at as isize], &[-1])?;
        ops::sort::argsort(&last, order)?.movedim(&[-1], &[at as isize])?.contiguous()
    }

    /// (the elements of `dim` in sorted order, their positions as i32); equal elements keep their order, NaN is the largest.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::sort::Order;
    /// let x = Tensor::new(&device, [3.0f32, 1.0, 2.0])?;
    /// let (values, positions) = x.sort(0, Order::Descending)?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0, 1.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [0, 2, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(&self, dim: isize, order: Order) -> Result<(Tensor, Tensor)> {
        let positions = self.argsort(dim, order).map_err(|error| error.of("sort"))?;
        Ok((self.take_positions(dim, &positions)?, positions))
    }

    /// (the first `k` elements of `dim` in sorted order, their positions as i32): the largest with [`Order::Descending`]. Sorts all.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::sort::Order;
    /// let x = Tensor::new(&device, [3.0f32, 1.0, 2.0])?;
    /// let (values, positions) = x.topk(2, 0, Order::Descending)?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [0, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn topk(&self, k: usize, dim: isize, order: Order) -> Result<(Tensor, Tensor)> {
        const OP: &str = "topk";
        let at = resolve_dim(OP, dim, self.rank())?;
        if k > self.shape().get(at).copied().unwrap_or(1) {
            return Err(Error::argument(
                OP,
                format!("k is {k} for dimension {dim} of a tensor of shape {:?}", self.shape()),
                "pass no more than there are elements",
            ));
        }
        let mut positions = self.argsort(dim, order).map_err(|error| error.of(OP))?;
        if self.rank() > 0 {
            positions = positions.narrow(at as isize, 0, k)?.contiguous()?;
        }
        Ok((self.take_positions(dim, &positions)?, positions))
    }

    /// (median along `dim`, its position as i32): the lower one of two; NaN where there is one.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [3.0f32, 1.0, 2.0, 4.0])?;
    /// let (value, position) = x.median(0, KeepDim::Drop)?;
    /// assert_eq!(value.item::<f32>()?, 2.0);
    /// assert_eq!(position.item::<i32>()?, 2);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn median(&self, dim: isize, keep: KeepDim) -> Result<(Tensor, Tensor)> {
        const OP: &str = "median";
        let at = resolve_dim(OP, dim, self.rank())?;
        let n = self.shape().get(at).copied().unwrap_or(1);
        if n == 0 {
            let fact = format!("dimension {dim} of a tensor of shape {:?} is empty", self.shape());
            return Err(Error::shape(OP, fact, "pass a dimension that has elements"));
        }
        if self.rank() == 0 {
            return Ok((self.positive()?, ops::copy::full(self.device(), &[], 0, DType::I32)?));
        }
        let sorted = self.argsort(dim, Order::Ascending).map_err(|error| error.of(OP))?;
        let middle = ops::copy::full(self.device(), &[], ((n - 1) / 2) as i64, DType::I32)?;
        let chosen = match self.dtype().is_float() {
            false => sorted.narrow(dim, ((n - 1) / 2) as isize, 1)?,
            true => {
                // The first NaN stands behind all numbers.
                let x = self.detach();
                let numbers = x.eq(&x)?.to_dtype(DType::I32)?.sum(&[dim], KeepDim::Keep)?;
                let all = numbers.eq(&ops::copy::full(self.device(), &[], n as i64, DType::I32)?)?;
                sorted.gather(dim, &middle.where_(&all, &numbers)?)?
            }
        };
        let values = self.take_positions(dim, &chosen)?;
        match keep {
            KeepDim::Keep => Ok((values, chosen)),
            KeepDim::Drop => Ok((values.squeeze(dim)?, chosen.squeeze(dim)?)),
        }
    }

    /// Median of all elements: the lower one of two; NaN where there is one.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[3.0f32, 1.0], [2.0, 4.0]])?;
    /// assert_eq!(x.median_all()?.item::<f32>()?, 2.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn median_all(&self) -> Result<Tensor> {
        // The median of nothing is NaN, with a gradient of nothing.
        if self.is_empty() && self.dtype().is_float() {
            return self.sum_all()?.add_scalar(f64::NAN);
        }
        Ok(self.flatten(0, -1)?.median(0, KeepDim::Drop)?.0)
    }

    /// For each of `values`, how many elements of its line of this tensor it belongs behind (i32). This tensor is one rising line for
    /// all values, or has the shape of `values` but for the last dimension.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::sort::Side;
    /// let sorted = Tensor::new(&device, [1.0f32, 3.0, 5.0])?;
    /// let values = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(sorted.searchsorted(&values, Side::Left)?.to_vec::<i32>()?, [1, 2]);
    /// assert_eq!(sorted.searchsorted(&values, Side::Right)?.to_vec::<i32>()?, [2, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, side: Side) -> Result<Tensor> {
        ops::sort::searchsorted("searchsorted", &self.detach(), &values.detach(), side)
    }

    /// [`Tensor::searchsorted`] for lines in any order: `sorter` (i32, the shape of this tensor) says which elements of a line rise, as
    /// [`Tensor::argsort`] does.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::sort::{Order, Side};
    /// let x = Tensor::new(&device, [5.0f32, 1.0, 3.0])?;
    /// let values = Tensor::new(&device, [3.0f32, 4.0])?;
    /// let sorter = x.argsort(0, Order::Ascending)?;
    /// assert_eq!(x.searchsorted_by(&sorter, &values, Side::Left)?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn searchsorted_by(&self, sorter: &Tensor, values: &Tensor, side: Side) -> Result<Tensor> {
        const OP: &str = "searchsorted";
        if self.rank() == 0 || sorter.shape() != self.shape() {
            let fact = format!("a sorter of shape {:?} for elements of shape {:?}", sorter.shape(), self.shape());
            return Err(Error::shape(OP, fact, "pass lines of elements, and a position for each of them"));
        }
        self.detach().elements(OP, -1, sorter)?.searchsorted(values, side)
    }

    /// For each element, how many of the rising `boundaries` (a vector) it belongs behind (i32).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::sort::Side;
    /// let x = Tensor::new(&device, [0.0f32, 3.0, 9.0])?;
    /// let boundaries = Tensor::new(&device, [1.0f32, 3.0])?;
    /// assert_eq!(x.bucketize(&boundaries, Side::Left)?.to_vec::<i32>()?, [0, 1, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn bucketize(&self, boundaries: &Tensor, side: Side) -> Result<Tensor> {
        const OP: &str = "bucketize";
        if boundaries.rank() != 1 {
            return Err(Error::shape(OP, format!("boundaries of shape {:?}", boundaries.shape()), "pass a vector"));
        }
        ops::sort::searchsorted(OP, &boundaries.detach(), &self.detach(), side)
    }
}
