//! The differentiable methods of [`Tensor`]: each calls the operation of `ops` and records its rule.
//!
//! Names and argument order are PyTorch's. Every call enqueues and returns; none waits for the device. Views stand in
//! `views.rs` and `parts.rs`, statistics and norms in `statistics.rs`, running results in `scans.rs`, products by their names in
//! `products.rs`, losses in `losses.rs`, in-place methods in `in_place.rs`, operators in `operators.rs`.

use super::autocast::in_autocast;
use smallvec::SmallVec;

use super::graph::Grads;
use super::record::{record, record_unary};
use super::rules;
use crate::device::Device;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::layout::resolve_dim;
use crate::ops;
use crate::ops::attention::Mask;
use crate::ops::reduce::KeepDim;
use crate::stream::Origin;
use crate::tensor::Tensor;

impl Tensor {
    /// -x.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, -2.0])?;
    /// assert_eq!(x.neg()?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn neg(&self) -> Result<Tensor> {
        record_unary("neg", self, &[], ops::unary::neg(self)?, |b| ops::unary::neg(b.grad()))
    }

    /// x + scalar.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.add_scalar(0.5)?.to_vec::<f32>()?, [1.5, 2.5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn add_scalar(&self, scalar: impl Into<Scalar>) -> Result<Tensor> {
        record_unary("add_scalar", self, &[], ops::unary::add_scalar(self, scalar)?, |b| Ok(b.grad().clone()))
    }

    /// x * scalar.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.mul_scalar(3.0)?.to_vec::<f32>()?, [3.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn mul_scalar(&self, scalar: impl Into<Scalar>) -> Result<Tensor> {
        let scalar = scalar.into();
        let out = ops::unary::mul_scalar(self, scalar)?;
        record_unary("mul_scalar", self, &[], out, move |b| ops::unary::mul_scalar(b.grad(), scalar))
    }

    /// x ^ exponent.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// assert_eq!(x.pow_scalar(2.0)?.to_vec::<f32>()?, [1.0, 4.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn pow_scalar(&self, exponent: impl Into<Scalar>) -> Result<Tensor> {
        let exponent = exponent.into();
        in_autocast!("pow_scalar", (x = self), x.pow_scalar(exponent));
        let out = ops::unary::pow_scalar(self, exponent)?;
        let exponent = exponent.value();
        let rule = move |b: &super::graph::Backward<'_>| rules::unary::pow_scalar_rule(b.saved(0), exponent, b.grad());
        record_unary("pow_scalar", self, &[self], out, rule)
    }

    /// min(max(x, low), high).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-2.0f32, 0.5, 3.0])?;
    /// assert_eq!(x.clamp(-1.0, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Result<Tensor> {
        let out = ops::unary::clamp(self, low, high)?;
        let kept = out.clone();
        record_unary("clamp", self, &[self, &kept], out, |b| rules::unary::clamp(b.saved(0), b.saved(1), b.grad()))
    }

    /// self + other, broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let y = Tensor::new(&device, [10.0f32, 20.0])?;
    /// assert_eq!(x.add(&y)?.to_vec::<f32>()?, [11.0, 22.0, 13.0, 24.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn add(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.layout, other.layout);
        record("add", &[self, other], &[], ops::binary::add(self, other)?, move |ctx| {
            let part = |i, shape: &[usize]| ctx.want(i, || rules::binary::to_shape(ctx.grad(), shape));
            Ok(Grads::from_iter([part(0, a.shape())?, part(1, b.shape())?]))
        })
    }

    /// self - other, broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [5.0f32, 7.0])?;
    /// let y = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.sub(&y)?.to_vec::<f32>()?, [4.0, 5.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn sub(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.layout, other.layout);
        record("sub", &[self, other], &[], ops::binary::sub(self, other)?, move |ctx| {
            let da = ctx.want(0, || rules::binary::to_shape(ctx.grad(), a.shape()))?;
            let db = ctx.want(1, || ops::unary::neg(&rules::binary::to_shape(ctx.grad(), b.shape())?))?;
            Ok(Grads::from_iter([da, db]))
        })
    }

    /// self * other, broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let y = Tensor::new(&device, [[10.0f32], [100.0]])?;
    /// assert_eq!(x.mul(&y)?.to_vec::<f32>()?, [10.0, 20.0, 300.0, 400.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn mul(&self, other: &Tensor) -> Result<Tensor> {
        record("mul", &[self, other], &[self, other], ops::binary::mul(self, other)?, |ctx| {
            let (a, b) = (ctx.saved(0), ctx.saved(1));
            let da = ctx.want(0, || rules::binary::mul_a(b, ctx.grad(), a.shape()))?;
            let db = ctx.want(1, || rules::binary::mul_a(a, ctx.grad(), b.shape()))?;
            Ok(Grads::from_iter([da, db]))
        })
    }

    /// self / other, broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [6.0f32, 7.0])?;
    /// let y = Tensor::new(&device, [2.0f32, 4.0])?;
    /// assert_eq!(x.div(&y)?.to_vec::<f32>()?, [3.0, 1.75]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn div(&self, other: &Tensor) -> Result<Tensor> {
        record("div", &[self, other], &[self, other], ops::binary::div(self, other)?, |ctx| {
            let (a, b) = (ctx.saved(0), ctx.saved(1));
            let da = ctx.want(0, || rules::binary::div_a(b, ctx.grad(), a.shape()))?;
            let db = ctx.want(1, || rules::binary::div_b(a, b, ctx.grad()))?;
            Ok(Grads::from_iter([da, db]))
        })
    }

    /// self ^ other, broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [2.0f32, 3.0])?;
    /// let y = Tensor::new(&device, [3.0f32, 2.0])?;
    /// assert_eq!(x.pow(&y)?.to_vec::<f32>()?, [8.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn pow(&self, other: &Tensor) -> Result<Tensor> {
        in_autocast!("pow", (a = self, b = other), a.pow(&b));
        let out = ops::binary::pow(self, other)?;
        let kept = out.clone();
        record("pow", &[self, other], &[self, other, &kept], out, |ctx| {
            let (a, b, y) = (ctx.saved(0), ctx.saved(1), ctx.saved(2));
            let da = ctx.want(0, || rules::binary::pow_a(a, b, ctx.grad()))?;
            let db = ctx.want(1, || rules::binary::pow_b(a, b, y, ctx.grad()))?;
            Ok(Grads::from_iter([da, db]))
        })
    }

    /// The larger of both, element by element, broadcast; equal ones share the gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 5.0])?;
    /// let y = Tensor::new(&device, [2.0f32, 4.0])?;
    /// assert_eq!(x.maximum(&y)?.to_vec::<f32>()?, [2.0, 5.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn maximum(&self, other: &Tensor) -> Result<Tensor> {
        self.extreme("maximum", other, ops::binary::maximum(self, other)?, rules::binary::Extreme::Larger)
    }

    /// The smaller of both, element by element, broadcast; equal ones share the gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 5.0])?;
    /// let y = Tensor::new(&device, [2.0f32, 4.0])?;
    /// assert_eq!(x.minimum(&y)?.to_vec::<f32>()?, [1.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn minimum(&self, other: &Tensor) -> Result<Tensor> {
        self.extreme("minimum", other, ops::binary::minimum(self, other)?, rules::binary::Extreme::Smaller)
    }

    fn extreme(&self, op: &'static str, other: &Tensor, out: Tensor, which: rules::binary::Extreme) -> Result<Tensor> {
        record(op, &[self, other], &[self, other], out, move |ctx| {
            let (a, b) = (ctx.saved(0), ctx.saved(1));
            let da = ctx.want(0, || rules::binary::extreme(a, b, which, ctx.grad()))?;
            let db = ctx.want(1, || rules::binary::extreme(b, a, which, ctx.grad()))?;
            Ok(Grads::from_iter([da, db]))
        })
    }

    /// This tensor where `condition` is not 0, else `other`; all three broadcast (PyTorch's `x.where(condition, other)`).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [-1.0f32, -2.0])?;
    /// let condition = x.gt(&Tensor::new(&device, 1.5f32)?)?;
    /// assert_eq!(x.where_(&condition, &y)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn where_(&self, condition: &Tensor, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.layout, other.layout);
        let out = ops::binary::where_(condition, self, other)?;
        record("where", &[self, other], &[condition], out, move |ctx| {
            let da = ctx.want(0, || rules::binary::where_a(ctx.saved(0), ctx.grad(), a.shape()))?;
            let db = ctx.want(1, || rules::binary::where_b(ctx.saved(0), ctx.grad(), b.shape()))?;
            Ok(Grads::from_iter([da, db]))
        })
    }

    /// Sum over `dims` (empty: all).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.sum(&[0], KeepDim::Drop)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(x.sum(&[1], KeepDim::Keep)?.shape(), [2, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn sum(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        in_autocast!("sum", (x = self), x.sum(dims, keep));
        let (layout, over) = (self.layout, resolved("sum", dims, self.rank())?);
        let out = ops::reduce::sum(self, dims, keep)?;
        record_unary("sum", self, &[], out, move |b| rules::reduce::sum_rule(b.grad(), layout.shape(), &over))
    }

    /// Mean over `dims` (empty: all).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.mean(&[1], KeepDim::Drop)?.to_vec::<f32>()?, [1.5, 3.5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn mean(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        let (layout, over) = (self.layout, resolved("mean", dims, self.rank())?);
        let out = ops::reduce::mean(self, dims, keep)?;
        record_unary("mean", self, &[], out, move |b| rules::reduce::mean_rule(b.grad(), layout.shape(), &over))
    }

    /// Sum of all elements, 0-d.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.sum_all()?.item::<f32>()?, 10.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum(&[], KeepDim::Drop)
    }

    /// Mean of all elements, 0-d.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.mean_all()?.item::<f32>()?, 2.5);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean(&[], KeepDim::Drop)
    }

    /// Maximum over `dims` (empty: all); NaN wins, equal elements share the gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 5.0], [3.0, 4.0]])?;
    /// assert_eq!(x.amax(&[1], KeepDim::Drop)?.to_vec::<f32>()?, [5.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn amax(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        self.reduced_extreme("amax", dims, ops::reduce::amax(self, dims, keep)?)
    }

    /// Minimum over `dims` (empty: all); NaN wins, equal elements share the gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::reduce::KeepDim;
    /// let x = Tensor::new(&device, [[1.0f32, 5.0], [3.0, 4.0]])?;
    /// assert_eq!(x.amin(&[0], KeepDim::Drop)?.to_vec::<f32>()?, [1.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn amin(&self, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
        self.reduced_extreme("amin", dims, ops::reduce::amin(self, dims, keep)?)
    }

    fn reduced_extreme(&self, op: &'static str, dims: &[isize], out: Tensor) -> Result<Tensor> {
        let over = resolved(op, dims, self.rank())?;
        let kept = out.clone();
        let rule = move |b: &super::graph::Backward<'_>| rules::reduce::extreme_rule(b.saved(0), b.saved(1), b.grad(), &over);
        record_unary(op, self, &[self, &kept], out, rule)
    }

    /// Matrix product by PyTorch's rules: vectors, matrices, batches with broadcasting.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let y = Tensor::new(&device, [[1.0f32], [10.0]])?;
    /// let z = x.matmul(&y)?;
    /// assert_eq!(z.shape(), [2, 1]);
    /// assert_eq!(z.to_vec::<f32>()?, [21.0, 43.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        in_autocast!("matmul", (a = self, b = other), a.matmul(&b));
        record("matmul", &[self, other], &[self, other], ops::matmul::matmul(self, other)?, |ctx| {
            let (a, b) = (ctx.saved(0), ctx.saved(1));
            let da = ctx.want(0, || rules::matmul::matmul_a(a, b, ctx.grad()))?;
            let db = ctx.want(1, || rules::matmul::matmul_b(a, b, ctx.grad()))?;
            Ok(Grads::from_iter([da, db]))
        })
    }

    /// x weight^T + bias: x `[.., K]`, weight `[N, K]`, bias `[N]` -> `[.., N]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0]])?;
    /// let weight = Tensor::new(&device, [[1.0f32, 0.0], [3.0, 4.0]])?;
    /// let bias = Tensor::new(&device, [0.5f32, 0.25])?;
    /// assert_eq!(x.linear(&weight, Some(&bias))?.to_vec::<f32>()?, [1.5, 11.25]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        in_autocast!("linear", (x = self, w = weight, c = bias), x.linear(&w, c.as_ref()));
        if let (&[_], None | Some([])) = (weight.shape(), bias.map(Tensor::shape)) {
            let y = self.matmul(weight).map_err(|error| error.of("linear"))?;
            return bias.map_or(Ok(y.clone()), |bias| y.add(bias).map_err(|error| error.of("linear")));
        }
        let out = ops::matmul::linear(self, weight, bias)?;
        let inputs: SmallVec<[&Tensor; 3]> = [self, weight].into_iter().chain(bias).collect();
        let count = inputs.len();
        // Each one's gradient needs the other only: a frozen layer does not keep its input.
        let of_x = self.requires_grad().then_some(weight);
        let of_w = weight.requires_grad().then_some(self);
        let saved: SmallVec<[&Tensor; 2]> = of_x.into_iter().chain(of_w).collect();
        let at = usize::from(of_x.is_some());
        record("linear", &inputs, &saved, out, move |ctx| {
            let g = ctx.grad();
            let mut grads = Grads::new();
            grads.push(ctx.want(0, || rules::matmul::linear_x(ctx.saved(0), g))?);
            grads.push(ctx.want(1, || rules::matmul::linear_w(ctx.saved(at), g))?);
            if count == 3 {
                grads.push(ctx.want(2, || rules::matmul::linear_bias(g))?);
            }
            Ok(grads)
        })
    }

    /// exp(x) / sum(exp(x)) along `dim`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4?}", x.softmax(0)?.to_vec::<f32>()?), "[0.2689, 0.7311]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax(&self, dim: isize) -> Result<Tensor> {
        in_autocast!("softmax", (x = self), x.softmax(dim));
        let out = ops::softmax::softmax(self, dim)?;
        let kept = out.clone();
        let rule = move |b: &super::graph::Backward<'_>| ops::softmax::softmax_backward(b.saved(0), b.grad(), dim);
        record_unary("softmax", self, &[&kept], out, rule)
    }

    /// exp(-x) / sum(exp(-x)) along `dim`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4?}", x.softmin(0)?.to_vec::<f32>()?), "[0.7311, 0.2689]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn softmin(&self, dim: isize) -> Result<Tensor> {
        in_autocast!("softmin", (x = self), x.softmin(dim));
        self.neg().and_then(|x| x.softmax(dim)).map_err(|error| error.of("softmin"))
    }

    /// x - log(sum(exp(x))) along `dim`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4?}", x.log_softmax(0)?.to_vec::<f32>()?), "[-1.3133, -0.3133]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn log_softmax(&self, dim: isize) -> Result<Tensor> {
        in_autocast!("log_softmax", (x = self), x.log_softmax(dim));
        let out = ops::softmax::log_softmax(self, dim)?;
        let kept = out.clone();
        let rule = move |b: &super::graph::Backward<'_>| ops::softmax::log_softmax_backward(b.saved(0), b.grad(), dim);
        record_unary("log_softmax", self, &[&kept], out, rule)
    }

    /// Mean of -log softmax(x)`[target]` over the rows: x `[N, V]`, targets `[N]` (i32) -> 0-d.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let logits = Tensor::new(&device, [[0.0f32, 1.0], [0.0, 0.0]])?;
    /// let targets = Tensor::new(&device, [1i32, 0])?;
    /// assert_eq!(format!("{:.4}", logits.cross_entropy(&targets)?.item::<f32>()?), "0.5032");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor) -> Result<Tensor> {
        in_autocast!("cross_entropy", (x = self), x.cross_entropy(targets));
        let (loss, logsumexp) = ops::loss::cross_entropy(self, targets)?;
        record_unary("cross_entropy", self, &[self, targets, &logsumexp], loss, |b| {
            ops::loss::cross_entropy_backward(b.saved(0), b.saved(1), b.saved(2), b.grad())
        })
    }

    /// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, whose length weight and bias have.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 3.0]])?;
    /// assert_eq!(format!("{:.4?}", x.layer_norm(None, None, 1e-5)?.to_vec::<f32>()?), "[-1.0000, 1.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn layer_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        in_autocast!("layer_norm", (x = self, w = weight, c = bias), x.layer_norm(w.as_ref(), c.as_ref(), eps));
        let (out, mean, rstd) = ops::norm::layer_norm(self, weight, bias, eps)?;
        let inputs: SmallVec<[&Tensor; 3]> = [self].into_iter().chain(weight).chain(bias).collect();
        let saved: SmallVec<[&Tensor; 4]> = [self, &mean, &rstd].into_iter().chain(weight).collect();
        let weight_at = weight.map(|_| 1);
        let bias_at = bias.map(|_| 1 + usize::from(weight.is_some()));
        record("layer_norm", &inputs, &saved, out, move |b| rules::norm::layer_norm(b, weight_at, bias_at))
    }

    /// Rows of this table `[V, C]` named by `ids` `[..]` (i32) -> `[.., C]`. An id out of range is reported by the next call that
    /// waits for the device.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let table = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let ids = Tensor::new(&device, [1i32, 1, 0])?;
    /// assert_eq!(table.embedding(&ids)?.to_vec::<f32>()?, [3.0, 4.0, 3.0, 4.0, 1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn embedding(&self, ids: &Tensor) -> Result<Tensor> {
        self.rows("embedding", ids)
    }

    /// [`Tensor::embedding`] where row `padding_idx` gets no gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let table = Tensor::new(&device, [[1.0f32], [2.0]])?.requires_grad_(true)?;
    /// table.embedding_with(&Tensor::new(&device, [0i32, 1, 1])?, 0)?.sum_all()?.backward()?;
    /// assert_eq!(table.grad().map(|grad| grad.to_vec::<f32>()).transpose()?, Some(vec![0.0, 2.0]));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn embedding_with(&self, ids: &Tensor, padding_idx: impl Into<Option<usize>>) -> Result<Tensor> {
        const OP: &str = "embedding";
        let Some(padding) = padding_idx.into() else { return self.embedding(ids) };
        let out = ops::index::rows(OP, self, ids)?;
        let rows = self.shape().first().copied().unwrap_or(0);
        if padding >= rows {
            return Err(Error::argument(OP, format!("padding_idx is {padding}, there are {rows} rows"), "pass one of the rows"));
        }
        record_unary(OP, self, &[ids], out, move |b| {
            let grad = rules::index::embedding(b.saved(0), b.grad(), rows)?;
            ops::copy::fill_(&grad.with_layout(grad.layout().narrow(0, padding, 1)?), 0.0)?;
            Ok(grad)
        })
    }

    /// [`Tensor::embedding`] for the operation `op`.
    #[track_caller]
    pub(super) fn rows(&self, op: &'static str, ids: &Tensor) -> Result<Tensor> {
        let out = ops::index::rows(op, self, ids)?;
        let rows = self.shape().first().copied().unwrap_or(0);
        record_unary(op, self, &[ids], out, move |b| rules::index::embedding(b.saved(0), b.grad(), rows))
    }

    /// `out[i][j]` = `x[i][index[i][j]]` for `dim` 1, and so on (index i32); what has 0 dimensions counts as a vector of one.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let index = Tensor::new(&device, [[1i32], [0]])?;
    /// assert_eq!(x.gather(1, &index)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn gather(&self, dim: isize, index: &Tensor) -> Result<Tensor> {
        self.elements("gather", dim, index)
    }

    /// [`Tensor::gather`] for the operation `op`.
    #[track_caller]
    pub(super) fn elements(&self, op: &'static str, dim: isize, index: &Tensor) -> Result<Tensor> {
        match (self.rank(), index.rank()) {
            (0, 0 | 1) => return self.unsqueeze(0)?.elements(op, dim, index),
            (1, 0) => return self.elements(op, dim, &index.unsqueeze(0)?)?.squeeze(0),
            _ => {}
        }
        let layout = self.layout;
        let out = ops::index::elements(op, self, dim, index)?;
        let rule = move |b: &super::graph::Backward<'_>| rules::index::gather(b.saved(0), b.grad(), dim, layout.shape());
        record_unary(op, self, &[index], out, rule)
    }

    /// softmax(q k^T / sqrt(D)) v with this tensor as q `[B,H,T,D]`; k and v `[B,H,S,D]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::attention::Mask;
    /// let q = Tensor::new(&device, [[[[0.0f32], [0.0]]]])?;
    /// let v = Tensor::new(&device, [[[[1.0f32], [3.0]]]])?;
    /// assert_eq!(q.scaled_dot_product_attention(&q, &v, Mask::Causal)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn scaled_dot_product_attention(&self, k: &Tensor, v: &Tensor, mask: Mask) -> Result<Tensor> {
        in_autocast!("scaled_dot_product_attention", (q = self, k, v), q.scaled_dot_product_attention(&k, &v, mask));
        let (out, probs) = ops::attention::scaled_dot_product_attention(self, k, v, mask)?;
        let rule = rules::attention::scaled_dot_product_attention;
        record("scaled_dot_product_attention", &[self, k, v], &[self, k, v, &probs], out, rule)
    }

    /// The same values as another element type; gradients flow between float types only.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::DType;
    /// let x = Tensor::new(&device, [1.9f32, -1.9])?;
    /// assert_eq!(x.to_dtype(DType::I32)?.to_vec::<i32>()?, [1, -1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        let out = ops::copy::to_dtype(self, dtype)?;
        let from = self.dtype();
        match dtype.is_float() {
            true => record_unary("to_dtype", self, &[], out, move |b| ops::copy::to_dtype(b.grad(), from)),
            false => Ok(out),
        }
    }
}

/// Devices.
impl Tensor {
    /// The same tensor on `device`: itself where it lives there, else a copy through the host, which waits for this tensor's own
    /// last command (a hidden wait, see [`crate::device::SyncDebug`]). Gradients flow back to the first device.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert!(x.to(&device)?.shares_storage(&x));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn to(&self, device: &Device) -> Result<Tensor> {
        if self.device().same(device) {
            return Ok(self.clone());
        }
        self.device().hidden_wait("to", "to_vec_async", Origin::line())?;
        let out = ops::copy::to_device(self, device)?;
        let first = self.device().clone();
        match self.dtype().is_float() {
            true => record_unary("to", self, &[], out, move |b| ops::copy::to_device(b.grad(), &first)),
            false => Ok(out),
        }
    }
}

/// The tensors one after the other along `dim`. Tensors of shape `[0]` go with any others, and add nothing (PyTorch's rule).
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::cat;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// let y = Tensor::new(&device, [3.0f32])?;
/// assert_eq!(cat(&[&x, &y], 0)?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn cat(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
    let vectors = tensors.iter().all(|tensor| tensor.rank() == 1);
    let skipped = |tensor: &Tensor| !vectors && tensor.shape() == [0];
    let joined: Vec<&Tensor> = tensors.iter().copied().filter(|tensor| !skipped(tensor)).collect();
    let out = ops::copy::cat(&joined, dim)?;
    let at = resolve_dim("cat", dim, out.rank())?;
    let len = |tensor: &&Tensor| (!skipped(tensor)).then(|| tensor.shape().get(at).copied().unwrap_or(0));
    let lens: Vec<Option<usize>> = tensors.iter().map(len).collect();
    record("cat", tensors, &[], out, move |b| {
        let mut start = 0;
        let part = |(i, len): (usize, &Option<usize>)| {
            let Some(len) = *len else {
                return b.want(i, || ops::copy::full(b.grad().device(), &[0], 0.0, b.grad().dtype()));
            };
            let from = start;
            start += len;
            b.want(i, || rules::copy::cat_part(b.grad(), at, from, len))
        };
        lens.iter().enumerate().map(part).collect()
    })
}

/// The tensors, all of one shape, along a new dimension at position `dim` (negative: from the back, -1 is behind the last).
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::stack;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// let y = Tensor::new(&device, [3.0f32, 4.0])?;
/// assert_eq!(stack(&[&x, &y], 0)?.shape(), [2, 2]);
/// assert_eq!(stack(&[&x, &y], 1)?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn stack(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
    let shape = tensors.first().map_or(&[][..], |first| first.shape());
    if let Some(other) = tensors.iter().find(|tensor| tensor.shape() != shape) {
        return Err(Error::shape(
            "stack",
            format!("shapes {shape:?} and {:?} differ", other.shape()),
            "make all shapes equal, or join along an existing dimension with cat",
        ));
    }
    if tensors.is_empty() {
        return Err(Error::argument("stack", "there are no tensors", "pass at least one tensor"));
    }
    let dim = resolve_dim("stack", dim, shape.len() + 1)? as isize;
    let parts =
        tensors.iter().map(|tensor| tensor.unsqueeze(dim).map_err(|error| error.of("stack"))).collect::<Result<Vec<_>>>()?;
    cat(&parts.iter().collect::<Vec<_>>(), dim)
}

/// Dimensions counted from the front; all of them where none is named.
pub(super) fn resolved(op: &'static str, dims: &[isize], rank: usize) -> Result<Vec<usize>> {
    if dims.is_empty() {
        return Ok((0..rank).collect());
    }
    dims.iter().filter(|_| rank > 0).map(|dim| resolve_dim(op, *dim, rank)).collect()
}
