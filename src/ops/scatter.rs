//! Writing by i32 indices. Where several indices name one place, the order of their positions decides, whatever order invocations
//! run in: the same input gives the same bits.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::Index;
use crate::kernel::{Kernel, RUNS};
use crate::layout::resolve_dim;
use crate::ops::elementwise::{grid_for, index};
use crate::ops::index::{WINDOW, middle, narrow_to, refuse_empty};
use crate::ops::reduce::in_words;
use crate::ops::sort::{Order, argsort};
use crate::ops::{copy, expect_dtype, expect_same_device, launch};
use crate::tensor::Tensor;

/// dx of shape `shape` from the gradient of [`gather`](crate::ops::index::gather); summed in the order of the positions.
#[track_caller]
pub fn gather_backward(dout: &Tensor, dim: isize, index_of: &Tensor, shape: &[usize]) -> Result<Tensor> {
    in_words(dout, |dout| {
        let out = copy::full(dout.device(), shape, 0, dout.dtype())?;
        combine_("gather_backward", Kernel::gather_backward, &out, dim, index_of, dout)?;
        Ok(out)
    })
}

/// self with `src` added at `out[index[i][j]][j]` for dim 0; numbers of one type.
#[track_caller]
pub fn scatter_add(x: &Tensor, dim: isize, index_of: &Tensor, src: &Tensor) -> Result<Tensor> {
    combined("scatter_add", [Kernel::gather_backward; 2], x, dim, index_of, src)
}

/// self multiplied by `src` at `out[index[i][j]][j]` for dim 0; numbers of one type.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::scatter::scatter_prod;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// let index = Tensor::new(&device, [1i32, 1])?;
/// let src = Tensor::new(&device, [10.0f32, 20.0])?;
/// assert_eq!(scatter_prod(&x, 0, &index, &src)?.to_vec::<f32>()?, [1.0, 400.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn scatter_prod(x: &Tensor, dim: isize, index_of: &Tensor, src: &Tensor) -> Result<Tensor> {
    combined("scatter_reduce", [Kernel::scatter_prod; 2], x, dim, index_of, src)
}

/// The larger of self and `src` at `out[index[i][j]][j]` for dim 0, numbers of one type; NaN where one is NaN.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::scatter::scatter_amax;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// let index = Tensor::new(&device, [1i32, 1])?;
/// let src = Tensor::new(&device, [10.0f32, 20.0])?;
/// assert_eq!(scatter_amax(&x, 0, &index, &src)?.to_vec::<f32>()?, [1.0, 20.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn scatter_amax(x: &Tensor, dim: isize, index_of: &Tensor, src: &Tensor) -> Result<Tensor> {
    combined("scatter_reduce", [Kernel::scatter_amax, Kernel::scatter_amax_integer], x, dim, index_of, src)
}

/// The smaller of self and `src` at `out[index[i][j]][j]` for dim 0, numbers of one type; NaN where one is NaN.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::scatter::scatter_amin;
/// let x = Tensor::new(&device, [1.0f32, 12.0])?;
/// let index = Tensor::new(&device, [1i32, 1])?;
/// let src = Tensor::new(&device, [10.0f32, 20.0])?;
/// assert_eq!(scatter_amin(&x, 0, &index, &src)?.to_vec::<f32>()?, [1.0, 10.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn scatter_amin(x: &Tensor, dim: isize, index_of: &Tensor, src: &Tensor) -> Result<Tensor> {
    combined("scatter_reduce", [Kernel::scatter_amin, Kernel::scatter_amin_integer], x, dim, index_of, src)
}

/// By the first kernel for floats, by the second for whole numbers. Halves are combined in f32 and rounded once.
#[track_caller]
fn combined(op: &'static str, kernels: [Kernel; 2], x: &Tensor, dim: isize, index_of: &Tensor, src: &Tensor) -> Result<Tensor> {
    expect_dtype(op, src, x.dtype())?;
    if x.dtype() == DType::Bool {
        return Err(Error::DType { op, got: x.dtype(), expected: "f32, f16, bf16, i32 and u32" });
    }
    in_words(x, |x| {
        let kernel = kernels[usize::from(!x.dtype().is_float())];
        let out = copy::copy(x)?;
        combine_(op, kernel, &out, dim, index_of, &copy::to_dtype(src, x.dtype())?)?;
        Ok(out)
    })
}

/// Combines `src` with the places of `out` (contiguous) that `index_of`, of the same shape as `src`, names along `dim`.
#[track_caller]
fn combine_(op: &'static str, kernel: Kernel, out: &Tensor, dim: isize, index_of: &Tensor, src: &Tensor) -> Result<()> {
    expect_same_device(op, &[out, index_of, src])?;
    expect_dtype(op, index_of, DType::I32)?;
    let shape = out.shape();
    let dim = resolve_dim(op, dim, shape.len())?;
    if src.is_empty() || out.is_empty() {
        return Ok(());
    }
    if src.shape() != index_of.shape() || src.rank() != shape.len() {
        return Err(Error::shape(
            op,
            format!("elements of shape {:?} for an index of shape {:?}", src.shape(), index_of.shape()),
            "pass one element for each index",
        ));
    }
    let window = narrow_to(op, out, dim, index_of.shape())?;
    // The kernel works on contiguous memory: on the result, or on a copy of a window of it.
    let target = copy::contiguous(&window)?;
    let (src, ids) = (copy::contiguous(src)?, copy::contiguous(index_of)?);
    let rows = shape.get(dim).copied().unwrap_or(1);
    let count = ids.shape().get(dim).copied().unwrap_or(1);
    if is_worth_sorting(target.len(), rows, count) {
        return sorted(op, kernel, dim, [&window, &ids, &src]);
    }
    let kernel = kernel.form(0);
    for start in (0..count).step_by(WINDOW) {
        let params = Index {
            jobs: index(op, target.len())?,
            start: index(op, start)?,
            end: index(op, count.min(start + WINDOW))?,
            ids_offset: index(op, ids.layout().offset())?,
            dout_offset: index(op, src.layout().offset())?,
            out_offset: index(op, target.layout().offset())?,
            ..middle(op, ids.shape(), dim, rows)?
        };
        launch(op, kernel, out.dtype(), &[&src, &ids, &target], &params, grid_for(op, kernel, target.len())?)?;
    }
    if !target.shares_storage(out) {
        copy::copy_(&window, &target)?;
    }
    Ok(())
}

/// Whether to sort `count` indices into `rows` places, for `places` in all, instead of looking at each for each place.
fn is_worth_sorting(places: usize, rows: usize, count: usize) -> bool {
    let steps = count.max(2).ilog2() as usize + 1;
    places.saturating_mul(count) > 1 << 24 && rows > 4 * steps * steps
}

/// [`combine_`] along `dim` of (a window of the result, indices, elements), in the order of sorted indices.
#[track_caller]
fn sorted(op: &'static str, kernel: Kernel, dim: usize, [out, ids, src]: [&Tensor; 3]) -> Result<()> {
    // Lines: the dimension last.
    let lines = |x: &Tensor| x.with_layout(x.layout().transpose(dim, x.rank() - 1));
    let target = copy::contiguous(&lines(out))?;
    add_runs(op, kernel, &target, &copy::contiguous(&lines(ids))?, &copy::contiguous(&lines(src))?, 1)?;
    if target.shares_storage(out) { Ok(()) } else { copy::copy_(&lines(out), &target) }
}

/// out `[.., rows, width]` combined with src `[.., count, width]` at the places in ids `[.., count]` along the last dimension; all
/// contiguous.
#[track_caller]
pub(super) fn add_runs(op: &'static str, kernel: Kernel, out: &Tensor, ids: &Tensor, src: &Tensor, width: usize) -> Result<()> {
    let order = copy::contiguous(&argsort(ids, Order::Ascending)?)?;
    let count = ids.shape().last().copied().unwrap_or(1);
    let lines = ids.len() / count;
    let kernel = kernel.form(RUNS);
    for start in (0..count).step_by(WINDOW) {
        let end = count.min(start + WINDOW);
        let jobs = lines * (end - start) * width;
        let params = Index {
            jobs: index(op, jobs)?,
            count: index(op, count)?,
            rows: index(op, out.len() / lines / width)?,
            width: index(op, width)?,
            start: index(op, start)?,
            end: index(op, end)?,
            a_offset: index(op, order.layout().offset())?,
            ids_offset: index(op, ids.layout().offset())?,
            dout_offset: index(op, src.layout().offset())?,
            out_offset: index(op, out.layout().offset())?,
            ..Index::default()
        };
        launch(op, kernel, out.dtype(), &[src, ids, &order, out], &params, grid_for(op, kernel, jobs)?)?;
    }
    Ok(())
}

/// For each place of a dimension of length `rows`, 1 + the last position of `index_of` along `dim` that names it, 0 where none does
/// (i32; the shape of the index but for `dim`). An index out of range is reported at the next synchronising call.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::scatter::last_positions;
/// let index = Tensor::new(&device, [1i32, 1, 0])?;
/// assert_eq!(last_positions("example", &index, 0, 3)?.to_vec::<i32>()?, [3, 2, 0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn last_positions(op: &'static str, index_of: &Tensor, dim: isize, rows: usize) -> Result<Tensor> {
    expect_dtype(op, index_of, DType::I32)?;
    let dim = resolve_dim(op, dim, index_of.rank())?;
    let mut shape = index_of.shape().to_vec();
    shape.iter_mut().skip(dim).take(1).for_each(|len| *len = rows);
    let out = copy::full(index_of.device(), &shape, 0, DType::I32)?;
    if index_of.is_empty() {
        return Ok(out);
    }
    refuse_empty(op, rows)?;
    let ids = copy::contiguous(index_of)?;
    let params = Index {
        jobs: index(op, ids.len())?,
        ids_offset: index(op, ids.layout().offset())?,
        out_offset: index(op, out.layout().offset())?,
        ..middle(op, ids.shape(), dim, rows)?
    };
    let kernel = Kernel::scatter.form(0);
    launch(op, kernel, DType::I32, &[&ids, &out], &params, grid_for(op, kernel, ids.len())?)?;
    Ok(out)
}
