//! Element-wise functions of two and three tensors, with PyTorch's broadcasting and promotion of types. Results are contiguous.

use crate::dtype::{DType, Operand, Scalar, result_type};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::broadcast_shapes;
use crate::memory::Category;
use crate::ops::copy::{self, to_dtype};
use crate::ops::elementwise::{check_dtype, computes_in, operand, run, scalar_bits};
use crate::ops::expect_same_device;
use crate::tensor::Tensor;

/// For kernels without numbers of their own.
pub(crate) const NO_SCALARS: [Scalar; 2] = [Scalar::Int(0); 2];

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(a: &Tensor, b: &Tensor) -> Result<Tensor> {
            zip(stringify!($name), Kernel::$name, a, b, NO_SCALARS)
        }
    )*};
}

binary! {
    /// a + b; for bool, a or b.
    add;
    /// a - b; not for bool.
    sub;
    /// a * b; for bool, a and b.
    mul;
    /// a / b; integers give f32.
    div;
    /// a ^ b.
    pow;
    /// The angle of the point (b, a), from -pi to pi.
    atan2;
    /// |a| with the sign of b.
    copysign;
    /// 0 where a is negative, b where it is 0, 1 where it is positive.
    heaviside;
    /// a log(b); 0 where a is 0, unless b is NaN.
    xlogy;
    /// Whether a and b are both not 0, as bool.
    logical_and;
    /// Whether a or b is not 0, as bool.
    logical_or;
    /// Whether exactly one of a and b is 0, as bool.
    logical_xor;
    /// Whether a = b, as bool.
    eq;
    /// Whether a and b differ, as bool.
    ne;
    /// Whether a < b, as bool.
    lt;
    /// Whether a <= b, as bool.
    le;
    /// Whether a > b, as bool.
    gt;
    /// Whether a >= b, as bool.
    ge;
}

/// Functions of floats, of which at least one operand has to be one.
macro_rules! of_floats {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(a: &Tensor, b: &Tensor) -> Result<Tensor> {
            let got = result_type(stringify!($name), [operand(a), operand(b)])?;
            check_dtype(stringify!($name), Kernel::$name, got)?;
            zip(stringify!($name), Kernel::$name, a, b, NO_SCALARS)
        }
    )*};
}

of_floats! {
    /// sqrt(a^2 + b^2), without overflow on the way.
    hypot;
    /// log(e^a + e^b), without overflow on the way.
    logaddexp;
}

/// Functions that have one kernel for floats and one for whole numbers.
macro_rules! by_kind {
    ($($(#[$doc:meta])* $name:ident: $of_floats:ident, $of_whole:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(a: &Tensor, b: &Tensor) -> Result<Tensor> {
            let float = result_type(stringify!($name), [operand(a), operand(b)])?.is_float();
            zip(stringify!($name), if float { Kernel::$of_floats } else { Kernel::$of_whole }, a, b, NO_SCALARS)
        }
    )*};
}

by_kind! {
    /// The larger of a and b, NaN where one is NaN.
    maximum: maximum, maximum_integer;
    /// The smaller of a and b, NaN where one is NaN.
    minimum: minimum, minimum_integer;
    /// The larger of a and b, the other one where one is NaN.
    fmax: fmax, maximum_integer;
    /// The smaller of a and b, the other one where one is NaN.
    fmin: fmin, minimum_integer;
    /// a / b without its fraction; integers stay integers, and give 0 where b is 0.
    div_trunc: div_trunc, div_trunc_integer;
    /// What a leaves when divided by b, with the sign of a; integers give 0 where b is 0.
    fmod: fmod, fmod_integer;
}

/// What a leaves when divided by b, with the sign of b; integers give 0 where b is 0.
#[track_caller]
pub fn remainder(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "remainder";
    if result_type(OP, [operand(a), operand(b)])?.is_float() {
        return zip(OP, Kernel::remainder, a, b, NO_SCALARS);
    }
    let rest = zip(OP, Kernel::fmod_integer, a, b, NO_SCALARS)?;
    let zero = copy::full(rest.device(), &[], 0, rest.dtype())?;
    // Where the signs of the rest and of b differ.
    let apart = logical_and(&ne(&rest, &zero)?, &ne(&lt(&rest, &zero)?, &lt(b, &zero)?)?)?;
    where_(&apart, &add(&rest, b)?, &rest)
}

/// The largest whole number that is not above a / b; integers stay integers, and give 0 where b is 0.
#[track_caller]
pub fn div_floor(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "div_floor";
    if result_type(OP, [operand(a), operand(b)])?.is_float() {
        return zip(OP, Kernel::div_floor, a, b, NO_SCALARS);
    }
    div_trunc(&sub(a, &remainder(a, b)?)?, b)
}

/// a + alpha * b.
#[track_caller]
pub fn add_scaled(a: &Tensor, b: &Tensor, alpha: impl Into<Scalar>) -> Result<Tensor> {
    zip("add_scaled", Kernel::add_scaled, a, b, [alpha.into(), Scalar::Int(0)])
}

/// a where the condition is true (or not 0), else b; all three broadcast.
#[track_caller]
pub fn where_(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "where_";
    expect_same_device(OP, &[condition, a, b])?;
    let dtype = result_type(OP, [operand(a), operand(b)])?;
    let shape = broadcast_shapes(OP, a.shape(), b.shape())?;
    let shape = broadcast_shapes(OP, &shape, condition.shape())?;
    let out = Tensor::empty_as(OP, a.device(), &shape, dtype, Category::Temporary)?;
    let [a, b] = [expanded(OP, a, dtype, &shape)?, expanded(OP, b, dtype, &shape)?];
    run(OP, Kernel::where_, dtype, [&a, &b, &expanded(OP, condition, DType::Bool, &shape)?, &out], [0; 2])?;
    Ok(out)
}

/// a where the condition is true (or not 0), else `scalar`; both broadcast.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::binary::where_scalar;
/// let condition = Tensor::new(&device, [1u8, 0])?;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// assert_eq!(where_scalar(&condition, &x, 9.0)?.to_vec::<f32>()?, [1.0, 9.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn where_scalar(condition: &Tensor, a: &Tensor, scalar: impl Into<Scalar>) -> Result<Tensor> {
    const OP: &str = "where_";
    expect_same_device(OP, &[condition, a])?;
    let scalar = scalar.into();
    let dtype = result_type(OP, [operand(a), Operand::Scalar(scalar)])?;
    let shape = broadcast_shapes(OP, a.shape(), condition.shape())?;
    let out = Tensor::empty_as(OP, a.device(), &shape, dtype, Category::Temporary)?;
    let (a, condition) = (expanded(OP, a, dtype, &shape)?, expanded(OP, condition, DType::Bool, &shape)?);
    run(OP, Kernel::where_scalar, dtype, [&a, &condition, &out], [scalar_bits(OP, scalar, dtype)?, 0])?;
    Ok(out)
}

/// a = a + alpha * b in place, through views, b broadcast to a; overlapping views are safe.
#[track_caller]
pub fn add_(a: &Tensor, b: &Tensor, alpha: impl Into<Scalar>) -> Result<()> {
    let alpha = alpha.into();
    let kernel = if alpha.value() == 1.0 { Kernel::add } else { Kernel::add_scaled };
    zip_("add_", kernel, a, b, alpha)
}

/// a = a * b in place, through views, b broadcast to a; overlapping views are safe.
#[track_caller]
pub fn mul_(a: &Tensor, b: &Tensor) -> Result<()> {
    zip_("mul_", Kernel::mul, a, b, Scalar::Int(0))
}

/// A kernel of two operands and two numbers into a new tensor of the operands' common shape.
#[track_caller]
pub(crate) fn zip(op: &'static str, kernel: Kernel, a: &Tensor, b: &Tensor, [s, t]: [Scalar; 2]) -> Result<Tensor> {
    expect_same_device(op, &[a, b])?;
    let dtype = computes_in(op, kernel, [operand(a), operand(b)])?;
    let shape = broadcast_shapes(op, a.shape(), b.shape())?;
    let out = Tensor::empty_as(op, a.device(), &shape, kernel.row().result.unwrap_or(dtype), Category::Temporary)?;
    let [a, b] = [expanded(op, a, dtype, &shape)?, expanded(op, b, dtype, &shape)?];
    run(op, kernel, dtype, [&a, &b, &out], [scalar_bits(op, s, dtype)?, scalar_bits(op, t, dtype)?])?;
    Ok(out)
}

/// [`zip`] into its first operand.
#[track_caller]
pub(crate) fn zip_(op: &'static str, kernel: Kernel, a: &Tensor, b: &Tensor, scalar: Scalar) -> Result<()> {
    expect_same_device(op, &[a, b])?;
    let dtype = computes_in(op, kernel, [operand(a), operand(b)])?;
    fits_in_place(op, dtype, a)?;
    if dtype == a.dtype() {
        return run(op, kernel, dtype, [a, &expanded(op, b, dtype, a.shape())?, a], [scalar_bits(op, scalar, dtype)?, 0]);
    }
    // A half and an f32: computed in f32, as in PyTorch.
    let b = b.with_layout(b.layout().broadcast_to(op, a.shape())?);
    copy::copy_(a, &zip(op, kernel, a, &b, [scalar, Scalar::Int(0)])?)
}

/// Refuses results that the tensor they are to be written to cannot hold: floats in integers, numbers in bool.
pub(crate) fn fits_in_place(op: &'static str, result: DType, out: &Tensor) -> Result<()> {
    let kind = |dtype: DType| if dtype == DType::Bool { 0 } else { 1 + u8::from(dtype.is_float()) };
    if kind(result) <= kind(out.dtype()) {
        return Ok(());
    }
    Err(Error::argument(
        op,
        format!("the result is {result}, the tensor that it is to be written to (shape {:?}) is {}", out.shape(), out.dtype()),
        format!("use the form that returns a new tensor ({}), or convert the tensor first", op.trim_end_matches('_')),
    ))
}

/// `x` as `dtype`, repeated to `shape`.
#[track_caller]
fn expanded(op: &'static str, x: &Tensor, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let x = to_dtype(x, dtype)?;
    Ok(x.with_layout(x.layout().broadcast_to(op, shape)?))
}
