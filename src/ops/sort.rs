//! Sorting lines, and searching in lines that rise.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::kernel::params::{Index, Sort};
use crate::memory::Category;
use crate::ops::copy::{contiguous, full, to_dtype};
use crate::ops::elementwise::{grid_for, index};
use crate::ops::{expect_dtype, expect_same_device, launch};
use crate::tensor::Tensor;

/// Which element comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The smallest.
    Ascending,
    /// The largest.
    Descending,
}

/// Where a value belongs among elements that equal it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before them.
    Left,
    /// Behind them.
    Right,
}

/// Positions (i32) of the elements of the last dimension in sorted order: equal elements keep their order, NaN is the largest.
/// f32, i32 or u32, of at least 1 dimension. log2(n)^2 / 2 dispatches for a line of n elements.
#[track_caller]
pub fn argsort(x: &Tensor, order: Order) -> Result<Tensor> {
    const OP: &str = "argsort";
    let kernel = if x.dtype().is_float() { Kernel::sort_step } else { Kernel::sort_step_integer };
    crate::ops::elementwise::check_dtype(OP, kernel, x.dtype())?;
    let Some((&n, outer)) = x.shape().split_last() else {
        return Err(Error::shape(OP, "a tensor of 0 dimensions (shape [])", "pass at least 1 dimension"));
    };
    if x.is_empty() || n == 1 {
        return full(x.device(), x.shape(), 0, DType::I32);
    }
    let x = contiguous(x)?;
    let padded = n.next_power_of_two();
    let shape: Vec<usize> = outer.iter().copied().chain([padded]).collect();
    let positions = Tensor::empty_as(OP, x.device(), &shape, DType::I32, Category::Temporary)?;
    let kernel = kernel.form(0);
    let pairs = positions.len() / 2;
    let mut block = 2;
    while block <= padded {
        let mut step = block / 2;
        while step > 0 {
            let params = Sort {
                jobs: index(OP, pairs)?,
                n: index(OP, n)?,
                padded: index(OP, padded)?,
                block: index(OP, block)?,
                step: index(OP, step)?,
                descending: u32::from(order == Order::Descending),
                offset: index(OP, x.layout().offset())?,
                out_offset: index(OP, positions.layout().offset())?,
            };
            launch(OP, kernel, x.dtype(), &[&x, &positions], &params, grid_for(OP, kernel, pairs)?)?;
            step /= 2;
        }
        block *= 2;
    }
    Ok(positions.with_layout(positions.layout().narrow(outer.len(), 0, n)?))
}

/// For each value, how many elements of its line it belongs behind (i32, the shape of `values`). `sorted` is one rising line for all
/// values, or has the dimensions of `values` but for the last; NaN is the largest.
#[track_caller]
pub fn searchsorted(op: &'static str, sorted: &Tensor, values: &Tensor, side: Side) -> Result<Tensor> {
    expect_same_device(op, &[sorted, values])?;
    expect_dtype(op, values, sorted.dtype())?;
    if let DType::F16 | DType::BF16 = sorted.dtype() {
        return searchsorted(op, &to_dtype(sorted, DType::F32)?, &to_dtype(values, DType::F32)?, side);
    }
    let kernel = if sorted.dtype().is_float() { Kernel::searchsorted } else { Kernel::searchsorted_integer };
    crate::ops::elementwise::check_dtype(op, kernel, sorted.dtype())?;
    let lines = |x: &Tensor| x.shape().split_last().map(|(_, outer)| outer.to_vec());
    let one = sorted.rank() == 1;
    if !one && (sorted.rank() == 0 || lines(sorted) != lines(values)) {
        return Err(Error::shape(
            op,
            format!("sorted elements of shape {:?} for values of shape {:?}", sorted.shape(), values.shape()),
            "pass one line for all values, or as many lines as there are of values",
        ));
    }
    let rows = sorted.shape().last().copied().unwrap_or(0);
    if sorted.is_empty() || values.is_empty() {
        return full(values.device(), values.shape(), 0, DType::I32);
    }
    let out = Tensor::empty_as(op, values.device(), values.shape(), DType::I32, Category::Temporary)?;
    let (sorted, values) = (contiguous(sorted)?, contiguous(values)?);
    let count = if one { values.len() } else { values.shape().last().copied().unwrap_or(1) };
    let params = Index {
        jobs: index(op, values.len())?,
        count: index(op, count)?,
        rows: index(op, rows)?,
        start: u32::from(side == Side::Right),
        a_offset: index(op, sorted.layout().offset())?,
        ids_offset: index(op, values.layout().offset())?,
        ..Index::default()
    };
    let kernel = kernel.form(0);
    launch(op, kernel, sorted.dtype(), &[&sorted, &values, &out], &params, grid_for(op, kernel, values.len())?)?;
    Ok(out)
}
