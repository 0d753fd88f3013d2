//! Losses.

use linn::Tensor;
use linn::autograd::{ClassOptions, Reduction};

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, KEY, give};

pub const ROWS: &[Row] = &[
    row("nn.functional.binary_cross_entropy", |c| {
        let weight = c.tensor_opt(2, "weight")?;
        let reduction = reduction(c, KEY, "binary_cross_entropy")?;
        give(c.input()?.binary_cross_entropy(&target(c)?, weight.as_ref(), reduction))
    }),
    row("nn.functional.binary_cross_entropy_with_logits", |c| {
        let (weight, pos_weight) = (c.tensor_opt(2, "weight")?, c.tensor_opt(KEY, "pos_weight")?);
        let reduction = reduction(c, KEY, "binary_cross_entropy_with_logits")?;
        give(c.input()?.binary_cross_entropy_with_logits(&target(c)?, weight.as_ref(), pos_weight.as_ref(), reduction))
    }),
    row("nn.functional.cross_entropy", |c| of_classes(c, "cross_entropy", Tensor::cross_entropy_with)),
    row("nn.functional.huber_loss", |c| {
        let (x, target, delta) = (c.input()?, target(c)?, c.float_or(3, "delta", 1.0)?);
        give(x.huber_loss(&target, delta, reduction(c, 2, "huber_loss")?))
    }),
    row("nn.functional.kl_div", |c| {
        let reduction = reduction(c, KEY, "kl_div")?;
        give(c.input()?.kl_div(&target(c)?, c.bool_or(KEY, "log_target", false)?, reduction))
    }),
    row("nn.functional.l1_loss", |c| give(c.input()?.l1_loss(&target(c)?, reduction(c, KEY, "l1_loss")?))),
    row("nn.functional.mse_loss", |c| give(c.input()?.mse_loss(&target(c)?, reduction(c, KEY, "mse_loss")?))),
    row("nn.functional.nll_loss", |c| of_classes(c, "nll_loss", Tensor::nll_loss)),
    row("nn.functional.smooth_l1_loss", |c| {
        let reduction = reduction(c, KEY, "smooth_l1_loss")?;
        give(c.input()?.smooth_l1_loss(&target(c)?, c.float_or(KEY, "beta", 1.0)?, reduction))
    }),
];

fn target(c: &Call) -> Answer<Tensor> {
    c.tensor(1, "target")
}

fn reduction(c: &Call, at: usize, op: &'static str) -> Answer<Reduction> {
    Ok(Reduction::parse(op, c.text_or(at, "reduction", "mean")?)?)
}

/// `input, target, *, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0`.
fn of_classes(c: &Call, op: &'static str, of: fn(&Tensor, &Tensor, ClassOptions<'_>) -> linn::Result<Tensor>) -> Answer {
    let weight = c.tensor_opt(KEY, "weight")?;
    let options = ClassOptions {
        weight: weight.as_ref(),
        ignore_index: c.int_opt(KEY, "ignore_index")?.map(|index| index as i32),
        reduction: reduction(c, KEY, op)?,
        label_smoothing: c.float_or(KEY, "label_smoothing", 0.0)?,
    };
    give(of(&c.input()?, &target(c)?, options))
}
