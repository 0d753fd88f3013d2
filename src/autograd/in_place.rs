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
    #[track_caller]
    pub fn add_scalar_(&self, scalar: impl Into<Scalar>) -> Result<()> {
        self.change("add_scalar_", &[], &[], || ops::unary::add_scalar_(self, scalar), keep)
    }

    /// self *= scalar.
    #[track_caller]
    pub fn mul_scalar_(&self, scalar: impl Into<Scalar>) -> Result<()> {
        let scalar = scalar.into();
        let rule = move |ctx: &Backward<'_>| Ok(Grads::from_iter([ctx.want(0, || ops::unary::mul_scalar(ctx.grad(), scalar))?]));
        self.change("mul_scalar_", &[], &[], || ops::unary::mul_scalar_(self, scalar), rule)
    }

    /// All elements become `value`.
    #[track_caller]
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<()> {
        let nothing = |ctx: &Backward<'_>| Ok(Grads::from_iter([ctx.want(0, || ctx.grad().zeros_like())?]));
        self.change("fill_", &[], &[], || ops::copy::fill_(self, value), nothing)
    }

    /// All elements become 0.
    #[track_caller]
    pub fn zero_(&self) -> Result<()> {
        self.fill_(0.0)
    }

    /// The elements of `source` (broadcast, converted to this element type).
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
        if leaf_of(self).is_some() {
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

/// `x.name_()` for `x.name()`, with the same arguments: the result replaces the elements of x.
macro_rules! in_place_methods {
    ($($name:ident($($argument:ident: $ty:ty),*) = $of:ident;)*) => { impl Tensor { $(
        #[doc = concat!("[`Tensor::", stringify!($of), "`] in place, through views too.")]
        #[track_caller]
        pub fn $name(&self $(, $argument: $ty)*) -> Result<()> {
            self.become_(stringify!($name), |x| x.$of($($argument),*))
        }
    )* } };
}

in_place_methods! {
    abs_() = abs;
    acos_() = acos;
    acosh_() = acosh;
    asin_() = asin;
    asinh_() = asinh;
    atan_() = atan;
    atanh_() = atanh;
    ceil_() = ceil;
    cos_() = cos;
    cosh_() = cosh;
    deg2rad_() = deg2rad;
    erf_() = erf;
    erfc_() = erfc;
    erfinv_() = erfinv;
    exp_() = exp;
    exp2_() = exp2;
    expm1_() = expm1;
    floor_() = floor;
    frac_() = frac;
    log_() = log;
    log10_() = log10;
    log1p_() = log1p;
    log2_() = log2;
    logical_not_() = logical_not;
    neg_() = neg;
    rad2deg_() = rad2deg;
    reciprocal_() = reciprocal;
    relu_() = relu;
    round_() = round;
    round_decimals_(decimals: i32) = round_decimals;
    rsqrt_() = rsqrt;
    sigmoid_() = sigmoid;
    sign_() = sign;
    sin_() = sin;
    sinc_() = sinc;
    sinh_() = sinh;
    sqrt_() = sqrt;
    square_() = square;
    tan_() = tan;
    tanh_() = tanh;
    trunc_() = trunc;
    nan_to_num_(nan: Option<f64>, infinity: Option<f64>, minus_infinity: Option<f64>) = nan_to_num;
    celu_(alpha: f64) = celu;
    elu_(alpha: f64) = elu;
    selu_() = selu;
    silu_() = silu;
    mish_() = mish;
    hardsigmoid_() = hardsigmoid;
    leaky_relu_(slope: f64) = leaky_relu;
    threshold_(threshold: f64, value: f64) = threshold;
    sub_(other: &Tensor, alpha: impl Into<Scalar>) = sub_scaled;
    div_(other: &Tensor) = div;
    div_trunc_(other: &Tensor) = div_trunc;
    div_floor_(other: &Tensor) = div_floor;
    pow_(other: &Tensor) = pow;
    atan2_(other: &Tensor) = atan2;
    copysign_(other: &Tensor) = copysign;
    fmod_(other: &Tensor) = fmod;
    remainder_(other: &Tensor) = remainder;
    heaviside_(other: &Tensor) = heaviside;
    hypot_(other: &Tensor) = hypot;
    xlogy_(other: &Tensor) = xlogy;
    logical_and_(other: &Tensor) = logical_and;
    logical_or_(other: &Tensor) = logical_or;
    logical_xor_(other: &Tensor) = logical_xor;
    eq_(other: &Tensor) = eq;
    ne_(other: &Tensor) = ne;
    lt_(other: &Tensor) = lt;
    le_(other: &Tensor) = le;
    gt_(other: &Tensor) = gt;
    ge_(other: &Tensor) = ge;
    lerp_(end: &Tensor, weight: &Tensor) = lerp;
    addcmul_(a: &Tensor, b: &Tensor, value: impl Into<Scalar>) = addcmul;
    addcdiv_(a: &Tensor, b: &Tensor, value: impl Into<Scalar>) = addcdiv;
    clamp_(low: impl Into<Scalar>, high: impl Into<Scalar>) = clamp;
    clamp_tensor_(low: Option<&Tensor>, high: Option<&Tensor>) = clamp_tensor;
    tril_(diagonal: isize) = tril;
    triu_(diagonal: isize) = triu;
    dropout_(p: f64) = dropout;
    addmm_(a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = addmm;
    addmv_(a: &Tensor, v: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = addmv;
    addr_(u: &Tensor, v: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = addr;
    baddbmm_(a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = baddbmm;
    addbmm_(a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) = addbmm;
    cumsum_(dim: isize) = cumsum;
    cumprod_(dim: isize) = cumprod;
    masked_fill_(mask: &Tensor, value: impl Into<Scalar>) = masked_fill;
    masked_scatter_(mask: &Tensor, source: &Tensor) = masked_scatter;
    scatter_(dim: isize, index: &Tensor, src: &Tensor) = scatter;
    scatter_value_(dim: isize, index: &Tensor, value: impl Into<Scalar>) = scatter_value;
    scatter_add_(dim: isize, index: &Tensor, src: &Tensor) = scatter_add;
    scatter_reduce_(dim: isize, index: &Tensor, src: &Tensor, reduce: ScatterReduce, own: Own) = scatter_reduce;
    index_add_(dim: isize, index: &Tensor, source: &Tensor, alpha: impl Into<Scalar>) = index_add;
    index_copy_(dim: isize, index: &Tensor, source: &Tensor) = index_copy;
    index_fill_(dim: isize, index: &Tensor, value: impl Into<Scalar>) = index_fill;
}

/// The gradient passes unchanged.
fn keep(ctx: &Backward<'_>) -> Result<Grads> {
    Ok(Grads::from_iter([Some(ctx.grad().clone())]))
}
