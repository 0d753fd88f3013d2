//! Sums, extremes and their positions, moments and norms.

use linn::Tensor;
use linn::ops::reduce::KeepDim;

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, KEY, give};
use crate::golden_ops::compare::Tolerance;

pub const ROWS: &[Row] = &[
    row("all", |c| over_dims(c, Tensor::all)),
    row("amax", |c| over_dims(c, Tensor::amax)),
    row("amin", |c| over_dims(c, Tensor::amin)),
    row("aminmax", |c| give(c.input()?.aminmax(c.int_opt(KEY, "dim")?, keep(c, KEY)?))),
    row("any", |c| over_dims(c, Tensor::any)),
    row("argmax", |c| give(c.input()?.argmax(c.int_opt(1, "dim")?, keep(c, 2)?))),
    row("argmin", |c| give(c.input()?.argmin(c.int_opt(1, "dim")?, keep(c, 2)?))),
    row("cdist", |c| {
        // How the Euclidean distance is computed is left open.
        c.text_or(3, "compute_mode", "")?;
        give(c.input()?.cdist(&c.tensor(1, "x2")?, c.float_or(2, "p", 2.0)?))
    })
    .looser(
        Tolerance { abs: 1e-4, rel: 1e-4 },
        "PyTorch's use_mm_for_euclid_dist takes differences of squares: its gradients are off by 3e-5 where linn's are by 2e-7",
    ),
    row("count_nonzero", |c| give(c.input()?.count_nonzero(&c.ints_opt(1, "dim")?.unwrap_or_default()))),
    row("dist", |c| give(c.input()?.dist(&c.tensor(1, "other")?, c.float_or(2, "p", 2.0)?))),
    row("log_softmax", |c| give(in_dtype(c, KEY)?.log_softmax(c.int(1, "dim")?))),
    row("logsumexp", |c| give(c.input()?.logsumexp(&c.ints(1, "dim")?, keep(c, 2)?))),
    row("max.reduction_no_dim", |c| give(c.input()?.amax(&[], KeepDim::Drop))),
    row("max.reduction_with_dim", |c| give(c.input()?.max(c.int(1, "dim")?, keep(c, 2)?))),
    row("mean", |c| over_dims(c, Tensor::mean)),
    row("min.reduction_no_dim", |c| give(c.input()?.amin(&[], KeepDim::Drop))),
    row("min.reduction_with_dim", |c| give(c.input()?.min(c.int(1, "dim")?, keep(c, 2)?))),
    row("nanmean", |c| over_dims(c, Tensor::nanmean)),
    row("nansum", |c| over_dims(c, Tensor::nansum)),
    row("nn.functional.cosine_similarity", |c| {
        give(c.input()?.cosine_similarity(&c.tensor(1, "x2")?, c.int_or(2, "dim", 1)?, c.float_or(3, "eps", 1e-8)?))
    }),
    row("nn.functional.normalize", |c| {
        give(c.input()?.normalize(c.float_or(1, "p", 2.0)?, c.int_or(2, "dim", 1)?, c.float_or(3, "eps", 1e-12)?))
    }),
    row("nn.functional.softmin", |c| give(in_dtype(c, KEY)?.softmin(c.int(1, "dim")?))),
    row("norm", norm),
    row("norm.fro", norm),
    row("norm.inf", norm),
    row("norm.nuc", |c| match c.text_or(1, "p", "")? {
        "nuc" => give(c.input()?.norm_nuclear(&c.ints_opt(2, "dim")?.unwrap_or_default(), keep(c, 3)?)),
        other => Err(Fault::Row(format!("p {other}"))),
    }),
    row("prod", prod),
    row("softmax", |c| give(in_dtype(c, KEY)?.softmax(c.int(1, "dim")?))),
    row("std", |c| with_correction(c, Tensor::std)),
    row("std.unbiased", |c| unbiased(c, Tensor::std)),
    row("std_mean", |c| with_correction(c, Tensor::std_mean)),
    row("std_mean.unbiased", |c| unbiased(c, Tensor::std_mean)),
    row("sum", |c| over_dims(c, Tensor::sum)),
    row("trace", |c| give(c.input()?.trace())),
    row("var", |c| with_correction(c, Tensor::var)),
    row("var.unbiased", |c| unbiased(c, Tensor::var)),
    row("var_mean", |c| with_correction(c, Tensor::var_mean)),
    row("var_mean.unbiased", |c| unbiased(c, Tensor::var_mean)),
];

fn keep(c: &Call, at: usize) -> Answer<KeepDim> {
    Ok(if c.bool_or(at, "keepdim", false)? { KeepDim::Keep } else { KeepDim::Drop })
}

/// The input in `dtype`, which linn says with `to_dtype`.
fn in_dtype(c: &Call, at: usize) -> Answer<Tensor> {
    let x = c.input()?;
    Ok(x.to_dtype(c.dtype_or(at, "dtype", x.dtype())?)?)
}

/// `input, dim=(), keepdim=False, *, dtype=None`.
fn over_dims(c: &Call, reduce: fn(&Tensor, &[isize], KeepDim) -> linn::Result<Tensor>) -> Answer {
    give(reduce(&in_dtype(c, KEY)?, &c.ints_opt(1, "dim")?.unwrap_or_default(), keep(c, 2)?))
}

/// `input, dim=None, keepdim=False, *, dtype=None`: one dimension or all.
fn prod(c: &Call) -> Answer {
    give(in_dtype(c, KEY)?.prod(c.int_opt(1, "dim")?.as_slice(), keep(c, 2)?))
}

type Moments<T> = fn(&Tensor, &[isize], f64, KeepDim) -> linn::Result<T>;

/// `input, dim=None, *, correction=1, keepdim=False`, or `input, dim, unbiased, keepdim`.
fn with_correction<T: crate::golden_ops::call::Gives>(c: &Call, of: Moments<T>) -> Answer {
    let dims = c.ints_opt(1, "dim")?.unwrap_or_default();
    let correction = match c.has(2, "unbiased") {
        true => f64::from(u8::from(c.bool_or(2, "unbiased", true)?)),
        false => c.float_or(KEY, "correction", 1.0)?,
    };
    give(of(&c.input()?, &dims, correction, keep(c, 3)?))
}

/// `input, unbiased`.
fn unbiased<T: crate::golden_ops::call::Gives>(c: &Call, of: Moments<T>) -> Answer {
    give(of(&c.input()?, &[], f64::from(u8::from(c.bool_or(1, "unbiased", true)?)), KeepDim::Drop))
}

/// `input, p="fro", dim=None, keepdim=False, dtype=None`; "fro" is 2.
fn norm(c: &Call) -> Answer {
    let p = if c.is_text(1, "p") && c.text_or(1, "p", "fro")? == "fro" { 2.0 } else { c.float_or(1, "p", 2.0)? };
    give(in_dtype(c, 4)?.norm(p, &c.ints_opt(2, "dim")?.unwrap_or_default(), keep(c, 3)?))
}
