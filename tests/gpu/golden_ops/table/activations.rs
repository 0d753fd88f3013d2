//! Activations.

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, KEY, done, give};

pub const ROWS: &[Row] = &[
    row("nn.functional.celu", |c| give(c.input()?.celu(c.float_or(1, "alpha", 1.0)?)))
        .in_place(|c| done(c.input()?.celu_(c.float_or(1, "alpha", 1.0)?))),
    row("nn.functional.elu", |c| give(c.input()?.elu(c.float_or(1, "alpha", 1.0)?)))
        .in_place(|c| done(c.input()?.elu_(c.float_or(1, "alpha", 1.0)?))),
    row("nn.functional.gelu", gelu),
    row("nn.functional.hardshrink", |c| give(c.input()?.hardshrink(c.float_or(1, "lambd", 0.5)?))),
    row("nn.functional.hardsigmoid", |c| give(c.input()?.hardsigmoid())).in_place(|c| done(c.input()?.hardsigmoid_())),
    row("nn.functional.hardswish", |c| give(c.input()?.hardswish())),
    row("nn.functional.hardtanh", |c| give(c.input()?.hardtanh(c.float_or(1, "min_val", -1.0)?, c.float_or(2, "max_val", 1.0)?))),
    row("nn.functional.leaky_relu", |c| give(c.input()?.leaky_relu(c.float_or(1, "negative_slope", 0.01)?)))
        .in_place(|c| done(c.input()?.leaky_relu_(c.float_or(1, "negative_slope", 0.01)?))),
    row("nn.functional.logsigmoid", |c| give(c.input()?.logsigmoid())),
    row("nn.functional.mish", |c| give(c.input()?.mish())).in_place(|c| done(c.input()?.mish_())),
    row("nn.functional.prelu", |c| give(c.input()?.prelu(&c.tensor(1, "weight")?))),
    row("nn.functional.relu6", |c| give(c.input()?.relu6())),
    row("nn.functional.selu", |c| give(c.input()?.selu())).in_place(|c| done(c.input()?.selu_())),
    row("nn.functional.silu", |c| give(c.input()?.silu())).in_place(|c| done(c.input()?.silu_())),
    row("nn.functional.softplus", |c| give(c.input()?.softplus(c.float_or(1, "beta", 1.0)?, c.float_or(2, "threshold", 20.0)?))),
    row("nn.functional.softshrink", |c| give(c.input()?.softshrink(c.float_or(1, "lambd", 0.5)?))),
    row("nn.functional.softsign", |c| give(c.input()?.softsign())),
    row("nn.functional.tanhshrink", |c| give(c.input()?.tanhshrink())),
    row("nn.functional.threshold", |c| give(c.input()?.threshold(c.float(1, "threshold")?, c.float(2, "value")?)))
        .in_place(|c| done(c.input()?.threshold_(c.float(1, "threshold")?, c.float(2, "value")?))),
];

fn gelu(c: &Call) -> Answer {
    give(c.input()?.gelu_with(c.text_or(KEY, "approximate", "none")?.parse()?))
}
