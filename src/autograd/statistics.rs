//! Truths, extremes with their positions, products, moments and norms over dimensions. Empty `dims` means all dimensions.
//!
//! Most are put together from other methods, whose gradients they have.

use super::autocast::in_autocast;
use super::halves::rounded_once;
use super::methods::resolved;
use super::record::record_unary;
use super::rules;
use super::views::signed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::resolve_dim;
use crate::ops;
use crate::ops::reduce::{KeepDim, expect_float};
use crate::tensor::Tensor;

/// Results that carry no gradient.
impl Tensor {
    /// Whether all elements over `dims` are not 0, as bool; true for none.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 0.0], [3.0, 4.0]])?;
    /// assert_eq!(x.all(&[1], KeepDim::Drop)?.to_vec::<u8>()?, [0, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn all(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        ops::reduce::all(self, dims, keep)
    }

    /// Whether an element over `dims` is not 0, as bool; false for none.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 0.0], [0.0, 0.0]])?;
    /// assert_eq!(x.any(&[1], KeepDim::Drop)?.to_vec::<u8>()?, [1, 0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn any(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        ops::reduce::any(self, dims, keep)
    }

    /// How many elements over `dims` are not 0, as i32.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 0.0], [3.0, 4.0]])?;
    /// assert_eq!(x.count_nonzero(&[1])?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn count_nonzero(&self, dims: &[isize]) -> Result<Tensor> {
        ops::reduce::count_nonzero(self, dims, KeepDim::Drop)
    }

    /// Position (i32) of the first maximum along `dim`, or in the flattened tensor where it is `None`; NaN counts as the largest.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 5.0], [3.0, 2.0]])?;
    /// assert_eq!(x.argmax(1, KeepDim::Drop)?.to_vec::<i32>()?, [1, 0]);
    /// assert_eq!(x.argmax(None, KeepDim::Drop)?.item::<i32>()?, 1);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn argmax(&self, dim: impl Into<Option<isize>>, keep: KeepDim) -> Result<Tensor> {
        self.position(ops::reduce::argmax, dim.into(), keep)
    }

    /// Position (i32) of the first minimum along `dim`, or in the flattened tensor where it is `None`; NaN counts as the smallest.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 5.0], [3.0, 2.0]])?;
    /// assert_eq!(x.argmin(1, KeepDim::Drop)?.to_vec::<i32>()?, [0, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn argmin(&self, dim: impl Into<Option<isize>>, keep: KeepDim) -> Result<Tensor> {
        self.position(ops::reduce::argmin, dim.into(), keep)
    }

    #[track_caller]
    fn position(&self, find: fn(&Tensor, isize, KeepDim) -> Result<Tensor>, dim: Option<isize>, keep: KeepDim) -> Result<Tensor> {
        if let Some(dim) = dim {
            return find(self, dim, keep);
        }
        let at = find(&self.detach().reshape(&[-1])?, 0, KeepDim::Drop)?;
        if keep == KeepDim::Keep { at.reshape(&vec![1; self.rank()]) } else { Ok(at) }
    }
}

/// Extremes and products.
impl Tensor {
    /// (maxima along `dim`, their positions as i32): the first of equal elements, which gets the gradient; NaN is the largest.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 5.0], [3.0, 2.0]])?;
    /// let (values, positions) = x.max(1, KeepDim::Drop)?;
    /// assert_eq!(values.to_vec::<f32>()?, [5.0, 3.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [1, 0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn max(&self, dim: isize, keep: KeepDim) -> Result<(Tensor, Tensor)> {
        self.at_positions(dim, keep, ops::reduce::argmax(self, dim, KeepDim::Keep).map_err(|error| error.of("max"))?)
    }

    /// (minima along `dim`, their positions as i32): the first of equal elements, which gets the gradient; NaN is the smallest.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 5.0], [3.0, 2.0]])?;
    /// let (values, positions) = x.min(1, KeepDim::Drop)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [0, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn min(&self, dim: isize, keep: KeepDim) -> Result<(Tensor, Tensor)> {
        self.at_positions(dim, keep, ops::reduce::argmin(self, dim, KeepDim::Keep).map_err(|error| error.of("min"))?)
    }

    /// (minimum, maximum) along `dim`, or of all elements where it is `None`; NaN wins, equal elements share the gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 5.0], [3.0, 2.0]])?;
    /// let (low, high) = x.aminmax(1, KeepDim::Drop)?;
    /// assert_eq!(low.to_vec::<f32>()?, [1.0, 2.0]);
    /// assert_eq!(high.to_vec::<f32>()?, [5.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn aminmax(&self, dim: impl Into<Option<isize>>, keep: KeepDim) -> Result<(Tensor, Tensor)> {
        let dim: Option<isize> = dim.into();
        let of = |extreme: fn(&Tensor, &[isize], KeepDim) -> Result<Tensor>| {
            extreme(self, dim.as_slice(), keep).map_err(|error| error.of("aminmax"))
        };
        Ok((of(Tensor::amin)?, of(Tensor::amax)?))
    }

    /// Product over `dims`; integers wrap, bool counts as i32. The product of nothing is 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 5.0], [3.0, 2.0]])?;
    /// assert_eq!(x.prod(&[1], KeepDim::Drop)?.to_vec::<f32>()?, [5.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn prod(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        in_autocast!("prod", (x = self), x.prod(dims, keep));
        let over = resolved("prod", dims, self.rank())?;
        let out = ops::reduce::prod(self, dims, keep)?;
        record_unary("prod", self, &[self], out, move |b| rules::reduce::prod_rule(b.saved(0), b.grad(), &over))
    }

    /// (the elements at `positions` along `dim`, positions), where `positions` has length 1 there.
    #[track_caller]
    fn at_positions(&self, dim: isize, keep: KeepDim, positions: Tensor) -> Result<(Tensor, Tensor)> {
        let values = self.take_positions(dim, &positions)?;
        match keep {
            KeepDim::Keep => Ok((values, positions)),
            KeepDim::Drop => Ok((values.squeeze(dim)?, positions.squeeze(dim)?)),
        }
    }

    /// [`Tensor::gather`], of 0-d tensors too.
    #[track_caller]
    pub(super) fn take_positions(&self, dim: isize, positions: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        self.gather(dim, positions)
    }
}

/// Sums without NaN, moments, and what belongs to them.
impl Tensor {
    /// [`Tensor::sum`] of what is not NaN.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [1.0f32, f32::NAN, 3.0])?;
    /// assert_eq!(x.nansum(&[], KeepDim::Drop)?.item::<f32>()?, 4.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn nansum(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        in_autocast!("nansum", (x = self), x.nansum(dims, keep));
        resolved("nansum", dims, self.rank())?;
        let numbers = if self.dtype().is_float() { self.masked_fill(&self.isnan()?, 0)? } else { self.clone() };
        numbers.sum(dims, keep).map_err(|error| error.of("nansum"))
    }

    /// [`Tensor::mean`] of what is not NaN; NaN where there is nothing else.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [1.0f32, f32::NAN, 3.0])?;
    /// assert_eq!(x.nanmean(&[], KeepDim::Drop)?.item::<f32>()?, 2.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmean(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        expect_float("nanmean", self)?;
        let count = self.isnan()?.logical_not()?.sum(dims, keep).map_err(|error| error.of("nanmean"))?;
        rounded_once("nanmean", [self], |[x]| x.nansum(dims, keep)?.div(&count))
    }

    /// Variance over `dims`: the sum of (x - mean)^2, divided by the number of elements less `correction` (PyTorch's default
    /// is 1, `unbiased=False` is 0), or by 0 where that is negative. Floats.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 3.0], [2.0, 2.0]])?;
    /// assert_eq!(x.var(&[1], 1.0, KeepDim::Drop)?.to_vec::<f32>()?, [2.0, 0.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn var(&self, dims: &[isize], correction: f64, keep: KeepDim) -> Result<Tensor> {
        self.moments("var", dims, correction, keep)?.0.to_dtype(self.dtype())
    }

    /// Standard deviation over `dims`: the square root of [`Tensor::var`]. Where it is 0, so is its gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 3.0], [2.0, 2.0]])?;
    /// assert_eq!(x.std(&[1], 0.0, KeepDim::Drop)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn std(&self, dims: &[isize], correction: f64, keep: KeepDim) -> Result<Tensor> {
        self.deviation("std", dims, correction, keep)?.0.to_dtype(self.dtype())
    }

    /// ([`Tensor::var`], [`Tensor::mean`]).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [1.0f32, 3.0])?;
    /// let (var, mean) = x.var_mean(&[0], 1.0, KeepDim::Drop)?;
    /// assert_eq!(var.item::<f32>()?, 2.0);
    /// assert_eq!(mean.item::<f32>()?, 2.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn var_mean(&self, dims: &[isize], correction: f64, keep: KeepDim) -> Result<(Tensor, Tensor)> {
        let (var, mean) = self.moments("var_mean", dims, correction, keep)?;
        Ok((var.to_dtype(self.dtype())?, mean.to_dtype(self.dtype())?))
    }

    /// ([`Tensor::std`], [`Tensor::mean`]).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [1.0f32, 3.0])?;
    /// let (std, mean) = x.std_mean(&[0], 0.0, KeepDim::Drop)?;
    /// assert_eq!(std.item::<f32>()?, 1.0);
    /// assert_eq!(mean.item::<f32>()?, 2.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn std_mean(&self, dims: &[isize], correction: f64, keep: KeepDim) -> Result<(Tensor, Tensor)> {
        let (std, mean) = self.deviation("std_mean", dims, correction, keep)?;
        Ok((std.to_dtype(self.dtype())?, mean.to_dtype(self.dtype())?))
    }

    #[track_caller]
    fn moments(&self, op: &'static str, dims: &[isize], correction: f64, keep: KeepDim) -> Result<(Tensor, Tensor)> {
        expect_float(op, self)?;
        let over = resolved(op, dims, self.rank())?;
        let x = self.to_dtype(DType::F32)?;
        let mean = x.mean(dims, KeepDim::Keep).map_err(|error| error.of(op))?;
        let count: usize = over.iter().map(|dim| self.shape().get(*dim).copied().unwrap_or(1)).product();
        // The mean is taken off first: squares of values far from 0 would lose what they differ by.
        let squares = x.sub(&mean)?.square()?.sum(dims, keep)?;
        let var = squares.mul_scalar(1.0 / (count as f64 - correction).max(0.0))?;
        let shape = signed(var.shape());
        Ok((var, mean.reshape(&shape)?))
    }

    #[track_caller]
    fn deviation(&self, op: &'static str, dims: &[isize], correction: f64, keep: KeepDim) -> Result<(Tensor, Tensor)> {
        let (var, mean) = self.moments(op, dims, correction, keep)?;
        let std = ops::unary::sqrt(&var)?;
        let kept = std.clone();
        let std = record_unary(op, &var, &[&kept], std, |b| rules::reduce::deviation_rule(b.saved(0), b.grad()))?;
        Ok((std, mean))
    }

    /// log(sum(exp(x))) over `dims`, without overflow on the way; integers give f32.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4}", x.logsumexp(&[0], KeepDim::Drop)?.item::<f32>()?), "1.3133");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn logsumexp(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        const OP: &str = "logsumexp";
        in_autocast!("logsumexp", (x = self), x.logsumexp(dims, keep));
        let over = resolved(OP, dims, self.rank())?;
        let x = if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::F32)? };
        rounded_once(OP, [&x], |[x]| {
            let out = ops::reduce::logsumexp(&x.detach(), dims, keep)?;
            let (kept, over) = (out.clone(), over.clone());
            record_unary(OP, x, &[x, &kept], out, move |b| rules::reduce::logsumexp_rule(b.saved(0), b.saved(1), b.grad(), &over))
        })
    }

    /// The p-norm over `dims`: (sum of |x|^p)^(1/p), the largest or smallest |x| where `p` is an infinity, the number of elements
    /// that are not 0 where it is 0. The Frobenius norm of PyTorch is that with p = 2. Floats; where the norm is 0, so is its
    /// gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [3.0f32, -4.0])?;
    /// assert_eq!(x.norm(2.0, &[], KeepDim::Drop)?.item::<f32>()?, 5.0);
    /// assert_eq!(x.norm(f64::INFINITY, &[], KeepDim::Drop)?.item::<f32>()?, 4.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn norm(&self, p: f64, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        in_autocast!("norm", (x = self), x.norm(p, dims, keep));
        self.norm_of("norm", p, dims, keep)
    }

    /// The nuclear norm of matrices, the sum of their singular values, over two `dims` (none: of a matrix). It is the product of the
    /// matrix with its orthogonal factor U V^T, element by element and summed, and that factor is its gradient. Newton and Schulz's
    /// iteration finds it: singular values below a millionth of the norm may be missed.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[3.0f32, 0.0], [0.0, -4.0]])?;
    /// assert_eq!(format!("{:.4}", x.norm_nuclear(&[], KeepDim::Drop)?.item::<f32>()?), "7.0000");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn norm_nuclear(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        const OP: &str = "norm_nuclear";
        in_autocast!("norm_nuclear", (x = self), x.norm_nuclear(dims, keep));
        expect_float(OP, self)?;
        let over = if dims.is_empty() && self.rank() == 2 { vec![0, 1] } else { dims.to_vec() };
        let resolved = over.iter().map(|dim| resolve_dim(OP, *dim, self.rank())).collect::<Result<Vec<_>>>()?;
        let (&[first, second], true) = (resolved.as_slice(), self.rank() >= 2) else {
            return Err(Error::shape(OP, format!("dims {dims:?} of shape {:?}", self.shape()), "pass two dimensions"));
        };
        if first == second {
            return Err(Error::argument(
                OP,
                format!("dims {dims:?} of shape {:?}", self.shape()),
                "pass two dimensions that differ",
            ));
        }
        let x = self.detach().to_dtype(DType::F32)?.movedim(&[first as isize, second as isize], &[-2, -1])?;
        let size = ops::reduce::norm(&x, 2.0, &[-2, -1], KeepDim::Keep)?.clamp(f64::from(f32::MIN_POSITIVE), f64::INFINITY)?;
        let mut factor = x.div(&size)?;
        // A singular value s becomes (3 s - s^3) / 2: half as much again while it is small, 1 to all digits in the end.
        for _ in 0..40 {
            let turned = factor.transpose(-2, -1)?;
            let cube = match x.shape()[x.rank() - 2] <= x.shape()[x.rank() - 1] {
                true => factor.matmul(&turned)?.matmul(&factor)?,
                false => factor.matmul(&turned.matmul(&factor)?)?,
            };
            factor = factor.mul_scalar(1.5)?.sub(&cube.mul_scalar(0.5)?)?;
        }
        let factor = factor.movedim(&[-2, -1], &[first as isize, second as isize])?;
        rounded_once(OP, [self], |[x]| x.mul(&factor)?.sum(&[first as isize, second as isize], keep))
    }

    /// [`Tensor::norm`] of all elements of self - other, broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [4.0f32, 6.0])?;
    /// assert_eq!(x.dist(&y, 2.0)?.item::<f32>()?, 5.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn dist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        const OP: &str = "dist";
        in_autocast!("dist", (x = self, y = other), x.dist(&y, p));
        rounded_once(OP, [self, other], |[x, y]| x.sub(y).map_err(|error| error.of(OP))?.norm_of(OP, p, &[], KeepDim::Drop))
    }

    /// The p-norms of the differences of all rows of self `[.., P, M]` and of `other` `[.., R, M]` -> `[.., P, R]`; what stands before
    /// broadcasts.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[0.0f32, 0.0], [3.0, 4.0]])?;
    /// let y = Tensor::new(&device, [[0.0f32, 0.0]])?;
    /// assert_eq!(x.cdist(&y, 2.0)?.to_vec::<f32>()?, [0.0, 5.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        const OP: &str = "cdist";
        in_autocast!("cdist", (x = self, y = other), x.cdist(&y, p));
        if self.rank() < 2 || other.rank() < 2 || self.shape().last() != other.shape().last() || p.is_nan() || p < 0.0 {
            let fact = format!("shapes {:?} and {:?}, p {p}", self.shape(), other.shape());
            return Err(Error::shape(OP, fact, "pass tensors [.., P, M] and [.., R, M], and a p of at least 0"));
        }
        // The largest of nothing: no coordinates are no distance.
        let p = if self.shape().last() == Some(&0) { 1.0 } else { p };
        rounded_once(OP, [self, other], |[x, y]| {
            let apart = x.unsqueeze(-2)?.sub(&y.unsqueeze(-3)?).map_err(|error| error.of(OP))?;
            apart.norm_of(OP, p, &[-1], KeepDim::Drop)
        })
    }

    #[track_caller]
    fn norm_of(&self, op: &'static str, p: f64, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        expect_float(op, self)?;
        let over = resolved(op, dims, self.rank())?;
        let out = ops::reduce::norm(&self.detach(), p, dims, keep).map_err(|error| error.of(op))?;
        let kept = out.clone();
        record_unary(op, self, &[self, &kept], out, move |b| rules::reduce::norm_rule(b.saved(0), b.saved(1), b.grad(), p, &over))
    }

    /// x divided by its p-norm along `dim`, or by `eps` where that is larger (PyTorch's defaults: 2, 1, 1e-12).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[3.0f32, 4.0]])?;
    /// assert_eq!(format!("{:.4?}", x.normalize(2.0, 1, 1e-12)?.to_vec::<f32>()?), "[0.6000, 0.8000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn normalize(&self, p: f64, dim: isize, eps: f64) -> Result<Tensor> {
        const OP: &str = "normalize";
        in_autocast!("normalize", (x = self), x.normalize(p, dim, eps));
        rounded_once(OP, [self], |[x]| x.div(&x.norm_of(OP, p, &[dim], KeepDim::Keep)?.clamp(eps, f64::INFINITY)?))
    }

    /// The cosine of the angle between self and `other` along `dim`, broadcast; norms below `eps` count as `eps`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 0.0], [1.0, 1.0]])?;
    /// let y = Tensor::new(&device, [[2.0f32, 0.0], [-1.0, -1.0]])?;
    /// assert_eq!(format!("{:.4?}", x.cosine_similarity(&y, 1, 1e-8)?.to_vec::<f32>()?), "[1.0000, -1.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, dim: isize, eps: f64) -> Result<Tensor> {
        const OP: &str = "cosine_similarity";
        in_autocast!("cosine_similarity", (x = self, y = other), x.cosine_similarity(&y, dim, eps));
        let shape = crate::layout::broadcast_shapes(OP, self.shape(), other.shape())?;
        let shape = signed(shape.iter());
        let unit = |x: &Tensor| {
            let x = x.expand(&shape)?;
            let norm = x.norm_of(OP, 2.0, &[dim], KeepDim::Keep)?;
            // PyTorch lifts small norms behind the back of the gradient.
            let before = norm.detach();
            x.div(&norm.add(&before.clamp(eps, f64::INFINITY)?.sub(&before)?)?)
        };
        rounded_once(OP, [self, other], |[x, y]| unit(x)?.mul(&unit(y)?)?.sum(&[dim], KeepDim::Drop))
    }

    /// Sum of the diagonal of a matrix.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.trace()?.item::<f32>()?, 5.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn trace(&self) -> Result<Tensor> {
        in_autocast!("trace", (x = self), x.trace());
        if self.rank() != 2 {
            return Err(Error::shape("trace", format!("shape {:?} is no matrix", self.shape()), "pass a tensor of 2 dimensions"));
        }
        self.diagonal(0, 0, 1)?.sum_all()
    }
}
