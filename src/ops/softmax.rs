//! Softmax and log-softmax along one dimension.
//!
//! Halves are computed in f32 and rounded once. Rows are contiguous in the kernels: another dimension than the last is moved there by a copy.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::Softmax;
use crate::kernel::{Kernel, VEC4};
use crate::layout::resolve_dim;
use crate::memory::Category;
use crate::ops::elementwise::{grid_for, index};
use crate::ops::reduce::KeepDim;
use crate::ops::{binary, copy, expect_dtype, expect_same_device, launch, reduce, unary};
use crate::tensor::Tensor;

/// exp(x) / sum(exp(x)) along `dim`; floats. A row of -inf gives NaN, as in PyTorch.
#[track_caller]
pub fn softmax(x: &Tensor, dim: isize) -> Result<Tensor> {
    along("softmax", Kernel::softmax, &[x], dim)
}

/// x - log(sum(exp(x))) along `dim`; floats.
#[track_caller]
pub fn log_softmax(x: &Tensor, dim: isize) -> Result<Tensor> {
    along("log_softmax", Kernel::log_softmax, &[x], dim)
}

/// dx from y = softmax(x) and dy: y (dy - sum(dy y)).
#[track_caller]
pub fn softmax_backward(y: &Tensor, dy: &Tensor, dim: isize) -> Result<Tensor> {
    along("softmax_backward", Kernel::softmax_backward, &[y, dy], dim)
}

/// dx from y = log_softmax(x) and dy: dy - exp(y) sum(dy).
#[track_caller]
pub fn log_softmax_backward(y: &Tensor, dy: &Tensor, dim: isize) -> Result<Tensor> {
    along("log_softmax_backward", Kernel::log_softmax_backward, &[y, dy], dim)
}

#[track_caller]
fn along(op: &'static str, kernel: Kernel, inputs: &[&Tensor], dim: isize) -> Result<Tensor> {
    let x = inputs[0];
    expect_same_device(op, inputs)?;
    if let half @ (DType::F16 | DType::BF16) = x.dtype() {
        let wide = inputs.iter().map(|input| copy::to_dtype(input, DType::F32)).collect::<Result<Vec<_>>>()?;
        return copy::to_dtype(&along(op, kernel, &wide.iter().collect::<Vec<_>>(), dim)?, half);
    }
    inputs.iter().try_for_each(|input| expect_dtype(op, input, DType::F32))?;
    if let Some(other) = inputs.iter().find(|input| input.shape() != x.shape()) {
        return Err(Error::shape(
            op,
            format!("the gradient has shape {:?}, the result {:?}", other.shape(), x.shape()),
            "pass the gradient of the result",
        ));
    }
    if x.rank() == 0 {
        // A scalar is a row of one.
        let rows: Vec<Tensor> = inputs.iter().filter_map(|input| Some(input.with_layout(input.layout().unsqueeze(0)?))).collect();
        let out = along(op, kernel, &rows.iter().collect::<Vec<_>>(), 0)?;
        return Ok(out.with_layout(out.layout().without(0)));
    }
    let dim = resolve_dim(op, dim, x.rank())?;
    let last = x.rank() - 1;
    let mut moved = Vec::with_capacity(inputs.len());
    for input in inputs {
        moved.push(copy::contiguous(&input.with_layout(input.layout().transpose(dim, last)))?);
    }
    let out = Tensor::empty_as(op, x.device(), moved[0].shape(), DType::F32, Category::Temporary)?;
    let n = x.shape()[dim];
    if !x.is_empty() {
        let rows = x.len() / n;
        let wide = n > LONGEST_ROW || (n >= 8192 && rows < 64);
        match wide {
            true => {
                let out = composed(kernel, &moved).map_err(|error| error.of(op))?;
                return Ok(out.with_layout(out.layout().transpose(dim, last)));
            }
            false => rows_into(op, kernel, &moved.iter().collect::<Vec<_>>(), &out, &Rows { n, causal: 0, scale: 1.0 })?,
        }
    }
    Ok(out.with_layout(out.layout().transpose(dim, last)))
}

/// An invocation reads its row twice, the first time in blocks of 32, and may loop 32,768 times in all.
const LONGEST_ROW: usize = 16_000;

/// The same from reductions, which spread a long row over many invocations.
#[track_caller]
fn composed(kernel: Kernel, inputs: &[Tensor]) -> Result<Tensor> {
    let x = &inputs[0];
    let sum = |x: &Tensor| reduce::sum(x, &[-1], KeepDim::Keep);
    match (kernel, inputs.get(1)) {
        (Kernel::softmax_backward, Some(dy)) => binary::mul(x, &binary::sub(dy, &sum(&binary::mul(dy, x)?)?)?),
        (Kernel::log_softmax_backward, Some(dy)) => binary::sub(dy, &binary::mul(&unary::exp(x)?, &sum(dy)?)?),
        _ => {
            let shifted = binary::sub(x, &reduce::amax(x, &[-1], KeepDim::Keep)?)?;
            let terms = unary::exp(&shifted)?;
            let total = sum(&terms)?;
            match kernel {
                Kernel::softmax => binary::div(&terms, &total),
                _ => binary::sub(&shifted, &unary::log(&total)?),
            }
        }
    }
}

/// What the kernels are told about the rows.
pub(crate) struct Rows {
    /// Elements per row, at most [`LONGEST_ROW`].
    pub(crate) n: usize,
    /// Rows of one matrix where row t counts columns 0..=t only; 0 where all count.
    pub(crate) causal: usize,
    /// Factor on the input.
    pub(crate) scale: f32,
}

/// One launch over contiguous tensors that are not empty; `out` may be one of the inputs.
#[track_caller]
pub(crate) fn rows_into(op: &'static str, kernel: Kernel, inputs: &[&Tensor], out: &Tensor, rows: &Rows) -> Result<()> {
    if rows.n > LONGEST_ROW {
        return Err(Error::Limit {
            op,
            fact: format!("a row of {} elements is too long for one invocation", rows.n),
            help: format!("use rows of at most {LONGEST_ROW} elements"),
        });
    }
    let fours = rows.n.is_multiple_of(4) && inputs.iter().chain([&out]).all(|x| x.layout().offset().is_multiple_of(4));
    let (form, unit) = if fours { (kernel.form(VEC4), 4) } else { (kernel.form(0), 1) };
    let start = |x: &Tensor| index(op, x.layout().offset() / unit);
    let count = out.len() / rows.n;
    let params = Softmax {
        rows: index(op, count)?,
        n: index(op, rows.n / unit)?,
        causal: index(op, rows.causal)?,
        scale: rows.scale,
        a_offset: start(inputs[0])?,
        dout_offset: inputs.get(1).map_or(Ok(0), |dout| start(dout))?,
        out_offset: start(out)?,
        ..Softmax::default()
    };
    // Kernels count elements in 32 bits.
    index(op, out.layout().end())?;
    let operands: Vec<&Tensor> = inputs.iter().copied().chain([out]).collect();
    launch(op, form, DType::F32, &operands, &params, grid_for(op, form, count)?)
}
