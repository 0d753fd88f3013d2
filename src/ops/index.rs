//! Reading and writing by i32 indices.
//!
//! The device checks every index: one out of range is clamped, and the next synchronising call returns an error.
//! Gradients are summed in the order of the positions, without atomics, so the same input gives the same bits.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::Index;
use crate::kernel::{Kernel, KernelId, VEC4, labels};
use crate::layout::resolve_dim;
use crate::memory::Category;
use crate::ops::elementwise::{grid_for, index, per_invocation};
use crate::ops::reduce::in_words;
use crate::ops::{copy, expect_dtype, expect_same_device, launch, scatter};
use crate::tensor::Tensor;

/// Positions that one dispatch of a backward pass looks at: the bound on an invocation's loop.
pub(super) const WINDOW: usize = 32_768;

/// Most positions that links are found for, which costs their square; more are sorted.
const MOST_LINKED: usize = 8192;

/// Rows of weight `[V, C]` named by ids `[..]` -> `[.., C]`. An index out of range is reported at the next synchronising call.
#[track_caller]
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    rows("embedding", weight, ids)
}

/// [`embedding`] for the operation `op`.
#[track_caller]
pub(crate) fn rows(op: &'static str, weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    copy::through_words(weight, |weight| select_rows(op, weight, ids))
}

#[track_caller]
fn select_rows(op: &'static str, weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    expect_same_device(op, &[weight, ids])?;
    expect_dtype(op, ids, DType::I32)?;
    let [v, c] = *weight.shape() else {
        return Err(Error::shape(op, format!("a weight of shape {:?}", weight.shape()), "pass a weight of shape [V, C]"));
    };
    let mut shape = ids.shape().to_vec();
    shape.push(c);
    let out = Tensor::empty_as(op, weight.device(), &shape, weight.dtype(), Category::Temporary)?;
    if out.is_empty() {
        return Ok(out);
    }
    refuse_empty(op, v)?;
    let (weight, ids) = (copy::contiguous(weight)?, copy::contiguous(ids)?);
    let (kernel, unit) = form(Kernel::index_select, c, &[&weight]);
    let (count, width) = (ids.len(), c / unit);
    let chunks = width.div_ceil(per_invocation(weight.device(), kernel, count * width));
    let params = Index {
        jobs: index(op, count * chunks)?,
        count: index(op, count)?,
        chunks: index(op, chunks)?,
        rows: index(op, v)?,
        width: index(op, width)?,
        a_offset: index(op, weight.layout().offset() / unit)?,
        ids_offset: index(op, ids.layout().offset())?,
        label: labels::number(op),
        ..Index::default()
    };
    launch(op, kernel, weight.dtype(), &[&weight, &ids, &out], &params, grid_for(op, kernel, count * chunks)?)?;
    Ok(out)
}

/// dweight `[rows, C]` from dout `[.., C]` and ids `[..]`; summed in the order of the positions, halves in f32.
#[track_caller]
pub fn embedding_backward(dout: &Tensor, ids: &Tensor, rows: usize) -> Result<Tensor> {
    in_words(dout, |dout| added_rows(dout, ids, rows))
}

#[track_caller]
fn added_rows(dout: &Tensor, ids: &Tensor, rows: usize) -> Result<Tensor> {
    const OP: &str = "embedding_backward";
    expect_same_device(OP, &[dout, ids])?;
    expect_dtype(OP, ids, DType::I32)?;
    let c = match dout.shape().split_last() {
        Some((c, rest)) if rest == ids.shape() => *c,
        _ => {
            return Err(Error::shape(
                OP,
                format!("a gradient of shape {:?} for ids of shape {:?}", dout.shape(), ids.shape()),
                "pass the gradient of embedding's result",
            ));
        }
    };
    let out = copy::full(dout.device(), &[rows, c], 0, dout.dtype())?;
    if dout.is_empty() || rows == 0 {
        return Ok(out);
    }
    let (dout, ids) = (copy::contiguous(dout)?, copy::contiguous(ids)?);
    if ids.len() > MOST_LINKED {
        let line = ids.layout().reshape(&[ids.len()]).unwrap_or(*ids.layout());
        scatter::add_runs(OP, Kernel::gather_backward, &out, &ids.with_layout(line), &dout, c)?;
        return Ok(out);
    }
    let (kernel, unit) = form(Kernel::embedding_backward, c, &[&dout]);
    let chain = Kernel::embedding_links.form(0);
    let links = Tensor::empty_as(OP, dout.device(), &[ids.len()], DType::U32, Category::Temporary)?;
    let jobs = ids.len() * c / unit;
    let params = Index {
        jobs: index(OP, jobs)?,
        rows: index(OP, rows)?,
        width: index(OP, c / unit)?,
        end: index(OP, ids.len())?,
        ids_offset: index(OP, ids.layout().offset())?,
        dout_offset: index(OP, dout.layout().offset() / unit)?,
        ..Index::default()
    };
    launch(OP, chain, DType::F32, &[&ids, &links], &params, grid_for(OP, chain, ids.len())?)?;
    launch(OP, kernel, dout.dtype(), &[&dout, &ids, &links, &out], &params, grid_for(OP, kernel, jobs)?)?;
    Ok(out)
}

/// `out[i][j]` = `x[i][index[i][j]]` for dim = 1, PyTorch's `gather`: index has the rank of x, and no other dimension of it
/// is longer than that of x. An index without elements may have any shape.
#[track_caller]
pub fn gather(x: &Tensor, dim: isize, index_of: &Tensor) -> Result<Tensor> {
    elements("gather", x, dim, index_of)
}

/// [`gather`] for the operation `op`.
#[track_caller]
pub(crate) fn elements(op: &'static str, x: &Tensor, dim: isize, index_of: &Tensor) -> Result<Tensor> {
    copy::through_words(x, |x| select_elements(op, x, dim, index_of))
}

#[track_caller]
fn select_elements(op: &'static str, x: &Tensor, dim: isize, index_of: &Tensor) -> Result<Tensor> {
    expect_same_device(op, &[x, index_of])?;
    expect_dtype(op, index_of, DType::I32)?;
    let dim = resolve_dim(op, dim, x.rank())?;
    let out = Tensor::empty_as(op, x.device(), index_of.shape(), x.dtype(), Category::Temporary)?;
    if out.is_empty() {
        return Ok(out);
    }
    let narrowed = narrow_to(op, x, dim, index_of.shape())?;
    let rows = x.shape().get(dim).copied().unwrap_or(1);
    refuse_empty(op, rows)?;
    let (x, ids) = (copy::contiguous(&narrowed)?, copy::contiguous(index_of)?);
    let params = Index {
        jobs: index(op, ids.len())?,
        a_offset: index(op, x.layout().offset())?,
        ids_offset: index(op, ids.layout().offset())?,
        ..middle(op, ids.shape(), dim, rows)?
    };
    let kernel = Kernel::gather.form(0);
    launch(op, kernel, x.dtype(), &[&x, &ids, &out], &params, grid_for(op, kernel, ids.len())?)?;
    Ok(out)
}

/// Lengths of `[outer, count, width]` around dimension `dim` of the indices.
pub(super) fn middle(op: &'static str, ids_shape: &[usize], dim: usize, rows: usize) -> Result<Index> {
    let width: usize = ids_shape.iter().skip(dim + 1).product();
    let count = ids_shape.get(dim).copied().unwrap_or(1);
    Ok(Index {
        count: index(op, count)?,
        rows: index(op, rows)?,
        width: index(op, width)?,
        chunks: 1,
        label: labels::number(op),
        ..Index::default()
    })
}

/// The part of `x` that indices of `ids_shape` can name: all of dimension `dim`, the front of the others.
pub(super) fn narrow_to(op: &'static str, x: &Tensor, dim: usize, ids_shape: &[usize]) -> Result<Tensor> {
    let fits = ids_shape.len() == x.rank() && (0..x.rank()).all(|i| i == dim || ids_shape[i] <= x.shape()[i]);
    if !fits {
        return Err(Error::shape(
            op,
            format!("an index of shape {ids_shape:?} for a tensor of shape {:?}", x.shape()),
            format!("use as many dimensions, none but dimension {dim} longer than the tensor's"),
        ));
    }
    let mut layout = *x.layout();
    for (i, len) in ids_shape.iter().enumerate().filter(|(i, _)| *i != dim) {
        layout = layout.narrow(i, 0, *len)?;
    }
    Ok(x.with_layout(layout))
}

pub(super) fn refuse_empty(op: &'static str, rows: usize) -> Result<()> {
    if rows > 0 {
        return Ok(());
    }
    Err(Error::shape(op, "the indexed dimension is empty", "index a dimension that has elements"))
}

/// The form over `vec4`s where offsets and the row length allow it, and elements per item.
fn form(kernel: Kernel, c: usize, operands: &[&Tensor]) -> (KernelId, usize) {
    let fours = c.is_multiple_of(4) && operands.iter().all(|tensor| tensor.layout().offset().is_multiple_of(4));
    if fours { (kernel.form(VEC4), 4) } else { (kernel.form(0), 1) }
}
