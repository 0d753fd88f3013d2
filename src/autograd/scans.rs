//! Running sums, products, extremes along a dimension, differences of neighbours, and integrals by trapezoids.

use super::autocast::in_autocast;
use super::halves::rounded_once;
use super::methods::cat;
use super::record::record_unary;
use super::rules;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::resolve_dim;
use crate::ops;
use crate::ops::reduce::{KeepDim, expect_float};
use crate::ops::scan::Direction;
use crate::tensor::Tensor;

impl Tensor {
    /// Sum of the elements of `dim` up to each one; integers wrap, bool counts as i32.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// assert_eq!(x.cumsum(0)?.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cumsum(&self, dim: isize) -> Result<Tensor> {
        in_autocast!("cumsum", (x = self), x.cumsum(dim));
        let out = ops::scan::cumsum(self, dim, Direction::Forward)?;
        record_unary("cumsum", self, &[], out, move |b| ops::scan::cumsum(b.grad(), dim, Direction::Backward))
    }

    /// Product of the elements of `dim` up to each one; integers wrap, bool counts as i32.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// assert_eq!(x.cumprod(0)?.to_vec::<f32>()?, [1.0, 2.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cumprod(&self, dim: isize) -> Result<Tensor> {
        in_autocast!("cumprod", (x = self), x.cumprod(dim));
        let out = ops::scan::cumprod(self, dim)?;
        let kept = out.clone();
        record_unary("cumprod", self, &[self, &kept], out, move |b| {
            rules::scan::cumprod_rule(b.saved(0), b.saved(1), b.grad(), dim)
        })
    }

    /// log(sum(exp(x))) of the elements of `dim` up to each one, without overflow on the way; floats.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 0.0])?;
    /// assert_eq!(format!("{:.4?}", x.logcumsumexp(0)?.to_vec::<f32>()?), "[0.0000, 0.6931]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn logcumsumexp(&self, dim: isize) -> Result<Tensor> {
        const OP: &str = "logcumsumexp";
        expect_float(OP, self)?;
        rounded_once(OP, [self], |[x]| {
            let out = ops::scan::logcumsumexp(x, dim, Direction::Forward)?;
            let kept = out.clone();
            record_unary(OP, x, &[x, &kept], out, move |b| rules::scan::logcumsumexp_rule(b.saved(0), b.saved(1), b.grad(), dim))
        })
    }

    /// (largest of the elements of `dim` up to each one, their positions as i32): the last of equal elements, which gets the
    /// gradient; NaN is the largest.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 3.0, 2.0])?;
    /// let (values, positions) = x.cummax(0)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 3.0, 3.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [0, 1, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cummax(&self, dim: isize) -> Result<(Tensor, Tensor)> {
        self.running_extreme(ops::scan::cummax, dim)
    }

    /// (smallest of the elements of `dim` up to each one, their positions as i32): the last of equal elements, which gets the
    /// gradient; NaN is the smallest.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [2.0f32, 3.0, 1.0])?;
    /// let (values, positions) = x.cummin(0)?;
    /// assert_eq!(values.to_vec::<f32>()?, [2.0, 2.0, 1.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [0, 0, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cummin(&self, dim: isize) -> Result<(Tensor, Tensor)> {
        self.running_extreme(ops::scan::cummin, dim)
    }

    #[track_caller]
    fn running_extreme(&self, scan: fn(&Tensor, isize) -> Result<Tensor>, dim: isize) -> Result<(Tensor, Tensor)> {
        let x = self.detach();
        let extreme = scan(&x, dim)?;
        // The last position up to here at which an element was the extreme.
        let mut reached = x.eq(&extreme)?;
        if x.dtype().is_float() {
            reached = reached.logical_or(&x.isnan()?)?;
        }
        let at = resolve_dim("cummax", dim, self.rank())?;
        let mut shape = vec![1; self.rank()];
        shape.iter_mut().skip(at).take(1).for_each(|len| *len = -1);
        let places = Tensor::arange(self.device(), self.shape().get(at).copied().unwrap_or(1), DType::I32)?.reshape(&shape)?;
        let positions = ops::scan::cummax(&ops::binary::where_scalar(&reached, &places, 0)?, dim)?;
        Ok((self.take_positions(dim, &positions)?, positions))
    }

    /// Each element of `dim` less the one before, `n` times over; `prepend` and `append` are joined to the ends first. Of bool:
    /// whether they differ.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 4.0, 9.0])?;
    /// assert_eq!(x.diff(1, 0, None, None)?.to_vec::<f32>()?, [3.0, 5.0]);
    /// assert_eq!(x.diff(2, 0, None, None)?.to_vec::<f32>()?, [2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn diff(&self, n: isize, dim: isize, prepend: Option<&Tensor>, append: Option<&Tensor>) -> Result<Tensor> {
        const OP: &str = "diff";
        if self.rank() == 0 {
            return Err(Error::shape(OP, "a 0-d tensor has no neighbours", "pass a tensor of at least 1 dimension"));
        }
        let at = resolve_dim(OP, dim, self.rank())?;
        if n < 0 {
            return Err(Error::argument(OP, format!("n is {n} (shape {:?})", self.shape()), "pass an n of at least 0"));
        }
        if n == 0 {
            return Ok(self.clone());
        }
        let joined: Vec<&Tensor> = prepend.into_iter().chain([self]).chain(append).collect();
        let joined = if joined.len() == 1 { self.clone() } else { cat(&joined, dim)? };
        rounded_once(OP, [&joined], |[x]| {
            let mut x = x.clone();
            for _ in 0..n.unsigned_abs().min(x.shape()[at]) {
                let len = x.shape()[at].saturating_sub(1);
                let (before, after) = (x.narrow(dim, 0, len)?, x.narrow(dim, (x.shape()[at] - len) as isize, len)?);
                x = if x.dtype() == DType::Bool { after.logical_xor(&before)? } else { after.sub(&before)? };
            }
            Ok(x)
        })
    }

    /// Integral of self along `dim` by trapezoids of width `dx`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let y = Tensor::new(&device, [1.0f32, 3.0, 5.0])?;
    /// assert_eq!(y.trapezoid(0.5, 0)?.item::<f32>()?, 3.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn trapezoid(&self, dx: f64, dim: isize) -> Result<Tensor> {
        in_autocast!("trapezoid", (y = self), y.trapezoid(dx, dim));
        rounded_once("trapezoid", [self], |[y]| y.neighbour_sums(dim)?.sum(&[dim], KeepDim::Drop)?.mul_scalar(dx / 2.0))
    }

    /// Integral of self along `dim` by trapezoids between the places `x`: a vector along `dim`, or of a shape that broadcasts
    /// with this one.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let y = Tensor::new(&device, [1.0f32, 3.0])?;
    /// let x = Tensor::new(&device, [0.0f32, 2.0])?;
    /// assert_eq!(y.trapezoid_at(&x, 0)?.item::<f32>()?, 4.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn trapezoid_at(&self, x: &Tensor, dim: isize) -> Result<Tensor> {
        const OP: &str = "trapezoid";
        in_autocast!(OP, (y = self, x), y.trapezoid_at(&x, dim));
        rounded_once(OP, [self, x], |[y, x]| {
            let sums = y.neighbour_sums(dim)?;
            let at = resolve_dim(OP, dim, y.rank())?;
            let widths = match x.rank() {
                1 => {
                    let mut shape = vec![1; y.rank()];
                    shape[at] = -1;
                    x.diff(1, 0, None, None)?.reshape(&shape)?
                }
                // Counted from the back, where shapes are aligned.
                _ => x.diff(1, at as isize - y.rank() as isize, None, None)?,
            };
            let areas = sums.mul(&widths).map_err(|error| error.of(OP))?;
            areas.sum(&[at as isize - y.rank() as isize], KeepDim::Drop)?.mul_scalar(0.5)
        })
    }

    /// Each element of `dim` plus the one before.
    #[track_caller]
    fn neighbour_sums(&self, dim: isize) -> Result<Tensor> {
        const OP: &str = "trapezoid";
        if self.rank() == 0 {
            return Err(Error::shape(OP, "a 0-d tensor has no neighbours", "pass a tensor of at least 1 dimension"));
        }
        let len = self.shape()[resolve_dim(OP, dim, self.rank())?];
        let few = len.saturating_sub(1);
        self.narrow(dim, (len - few) as isize, few)?.add(&self.narrow(dim, 0, few)?)
    }
}
