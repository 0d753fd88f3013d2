//! Element-wise functions of one tensor. Results are contiguous; NaN goes through unless a line says otherwise. Functions that
//! only exist for floats take integers and bool too, and give f32.

use crate::dtype::{DType, Operand, Scalar};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::ops::binary::{NO_SCALARS, zip};
use crate::ops::copy::{copy, to_dtype};
use crate::ops::elementwise::{computes_in, map, operand, run, scalar_bits};
use crate::tensor::Tensor;

/// Functions of one element. `whole` ones leave integers and bool as they are.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor) -> Result<Tensor> {
            of_one(stringify!($name), Kernel::$name, x, [0.0; 2])
        }
    )*};
    (whole: $($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor) -> Result<Tensor> {
            if x.dtype().is_float() { of_one(stringify!($name), Kernel::$name, x, [0.0; 2]) } else { copy(x) }
        }
    )*};
}

unary! {
    /// -x; not for u32 and bool.
    neg;
    /// e^x.
    exp;
    /// 2^x.
    exp2;
    /// e^x - 1, without cancellation.
    expm1;
    /// Natural logarithm; -inf at 0, NaN below.
    log;
    /// log(1 + x), without cancellation.
    log1p;
    /// Logarithm to base 2.
    log2;
    /// Logarithm to base 10.
    log10;
    /// Square root; NaN below 0.
    sqrt;
    /// 1 / square root.
    rsqrt;
    /// Sine of radians; NaN for infinities.
    sin;
    /// Cosine of radians; NaN for infinities.
    cos;
    /// Tangent of radians; NaN for infinities.
    tan;
    /// Arc sine, from -pi/2 to pi/2; NaN beyond -1 and 1.
    asin;
    /// Arc cosine, from 0 to pi; NaN beyond -1 and 1.
    acos;
    /// Arc tangent, from -pi/2 to pi/2.
    atan;
    /// Hyperbolic sine.
    sinh;
    /// Hyperbolic cosine.
    cosh;
    /// Hyperbolic tangent.
    tanh;
    /// Inverse of sinh.
    asinh;
    /// Inverse of cosh, from 0 on; NaN below 1.
    acosh;
    /// Inverse of tanh; infinities at -1 and 1, NaN beyond.
    atanh;
    /// sin(pi x) / (pi x); 1 at 0.
    sinc;
    /// 1 / (1 + e^-x).
    sigmoid;
    /// log(sigmoid(x)).
    logsigmoid;
    /// x Phi(x) with the exact Phi (erf), PyTorch's default.
    gelu;
    /// Error function.
    erf;
    /// 1 - erf(x), without cancellation.
    erfc;
    /// Inverse of erf; infinities at -1 and 1, NaN beyond.
    erfinv;
    /// |x|; not for u32 and bool.
    abs;
    /// 1 / x.
    reciprocal;
    /// Whether x is NaN, as bool.
    isnan;
    /// Whether x is an infinity, as bool.
    isinf;
    /// Whether x is neither an infinity nor NaN, as bool.
    isfinite;
    /// Whether the sign bit of x is set (it is for -0), as bool.
    signbit;
    /// Whether x is 0 (or false), as bool.
    logical_not;
}

unary! { whole:
    /// The largest whole number that is not above x.
    floor;
    /// The smallest whole number that is not below x.
    ceil;
    /// x without its fraction.
    trunc;
    /// The nearest whole number, of two the even one.
    round;
}

/// The fraction of x, with its sign; floats only.
#[track_caller]
pub fn frac(x: &Tensor) -> Result<Tensor> {
    map("frac", Kernel::frac, x, [0; 2])
}

/// How gelu computes Phi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approximate {
    /// Exactly, through erf (PyTorch's "none").
    None,
    /// By a formula with tanh.
    Tanh,
}

impl std::str::FromStr for Approximate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Approximate> {
        match text {
            "none" => Ok(Approximate::None),
            "tanh" => Ok(Approximate::Tanh),
            other => Err(Error::argument("gelu", format!("approximate is {other:?}"), "pass \"none\" or \"tanh\"")),
        }
    }
}

/// A number for NaN, for infinity and for -infinity (PyTorch's defaults: 0 and the ends of the type's range).
#[track_caller]
pub fn nan_to_num(x: &Tensor, nan: f64, infinity: f64, minus_infinity: f64) -> Result<Tensor> {
    if !x.dtype().is_float() {
        return copy(x);
    }
    let x = of_one("nan_to_num", Kernel::replace_nan, x, [nan, 0.0])?;
    of_one("nan_to_num", Kernel::replace_infinity, &x, [infinity, minus_infinity])
}

/// x where it is positive, else alpha (e^(x input_scale) - 1): ELU with `input_scale` 1, CELU with 1 / alpha.
#[track_caller]
pub fn elu(x: &Tensor, alpha: f64, input_scale: f64) -> Result<Tensor> {
    of_one("elu", Kernel::elu, x, [alpha, input_scale])
}

/// dx = dout times the slope of [`elu`] at x.
#[track_caller]
pub fn elu_backward(x: &Tensor, dout: &Tensor, alpha: f64, input_scale: f64) -> Result<Tensor> {
    zip("elu_backward", Kernel::elu_backward, x, dout, [alpha.into(), input_scale.into()])
}

/// x, or `slope` x where it is negative.
#[track_caller]
pub fn leaky_relu(x: &Tensor, slope: f64) -> Result<Tensor> {
    of_one("leaky_relu", Kernel::leaky_relu, x, [slope, 0.0])
}

/// dx = dout where x is positive, else `slope` dout.
#[track_caller]
pub fn leaky_relu_backward(x: &Tensor, dout: &Tensor, slope: f64) -> Result<Tensor> {
    zip("leaky_relu_backward", Kernel::leaky_relu_backward, x, dout, [slope.into(), Scalar::Int(0)])
}

/// x, or 0 where it is from -lambda to lambda.
#[track_caller]
pub fn hardshrink(x: &Tensor, lambda: f64) -> Result<Tensor> {
    of_one("hardshrink", Kernel::hardshrink, x, [lambda, 0.0])
}

/// x brought nearer to 0 by lambda; 0 where it is nearer already.
#[track_caller]
pub fn softshrink(x: &Tensor, lambda: f64) -> Result<Tensor> {
    of_one("softshrink", Kernel::softshrink, x, [lambda, 0.0])
}

/// dx = dout, or 0 where x is from -lambda to lambda: of [`hardshrink`] and [`softshrink`].
#[track_caller]
pub fn shrink_backward(x: &Tensor, dout: &Tensor, lambda: f64) -> Result<Tensor> {
    zip("shrink_backward", Kernel::shrink_backward, x, dout, [lambda.into(), Scalar::Int(0)])
}

/// x, or `value` where it is not above `threshold`.
#[track_caller]
pub fn threshold(x: &Tensor, threshold: f64, value: f64) -> Result<Tensor> {
    of_one("threshold", Kernel::threshold, x, [threshold, value])
}

/// dx = dout, or 0 where x is not above `threshold`.
#[track_caller]
pub fn threshold_backward(x: &Tensor, dout: &Tensor, threshold: f64) -> Result<Tensor> {
    zip("threshold_backward", Kernel::threshold_backward, x, dout, [threshold.into(), Scalar::Int(0)])
}

/// log(1 + e^(beta x)) / beta; x where beta x is above `threshold`.
#[track_caller]
pub fn softplus(x: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    of_one("softplus", Kernel::softplus, x, [beta, threshold])
}

/// dx = dout times the slope of [`softplus`] at x.
#[track_caller]
pub fn softplus_backward(x: &Tensor, dout: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    zip("softplus_backward", Kernel::softplus_backward, x, dout, [beta.into(), threshold.into()])
}

/// dx = dout * gelu'(x).
#[track_caller]
pub fn gelu_backward(x: &Tensor, dout: &Tensor) -> Result<Tensor> {
    zip("gelu_backward", Kernel::gelu_backward, x, dout, NO_SCALARS)
}

/// max(x, 0) of numbers, in their own type.
#[track_caller]
pub fn relu(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::I32 => clamp(x, 0, i64::from(i32::MAX)).map_err(|error| error.of("relu")),
        DType::U32 => copy(x),
        DType::Bool => Err(Error::DType { op: "relu", got: x.dtype(), expected: "f32, f16, bf16, i32 and u32" }),
        _ => of_one("relu", Kernel::relu, x, [0.0; 2]),
    }
}

/// -1, 0 or 1, in the type of x; 0 for NaN.
#[track_caller]
pub fn sign(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::Bool => copy(x),
        DType::U32 => clamp(x, 0, 1).map_err(|error| error.of("sign")),
        _ => of_one("sign", Kernel::sign, x, [0.0; 2]),
    }
}

/// x x; of bool, i32.
#[track_caller]
pub fn square(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::Bool => to_dtype(x, DType::I32),
        _ => of_one("square", Kernel::square, x, [0.0; 2]),
    }
}

/// dx = 0 where y = relu(x) is 0, else dout, also where y is NaN.
#[track_caller]
pub fn relu_backward(y: &Tensor, dout: &Tensor) -> Result<Tensor> {
    zip("relu_backward", Kernel::relu_backward, y, dout, NO_SCALARS)
}

/// dx = dout (1 - y y) with y = tanh(x).
#[track_caller]
pub fn tanh_backward(y: &Tensor, dout: &Tensor) -> Result<Tensor> {
    zip("tanh_backward", Kernel::tanh_backward, y, dout, NO_SCALARS)
}

/// dx = dout y (1 - y) with y = sigmoid(x).
#[track_caller]
pub fn sigmoid_backward(y: &Tensor, dout: &Tensor) -> Result<Tensor> {
    zip("sigmoid_backward", Kernel::sigmoid_backward, y, dout, NO_SCALARS)
}

/// x + scalar.
#[track_caller]
pub fn add_scalar(x: &Tensor, scalar: impl Into<Scalar>) -> Result<Tensor> {
    with_scalar("add_scalar", Kernel::add_scalar, x, scalar.into())
}

/// x * scalar.
#[track_caller]
pub fn mul_scalar(x: &Tensor, scalar: impl Into<Scalar>) -> Result<Tensor> {
    with_scalar("mul_scalar", Kernel::mul_scalar, x, scalar.into())
}

/// scalar - x.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::unary::rsub_scalar;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// assert_eq!(rsub_scalar(&x, 5.0)?.to_vec::<f32>()?, [4.0, 3.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn rsub_scalar(x: &Tensor, scalar: impl Into<Scalar>) -> Result<Tensor> {
    with_scalar("rsub_scalar", Kernel::rsub_scalar, x, scalar.into())
}

/// scalar / x.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::unary::rdiv_scalar;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// assert_eq!(rdiv_scalar(&x, 6.0)?.to_vec::<f32>()?, [6.0, 3.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn rdiv_scalar(x: &Tensor, scalar: impl Into<Scalar>) -> Result<Tensor> {
    with_scalar("rdiv_scalar", Kernel::rdiv_scalar, x, scalar.into())
}

/// x ^ scalar; whole exponents up to 64 by multiplication.
#[track_caller]
pub fn pow_scalar(x: &Tensor, scalar: impl Into<Scalar>) -> Result<Tensor> {
    with_scalar("pow_scalar", Kernel::pow_scalar, x, scalar.into())
}

/// min(max(x, low), high).
#[track_caller]
pub fn clamp(x: &Tensor, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Result<Tensor> {
    const OP: &str = "clamp";
    let (low, high) = (low.into(), high.into());
    let dtype = crate::dtype::result_type(OP, [operand(x), Operand::Scalar(low), Operand::Scalar(high)])?;
    let scalars = [scalar_bits(OP, low, dtype)?, scalar_bits(OP, high, dtype)?];
    map(OP, if dtype.is_float() { Kernel::clamp } else { Kernel::clamp_integer }, &to_dtype(x, dtype)?, scalars)
}

/// x = x * scalar, in place, through views.
#[track_caller]
pub fn mul_scalar_(x: &Tensor, scalar: impl Into<Scalar>) -> Result<()> {
    with_scalar_("mul_scalar_", Kernel::mul_scalar, x, scalar.into())
}

/// x = x + scalar, in place, through views.
#[track_caller]
pub fn add_scalar_(x: &Tensor, scalar: impl Into<Scalar>) -> Result<()> {
    with_scalar_("add_scalar_", Kernel::add_scalar, x, scalar.into())
}

/// A kernel of one operand and two settings into a new tensor; in f32 where it is for floats only and x has none.
#[track_caller]
pub(crate) fn of_one(op: &'static str, kernel: Kernel, x: &Tensor, [s, t]: [f64; 2]) -> Result<Tensor> {
    let dtype = computes_in(op, kernel, [operand(x)])?;
    let scalars = [scalar_bits(op, s, dtype)?, scalar_bits(op, t, dtype)?];
    map(op, kernel, &to_dtype(x, dtype)?, scalars)
}

/// A kernel of one operand and a number into a new tensor of their common type.
#[track_caller]
pub(crate) fn with_scalar(op: &'static str, kernel: Kernel, x: &Tensor, scalar: Scalar) -> Result<Tensor> {
    let dtype = computes_in(op, kernel, [operand(x), Operand::Scalar(scalar)])?;
    let bits = scalar_bits(op, scalar, dtype)?;
    map(op, kernel, &to_dtype(x, dtype)?, [bits, 0])
}

#[track_caller]
fn with_scalar_(op: &'static str, kernel: Kernel, x: &Tensor, scalar: Scalar) -> Result<()> {
    let dtype = computes_in(op, kernel, [operand(x), Operand::Scalar(scalar)])?;
    crate::ops::binary::fits_in_place(op, dtype, x)?;
    run(op, kernel, x.dtype(), [x, x], [scalar_bits(op, scalar, x.dtype())?, 0])
}
