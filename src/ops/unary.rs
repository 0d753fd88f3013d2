//! Element-wise functions of one tensor. Results are contiguous; NaN goes through unless a line says otherwise.

use crate::error::Result;
use crate::kernel::Kernel;
use crate::ops::elementwise::{map, run, scalar_bits};
use crate::tensor::Tensor;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor) -> Result<Tensor> {
            map(stringify!($name), Kernel::$name, x, [0; 2])
        }
    )*};
}

unary! {
    /// -x; f32 and i32.
    neg;
    /// e^x.
    exp;
    /// Natural logarithm; -inf at 0, NaN below.
    log;
    /// Square root; NaN below 0.
    sqrt;
    /// 1 / square root.
    rsqrt;
    /// Sine of radians; NaN for infinities.
    sin;
    /// Cosine of radians; NaN for infinities.
    cos;
    /// Hyperbolic tangent.
    tanh;
    /// 1 / (1 + e^-x).
    sigmoid;
    /// max(x, 0).
    relu;
    /// x Phi(x) with the exact Phi (erf), PyTorch's default.
    gelu;
    /// Error function.
    erf;
    /// |x|; f32 and i32.
    abs;
    /// x x.
    square;
    /// 1 / x.
    reciprocal;
    /// -1, 0 or 1; 0 for NaN; f32 and i32.
    sign;
}

/// dx = dout * gelu'(x).
#[track_caller]
pub fn gelu_backward(x: &Tensor, dout: &Tensor) -> Result<Tensor> {
    crate::ops::binary::zip("gelu_backward", Kernel::gelu_backward, x, dout, [0; 2])
}

/// dx = 0 where y = relu(x) is 0, else dout, also where y is NaN.
#[track_caller]
pub fn relu_backward(y: &Tensor, dout: &Tensor) -> Result<Tensor> {
    crate::ops::binary::zip("relu_backward", Kernel::relu_backward, y, dout, [0; 2])
}

/// dx = dout (1 - y y) with y = tanh(x).
#[track_caller]
pub fn tanh_backward(y: &Tensor, dout: &Tensor) -> Result<Tensor> {
    crate::ops::binary::zip("tanh_backward", Kernel::tanh_backward, y, dout, [0; 2])
}

/// dx = dout y (1 - y) with y = sigmoid(x).
#[track_caller]
pub fn sigmoid_backward(y: &Tensor, dout: &Tensor) -> Result<Tensor> {
    crate::ops::binary::zip("sigmoid_backward", Kernel::sigmoid_backward, y, dout, [0; 2])
}

/// x + scalar.
#[track_caller]
pub fn add_scalar(x: &Tensor, scalar: f64) -> Result<Tensor> {
    with_scalar("add_scalar", Kernel::add_scalar, x, scalar)
}

/// x * scalar.
#[track_caller]
pub fn mul_scalar(x: &Tensor, scalar: f64) -> Result<Tensor> {
    with_scalar("mul_scalar", Kernel::mul_scalar, x, scalar)
}

/// scalar - x.
#[track_caller]
pub fn rsub_scalar(x: &Tensor, scalar: f64) -> Result<Tensor> {
    with_scalar("rsub_scalar", Kernel::rsub_scalar, x, scalar)
}

/// scalar / x.
#[track_caller]
pub fn rdiv_scalar(x: &Tensor, scalar: f64) -> Result<Tensor> {
    with_scalar("rdiv_scalar", Kernel::rdiv_scalar, x, scalar)
}

/// x ^ scalar; whole exponents up to 64 by multiplication.
#[track_caller]
pub fn pow_scalar(x: &Tensor, scalar: f64) -> Result<Tensor> {
    with_scalar("pow_scalar", Kernel::pow_scalar, x, scalar)
}

/// min(max(x, low), high).
#[track_caller]
pub fn clamp(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    let scalars = [scalar_bits("clamp", low, x.dtype())?, scalar_bits("clamp", high, x.dtype())?];
    map("clamp", if x.dtype().is_float() { Kernel::clamp } else { Kernel::clamp_integer }, x, scalars)
}

/// x = x * scalar, in place, through views.
#[track_caller]
pub fn mul_scalar_(x: &Tensor, scalar: f64) -> Result<()> {
    run("mul_scalar_", Kernel::mul_scalar, x.dtype(), [x, x], [scalar_bits("mul_scalar_", scalar, x.dtype())?, 0])
}

/// x = x + scalar, in place, through views.
#[track_caller]
pub fn add_scalar_(x: &Tensor, scalar: f64) -> Result<()> {
    run("add_scalar_", Kernel::add_scalar, x.dtype(), [x, x], [scalar_bits("add_scalar_", scalar, x.dtype())?, 0])
}

#[track_caller]
fn with_scalar(op: &'static str, kernel: Kernel, x: &Tensor, scalar: f64) -> Result<Tensor> {
    map(op, kernel, x, [scalar_bits(op, scalar, x.dtype())?, 0])
}
