//! Element-wise functions of two tensors, with broadcasting.
use crate::error::Result;
use crate::tensor::Tensor;

macro_rules! binary { ($($name:ident),*) => { $(
    /// out = f(a, b) with PyTorch's broadcasting; any layout, also a and b the same tensor.
    #[track_caller]
    pub fn $name(a: &Tensor, b: &Tensor) -> Result<Tensor> { let _ = (a, b); todo!() }
)* } }
binary!(add, sub, mul, div, pow, maximum, minimum, eq, ne, lt, le, gt, ge);

/// out = condition != 0 ? a : b, all three broadcast.
#[track_caller]
pub fn where_(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _ = (condition, a, b);
    todo!()
}
/// a = a + alpha * b in place, b broadcast to a; overlapping views are safe.
#[track_caller]
pub fn add_(a: &Tensor, b: &Tensor, alpha: f64) -> Result<()> {
    let _ = (a, b, alpha);
    todo!()
}
/// a = a * b in place, b broadcast to a; overlapping views are safe.
#[track_caller]
pub fn mul_(a: &Tensor, b: &Tensor) -> Result<()> {
    let _ = (a, b);
    todo!()
}
