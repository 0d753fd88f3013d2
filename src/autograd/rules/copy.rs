//! Parts and joins.

use crate::error::Result;
use crate::layout::Layout;
use crate::ops::binary::add_;
use crate::ops::copy::{cat, contiguous, copy_, full};
use crate::tensor::Tensor;

/// y = what `part` leaves of x, each element at most once: dx = g there, 0 elsewhere
pub(crate) fn part(g: &Tensor, shape: &[usize], part: impl Fn(&Layout) -> Result<Layout>) -> Result<Tensor> {
    let dx = full(g.device(), shape, 0.0, g.dtype())?;
    copy_(&dx.with_layout(part(dx.layout())?), g)?;
    Ok(dx)
}

/// y = windows of `size` entries of `dim`, one every `step`, their entries last: dx = the sum over the windows that hold an entry
pub(crate) fn unfold(g: &Tensor, shape: &[usize], dim: usize, size: usize, step: usize) -> Result<Tensor> {
    let dx = full(g.device(), shape, 0.0, g.dtype())?;
    let (last, windows) = (g.rank() - 1, g.shape()[dim]);
    // Entry `i` of all windows: no two of them are the same element.
    for i in 0..size {
        let entries = dx.layout().slice(dim, i, (windows - 1) * step + 1, step)?;
        add_(&dx.with_layout(entries), &g.with_layout(g.layout().select(last, i)?), 1.0)?;
    }
    Ok(dx)
}

/// (y0, y1, ..) = parts of x along `dim`: dx = the gradients one after the other, 0 for unused parts; nothing is copied where
/// they lie like that
pub(crate) fn split(grads: &[Option<Tensor>], shapes: &[Vec<usize>], dim: usize) -> Result<Tensor> {
    let Some(like) = grads.iter().flatten().next() else { return Err(nothing()) };
    let part = |(i, shape): (usize, &Vec<usize>)| match grads.get(i).cloned().flatten() {
        Some(grad) => Ok(grad),
        None => full(like.device(), shape, 0.0, like.dtype()),
    };
    let parts = shapes.iter().enumerate().map(part).collect::<Result<Vec<_>>>()?;
    if parts.iter().all(|part| part.shares_storage(&parts[0]))
        && let Some(whole) = Layout::joined(&parts.iter().map(Tensor::layout).collect::<Vec<_>>(), dim)
    {
        return Ok(parts[0].with_layout(whole));
    }
    cat(&parts.iter().collect::<Vec<_>>(), dim as isize)
}

/// y = a joined with b, .. along `dim`: da = its part of g
pub(crate) fn cat_part(g: &Tensor, dim: usize, start: usize, len: usize) -> Result<Tensor> {
    Ok(g.with_layout(g.layout().narrow(dim, start, len)?))
}

fn nothing() -> crate::Error {
    crate::Error::autograd("split: no part has a gradient", "report this as a bug of linn")
}

/// y = x in another shape: dx = g in the shape of x
pub(crate) fn reshaped(op: &'static str, g: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if let Some(layout) = g.layout().reshape(shape) {
        return Ok(g.with_layout(layout));
    }
    let layout = Layout::contiguous(op, shape)?;
    Ok(contiguous(g)?.with_layout(layout))
}
