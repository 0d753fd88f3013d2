//! Tensors from nothing.

use linn::{DType, Scalar, Tensor};

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, KEY, done, give};

pub const ROWS: &[Row] = &[
    row("arange", |c| {
        // `end`, or `start, end, step`; whole numbers where all of these are.
        let numbers = if c.has(1, "end") { vec![(0, "start"), (1, "end"), (2, "step")] } else { vec![(0, "end")] };
        let numbers = numbers.into_iter().map(|(at, name)| c.scalar_opt(at, name)).collect::<Answer<Vec<_>>>()?;
        let whole = numbers.iter().flatten().all(|number| matches!(number, Scalar::Int(_)));
        let dtype = c.dtype_or(KEY, "dtype", if whole { DType::I32 } else { DType::F32 })?;
        let value = |at: usize, default: f64| numbers.get(at).copied().flatten().map_or(default, Scalar::value);
        let (start, end) = if numbers.len() == 1 { (0.0, value(0, 0.0)) } else { (value(0, 0.0), value(1, 0.0)) };
        give(Tensor::arange_between(c.device(), start, end, value(2, 1.0), dtype))
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
