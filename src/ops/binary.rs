//! Element-wise functions of two and three tensors, with PyTorch's broadcasting. Results are contiguous.

use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::broadcast_shapes;
use crate::memory::Category;
use crate::ops::elementwise::{run, scalar_bits};
use crate::ops::{copy, expect_same_device};
use crate::tensor::Tensor;

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(a: &Tensor, b: &Tensor) -> Result<Tensor> {
            zip(stringify!($name), Kernel::$name, a, b, [0; 2])
        }
    )*};
}

binary! {
    /// a + b.
    add;
    /// a - b.
    sub;
    /// a * b.
    mul;
    /// a / b; f32.
    div;
    /// a ^ b; f32.
    pow;
    /// The larger of a and b, NaN where one is NaN; f32.
    maximum;
    /// The smaller of a and b, NaN where one is NaN; f32.
    minimum;
    /// 1 where a = b, else 0, in the type of a.
    eq;
    /// 1 where a and b differ, else 0, in the type of a.
    ne;
    /// 1 where a < b, else 0, in the type of a.
    lt;
    /// 1 where a <= b, else 0, in the type of a.
    le;
    /// 1 where a > b, else 0, in the type of a.
    gt;
    /// 1 where a >= b, else 0, in the type of a.
    ge;
}

/// a + alpha * b; f32.
#[track_caller]
pub fn add_scaled(a: &Tensor, b: &Tensor, alpha: f64) -> Result<Tensor> {
    zip("add_scaled", Kernel::add_scaled, a, b, [scalar_bits("add_scaled", alpha, a.dtype())?, 0])
}

/// a where the condition is not 0, else b; all three broadcast.
#[track_caller]
pub fn where_(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "where_";
    check_operands(OP, a, b)?;
    expect_same_device(OP, &[condition, a])?;
    let condition = match (condition.dtype().is_float(), a.dtype().is_float()) {
        // A fraction is not 0 either, but becomes it as a whole number.
        (true, false) => copy::to_dtype(&ne(condition, &copy::full(a.device(), &[], 0.0, condition.dtype())?)?, a.dtype())?,
        _ => copy::to_dtype(condition, a.dtype())?,
    };
    let shape = broadcast_shapes(OP, a.shape(), b.shape())?;
    let shape = broadcast_shapes(OP, &shape, condition.shape())?;
    let out = Tensor::empty_as(OP, a.device(), &shape, a.dtype(), Category::Temporary)?;
    let expand = |x: &Tensor| Ok::<_, Error>(x.with_layout(x.layout().broadcast_to(OP, &shape)?));
    run(OP, Kernel::where_, a.dtype(), [&expand(a)?, &expand(b)?, &expand(&condition)?, &out], [0; 2])?;
    Ok(out)
}

/// a = a + alpha * b in place, through views, b broadcast to a; overlapping views are safe.
#[track_caller]
pub fn add_(a: &Tensor, b: &Tensor, alpha: f64) -> Result<()> {
    if alpha == 1.0 {
        return zip_("add_", Kernel::add, a, b, [0; 2]);
    }
    zip_("add_", Kernel::add_scaled, a, b, [scalar_bits("add_", alpha, a.dtype())?, 0])
}

/// a = a * b in place, through views, b broadcast to a; overlapping views are safe.
#[track_caller]
pub fn mul_(a: &Tensor, b: &Tensor) -> Result<()> {
    zip_("mul_", Kernel::mul, a, b, [0; 2])
}

/// A kernel of two operands into a new tensor of their common shape.
#[track_caller]
pub(crate) fn zip(op: &'static str, kernel: Kernel, a: &Tensor, b: &Tensor, scalars: [u32; 2]) -> Result<Tensor> {
    check_operands(op, a, b)?;
    let shape = broadcast_shapes(op, a.shape(), b.shape())?;
    let out = Tensor::empty_as(op, a.device(), &shape, a.dtype(), Category::Temporary)?;
    let a = a.with_layout(a.layout().broadcast_to(op, &shape)?);
    let b = b.with_layout(b.layout().broadcast_to(op, &shape)?);
    run(op, kernel, a.dtype(), [&a, &b, &out], scalars)?;
    Ok(out)
}

#[track_caller]
fn zip_(op: &'static str, kernel: Kernel, a: &Tensor, b: &Tensor, scalars: [u32; 2]) -> Result<()> {
    check_operands(op, a, b)?;
    let b = b.with_layout(b.layout().broadcast_to(op, a.shape())?);
    run(op, kernel, a.dtype(), [a, &b, a], scalars)
}

fn check_operands(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    expect_same_device(op, &[a, b])?;
    if a.dtype() != b.dtype() {
        return Err(Error::DType { op, got: b.dtype(), expected: a.dtype().wgsl() });
    }
    Ok(())
}
