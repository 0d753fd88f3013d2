//! Parts and joins.

use crate::error::Result;
use crate::layout::Layout;
use crate::ops::copy::{cat, contiguous, copy_, full};
use crate::tensor::Tensor;

/// y = `x[start..start + len]` along `dim`: dx = g there, 0 elsewhere
pub(crate) fn narrow(g: &Tensor, shape: &[usize], dim: usize, start: usize) -> Result<Tensor> {
    let dx = full(g.device(), shape, 0.0, g.dtype())?;
    let part = dx.layout().narrow(dim, start, g.shape()[dim])?;
    copy_(&dx.with_layout(part), g)?;
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
