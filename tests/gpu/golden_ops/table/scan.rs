//! Running sums and extremes, differences of neighbours.

use linn::Tensor;

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, KEY, done, give};
use crate::golden_ops::compare::Tolerance;

pub const ROWS: &[Row] = &[
    row("cummax", |c| give(c.input()?.cummax(c.int(1, "dim")?))),
    row("cummin", |c| give(c.input()?.cummin(c.int(1, "dim")?))),
    row("cumprod", |c| give(in_dtype(c)?.cumprod(c.int(1, "dim")?))).in_place(|c| done(in_dtype(c)?.cumprod_(c.int(1, "dim")?))),
    row("cumsum", |c| give(in_dtype(c)?.cumsum(c.int(1, "dim")?))).in_place(|c| done(in_dtype(c)?.cumsum_(c.int(1, "dim")?))),
    row("diff", diff),
    row("logcumsumexp", |c| give(c.input()?.logcumsumexp(c.int(1, "dim")?))).looser(
        Tolerance { abs: 4e-3, rel: 1e-3 },
        "inputs reach 10,000, where neighbouring numbers of f32 are 1e-3 apart: PyTorch's own gradients are off by 2e-3",
    ),
    row("trapezoid", trapezoid),
];

/// The input in `dtype`, which linn says with `to_dtype`.
fn in_dtype(c: &Call) -> Answer<Tensor> {
    let x = c.input()?;
    Ok(x.to_dtype(c.dtype_or(KEY, "dtype", x.dtype())?)?)
}

/// `input, n=1, dim=-1, prepend=None, append=None`.
fn diff(c: &Call) -> Answer {
    let (n, dim) = (c.int_or(1, "n", 1)?, c.int_or(2, "dim", -1)?);
    let (prepend, append) = (c.tensor_opt(3, "prepend")?, c.tensor_opt(4, "append")?);
    give(c.input()?.diff(n, dim, prepend.as_ref(), append.as_ref()))
}

/// `y, x, *, dim=-1`, or `y, *, dx=1, dim=-1`.
fn trapezoid(c: &Call) -> Answer {
    let (y, dim) = (c.tensor(0, "y")?, c.int_or(KEY, "dim", -1)?);
    match (c.tensor_opt(1, "x")?, c.has(KEY, "dx")) {
        (Some(_), true) => Err(Fault::Row("x and dx".to_string())),
        (Some(x), false) => give(y.trapezoid_at(&x, dim)),
        (None, _) => give(y.trapezoid(c.float_or(KEY, "dx", 1.0)?, dim)),
    }
}
