//! Element-wise functions of one tensor. Halves are rounded after every step, but where steps cancel.

use crate::autograd::halves::rounded_once;
use crate::error::Result;
use crate::ops::binary::{div, eq, gt, logical_and, lt, mul, sub, where_scalar};
use crate::ops::copy::full;
use crate::ops::unary::{add_scalar, cos, cosh, mul_scalar, neg, pow_scalar, sign, sinc, sinh, square};
use crate::tensor::Tensor;

/// y = log x: dx = g / x
pub(crate) fn log(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    div(g, x)
}

/// y = sqrt x: dx = g / (2 y)
pub(crate) fn sqrt(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul_scalar(&div(g, y)?, 0.5)
}

/// y = x^(-1/2): dx = -g y^3 / 2
pub(crate) fn rsqrt(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul_scalar(&mul(g, &mul(&square(y)?, y)?)?, -0.5)
}

/// y = exp x: dx = g y
pub(crate) fn exp(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, y)
}

/// y = sin x: dx = g cos x
pub(crate) fn sin(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &cos(x)?)
}

/// y = cos x: dx = -g sin x
pub(crate) fn cos_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    neg(&mul(g, &crate::ops::unary::sin(x)?)?)
}

/// y = tanh x: dx = g (1 - y^2)
pub(crate) fn tanh(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &one_minus(&square(y)?)?)
}

/// y = 1 / (1 + exp(-x)): dx = g y (1 - y)
pub(crate) fn sigmoid(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &mul(y, &one_minus(y)?)?)
}

/// y = erf x: dx = g 2/sqrt(pi) exp(-x^2)
pub(crate) fn erf(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    let bell = crate::ops::unary::exp(&neg(&square(x)?)?)?;
    mul_scalar(&mul(g, &bell)?, std::f64::consts::FRAC_2_SQRT_PI)
}

/// y = |x|: dx = g sign x
pub(crate) fn abs(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &sign(x)?)
}

/// y = x^2: dx = 2 g x
pub(crate) fn square_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul_scalar(&mul(g, x)?, 2.0)
}

/// y = 1 / x: dx = -g y^2
pub(crate) fn reciprocal(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    neg(&mul(g, &square(y)?)?)
}

/// y = x^p: dx = g p x^(p - 1); 0 for p = 0, also where x is 0
pub(crate) fn pow_scalar_rule(x: &Tensor, p: f64, g: &Tensor) -> Result<Tensor> {
    if p == 0.0 {
        return full(x.device(), x.shape(), 0.0, x.dtype());
    }
    mul_scalar(&mul(g, &pow_scalar(x, p - 1.0)?)?, p)
}

/// y = min(max(x, low), high): dx = g where x was inside (y = x), else 0
pub(crate) fn clamp(x: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    where_scalar(&eq(x, y)?, g, 0.0)
}

/// No gradient: 0 everywhere.
pub(crate) fn nothing(_: &Tensor, g: &Tensor) -> Result<Tensor> {
    full(g.device(), g.shape(), 0.0, g.dtype())
}

/// y = 2^x: dx = g y log 2
pub(crate) fn exp2_rule(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul_scalar(&mul(g, y)?, std::f64::consts::LN_2)
}

/// y = e^x - 1: dx = g (y + 1)
pub(crate) fn expm1_rule(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &add_scalar(y, 1.0)?)
}

/// y = log(1 + x): dx = g / (1 + x)
pub(crate) fn log1p_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    div(g, &add_scalar(x, 1.0)?)
}

/// y = log2 x: dx = g / (x log 2)
pub(crate) fn log2_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul_scalar(&div(g, x)?, std::f64::consts::LOG2_E)
}

/// y = log10 x: dx = g / (x log 10)
pub(crate) fn log10_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul_scalar(&div(g, x)?, std::f64::consts::LOG10_E)
}

/// y = tan x: dx = g (1 + y^2)
pub(crate) fn tan_rule(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &add_scalar(&square(y)?, 1.0)?)
}

/// y = asin x: dx = g / sqrt(1 - x^2)
pub(crate) fn asin_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    rounded_once("asin", [x, g], |[x, g]| mul(g, &crate::ops::unary::rsqrt(&one_minus(&square(x)?)?)?))
}

/// y = acos x: dx = -g / sqrt(1 - x^2)
pub(crate) fn acos_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    neg(&asin_rule(x, g)?)
}

/// y = atan x: dx = g / (1 + x^2)
pub(crate) fn atan_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    div(g, &add_scalar(&square(x)?, 1.0)?)
}

/// y = sinh x: dx = g cosh x
pub(crate) fn sinh_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &cosh(x)?)
}

/// y = cosh x: dx = g sinh x
pub(crate) fn cosh_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &sinh(x)?)
}

/// y = asinh x: dx = g / sqrt(x^2 + 1)
pub(crate) fn asinh_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &crate::ops::unary::rsqrt(&add_scalar(&square(x)?, 1.0)?)?)
}

/// y = acosh x: dx = g / sqrt(x^2 - 1)
pub(crate) fn acosh_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    rounded_once("acosh", [x, g], |[x, g]| mul(g, &crate::ops::unary::rsqrt(&add_scalar(&square(x)?, -1.0)?)?))
}

/// y = atanh x: dx = g / (1 - x^2)
pub(crate) fn atanh_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    rounded_once("atanh", [x, g], |[x, g]| div(g, &one_minus(&square(x)?)?))
}

/// y = sin(pi x) / (pi x): dx = g (cos(pi x) - y) / x, 0 at 0
pub(crate) fn sinc_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    rounded_once("sinc", [x, g], |[x, g]| {
        let cosine = cos(&mul_scalar(x, std::f64::consts::PI)?)?;
        let slope = div(&sub(&cosine, &sinc(x)?)?, x)?;
        mul(g, &where_scalar(x, &slope, 0.0)?)
    })
}

/// y = 1 - erf x: dx = -g 2/sqrt(pi) exp(-x^2)
pub(crate) fn erfc_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    neg(&erf(x, g)?)
}

/// y = log(sigmoid x): dx = g sigmoid(-x)
pub(crate) fn logsigmoid_rule(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    mul(g, &crate::ops::unary::sigmoid(&neg(x)?)?)
}

/// y = erfinv x: dx = g sqrt(pi)/2 exp(y^2)
pub(crate) fn erfinv_rule(y: &Tensor, g: &Tensor) -> Result<Tensor> {
    let bell = crate::ops::unary::exp(&square(y)?)?;
    mul_scalar(&mul(g, &bell)?, 1.0 / std::f64::consts::FRAC_2_SQRT_PI)
}

/// y = min(max(x, low), high): dx = g strictly between the bounds, else 0
pub(crate) fn hardtanh(x: &Tensor, low: f64, high: f64, g: &Tensor) -> Result<Tensor> {
    let bound = |value: f64| full(x.device(), &[], value, x.dtype());
    let inside = logical_and(&gt(x, &bound(low)?)?, &lt(x, &bound(high)?)?)?;
    where_scalar(&inside, g, 0.0)
}

fn one_minus(x: &Tensor) -> Result<Tensor> {
    add_scalar(&neg(x)?, 1.0)
}
