//! Reading and writing by positions.

use super::{Row, row};
use crate::golden_ops::call::give;

pub const ROWS: &[Row] = &[
    row("gather", |c| give(c.input()?.gather(c.int(1, "dim")?, &c.tensor(2, "index")?))),
    row("nn.functional.embedding", |c| give(c.input()?.embedding(&c.tensor(1, "indices")?))),
];
