//! Products of matrices and vectors.

use super::{Row, row};
use crate::golden_ops::call::give;

pub const ROWS: &[Row] = &[
    row("matmul", |c| give(c.input()?.matmul(&c.tensor(1, "other")?))),
    row("nn.functional.linear", |c| give(c.input()?.linear(&c.tensor(1, "weight")?, c.tensor_opt(2, "bias")?.as_ref()))),
];
