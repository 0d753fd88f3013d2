//! Functions of one tensor, element by element.

use super::{Row, row};
use crate::golden_ops::call::{done, give};

pub const ROWS: &[Row] = &[
    row("abs", |c| give(c.input()?.abs())).in_place(|c| done(c.input()?.abs_())),
    row("cos", |c| give(c.input()?.cos())).in_place(|c| done(c.input()?.cos_())),
    row("erf", |c| give(c.input()?.erf())).in_place(|c| done(c.input()?.erf_())),
    row("exp", |c| give(c.input()?.exp())).in_place(|c| done(c.input()?.exp_())),
    row("log", |c| give(c.input()?.log())).in_place(|c| done(c.input()?.log_())),
    row("neg", |c| give(c.input()?.neg())).in_place(|c| done(c.input()?.neg_())),
    row("nn.functional.relu", |c| give(c.input()?.relu())),
    row("reciprocal", |c| give(c.input()?.reciprocal())).in_place(|c| done(c.input()?.reciprocal_())),
    row("rsqrt", |c| give(c.input()?.rsqrt())).in_place(|c| done(c.input()?.rsqrt_())),
    row("sigmoid", |c| give(c.input()?.sigmoid())).in_place(|c| done(c.input()?.sigmoid_())),
    row("sign", |c| give(c.input()?.sign())).in_place(|c| done(c.input()?.sign_())),
    row("sin", |c| give(c.input()?.sin())).in_place(|c| done(c.input()?.sin_())),
    row("sqrt", |c| give(c.input()?.sqrt())).in_place(|c| done(c.input()?.sqrt_())),
    row("square", |c| give(c.input()?.square())).in_place(|c| done(c.input()?.square_())),
    row("tanh", |c| give(c.input()?.tanh())).in_place(|c| done(c.input()?.tanh_())),
];
