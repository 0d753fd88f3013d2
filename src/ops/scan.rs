//! Running sums, products, extremes and logarithms of sums along a dimension. The order of the operations is fixed.
//!
//! A line is cut into blocks. A first pass finds what each block comes to, these are scanned in turn, and a last pass walks the
//! blocks again on top of what stands before them: no invocation walks more than a block, and rounding errors grow with its length.

use crate::error::Result;
use crate::kernel::params::Scan;
use crate::kernel::{Kernel, KernelId, TOTALS};
use crate::layout::resolve_dim;
use crate::memory::Category;
use crate::ops::copy::contiguous;
use crate::ops::elementwise::{check_dtype, grid_for, index};
use crate::ops::launch;
use crate::ops::reduce::in_words;
use crate::tensor::Tensor;

/// Most elements of a block.
const MOST: usize = 1024;

/// Fewest elements of a block: below, a further pass costs more than a longer walk.
const LEAST: usize = 64;

/// From which end of a line a scan starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first element.
    Forward,
    /// From the last element.
    Backward,
}

/// Sum of the elements of `dim` up to each one; integers wrap, bool counts as i32.
#[track_caller]
pub fn cumsum(x: &Tensor, dim: isize, direction: Direction) -> Result<Tensor> {
    in_words(x, |x| scan("cumsum", Kernel::cumsum, x, dim, direction))
}

/// Product of the elements of `dim` up to each one; integers wrap, bool counts as i32.
#[track_caller]
pub fn cumprod(x: &Tensor, dim: isize) -> Result<Tensor> {
    in_words(x, |x| scan("cumprod", Kernel::cumprod, x, dim, Direction::Forward))
}

/// Logarithm of the sum of the exponentials of the elements of `dim` up to each one; floats.
#[track_caller]
pub fn logcumsumexp(x: &Tensor, dim: isize, direction: Direction) -> Result<Tensor> {
    in_words(x, |x| scan("logcumsumexp", Kernel::logcumsumexp, x, dim, direction))
}

/// Largest of the elements of `dim` up to each one; NaN from the first one on. bool counts as i32.
#[track_caller]
pub fn cummax(x: &Tensor, dim: isize) -> Result<Tensor> {
    let kernel = if x.dtype().is_float() { Kernel::cummax } else { Kernel::cummax_integer };
    in_words(x, |x| scan("cummax", kernel, x, dim, Direction::Forward))
}

/// Smallest of the elements of `dim` up to each one; NaN from the first one on. bool counts as i32.
#[track_caller]
pub fn cummin(x: &Tensor, dim: isize) -> Result<Tensor> {
    let kernel = if x.dtype().is_float() { Kernel::cummin } else { Kernel::cummin_integer };
    in_words(x, |x| scan("cummin", kernel, x, dim, Direction::Forward))
}

#[track_caller]
fn scan(op: &'static str, kernel: Kernel, x: &Tensor, dim: isize, direction: Direction) -> Result<Tensor> {
    check_dtype(op, kernel, x.dtype())?;
    let dim = resolve_dim(op, dim, x.rank())?;
    let out = Tensor::empty_as(op, x.device(), x.shape(), x.dtype(), Category::Temporary)?;
    if out.is_empty() {
        return Ok(out);
    }
    let inner = x.shape().iter().skip(dim + 1).product();
    let n = x.shape().get(dim).copied().unwrap_or(1);
    walk(op, kernel, &contiguous(x)?, n, inner, direction, &out)?;
    Ok(out)
}

/// Scans the lines of `x` `[outer, n, inner]` into `out`, both contiguous.
#[track_caller]
fn walk(op: &'static str, kernel: Kernel, x: &Tensor, n: usize, inner: usize, direction: Direction, out: &Tensor) -> Result<()> {
    let lines = x.len() / n;
    let wanted = if x.device().class().is_cpu() { 256 } else { 16_384 };
    let block = n.div_ceil(wanted / lines.min(wanted)).clamp(LEAST, MOST);
    let blocks = n.div_ceil(block);
    let params = Scan {
        jobs: index(op, lines * blocks)?,
        n: index(op, n)?,
        block: index(op, block)?,
        blocks: index(op, blocks)?,
        inner: index(op, inner)?,
        offset: index(op, x.layout().offset())?,
        out_offset: index(op, out.layout().offset())?,
        backward: u32::from(direction == Direction::Backward),
    };
    let run = |form: KernelId, operands: &[&Tensor], params: Scan| {
        launch(op, form, x.dtype(), operands, &params, grid_for(op, form, lines * blocks)?)
    };
    if blocks == 1 {
        // Nothing is carried: any tensor takes the place.
        return run(kernel.form(0), &[x, x, out], params);
    }
    let parts = || Tensor::empty_as(op, x.device(), &[lines * blocks], x.dtype(), Category::Temporary);
    let (totals, carry) = (parts()?, parts()?);
    run(kernel.form(TOTALS), &[x, &totals], Scan { out_offset: 0, ..params })?;
    walk(op, kernel, &totals, blocks, inner, Direction::Forward, &carry)?;
    run(kernel.form(0), &[x, &carry, out], params)
}
