//! Functions of several tensors, element by element, broadcast.

use linn::Scalar;

use super::{Row, row};
use crate::golden_ops::call::{KEY, done, give};

pub const ROWS: &[Row] = &[
    row("add", |c| match c.scalar_opt(KEY, "alpha")? {
        Some(alpha) => give(c.input()?.add_scaled(&c.tensor(1, "other")?, alpha)),
        None => give(c.input()?.add(&c.tensor(1, "other")?)),
    })
    .broadcasts()
    .in_place(|c| done(c.input()?.add_(&c.tensor(1, "other")?, c.scalar_opt(KEY, "alpha")?.unwrap_or(Scalar::Int(1))))),
    row("div.no_rounding_mode", |c| give(c.input()?.div(&c.tensor(1, "other")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.div_(&c.tensor(1, "other")?))),
    row("eq", |c| give(c.input()?.eq(&c.tensor(1, "other")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.eq_(&c.tensor(1, "other")?))),
    row("ge", |c| give(c.input()?.ge(&c.tensor(1, "other")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.ge_(&c.tensor(1, "other")?))),
    row("gt", |c| give(c.input()?.gt(&c.tensor(1, "other")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.gt_(&c.tensor(1, "other")?))),
    row("le", |c| give(c.input()?.le(&c.tensor(1, "other")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.le_(&c.tensor(1, "other")?))),
    row("lt", |c| give(c.input()?.lt(&c.tensor(1, "other")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.lt_(&c.tensor(1, "other")?))),
    row("max.binary", |c| give(c.input()?.maximum(&c.tensor(1, "other")?))).called("maximum").broadcasts(),
    row("maximum", |c| give(c.input()?.maximum(&c.tensor(1, "other")?))).broadcasts(),
    row("min.binary", |c| give(c.input()?.minimum(&c.tensor(1, "other")?))).called("minimum").broadcasts(),
    row("minimum", |c| give(c.input()?.minimum(&c.tensor(1, "other")?))).broadcasts(),
    row("mul", |c| give(c.input()?.mul(&c.tensor(1, "other")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.mul_(&c.tensor(1, "other")?))),
    row("ne", |c| give(c.input()?.ne(&c.tensor(1, "other")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.ne_(&c.tensor(1, "other")?))),
    row("pow", |c| give(c.input()?.pow(&c.tensor(1, "exponent")?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.pow_(&c.tensor(1, "exponent")?))),
    row("sub", |c| match c.scalar_opt(KEY, "alpha")? {
        Some(alpha) => give(c.input()?.sub_scaled(&c.tensor(1, "other")?, alpha)),
        None => give(c.input()?.sub(&c.tensor(1, "other")?)),
    })
    .broadcasts()
    .in_place(|c| done(c.input()?.sub_(&c.tensor(1, "other")?, c.scalar_opt(KEY, "alpha")?.unwrap_or(Scalar::Int(1))))),
    row("true_divide", |c| give(c.input()?.div(&c.tensor(1, "other")?)))
        .called("div")
        .broadcasts()
        .in_place(|c| done(c.input()?.div_(&c.tensor(1, "other")?))),
    row("where", |c| give(c.input()?.where_(&c.tensor(1, "condition")?, &c.tensor(2, "other")?))).broadcasts(),
];
