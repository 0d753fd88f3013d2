//! What networks are made of.

use linn::Tensor;
use linn::autograd::{AttentionOptions, NormOptions};

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, KEY, give};
use crate::golden_ops::compare::Tolerance;
use crate::golden_ops::manifest::Arg;

pub const ROWS: &[Row] = &[
    row("nn.functional.batch_norm", |c| {
        let running = [c.tensor_opt(1, "running_mean")?, c.tensor_opt(2, "running_var")?];
        let learned = [c.tensor_opt(3, "weight")?, c.tensor_opt(4, "bias")?];
        let (training, momentum, eps) =
            (c.bool_or(5, "training", false)?, c.float_or(6, "momentum", 0.1)?, c.float_or(7, "eps", 1e-5)?);
        give(c.input()?.batch_norm(NormOptions { training, momentum, eps, ..norm_options(&running, &learned) }))
    }),
    row("nn.functional.group_norm", |c| {
        let (weight, bias, eps) = (c.tensor_opt(2, "weight")?, c.tensor_opt(3, "bias")?, c.float_or(4, "eps", 1e-5)?);
        give(c.input()?.group_norm(c.len(1, "num_groups")?, weight.as_ref(), bias.as_ref(), eps))
    }),
    row("nn.functional.instance_norm", |c| {
        let running = [c.tensor_opt(1, "running_mean")?, c.tensor_opt(2, "running_var")?];
        let learned = [c.tensor_opt(3, "weight")?, c.tensor_opt(4, "bias")?];
        let (training, momentum, eps) =
            (c.bool_or(5, "use_input_stats", true)?, c.float_or(6, "momentum", 0.1)?, c.float_or(7, "eps", 1e-5)?);
        give(c.input()?.instance_norm(NormOptions { training, momentum, eps, ..norm_options(&running, &learned) }))
    }),
    row("nn.functional.layer_norm", |c| {
        let (weight, bias, eps) = (c.tensor_opt(2, "weight")?, c.tensor_opt(3, "bias")?, c.float_or(4, "eps", 1e-5)?);
        give(c.input()?.layer_norm_over(&normalized_shape(c)?, weight.as_ref(), bias.as_ref(), eps))
    }),
    row("nn.functional.rms_norm", |c| {
        let (weight, eps) = (c.tensor_opt(2, "weight")?, c.float_opt(3, "eps")?);
        give(c.input()?.rms_norm(&normalized_shape(c)?, weight.as_ref(), eps))
    }),
    row("nn.functional.scaled_dot_product_attention", |c| {
        let mask = c.tensor_opt(3, "attn_mask")?;
        let options = AttentionOptions {
            attn_mask: mask.as_ref(),
            is_causal: c.bool_or(5, "is_causal", false)?,
            scale: c.float_opt(KEY, "scale")?,
            enable_gqa: c.bool_or(KEY, "enable_gqa", false)?,
            dropout_p: c.float_or(4, "dropout_p", 0.0)?,
        };
        give(c.input()?.scaled_dot_product_attention_with(&c.tensor(1, "key")?, &c.tensor(2, "value")?, options))
    })
    .draws(|case| matches!(case.kwargs.get("dropout_p"), Some(Arg::Float(p)) if *p > 0.0))
    .looser(
        Tolerance { abs: 2e-5, rel: 1e-4 },
        "where one key has all the probability the gradient is 0 (linn: 1e-32); PyTorch's own is off by 1e-5 there",
    ),
];

fn normalized_shape(c: &Call) -> Answer<Vec<usize>> {
    c.lens(1, "normalized_shape")
}

fn norm_options<'a>([mean, var]: &'a [Option<Tensor>; 2], [weight, bias]: &'a [Option<Tensor>; 2]) -> NormOptions<'a> {
    NormOptions {
        running_mean: mean.as_ref(),
        running_var: var.as_ref(),
        weight: weight.as_ref(),
        bias: bias.as_ref(),
        ..NormOptions::default()
    }
}
