//! Functions of one tensor, element by element.

use super::{Row, row};
use crate::golden_ops::call::give;

pub const ROWS: &[Row] = &[
    row("abs", |c| give(c.input()?.abs())),
    row("cos", |c| give(c.input()?.cos())),
    row("erf", |c| give(c.input()?.erf())),
    row("exp", |c| give(c.input()?.exp())),
    row("log", |c| give(c.input()?.log())),
    row("neg", |c| give(c.input()?.neg())),
    row("nn.functional.relu", |c| give(c.input()?.relu())),
    row("reciprocal", |c| give(c.input()?.reciprocal())),
    row("rsqrt", |c| give(c.input()?.rsqrt())),
    row("sigmoid", |c| give(c.input()?.sigmoid())),
    row("sign", |c| give(c.input()?.sign())),
    row("sin", |c| give(c.input()?.sin())),
    row("sqrt", |c| give(c.input()?.sqrt())),
    row("square", |c| give(c.input()?.square())),
    row("tanh", |c| give(c.input()?.tanh())),
];
