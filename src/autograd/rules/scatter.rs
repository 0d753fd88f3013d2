//! Combining by index: what reached a place passes its gradient back to where it came from.

use crate::autograd::graph::{Backward, Grads};
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::{binary, copy, index, scatter};
use crate::tensor::Tensor;

type Combine = fn(&Tensor, isize, &Tensor, &Tensor) -> Result<Tensor>;

/// `y[index[i]] += s[i]`: dx = g, `ds[i]` = `g[index[i]]`
pub(crate) fn scatter_add(ctx: &Backward<'_>, dim: isize) -> Result<Grads> {
    let ds = ctx.want(1, || index::gather(ctx.grad(), dim, ctx.saved(0)))?;
    Ok(Grads::from_iter([ctx.needs(0).then(|| ctx.grad().clone()), ds]))
}

/// y is the extreme of x and all s that come to a place: those that equal it share its gradient. Saved: x, index, s, y.
pub(crate) fn scatter_extreme(ctx: &Backward<'_>, dim: isize) -> Result<Grads> {
    let (x, at, s, y) = (ctx.saved(0), ctx.saved(1), ctx.saved(2), ctx.saved(3));
    let number = |hit: Tensor| copy::to_dtype(&hit, DType::F32);
    let own = number(binary::eq(x, y)?)?;
    let hits = number(binary::eq(s, &index::gather(y, dim, at)?)?)?;
    let share = binary::div(ctx.grad(), &scatter::scatter_add(&own, dim, at, &hits)?)?;
    let dx = ctx.want(0, || copy::to_dtype(&binary::mul(&share, &own)?, x.dtype()))?;
    let ds = ctx.want(1, || copy::to_dtype(&binary::mul(&index::gather(&share, dim, at)?, &hits)?, x.dtype()))?;
    Ok(Grads::from_iter([dx, ds]))
}

/// y is x times all s that come to a place: dx = g y / x, `ds[i]` = `g y / s[i]` there, where a factor of 0 is left out of the product
/// instead. Saved: x, index, s, y.
pub(crate) fn scatter_prod(ctx: &Backward<'_>, dim: isize) -> Result<Grads> {
    let (x, at, s, y) = (ctx.saved(0), ctx.saved(1), ctx.saved(2), ctx.saved(3));
    let product: Combine = scatter::scatter_prod;
    let without_zeros = |x: &Tensor| binary::where_scalar(x, x, 1.0);
    let dx = ctx.want(0, || {
        let own = without_zeros(x)?;
        binary::mul(ctx.grad(), &binary::div(&product(&own, dim, at, s)?, &own)?)
    })?;
    let ds = ctx.want(1, || {
        // 1 where s is 0, and how many of these come to the same place.
        let zero = binary::eq(s, &copy::full(s.device(), &[], 0.0, DType::F32)?)?;
        let count = scatter::gather_backward(&copy::to_dtype(&zero, DType::F32)?, dim, at, x.shape())?;
        let alone = binary::eq(&index::gather(&count, dim, at)?, &copy::full(s.device(), &[], 1.0, DType::F32)?)?;
        let alone = binary::logical_and(&alone, &zero)?;
        let ones = copy::full(s.device(), s.shape(), 1.0, s.dtype())?;
        let others = product(x, dim, at, &binary::where_(&alone, &ones, s)?)?;
        let at_zero = index::gather(&binary::mul(ctx.grad(), &others)?, dim, at)?;
        let elsewhere = binary::div(&index::gather(&binary::mul(ctx.grad(), y)?, dim, at)?, &without_zeros(s)?)?;
        binary::where_(&alone, &at_zero, &elsewhere)
    })?;
    Ok(Grads::from_iter([dx, ds]))
}
