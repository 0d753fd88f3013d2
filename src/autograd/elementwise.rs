//! Differentiable functions of one and two tensors, element by element. Where PyTorch's gradient is 0 everywhere (`floor`), so
//! is this one.

use super::autocast::in_autocast;
use super::graph::{Backward, Grads};
use super::halves::rounded_once;
use super::record::{record, record_unary};
use super::rules;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::ops;
use crate::ops::unary::Approximate;
use crate::tensor::Tensor;

/// Methods of one operand: `name(saves input)` or `name(saves output)`, with the rule of (saved tensor, gradient).
macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident($kept:ident) => $rule:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[doc = "\n\n[Shapes, types and errors](crate::autograd#shapes-types-and-errors) are those of all functions of elements."]
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            in_autocast!(stringify!($name), (x = self), x.$name());
            let out = ops::unary::$name(self)?;
            let kept = unary_methods!(@$kept self, out);
            record_unary(stringify!($name), self, &[&kept], out, |b| $rule(b.saved(0), b.grad()))
        }
    )* } };
    (@input $self:ident, $out:ident) => { $self.clone() };
    (@output $self:ident, $out:ident) => { $out.clone() };
}

unary_methods! {
    /// e^x.
    #[doc = example!("exp()" for x = "[0.0f32, 1.0]" is f32 "[1.0000, 2.7183]")]
    exp(output) => rules::unary::exp;
    /// 2^x.
    #[doc = example!("exp2()" for x = "[0.0f32, 3.0]" is f32 "[1.0000, 8.0000]")]
    exp2(output) => rules::unary::exp2_rule;
    /// e^x - 1, without cancellation.
    #[doc = example!("expm1()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 1.7183]")]
    expm1(output) => rules::unary::expm1_rule;
    /// Natural logarithm.
    #[doc = example!("log()" for x = "[1.0f32, 2.0]" is f32 "[0.0000, 0.6931]")]
    log(input) => rules::unary::log;
    /// log(1 + x), without cancellation.
    #[doc = example!("log1p()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 0.6931]")]
    log1p(input) => rules::unary::log1p_rule;
    /// Logarithm to base 2.
    #[doc = example!("log2()" for x = "[1.0f32, 8.0]" is f32 "[0.0000, 3.0000]")]
    log2(input) => rules::unary::log2_rule;
    /// Logarithm to base 10.
    #[doc = example!("log10()" for x = "[1.0f32, 100.0]" is f32 "[0.0000, 2.0000]")]
    log10(input) => rules::unary::log10_rule;
    /// Square root.
    #[doc = example!("sqrt()" for x = "[4.0f32, 2.0]" is f32 "[2.0000, 1.4142]")]
    sqrt(output) => rules::unary::sqrt;
    /// 1 / sqrt(x).
    #[doc = example!("rsqrt()" for x = "[4.0f32, 0.25]" is f32 "[0.5000, 2.0000]")]
    rsqrt(output) => rules::unary::rsqrt;
    /// Sine of x in radians.
    #[doc = example!("sin()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 0.8415]")]
    sin(input) => rules::unary::sin;
    /// Cosine of x in radians.
    #[doc = example!("cos()" for x = "[0.0f32, 1.0]" is f32 "[1.0000, 0.5403]")]
    cos(input) => rules::unary::cos_rule;
    /// Tangent of x in radians.
    #[doc = example!("tan()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 1.5574]")]
    tan(output) => rules::unary::tan_rule;
    /// Arc sine.
    #[doc = example!("asin()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 1.5708]")]
    asin(input) => rules::unary::asin_rule;
    /// Arc cosine.
    #[doc = example!("acos()" for x = "[1.0f32, 0.0]" is f32 "[0.0000, 1.5708]")]
    acos(input) => rules::unary::acos_rule;
    /// Arc tangent.
    #[doc = example!("atan()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 0.7854]")]
    atan(input) => rules::unary::atan_rule;
    /// Hyperbolic sine.
    #[doc = example!("sinh()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 1.1752]")]
    sinh(input) => rules::unary::sinh_rule;
    /// Hyperbolic cosine.
    #[doc = example!("cosh()" for x = "[0.0f32, 1.0]" is f32 "[1.0000, 1.5431]")]
    cosh(input) => rules::unary::cosh_rule;
    /// Hyperbolic tangent.
    #[doc = example!("tanh()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 0.7616]")]
    tanh(output) => rules::unary::tanh;
    /// Inverse of sinh.
    #[doc = example!("asinh()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 0.8814]")]
    asinh(input) => rules::unary::asinh_rule;
    /// Inverse of cosh.
    #[doc = example!("acosh()" for x = "[1.0f32, 2.0]" is f32 "[0.0000, 1.3170]")]
    acosh(input) => rules::unary::acosh_rule;
    /// Inverse of tanh.
    #[doc = example!("atanh()" for x = "[0.0f32, 0.5]" is f32 "[0.0000, 0.5493]")]
    atanh(input) => rules::unary::atanh_rule;
    /// sin(pi x) / (pi x); 1 at 0.
    #[doc = example!("sinc()" for x = "[0.0f32, 0.5]" is f32 "[1.0000, 0.6366]")]
    sinc(input) => rules::unary::sinc_rule;
    /// 1 / (1 + e^-x).
    #[doc = example!("sigmoid()" for x = "[0.0f32, 1.0]" is f32 "[0.5000, 0.7311]")]
    sigmoid(output) => rules::unary::sigmoid;
    /// log(sigmoid(x)).
    #[doc = example!("logsigmoid()" for x = "[0.0f32, 1.0]" is f32 "[-0.6931, -0.3133]")]
    logsigmoid(input) => rules::unary::logsigmoid_rule;
    /// max(x, 0).
    #[doc = example!("relu()" for x = "[-1.0f32, 2.0]" is f32 "[0.0000, 2.0000]")]
    relu(output) => ops::unary::relu_backward;
    /// x Phi(x) with the normal distribution function Phi: the exact form, through erf.
    #[doc = example!("gelu()" for x = "[-1.0f32, 1.0]" is f32 "[-0.1587, 0.8413]")]
    gelu(input) => ops::unary::gelu_backward;
    /// Error function.
    #[doc = example!("erf()" for x = "[0.0f32, 1.0]" is f32 "[0.0000, 0.8427]")]
    erf(input) => rules::unary::erf;
    /// 1 - erf(x), without cancellation.
    #[doc = example!("erfc()" for x = "[0.0f32, 1.0]" is f32 "[1.0000, 0.1573]")]
    erfc(input) => rules::unary::erfc_rule;
    /// Inverse of erf.
    #[doc = example!("erfinv()" for x = "[0.0f32, 0.5]" is f32 "[0.0000, 0.4769]")]
    erfinv(output) => rules::unary::erfinv_rule;
    /// Absolute value.
    #[doc = example!("abs()" for x = "[-1.5f32, 2.0]" is f32 "[1.5000, 2.0000]")]
    abs(input) => rules::unary::abs;
    /// x^2.
    #[doc = example!("square()" for x = "[-3.0f32, 2.0]" is f32 "[9.0000, 4.0000]")]
    square(input) => rules::unary::square_rule;
    /// 1 / x.
    #[doc = example!("reciprocal()" for x = "[4.0f32, -0.5]" is f32 "[0.2500, -2.0000]")]
    reciprocal(output) => rules::unary::reciprocal;
    /// -1, 0 or 1.
    #[doc = example!("sign()" for x = "[-1.5f32, 2.0]" is f32 "[-1.0000, 1.0000]")]
    sign(output) => rules::unary::nothing;
    /// The largest whole number that is not above x.
    #[doc = example!("floor()" for x = "[-1.5f32, 2.5]" is f32 "[-2.0000, 2.0000]")]
    floor(output) => rules::unary::nothing;
    /// The smallest whole number that is not below x.
    #[doc = example!("ceil()" for x = "[-1.5f32, 2.5]" is f32 "[-1.0000, 3.0000]")]
    ceil(output) => rules::unary::nothing;
    /// x without its fraction.
    #[doc = example!("trunc()" for x = "[-1.5f32, 2.5]" is f32 "[-1.0000, 2.0000]")]
    trunc(output) => rules::unary::nothing;
    /// The nearest whole number, of two the even one.
    #[doc = example!("round()" for x = "[-1.5f32, 2.5]" is f32 "[-2.0000, 2.0000]")]
    round(output) => rules::unary::nothing;
}

/// Methods whose results carry no gradient.
macro_rules! plain_methods {
    ($($(#[$doc:meta])* $family:ident::$name:ident($($other:ident)?);)*) => { impl Tensor { $(
        $(#[$doc])*
        #[doc = "\n\n[Shapes, types and errors](crate::autograd#shapes-types-and-errors) are those of all functions of elements."]
        #[track_caller]
        pub fn $name(&self $(, $other: &Tensor)?) -> Result<Tensor> {
            ops::$family::$name(self $(, $other)?)
        }
    )* } };
}

plain_methods! {
    /// Whether self = other, element by element, as bool; broadcast.
    #[doc = example!("eq(&y)" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is u8 "[1, 0, 0]")]
    binary::eq(other);
    /// Whether self differs from other, element by element, as bool; broadcast.
    #[doc = example!("ne(&y)" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is u8 "[0, 1, 1]")]
    binary::ne(other);
    /// Whether self < other, element by element, as bool; broadcast.
    #[doc = example!("lt(&y)" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is u8 "[0, 1, 0]")]
    binary::lt(other);
    /// Whether self <= other, element by element, as bool; broadcast.
    #[doc = example!("le(&y)" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is u8 "[1, 1, 0]")]
    binary::le(other);
    /// Whether self > other, element by element, as bool; broadcast.
    #[doc = example!("gt(&y)" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is u8 "[0, 0, 1]")]
    binary::gt(other);
    /// Whether self >= other, element by element, as bool; broadcast.
    #[doc = example!("ge(&y)" for x = "[1.0f32, 2.0, 3.0]", y = "[1.0f32, 3.0, 2.0]" is u8 "[1, 0, 1]")]
    binary::ge(other);
    /// Whether both are not 0, element by element, as bool; broadcast.
    #[doc = example!("logical_and(&y)" for x = "[0.0f32, 2.0, 3.0]", y = "[1.0f32, 0.0, 2.0]" is u8 "[0, 0, 1]")]
    binary::logical_and(other);
    /// Whether one of both is not 0, element by element, as bool; broadcast.
    #[doc = example!("logical_or(&y)" for x = "[0.0f32, 2.0, 0.0]", y = "[1.0f32, 0.0, 0.0]" is u8 "[1, 1, 0]")]
    binary::logical_or(other);
    /// Whether exactly one of both is 0, element by element, as bool; broadcast.
    #[doc = example!("logical_xor(&y)" for x = "[0.0f32, 2.0, 3.0]", y = "[1.0f32, 0.0, 2.0]" is u8 "[1, 1, 0]")]
    binary::logical_xor(other);
    /// 0 where this is negative, `other` where it is 0, 1 where it is positive; broadcast.
    #[doc = example!("heaviside(&y)" for x = "[-1.5f32, 0.0, 2.0]", y = "[0.5f32]" is f32 "[0.0000, 0.5000, 1.0000]")]
    binary::heaviside(other);
    /// Whether an element is 0 (or false), as bool.
    #[doc = example!("logical_not()" for x = "[0.0f32, 2.0]" is u8 "[1, 0]")]
    unary::logical_not();
    /// Whether an element is NaN, as bool.
    #[doc = example!("isnan()" for x = "[1.0f32, f32::NAN]" is u8 "[0, 1]")]
    unary::isnan();
    /// Whether an element is an infinity, as bool.
    #[doc = example!("isinf()" for x = "[1.0f32, f32::INFINITY]" is u8 "[0, 1]")]
    unary::isinf();
    /// Whether an element is neither an infinity nor NaN, as bool.
    #[doc = example!("isfinite()" for x = "[1.0f32, f32::INFINITY]" is u8 "[1, 0]")]
    unary::isfinite();
    /// Whether the sign bit of an element is set, as bool.
    #[doc = example!("signbit()" for x = "[1.0f32, -2.0]" is u8 "[0, 1]")]
    unary::signbit();
}

/// Methods of two operands, broadcast, with the rules of (self, other, result, gradient) for both.
macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident => $rule_a:expr, $rule_b:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[doc = "\n\n[Shapes, types and errors](crate::autograd#shapes-types-and-errors) are those of all functions of elements."]
        #[track_caller]
        pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
            let out = ops::binary::$name(self, other)?;
            let kept = out.clone();
            record(stringify!($name), &[self, other], &[self, other, &kept], out, |ctx| {
                let (a, b, y) = (ctx.saved(0), ctx.saved(1), ctx.saved(2));
                let rule = |rule: rules::binary::Rule, of: &Tensor| rules::binary::to_shape(&rule(a, b, y, ctx.grad())?, of.shape());
                let da = ctx.want(0, || rule($rule_a, a))?;
                let db = ctx.want(1, || rule($rule_b, b))?;
                Ok(Grads::from_iter([da, db]))
            })
        }
    )* } };
}

binary_methods! {
    /// The angle of the point (other, self), from -pi to pi.
    #[doc = example!("atan2(&y)" for x = "[1.0f32, 1.0]", y = "[1.0f32, -1.0]" is f32 "[0.7854, 2.3562]")]
    atan2 => rules::binary::atan2_a, rules::binary::atan2_b;
    /// |self| with the sign of other.
    #[doc = example!("copysign(&y)" for x = "[1.0f32, 2.0]", y = "[-3.0f32, 3.0]" is f32 "[-1.0000, 2.0000]")]
    copysign => rules::binary::copysign_a, rules::binary::nothing;
    /// sqrt(self^2 + other^2), without overflow on the way.
    #[doc = example!("hypot(&y)" for x = "[3.0f32, 5.0]", y = "[4.0f32, 12.0]" is f32 "[5.0000, 13.0000]")]
    hypot => rules::binary::hypot_a, rules::binary::hypot_b;
    /// self log(other); 0 where self is 0, unless other is NaN.
    #[doc = example!("xlogy(&y)" for x = "[0.0f32, 2.0]", y = "[0.0f32, 2.0]" is f32 "[0.0000, 1.3863]")]
    xlogy => rules::binary::xlogy_a, rules::binary::xlogy_b;
    /// log(e^self + e^other), without overflow on the way.
    #[doc = example!("logaddexp(&y)" for x = "[0.0f32, 1.0]", y = "[0.0f32, 0.0]" is f32 "[0.6931, 1.3133]")]
    logaddexp => rules::binary::logaddexp_a, rules::binary::logaddexp_b;
    /// The larger of both; the other one where one is NaN.
    #[doc = example!("fmax(&y)" for x = "[1.0f32, f32::NAN]", y = "[2.0f32, 3.0]" is f32 "[2.0000, 3.0000]")]
    fmax => rules::binary::fmax_a, rules::binary::fmax_b;
    /// The smaller of both; the other one where one is NaN.
    #[doc = example!("fmin(&y)" for x = "[1.0f32, f32::NAN]", y = "[2.0f32, 3.0]" is f32 "[1.0000, 3.0000]")]
    fmin => rules::binary::fmin_a, rules::binary::fmin_b;
    /// What self leaves when divided by other, with the sign of self.
    #[doc = example!("fmod(&y)" for x = "[5.5f32, -5.5]", y = "[2.0f32, 2.0]" is f32 "[1.5000, -1.5000]")]
    fmod => rules::binary::same, rules::binary::fmod_b;
    /// What self leaves when divided by other, with the sign of other.
    #[doc = example!("remainder(&y)" for x = "[5.5f32, -5.5]", y = "[2.0f32, 2.0]" is f32 "[1.5000, 0.5000]")]
    remainder => rules::binary::same, rules::binary::remainder_b;
    /// self / other without its fraction (PyTorch's `div(rounding_mode="trunc")`).
    #[doc = example!("div_trunc(&y)" for x = "[5.5f32, -5.5]", y = "[2.0f32, 2.0]" is f32 "[2.0000, -2.0000]")]
    div_trunc => rules::binary::nothing, rules::binary::nothing;
    /// The largest whole number that is not above self / other (PyTorch's `floor_divide`).
    #[doc = example!("div_floor(&y)" for x = "[5.5f32, -5.5]", y = "[2.0f32, 2.0]" is f32 "[2.0000, -3.0000]")]
    div_floor => rules::binary::nothing, rules::binary::nothing;
}

impl Tensor {
    /// The same values in a new tensor.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, -2.0])?;
    /// assert_eq!(x.positive()?.to_vec::<f32>()?, [1.0, -2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn positive(&self) -> Result<Tensor> {
        record_unary("positive", self, &[], ops::copy::copy(self)?, |b| Ok(b.grad().clone()))
    }

    /// The fraction of x, with its sign.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.5f32, -2.25])?;
    /// assert_eq!(x.frac()?.to_vec::<f32>()?, [0.5, -0.25]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn frac(&self) -> Result<Tensor> {
        record_unary("frac", self, &[], ops::unary::frac(self)?, |b| Ok(b.grad().clone()))
    }

    /// Rounded to `decimals` digits after the point; negative: before it.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.26f32, 3.14])?;
    /// assert_eq!(format!("{:.4?}", x.round_decimals(1)?.to_vec::<f32>()?), "[1.3000, 3.1000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn round_decimals(&self, decimals: i32) -> Result<Tensor> {
        if decimals == 0 || !self.dtype().is_float() {
            return self.round();
        }
        let scale = 10f64.powi(decimals.abs());
        rounded_once("round", [self], |[x]| match decimals > 0 {
            true => x.mul_scalar(scale)?.round()?.mul_scalar(1.0 / scale),
            false => x.mul_scalar(1.0 / scale)?.round()?.mul_scalar(scale),
        })
    }

    /// Radians of degrees.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [180.0f32, 90.0])?;
    /// assert_eq!(format!("{:.4?}", x.deg2rad()?.to_vec::<f32>()?), "[3.1416, 1.5708]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn deg2rad(&self) -> Result<Tensor> {
        self.mul_scalar(std::f64::consts::PI / 180.0)
    }

    /// Degrees of radians.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.5f32])?;
    /// assert_eq!(format!("{:.4}", x.rad2deg()?.item::<f32>()?), "85.9437");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn rad2deg(&self) -> Result<Tensor> {
        self.mul_scalar(180.0 / std::f64::consts::PI)
    }

    /// A number for NaN, for infinity and for -infinity; `None` takes 0 and the ends of the type's range.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, f32::NAN, f32::INFINITY])?;
    /// assert_eq!(x.nan_to_num(None, Some(9.0), None)?.to_vec::<f32>()?, [1.0, 0.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn nan_to_num(&self, nan: Option<f64>, infinity: Option<f64>, minus_infinity: Option<f64>) -> Result<Tensor> {
        let most = match self.dtype() {
            DType::F16 => f64::from(half::f16::MAX),
            DType::BF16 => f64::from(half::bf16::MAX),
            _ => f64::from(f32::MAX),
        };
        let out = ops::unary::nan_to_num(self, nan.unwrap_or(0.0), infinity.unwrap_or(most), minus_infinity.unwrap_or(-most))?;
        record_unary("nan_to_num", self, &[self], out, |b| {
            ops::binary::where_scalar(&ops::unary::isfinite(b.saved(0))?, b.grad(), 0.0)
        })
    }

    /// `value` where `mask` is true, else self; broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let mask = Tensor::new(&device, [0u8, 1])?;
    /// assert_eq!(x.masked_fill(&mask, 9.0)?.to_vec::<f32>()?, [1.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let keep = ops::unary::logical_not(mask)?;
        let layout = self.layout;
        let out = ops::binary::where_scalar(&keep, self, value)?;
        record_unary("masked_fill", self, &[&keep], out, move |b| rules::binary::where_a(b.saved(0), b.grad(), layout.shape()))
    }

    /// self + weight (end - self); broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let end = Tensor::new(&device, [3.0f32, 6.0])?;
    /// let weight = Tensor::new(&device, 0.5f32)?;
    /// assert_eq!(x.lerp(&end, &weight)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
        rounded_once("lerp", [self, end, weight], |[x, end, weight]| x.add(&end.sub(x)?.mul(weight)?))
    }

    /// self + value a b; broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let a = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.addcmul(&a, &a, 0.5)?.to_vec::<f32>()?, [5.5, 10.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        rounded_once("addcmul", [self, a, b], |[x, a, b]| x.add(&a.mul(b)?.mul_scalar(value)?))
    }

    /// self + value a / b; broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let a = Tensor::new(&device, [3.0f32, 4.0])?;
    /// let b = Tensor::new(&device, [2.0f32, 8.0])?;
    /// assert_eq!(x.addcdiv(&a, &b, 2.0)?.to_vec::<f32>()?, [4.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        rounded_once("addcdiv", [self, a, b], |[x, a, b]| x.add(&a.div(b)?.mul_scalar(value)?))
    }

    /// self + alpha other; broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.add_scaled(&y, 10.0)?.to_vec::<f32>()?, [31.0, 42.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn add_scaled(&self, other: &Tensor, alpha: impl Into<Scalar>) -> Result<Tensor> {
        let alpha = alpha.into();
        rounded_once("add", [self, other], |[x, other]| x.add(&other.mul_scalar(alpha)?))
    }

    /// self - alpha other; broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.sub_scaled(&y, 0.5)?.to_vec::<f32>()?, [-0.5, 0.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn sub_scaled(&self, other: &Tensor, alpha: impl Into<Scalar>) -> Result<Tensor> {
        let alpha = alpha.into();
        rounded_once("sub", [self, other], |[x, other]| x.sub(&other.mul_scalar(alpha)?))
    }

    /// other - alpha self; broadcast.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.rsub(&y, 0.5)?.to_vec::<f32>()?, [2.5, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn rsub(&self, other: &Tensor, alpha: impl Into<Scalar>) -> Result<Tensor> {
        let alpha = alpha.into();
        rounded_once("rsub", [self, other], |[x, other]| other.sub(&x.mul_scalar(alpha)?))
    }

    /// min(max(self, low), high) with tensors as bounds, broadcast; `None` is no bound, but one there must be.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 5.0])?;
    /// let low = Tensor::new(&device, [2.0f32, 2.0])?;
    /// let high = Tensor::new(&device, [4.0f32, 4.0])?;
    /// assert_eq!(x.clamp_tensor(Some(&low), Some(&high))?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp_tensor(&self, low: Option<&Tensor>, high: Option<&Tensor>) -> Result<Tensor> {
        match (low, high) {
            (Some(low), Some(high)) => self.maximum(low)?.minimum(high),
            (Some(low), None) => self.maximum(low),
            (None, Some(high)) => self.minimum(high),
            (None, None) => Err(Error::argument("clamp", "there is no bound", "pass a lower or an upper bound")),
        }
    }

    /// Whether |self - other| <= atol + rtol |other|, or both are equal (infinities too), or, where `equal_nan`, both NaN, as bool.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [1.000001f32, 2.1])?;
    /// assert_eq!(x.isclose(&y, 1e-5, 1e-8, false)?.to_vec::<u8>()?, [1, 0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn isclose(&self, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
        const OP: &str = "isclose";
        if rtol.is_nan() || atol.is_nan() || rtol < 0.0 || atol < 0.0 {
            return Err(Error::argument(
                OP,
                format!("rtol {rtol} and atol {atol} for tensors of shape {:?}", self.shape()),
                "pass tolerances of at least 0",
            ));
        }
        if self.dtype() != other.dtype() {
            return Err(Error::DType { op: OP, got: other.dtype(), expected: self.dtype().name() });
        }
        let (a, b) = (self.detach(), other.detach());
        let equal = a.eq(&b)?;
        if self.dtype() == DType::Bool {
            // True is 1 and false is 0.
            let near = if atol >= 1.0 { equal.ones_like()? } else { b.logical_and(&b.full_like(rtol + atol >= 1.0)?)? };
            return equal.logical_or(&near);
        }
        let equal = match equal_nan {
            true => equal.logical_or(&a.isnan()?.logical_and(&b.isnan()?)?)?,
            false => equal,
        };
        let allowed = b.abs()?.mul_scalar(rtol)?.add_scalar(atol)?;
        let apart = a.sub(&b)?.abs()?;
        equal.logical_or(&apart.le(&allowed)?.logical_and(&apart.isfinite()?)?)
    }
}

/// Activations.
impl Tensor {
    /// x where it is positive, else alpha (e^x - 1).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-1.0f32, 2.0])?;
    /// assert_eq!(format!("{:.4?}", x.elu(1.0)?.to_vec::<f32>()?), "[-0.6321, 2.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.elu_of(alpha, 1.0)
    }

    /// x where it is positive, else alpha (e^(x / alpha) - 1).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-1.0f32, 2.0])?;
    /// assert_eq!(format!("{:.4?}", x.celu(2.0)?.to_vec::<f32>()?), "[-0.7869, 2.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        if alpha == 0.0 {
            return Err(Error::argument("celu", format!("alpha is 0 (shape {:?})", self.shape()), "pass another alpha"));
        }
        self.elu_of(alpha, 1.0 / alpha)
    }

    /// Scaled exponential linear unit, with the constants of Klambauer et al., 2017.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-1.0f32, 2.0])?;
    /// assert_eq!(format!("{:.4?}", x.selu()?.to_vec::<f32>()?), "[-1.1113, 2.1014]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn selu(&self) -> Result<Tensor> {
        rounded_once("selu", [self], |[x]| x.elu_of(1.673_263_242_354_377_2, 1.0)?.mul_scalar(1.050_700_987_355_480_5))
    }

    #[track_caller]
    fn elu_of(&self, alpha: f64, input_scale: f64) -> Result<Tensor> {
        let out = ops::unary::elu(self, alpha, input_scale)?;
        let rule = move |b: &Backward<'_>| ops::unary::elu_backward(b.saved(0), b.grad(), alpha, input_scale);
        record_unary("elu", self, &[self], out, rule)
    }

    /// x, or slope x where it is negative.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-2.0f32, 2.0])?;
    /// assert_eq!(x.leaky_relu(0.25)?.to_vec::<f32>()?, [-0.5, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        let out = ops::unary::leaky_relu(self, slope)?;
        record_unary("leaky_relu", self, &[self], out, move |b| ops::unary::leaky_relu_backward(b.saved(0), b.grad(), slope))
    }

    /// x where it is positive, else `weight` x: one weight, or one for each entry of dimension 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-2.0f32, 2.0])?;
    /// let weight = Tensor::new(&device, [0.25f32])?;
    /// assert_eq!(x.prelu(&weight)?.to_vec::<f32>()?, [-0.5, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        const OP: &str = "prelu";
        in_autocast!(OP, (x = self, w = weight), x.prelu(&w));
        let channels = self.shape().get(1).copied().unwrap_or(1);
        if weight.rank() > 1 || (weight.len() != 1 && (self.rank() == 0 || weight.len() != channels)) {
            return Err(Error::shape(
                OP,
                format!("a weight of shape {:?} for an input of shape {:?}", weight.shape(), self.shape()),
                "pass one weight, or one for each entry of dimension 1",
            ));
        }
        let mut shape = vec![1isize; self.rank()];
        if weight.len() != 1 && self.rank() > 1 {
            shape[1] = channels as isize;
        }
        let zero = ops::copy::full(self.device(), &[], 0, self.dtype())?;
        self.where_(&self.gt(&zero)?, &self.mul(&weight.reshape(&shape)?)?)
    }

    /// x, or 0 where it is from -lambda to lambda.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-1.0f32, 0.25, 2.0])?;
    /// assert_eq!(x.hardshrink(0.5)?.to_vec::<f32>()?, [-1.0, 0.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn hardshrink(&self, lambda: f64) -> Result<Tensor> {
        let out = ops::unary::hardshrink(self, lambda)?;
        record_unary("hardshrink", self, &[self], out, move |b| ops::unary::shrink_backward(b.saved(0), b.grad(), lambda))
    }

    /// x brought nearer to 0 by lambda, 0 where it is nearer already.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-1.0f32, 0.25, 2.0])?;
    /// assert_eq!(x.softshrink(0.5)?.to_vec::<f32>()?, [-0.5, 0.0, 1.5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn softshrink(&self, lambda: f64) -> Result<Tensor> {
        if lambda.is_nan() || lambda < 0.0 {
            return Err(Error::argument(
                "softshrink",
                format!("lambda is {lambda} (shape {:?})", self.shape()),
                "pass a lambda of at least 0",
            ));
        }
        let out = ops::unary::softshrink(self, lambda)?;
        record_unary("softshrink", self, &[self], out, move |b| ops::unary::shrink_backward(b.saved(0), b.grad(), lambda))
    }

    /// x, or `value` where it is not above `threshold`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.5f32, 2.0])?;
    /// assert_eq!(x.threshold(1.0, 9.0)?.to_vec::<f32>()?, [9.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        let out = ops::unary::threshold(self, threshold, value)?;
        record_unary("threshold", self, &[self], out, move |b| ops::unary::threshold_backward(b.saved(0), b.grad(), threshold))
    }

    /// log(1 + e^(beta x)) / beta; x where beta x is above `threshold`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4?}", x.softplus(1.0, 20.0)?.to_vec::<f32>()?), "[0.6931, 1.3133]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Tensor> {
        in_autocast!("softplus", (x = self), x.softplus(beta, threshold));
        let out = ops::unary::softplus(self, beta, threshold)?;
        record_unary("softplus", self, &[self], out, move |b| {
            ops::unary::softplus_backward(b.saved(0), b.grad(), beta, threshold)
        })
    }

    /// x sigmoid(x).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4?}", x.silu()?.to_vec::<f32>()?), "[0.0000, 0.7311]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn silu(&self) -> Result<Tensor> {
        rounded_once("silu", [self], |[x]| x.mul(&x.sigmoid()?))
    }

    /// x tanh(log(1 + e^x)).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4?}", x.mish()?.to_vec::<f32>()?), "[0.0000, 0.8651]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn mish(&self) -> Result<Tensor> {
        rounded_once("mish", [self], |[x]| x.mul(&x.softplus(1.0, 20.0)?.tanh()?))
    }

    /// min(max(x, 0), 6).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-1.0f32, 3.0, 8.0])?;
    /// assert_eq!(x.relu6()?.to_vec::<f32>()?, [0.0, 3.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn relu6(&self) -> Result<Tensor> {
        self.hardtanh(0.0, 6.0)
    }

    /// min(max(x, low), high); its gradient is 0 at the bounds too.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-2.0f32, 0.5, 3.0])?;
    /// assert_eq!(x.hardtanh(-1.0, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn hardtanh(&self, low: f64, high: f64) -> Result<Tensor> {
        if low > high {
            return Err(Error::argument(
                "hardtanh",
                format!("the lower bound {low} is above the upper bound {high} (shape {:?})", self.shape()),
                "pass low <= high",
            ));
        }
        let out = ops::unary::clamp(self, low, high)?;
        record_unary("hardtanh", self, &[self], out, move |b| rules::unary::hardtanh(b.saved(0), low, high, b.grad()))
    }

    /// relu6(x + 3) / 6.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-4.0f32, 0.0, 4.0])?;
    /// assert_eq!(format!("{:.4?}", x.hardsigmoid()?.to_vec::<f32>()?), "[0.0000, 0.5000, 1.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn hardsigmoid(&self) -> Result<Tensor> {
        rounded_once("hardsigmoid", [self], |[x]| x.add_scalar(3.0)?.relu6()?.mul_scalar(1.0 / 6.0))
    }

    /// x relu6(x + 3) / 6.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 3.0])?;
    /// assert_eq!(format!("{:.4?}", x.hardswish()?.to_vec::<f32>()?), "[0.0000, 3.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn hardswish(&self) -> Result<Tensor> {
        rounded_once("hardswish", [self], |[x]| x.mul(&x.hardsigmoid()?))
    }

    /// x / (1 + |x|).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [-1.0f32, 3.0])?;
    /// assert_eq!(x.softsign()?.to_vec::<f32>()?, [-0.5, 0.75]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn softsign(&self) -> Result<Tensor> {
        rounded_once("softsign", [self], |[x]| x.div(&x.abs()?.add_scalar(1.0)?))
    }

    /// x - tanh(x).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4?}", x.tanhshrink()?.to_vec::<f32>()?), "[0.0000, 0.2384]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn tanhshrink(&self) -> Result<Tensor> {
        rounded_once("tanhshrink", [self], |[x]| x.sub(&x.tanh()?))
    }

    /// [`Tensor::gelu`], exact or with tanh in place of erf: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::ops::unary::Approximate;
    /// let x = Tensor::new(&device, [0.0f32, 1.0])?;
    /// assert_eq!(format!("{:.4?}", x.gelu_with(Approximate::Tanh)?.to_vec::<f32>()?), "[0.0000, 0.8412]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu_with(&self, approximate: Approximate) -> Result<Tensor> {
        if approximate == Approximate::None {
            return self.gelu();
        }
        rounded_once("gelu", [self], |[x]| {
            let inner = x.add(&x.pow_scalar(3)?.mul_scalar(0.044715)?)?.mul_scalar((2.0 / std::f64::consts::PI).sqrt())?;
            x.mul(&inner.tanh()?.add_scalar(1.0)?)?.mul_scalar(0.5)
        })
    }
}
