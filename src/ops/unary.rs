//! Element-wise functions of one tensor.
use crate::error::Result;
use crate::tensor::Tensor;

macro_rules! unary { ($($name:ident),*) => { $(
    /// out = f(x), any layout; the result is contiguous.
    #[track_caller]
    pub fn $name(x: &Tensor) -> Result<Tensor> { let _ = x; todo!() }
)* } }
unary!(neg, exp, log, sqrt, rsqrt, sin, cos, tanh, sigmoid, relu, gelu, erf, abs, square, reciprocal, sign);

/// dx = dout * gelu'(x).
#[track_caller]
pub fn gelu_backward(x: &Tensor, dout: &Tensor) -> Result<Tensor> {
    let _ = (x, dout);
    todo!()
}
/// out = x + scalar.
#[track_caller]
pub fn add_scalar(x: &Tensor, scalar: f64) -> Result<Tensor> {
    let _ = (x, scalar);
    todo!()
}
/// out = x * scalar.
#[track_caller]
pub fn mul_scalar(x: &Tensor, scalar: f64) -> Result<Tensor> {
    let _ = (x, scalar);
    todo!()
}
/// out = x ^ scalar.
#[track_caller]
pub fn pow_scalar(x: &Tensor, scalar: f64) -> Result<Tensor> {
    let _ = (x, scalar);
    todo!()
}
/// out = min(max(x, low), high).
#[track_caller]
pub fn clamp(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    let _ = (x, low, high);
    todo!()
}
/// x = x * scalar, in place, through views.
#[track_caller]
pub fn mul_scalar_(x: &Tensor, scalar: f64) -> Result<()> {
    let _ = (x, scalar);
    todo!()
}
/// x = x + scalar, in place, through views.
#[track_caller]
pub fn add_scalar_(x: &Tensor, scalar: f64) -> Result<()> {
    let _ = (x, scalar);
    todo!()
}
