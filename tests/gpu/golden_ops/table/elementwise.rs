//! Functions of one, two and three tensors beyond arithmetic, element by element.

use linn::Scalar;

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, KEY, done, give};

/// A method of the input, and its in-place form.
macro_rules! one {
    ($name:literal, $method:ident $(, $in_place:ident)?) => {
        row($name, |c| give(c.input()?.$method()))$(.in_place(|c| done(c.input()?.$in_place())))?
    };
}

/// A method of the input and `other`, and its in-place form.
macro_rules! two {
    ($name:literal, $method:ident $(, $in_place:ident)?) => {
        row($name, |c| give(c.input()?.$method(&c.tensor(1, "other")?)))
            .broadcasts()
            $(.in_place(|c| done(c.input()?.$in_place(&c.tensor(1, "other")?))))?
    };
}

pub const ROWS: &[Row] = &[
    one!("acos", acos, acos_),
    one!("acosh", acosh, acosh_),
    one!("asin", asin, asin_),
    one!("asinh", asinh, asinh_),
    one!("atan", atan, atan_),
    one!("atanh", atanh, atanh_),
    one!("ceil", ceil, ceil_),
    one!("cosh", cosh, cosh_),
    one!("deg2rad", deg2rad, deg2rad_),
    one!("erfc", erfc, erfc_),
    one!("erfinv", erfinv, erfinv_),
    one!("exp2", exp2, exp2_),
    one!("expm1", expm1, expm1_),
    one!("floor", floor, floor_),
    one!("frac", frac, frac_),
    one!("isfinite", isfinite),
    one!("isinf", isinf),
    one!("isnan", isnan),
    one!("log10", log10, log10_),
    one!("log1p", log1p, log1p_),
    one!("log2", log2, log2_),
    one!("logical_not", logical_not, logical_not_),
    one!("positive", positive),
    one!("rad2deg", rad2deg, rad2deg_),
    one!("round", round, round_),
    one!("sgn", sign, sign_).called("sign"),
    one!("signbit", signbit),
    one!("sinc", sinc, sinc_),
    one!("sinh", sinh, sinh_),
    one!("tan", tan, tan_),
    one!("trunc", trunc, trunc_),
    row("nan_to_num", |c| {
        give(c.input()?.nan_to_num(c.float_opt(1, "nan")?, c.float_opt(2, "posinf")?, c.float_opt(3, "neginf")?))
    })
    .in_place(|c| done(c.input()?.nan_to_num_(c.float_opt(1, "nan")?, c.float_opt(2, "posinf")?, c.float_opt(3, "neginf")?))),
    row("round.decimals_0", decimals).in_place(decimals_).called("round_decimals"),
    row("round.decimals_3", decimals).in_place(decimals_).called("round_decimals"),
    row("round.decimals_neg_3", decimals).in_place(decimals_).called("round_decimals"),
    two!("atan2", atan2, atan2_),
    two!("copysign", copysign, copysign_),
    row("div.floor_rounding", |c| mode(c, "floor").and(give(c.input()?.div_floor(&c.tensor(1, "other")?))))
        .called("div_floor")
        .broadcasts()
        .in_place(|c| mode(c, "floor").and(done(c.input()?.div_floor_(&c.tensor(1, "other")?)))),
    row("div.trunc_rounding", |c| mode(c, "trunc").and(give(c.input()?.div_trunc(&c.tensor(1, "other")?))))
        .called("div_trunc")
        .broadcasts()
        .in_place(|c| mode(c, "trunc").and(done(c.input()?.div_trunc_(&c.tensor(1, "other")?)))),
    two!("floor_divide", div_floor, div_floor_).called("div_floor"),
    two!("fmax", fmax),
    two!("fmin", fmin),
    two!("fmod", fmod, fmod_),
    two!("heaviside", heaviside, heaviside_),
    two!("hypot", hypot, hypot_),
    two!("logaddexp", logaddexp),
    two!("logical_and", logical_and, logical_and_),
    two!("logical_or", logical_or, logical_or_),
    two!("logical_xor", logical_xor, logical_xor_),
    two!("remainder", remainder, remainder_),
    two!("xlogy", xlogy, xlogy_),
    row("rsub", |c| give(c.input()?.rsub(&c.tensor(1, "other")?, c.scalar_opt(2, "alpha")?.unwrap_or(Scalar::Int(1)))))
        .broadcasts(),
    row("isclose", |c| {
        let (rtol, atol) = (c.float_or(2, "rtol", 1e-5)?, c.float_or(3, "atol", 1e-8)?);
        give(c.input()?.isclose(&c.tensor(1, "other")?, rtol, atol, c.bool_or(4, "equal_nan", false)?))
    })
    .broadcasts(),
    row("clamp", |c| {
        let (low, high) = (c.tensor_opt(1, "min")?, c.tensor_opt(2, "max")?);
        give(c.input()?.clamp_tensor(low.as_ref(), high.as_ref()))
    })
    .called("clamp_tensor")
    .broadcasts()
    .in_place(|c| {
        let (low, high) = (c.tensor_opt(1, "min")?, c.tensor_opt(2, "max")?);
        done(c.input()?.clamp_tensor_(low.as_ref(), high.as_ref()))
    }),
    row("clamp_max", |c| give(c.input()?.clamp_tensor(None, Some(&c.tensor(1, "max")?))))
        .called("clamp_tensor")
        .broadcasts()
        .in_place(|c| done(c.input()?.clamp_tensor_(None, Some(&c.tensor(1, "max")?)))),
    row("clamp_min", |c| give(c.input()?.clamp_tensor(Some(&c.tensor(1, "min")?), None)))
        .called("clamp_tensor")
        .broadcasts()
        .in_place(|c| done(c.input()?.clamp_tensor_(Some(&c.tensor(1, "min")?), None))),
    row("addcdiv", |c| {
        give(c.input()?.addcdiv(&c.tensor(1, "tensor1")?, &c.tensor(2, "tensor2")?, c.float_or(KEY, "value", 1.0)?))
    })
    .broadcasts()
    .in_place(|c| done(c.input()?.addcdiv_(&c.tensor(1, "tensor1")?, &c.tensor(2, "tensor2")?, c.float_or(KEY, "value", 1.0)?))),
    row("addcmul", |c| {
        give(c.input()?.addcmul(&c.tensor(1, "tensor1")?, &c.tensor(2, "tensor2")?, c.float_or(KEY, "value", 1.0)?))
    })
    .broadcasts()
    .in_place(|c| done(c.input()?.addcmul_(&c.tensor(1, "tensor1")?, &c.tensor(2, "tensor2")?, c.float_or(KEY, "value", 1.0)?))),
];

fn decimals(c: &Call) -> Answer {
    give(c.input()?.round_decimals(c.int_or(KEY, "decimals", 0)? as i32))
}

fn decimals_(c: &Call) -> Answer<()> {
    done(c.input()?.round_decimals_(c.int_or(KEY, "decimals", 0)? as i32))
}

/// `rounding_mode`, which names the row.
fn mode(c: &Call, want: &str) -> Answer<()> {
    match c.text_or(KEY, "rounding_mode", "")? {
        mode if mode == want => Ok(()),
        other => Err(Fault::Row(format!("rounding_mode {other}"))),
    }
}
