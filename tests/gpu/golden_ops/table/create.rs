//! Tensors from nothing.

use linn::{DType, Tensor};

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, KEY, done, give};

pub const ROWS: &[Row] = &[
    row("arange", |c| {
        // `end`, or `start, end, step`; f32 whatever the numbers are.
        let (start, end) = match c.has(1, "end") {
            true => (c.float(0, "start")?, c.float(1, "end")?),
            false => (0.0, c.float(0, "end")?),
        };
        f32_only(c).and(give(Tensor::arange_between(c.device(), start, end, c.float_or(2, "step", 1.0)?, DType::F32)))
    }),
    row("clone", |c| give(c.input()?.positive())).called("positive"),
    row("fill", |c| give(c.input()?.fill(c.scalar(1, "value")?))).in_place(|c| done(c.input()?.fill_(c.scalar(1, "value")?))),
    row("full", |c| f32_only(c).and(give(Tensor::full(c.device(), &c.lens(0, "size")?, c.scalar(1, "fill_value")?)))),
    row("full_like", |c| c.keeps_dtype(KEY, &c.input()?).and(give(c.input()?.full_like(c.scalar(1, "fill_value")?)))),
    row("item", |c| give(c.input()?.item::<f32>())).waits("the host asks for the value"),
    row("ones", |c| f32_only(c).and(give(Tensor::ones(c.device(), &c.lens(0, "size")?)))),
    row("ones_like", |c| c.keeps_dtype(KEY, &c.input()?).and(give(c.input()?.ones_like()))),
    row("zeros", |c| f32_only(c).and(give(Tensor::zeros(c.device(), &c.lens(0, "size")?)))),
    row("zeros_like", |c| c.keeps_dtype(KEY, &c.input()?).and(give(c.input()?.zeros_like()))),
];

/// `dtype`, which has to be f32.
pub(super) fn f32_only(c: &Call) -> Answer<()> {
    match c.dtype_or(KEY, "dtype", DType::F32)? {
        DType::F32 => Ok(()),
        other => Err(Fault::Row(format!("dtype {other}: linn makes f32"))),
    }
}
