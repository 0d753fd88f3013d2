//! In-place methods, with PyTorch's rules.
//!
//! A leaf that wants gradients may only be changed under `no_grad`: its history would be lost. A result of an operation gets
//! a new history. A view may not be changed while recording, because the tensor it looks into would not notice.

use std::sync::Arc;

use super::graph::{Backward, Grads, Interior, interior_of, leaf_of};
use super::mode::is_grad_enabled;
use super::record::node;
use super::rules;
use super::scatter::{Own, ScatterReduce};
use crate::dtype::Scalar;
use crate::error::{Error, Result};
use crate::ops;
use crate::stream::Origin;
use crate::tensor::Tensor;

impl Tensor {
    /// self += alpha * other (broadcast), through views too.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [10.0f32, 20.0])?;
    /// x.add_(&y, 0.5)?;
    /// assert_eq!(x.to_vec::<f32>()?, [6.0, 12.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn add_(&self, other: &Tensor, alpha: impl Into<Scalar>) -> Result<()> {
        let alpha = alpha.into();
        let layout = other.layout;
        let rule = move |ctx: &Backward<'_>| {
            let db = ctx.want(1, || {
                let grad = rules::binary::to_shape(ctx.grad(), layout.shape())?;
                if alpha.value() == 1.0 { Ok(grad) } else { ops::unary::mul_scalar(&grad, alpha) }
            })?;
            Ok(Grads::from_iter([ctx.needs(0).then(|| ctx.grad().clone()), db]))
        };
        self.change("add_", &[other], &[], || ops::binary::add_(self, other, alpha), rule)
    }

    /// self *= other (broadcast), through views too.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [10.0f32, 20.0])?;
    /// x.mul_(&y)?;
    /// assert_eq!(x.to_vec::<f32>()?, [10.0, 40.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn mul_(&self, other: &Tensor) -> Result<()> {
        let layout = other.layout;
        // The gradient of `other` needs the values from before.
        let before = match is_grad_enabled() && other.requires_grad() {
            true => ops::copy::copy(self)?,
            false => self.detach(),
        };
        let wants_before = other.requires_grad();
        let saved: &[&Tensor] = if wants_before { &[other, &before] } else { &[other] };
        let rule = move |ctx: &Backward<'_>| {
            let da = ctx.want(0, || ops::binary::mul(ctx.grad(), ctx.saved(0)))?;
            let db = ctx.want(1, || rules::binary::mul_a(ctx.saved(1), ctx.grad(), layout.shape()))?;
            Ok(Grads::from_iter([da, db]))
        };
        self.change("mul_", &[other], saved, || ops::binary::mul_(self, other), rule)
    }

    /// self += scalar.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// x.add_scalar_(0.5)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.5, 2.5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn add_scalar_(&self, scalar: impl Into<Scalar>) -> Result<()> {
        self.change("add_scalar_", &[], &[], || ops::unary::add_scalar_(self, scalar), keep)
    }

    /// self *= scalar.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// x.select(0, 1)?.mul_scalar_(10.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 30.0, 40.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn mul_scalar_(&self, scalar: impl Into<Scalar>) -> Result<()> {
        let scalar = scalar.into();
        let rule = move |ctx: &Backward<'_>| Ok(Grads::from_iter([ctx.want(0, || ops::unary::mul_scalar(ctx.grad(), scalar))?]));
        self.change("mul_scalar_", &[], &[], || ops::unary::mul_scalar_(self, scalar), rule)
    }

    /// All elements become `value`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// x.select(1, 0)?.fill_(9.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [9.0, 2.0, 9.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<()> {
        let nothing = |ctx: &Backward<'_>| Ok(Grads::from_iter([ctx.want(0, || ctx.grad().zeros_like())?]));
        self.change("fill_", &[], &[], || ops::copy::fill_(self, value), nothing)
    }

    /// All elements become 0.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// x.zero_()?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn zero_(&self) -> Result<()> {
        self.fill_(0.0)
    }

    /// The elements of `source` (broadcast, converted to this element type).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let y = Tensor::new(&device, [10i32, 20])?;
    /// x.copy_(&y)?;
    /// assert_eq!(x.to_vec::<f32>()?, [10.0, 20.0, 10.0, 20.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn copy_(&self, source: &Tensor) -> Result<()> {
        let layout = source.layout;
        let rule = move |ctx: &Backward<'_>| {
            let db = ctx.want(1, || rules::binary::to_shape(ctx.grad(), layout.shape()))?;
            Ok(Grads::from_iter([None, db]))
        };
        self.change("copy_", &[source], &[], || ops::copy::copy_(self, source), rule)
    }

    /// Runs `work`, which changes this tensor, and gives it the new history where recording wants one.
    #[track_caller]
    pub(super) fn change(
        &self,
        op: &'static str,
        others: &[&Tensor],
        saved: &[&Tensor],
        work: impl FnOnce() -> Result<()>,
        rule: impl Fn(&Backward<'_>) -> Result<Grads> + Send + Sync + 'static,
    ) -> Result<()> {
        let _origin = Origin::enter();
        if !is_grad_enabled() {
            return work();
        }
        let slot = self.changeable(op, others.iter().any(|other| other.requires_grad()))?;
        let inputs: Vec<&Tensor> = std::iter::once(self).chain(others.iter().copied()).collect();
        // Made first: an operand that was saved and is changed by `work` itself must be noticed.
        let node = node(op, &inputs, saved, rule)?;
        work()?;
        if let (Some(slot), Some(node)) = (slot, node) {
            slot.rebase(node);
        }
        Ok(())
    }

    /// Gives this tensor the elements of `make(self)`, whose shape is this one, and its history where recording wants one.
    #[track_caller]
    pub(super) fn become_(&self, op: &'static str, make: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        let _origin = Origin::enter();
        ops::elementwise::refuse_expanded(op, self)?;
        let recorded = is_grad_enabled() && self.requires_grad();
        if recorded {
            self.changeable(op, false)?;
        }
        // What the rule needs of the old elements must outlive them.
        let before = match recorded {
            true => Tensor { grad_slot: self.grad_slot.clone(), ..ops::copy::copy(self)? },
            false => self.clone(),
        };
        let after = make(&before)?;
        if after.shape() != self.shape() {
            return Err(Error::shape(
                op,
                format!("the result has shape {:?}, the tensor that it is to be written to {:?}", after.shape(), self.shape()),
                format!("use the form that returns a new tensor ({})", op.trim_end_matches('_')),
            ));
        }
        ops::binary::fits_in_place(op, after.dtype(), self)?;
        let slot = if is_grad_enabled() { self.changeable(op, after.requires_grad())? } else { None };
        ops::copy::copy_(self, &after)?;
        if let (Some(slot), Some(made)) = (slot, interior_of(&after)) {
            slot.rebase(made.history(op)?.node);
        }
        Ok(())
    }

    /// The slot of a tensor that may be changed in place while recording: no leaf, no view, and none without history that would
    /// get one.
    fn changeable(&self, op: &'static str, gets_history: bool) -> Result<Option<Arc<Interior>>> {
        if leaf_of(self).is_some() && self.requires_grad() {
            return Err(Error::autograd(
                format!("{op} on a leaf that wants gradients (shape {:?})", self.shape()),
                "change it under no_grad, or change a copy of it",
            ));
        }
        let slot = interior_of(self);
        match &slot {
            Some(slot) if slot.is_view() => Err(Error::autograd(
                format!("{op} on a view of a tensor with history (shape {:?})", self.shape()),
                "change a copy of it, or put the parts together with cat or where_",
            )),
            None if gets_history => Err(Error::autograd(
                format!("{op} would give history to a tensor without any (shape {:?})", self.shape()),
                format!("use the form that returns a new tensor ({}), or run it under no_grad", op.trim_end_matches('_')),
            )),
            _ => Ok(slot),
        }
    }
}

/// `x.name_()` for `x.name()`, with the same arguments: the result replaces the elements of x. The example of each shows what x
/// becomes.
macro_rules! in_place_methods {
    ($($name:ident($($argument:ident: $ty:ty),*) = $of:ident,
        $given:literal for $($var:ident = $value:literal),+ is $want:literal;)*) => { impl Tensor { $(
        #[doc = concat!("[`Tensor::", stringify!($of), "`] in place, through views too.")]
        #[doc = example!($name($given) for $($var = $value),+ becomes $want)]
        #[track_caller]
        pub fn $name(&self $(, $argument: $ty)*) -> Result<()> {
            self.become_(stringify!($name), |x| x.$of($($argument),*))
        }
    )* } };
}

in_place_methods! {
    abs_() = abs, "" for x = "[-1.5f32, 2.0]" is "[1.5000, 2.0000]";
    acos_() = acos, "" for x = "[1.0f32, 0.0]" is "[0.0000, 1.5708]";
    acosh_() = acosh, "" for x = "[1.0f32, 2.0]" is "[0.0000, 1.3170]";
    asin_() = asin, "" for x = "[0.0f32, 1.0]" is "[0.0000, 1.5708]";
    asinh_() = asinh, "" for x = "[0.0f32, 1.0]" is "[0.0000, 0.8814]";
    atan_() = atan, "" for x = "[0.0f32, 1.0]" is "[0.0000, 0.7854]";
    atanh_() = atanh, "" for x = "[0.0f32, 0.5]" is "[0.0000, 0.5493]";
    ceil_() = ceil, "" for x = "[-1.5f32, 2.5]" is "[-1.0000, 3.0000]";
    cos_() = cos, "" for x = "[0.0f32, 1.0]" is "[1.0000, 0.5403]";
    cosh_() = cosh, "" for x = "[0.0f32, 1.0]" is "[1.0000, 1.5431]";
    deg2rad_() = deg2rad, "" for x = "[180.0f32, 90.0]" is "[3.1416, 1.5708]";
    erf_() = erf, "" for x = "[0.0f32, 1.0]" is "[0.0000, 0.8427]";
    erfc_() = erfc, "" for x = "[0.0f32, 1.0]" is "[1.0000, 0.1573]";
    erfinv_() = erfinv, "" for x = "[0.0f32, 0.5]" is "[0.0000, 0.4769]";
    exp_() = exp, "" for x = "[0.0f32, 1.0]" is "[1.0000, 2.7183]";
    exp2_() = exp2, "" for x = "[0.0f32, 3.0]" is "[1.0000, 8.0000]";
    expm1_() = expm1, "" for x = "[0.0f32, 1.0]" is "[0.0000, 1.7183]";
    floor_() = floor, "" for x = "[-1.5f32, 2.5]" is "[-2.0000, 2.0000]";
    frac_() = frac, "" for x = "[1.5f32, -2.25]" is "[0.5000, -0.2500]";
    log_() = log, "" for x = "[1.0f32, 2.0]" is "[0.0000, 0.6931]";
    log10_() = log10, "" for x = "[1.0f32, 100.0]" is "[0.0000, 2.0000]";
    log1p_() = log1p, "" for x = "[0.0f32, 1.0]" is "[0.0000, 0.6931]";
    log2_() = log2, "" for x = "[1.0f32, 8.0]" is "[0.0000, 3.0000]";
    logical_not_() = logical_not, "" for x = "[0.0f32, 2.0]" is "[1.0000, 0.0000]";
    neg_() = neg, "" for x = "[1.0f32, -2.0]" is "[-1.0000, 2.0000]";
    rad2deg_() = rad2deg, "" for x = "[1.5f32]" is "[85.9437]";
    reciprocal_() = reciprocal, "" for x = "[4.0f32, -0.5]" is "[0.2500, -2.0000]";
    relu_() = relu, "" for x = "[-1.0f32, 2.0]" is "[0.0000, 2.0000]";
    round_() = round, "" for x = "[-1.5f32, 2.5]" is "[-2.0000, 2.0000]";
    round_decimals_(decimals: i32) = round_decimals, "1" for x = "[1.26f32, 3.14]" is "[1.3000, 3.1000]";
    rsqrt_() = rsqrt, "" for x = "[4.0f32, 0.25]" is "[0.5000, 2.0000]";
    sigmoid_() = sigmoid, "" for x = "[0.0f32, 1.0]" is "[0.5000, 0.7311]";
    sign_() = sign, "" for x = "[-1.5f32, 2.0]" is "[-1.0000, 1.0000]";
    sin_() = sin, "" for x = "[0.0f32, 1.0]" is "[0.0000, 0.8415]";
    sinc_() = sinc, "" for x = "[0.0f32, 0.5]" is "[1.0000, 0.6366]";
    sinh_() = sinh, "" for x = "[0.0f32, 1.0]" is "[0.0000, 1.1752]";
    sqrt_() = sqrt, "" for x = "[4.0f32, 2.0]" is "[2.0000, 1.4142]";
    square_() = square, "" for x = "[-3.0f32, 2.0]" is "[9.0000, 4.0000]";
    tan_() = tan, "" for x = "[0.0f32, 1.0]" is "[0.0000, 1.5574]";
    tanh_() = tanh, "" for x = "[0.0f32, 1.0]" is "[0.0000, 0.7616]";
    trunc_() = trunc, "" for x = "[-1.5f32, 2.5]" is "[-1.0000, 2.0000]";
    nan_to_num_(nan: Option<f64>, infinity: Option<f64>, minus_infinity: Option<f64>) = nan_to_num,
        "None, None, None" for x = "[1.0f32, f32::NAN]" is "[1.0000, 0.0000]";
    celu_(alpha: f64) = celu, "2.0" for x = "[-1.0f32, 2.0]" is "[-0.7869, 2.0000]";
    elu_(alpha: f64) = elu, "1.0" for x = "[-1.0f32, 2.0]" is "[-0.6321, 2.0000]";
    selu_() = selu, "" for x = "[-1.0f32, 2.0]" is "[-1.1113, 2.1014]";
    silu_() = silu, "" for x = "[0.0f32, 1.0]" is "[0.0000, 0.7311]";
    mish_() = mish, "" for x = "[0.0f32, 1.0]" is "[0.0000, 0.8651]";
    hardsigmoid_() = hardsigmoid, "" for x = "[0.0f32, 4.0]" is "[0.5000, 1.0000]";
    leaky_relu_(slope: f64) = leaky_relu, "0.25" for x = "[-2.0f32, 2.0]" is "[-0.5000, 2.0000]";
    threshold_(threshold: f64, value: f64) = threshold, "1.0, 9.0" for x = "[0.5f32, 2.0]" is "[9.0000, 2.0000]";
    sub_(other: &Tensor, alpha: impl Into<Scalar>) = sub_scaled,
        "&y, 2.0" for x = "[5.0f32, 7.0]", y = "[1.0f32, 2.0]" is "[3.0000, 3.0000]";
    div_(other: &Tensor) = div, "&y" for x = "[6.0f32, 7.0]", y = "[2.0f32, 4.0]" is "[3.0000, 1.7500]";
    div_trunc_(other: &Tensor) = div_trunc, "&y" for x = "[5.5f32, -5.5]", y = "[2.0f32, 2.0]" is "[2.0000, -2.0000]";
    div_floor_(other: &Tensor) = div_floor, "&y" for x = "[5.5f32, -5.5]", y = "[2.0f32, 2.0]" is "[2.0000, -3.0000]";
    pow_(other: &Tensor) = pow, "&y" for x = "[2.0f32, 3.0]", y = "[3.0f32, 2.0]" is "[8.0000, 9.0000]";
    atan2_(other: &Tensor) = atan2, "&y" for x = "[1.0f32, 1.0]", y = "[1.0f32, -1.0]" is "[0.7854, 2.3562]";
    copysign_(other: &Tensor) = copysign, "&y" for x = "[1.0f32, 2.0]", y = "[-3.0f32, 3.0]" is "[-1.0000, 2.0000]";
    fmod_(other: &Tensor) = fmod, "&y" for x = "[5.5f32, -5.5]", y = "[2.0f32, 2.0]" is "[1.5000, -1.5000]";
    remainder_(other: &Tensor) = remainder, "&y" for x = "[5.5f32, -5.5]", y = "[2.0f32, 2.0]" is "[1.5000, 0.5000]";
    heaviside_(other: &Tensor) = heaviside, "&y" for x = "[-1.5f32, 0.0, 2.0]", y = "[0.5f32]" is "[0.0000, 0.5000, 1.0000]";
    hypot_(other: &Tensor) = hypot, "&y" for x = "[3.0f32, 5.0]", y = "[4.0f32, 12.0]" is "[5.0000, 13.0000]";
    xlogy_(other: &Tensor) = xlogy, "&y" for x = "[0.0f32, 2.0]", y = "[0.0f32, 2.0]" is "[0.0000, 1.3863]";
    logical_and_(other: &Tensor) = logical_and,
        "&y" for x = "[0.0f32, 2.0, 3.0]", y = "[1.0f32, 0.0, 2.0]" is "[0.0000, 0.0000, 1.0000]";
    logical_or_(other: &Tensor) = logical_or,
        "&y" for x = "[0.0f32, 2.0, 0.0]", y = "[1.0f32, 0.0, 0.0]" is "[1.0000, 1.0000, 0.0000]";
    logical_xor_(other: &Tensor) = logical_xor,
        "&y" for x = "[0.0f32, 2.0, 3.0]", y = "[1.0f32, 0.0, 2.0]" is "[1.0000, 1.0000, 0.0000]";
    eq_(other: &Tensor) = eq, "&y" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is "[1.0000, 0.0000, 0.0000]";
    ne_(other: &Tensor) = ne, "&y" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is "[0.0000, 1.0000, 1.0000]";
    lt_(other: &Tensor) = lt, "&y" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is "[0.0000, 1.0000, 0.0000]";
    le_(other: &Tensor) = le, "&y" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is "[1.0000, 1.0000, 0.0000]";
    gt_(other: &Tensor) = gt, "&y" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is "[0.0000, 0.0000, 1.0000]";
    ge_(other: &Tensor) = ge, "&y" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is "[1.0000, 0.0000, 1.0000]";
    lerp_(end: &Tensor, weight: &Tensor) = lerp,
        "&end, &weight" for x = "[1.0f32, 2.0]", end = "[3.0f32, 6.0]", weight = "0.5f32" is "[2.0000, 4.0000]";
    addcmul_(a: &Tensor, b: &Tensor, value: impl Into<Scalar>) = addcmul,
        "&a, &a, 0.5" for x = "[1.0f32, 2.0]", a = "[3.0f32, 4.0]" is "[5.5000, 10.0000]";
    addcdiv_(a: &Tensor, b: &Tensor, value: impl Into<Scalar>) = addcdiv,
        "&a, &b, 2.0" for x = "[1.0f32, 2.0]", a = "[3.0f32, 4.0]", b = "[2.0f32, 8.0]" is "[4.0000, 3.0000]";
    clamp_(low: impl Into<Scalar>, high: impl Into<Scalar>) = clamp,
        "-1.0, 1.0" for x = "[-2.0f32, 0.5, 3.0]" is "[-1.0000, 0.5000, 1.0000]";
    clamp_tensor_(low: Option<&Tensor>, high: Option<&Tensor>) = clamp_tensor,
        "None, Some(&high)" for x = "[1.0f32, 5.0]", high = "[4.0f32]" is "[1.0000, 4.0000]";
    tril_(diagonal: isize) = tril, "0" for x = "[[1.0f32, 2.0], [3.0, 4.0]]" is "[1.0000, 0.0000, 3.0000, 4.0000]";
    triu_(diagonal: isize) = triu, "0" for x = "[[1.0f32, 2.0], [3.0, 4.0]]" is "[1.0000, 2.0000, 0.0000, 4.0000]";
    dropout_(p: f64) = dropout, "0.0" for x = "[1.0f32, 2.0]" is "[1.0000, 2.0000]";
    addmm_(a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = addmm,
        "&a, &b, 0.5, 2.0" for x = "[[100.0f32]]", a = "[[1.0f32, 2.0]]", b = "[[3.0f32], [4.0]]" is "[72.0000]";
    addmv_(a: &Tensor, v: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = addmv,
        "&a, &v, 1.0, 1.0" for x = "[100.0f32]", a = "[[1.0f32, 2.0]]", v = "[3.0f32, 4.0]" is "[111.0000]";
    addr_(u: &Tensor, v: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = addr,
        "&u, &v, 1.0, 1.0" for x = "[[100.0f32, 0.0]]", u = "[2.0f32]", v = "[3.0f32, 4.0]" is "[106.0000, 8.0000]";
    baddbmm_(a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = baddbmm,
        "&a, &b, 1.0, 1.0" for x = "[[[100.0f32]]]", a = "[[[1.0f32, 2.0]]]", b = "[[[3.0f32], [4.0]]]" is "[111.0000]";
    addbmm_(a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = addbmm,
        "&a, &b, 1.0, 1.0" for x = "[[100.0f32]]", a = "[[[1.0f32]], [[2.0]]]", b = "[[[3.0f32]], [[4.0]]]" is "[111.0000]";
    cumsum_(dim: isize) = cumsum, "0" for x = "[1.0f32, 2.0, 3.0]" is "[1.0000, 3.0000, 6.0000]";
    cumprod_(dim: isize) = cumprod, "0" for x = "[1.0f32, 2.0, 3.0]" is "[1.0000, 2.0000, 6.0000]";
    masked_fill_(mask: &Tensor, value: impl Into<Scalar>) = masked_fill,
        "&mask, 9.0" for x = "[1.0f32, 2.0]", mask = "[0u8, 1]" is "[1.0000, 9.0000]";
    masked_scatter_(mask: &Tensor, source: &Tensor) = masked_scatter,
        "&mask, &source" for x = "[1.0f32, 2.0]", mask = "[0u8, 1]", source = "[9.0f32]" is "[1.0000, 9.0000]";
    scatter_(dim: isize, index: &Tensor, src: &Tensor) = scatter,
        "0, &index, &src" for x = "[1.0f32, 2.0, 3.0]", index = "[2i32]", src = "[9.0f32]" is "[1.0000, 2.0000, 9.0000]";
    scatter_value_(dim: isize, index: &Tensor, value: impl Into<Scalar>) = scatter_value,
        "0, &index, 9.0" for x = "[1.0f32, 2.0, 3.0]", index = "[2i32]" is "[1.0000, 2.0000, 9.0000]";
    scatter_add_(dim: isize, index: &Tensor, src: &Tensor) = scatter_add,
        "0, &index, &src" for x = "[1.0f32, 2.0]", index = "[1i32, 1]", src = "[10.0f32, 20.0]" is "[1.0000, 32.0000]";
    scatter_reduce_(dim: isize, index: &Tensor, src: &Tensor, reduce: ScatterReduce, own: Own) = scatter_reduce,
        "0, &index, &src, ScatterReduce::Amax, Own::Included" for x = "[1.0f32, 2.0]", index = "[1i32, 1]", src = "[10.0f32, 20.0]" is "[1.0000, 20.0000]";
    index_add_(dim: isize, index: &Tensor, source: &Tensor, alpha: impl Into<Scalar>) = index_add,
        "0, &index, &source, 2.0" for x = "[1.0f32, 2.0]", index = "[0i32]", source = "[10.0f32]" is "[21.0000, 2.0000]";
    index_copy_(dim: isize, index: &Tensor, source: &Tensor) = index_copy,
        "0, &index, &source" for x = "[1.0f32, 2.0]", index = "[0i32]", source = "[10.0f32]" is "[10.0000, 2.0000]";
    index_fill_(dim: isize, index: &Tensor, value: impl Into<Scalar>) = index_fill,
        "0, &index, 9.0" for x = "[1.0f32, 2.0]", index = "[0i32]" is "[9.0000, 2.0000]";
}

/// The gradient passes unchanged.
fn keep(ctx: &Backward<'_>) -> Result<Grads> {
    Ok(Grads::from_iter([Some(ctx.grad().clone())]))
}
