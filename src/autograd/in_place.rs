//! In-place methods, with PyTorch's rules.
//!
//! A leaf that wants gradients may only be changed under `no_grad`: its history would be lost. A result of an operation gets
//! a new history. A view may not be changed while recording, because the tensor it looks into would not notice.

use super::graph::{Backward, Grads, interior_of, leaf_of};
use super::mode::is_grad_enabled;
use super::record::node;
use super::rules;
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
        self.change("fill_", &[], &[], || ops::copy::fill_(self, value), |_| Ok(Grads::from_iter([None])))
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
    fn change(
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
        if leaf_of(self).is_some() {
            return Err(Error::autograd(
                format!("{op} on a leaf that wants gradients (shape {:?})", self.shape()),
                "change it under no_grad, or change a copy of it",
            ));
        }
        let inputs: Vec<&Tensor> = std::iter::once(self).chain(others.iter().copied()).collect();
        let slot = interior_of(self);
        match &slot {
            Some(slot) if slot.is_view() => {
                return Err(Error::autograd(
                    format!("{op} on a view of a tensor with history (shape {:?})", self.shape()),
                    "change a copy of it, or put the parts together with cat or where_",
                ));
            }
            None if others.iter().any(|other| other.requires_grad()) => {
                return Err(Error::autograd(
                    format!("{op} would give history to a tensor without any (shape {:?})", self.shape()),
                    format!("use the form that returns a new tensor ({}), or run it under no_grad", op.trim_end_matches('_')),
                ));
            }
            _ => {}
        }
        // Made first: an operand that was saved and is changed by `work` itself must be noticed.
        let node = node(op, &inputs, saved, rule)?;
        work()?;
        if let (Some(slot), Some(node)) = (slot, node) {
            slot.rebase(node);
        }
        Ok(())
    }
}

/// The gradient passes unchanged.
fn keep(ctx: &Backward<'_>) -> Result<Grads> {
    Ok(Grads::from_iter([Some(ctx.grad().clone())]))
}
