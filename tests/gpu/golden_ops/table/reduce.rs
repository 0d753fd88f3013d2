//! Sums, extremes and their positions.

use linn::Tensor;
use linn::ops::reduce::KeepDim;

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, KEY, give};

pub const ROWS: &[Row] = &[
    row("amax", |c| over_dims(c, Tensor::amax)),
    row("amin", |c| over_dims(c, Tensor::amin)),
    row("argmax", |c| give(c.input()?.argmax(c.int(1, "dim")?, keep(c, 2)?))),
    row("log_softmax", |c| give(c.input()?.log_softmax(c.int(1, "dim")?))),
    row("max.reduction_no_dim", |c| give(c.input()?.amax(&[], KeepDim::Drop))),
    row("mean", |c| over_dims(c, Tensor::mean)),
    row("min.reduction_no_dim", |c| give(c.input()?.amin(&[], KeepDim::Drop))),
    row("softmax", |c| give(c.input()?.softmax(c.int(1, "dim")?))),
    row("sum", |c| over_dims(c, Tensor::sum)),
];

fn keep(c: &Call, at: usize) -> Answer<KeepDim> {
    Ok(if c.bool_or(at, "keepdim", false)? { KeepDim::Keep } else { KeepDim::Drop })
}

/// `input, dim=(), keepdim=False`, and a `dtype` that is the input's.
fn over_dims(c: &Call, reduce: fn(&Tensor, &[isize], KeepDim) -> linn::Result<Tensor>) -> Answer {
    let x = c.input()?;
    c.keeps_dtype(KEY, &x)?;
    give(reduce(&x, &c.ints_opt(1, "dim")?.unwrap_or_default(), keep(c, 2)?))
}
