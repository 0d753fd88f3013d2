//! Element-wise functions of one tensor.

use crate::error::Result;
use crate::ops::binary::{div, eq, mul, where_scalar};
use crate::ops::copy::full;
use crate::ops::unary::*;
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

fn one_minus(x: &Tensor) -> Result<Tensor> {
    add_scalar(&neg(x)?, 1.0)
}
