//! What is put together from several operations, on halves: in f32, and rounded once.

use super::autocast::autocast_guard;
use crate::dtype::{DType, result_type};
use crate::error::Result;
use crate::ops;
use crate::stream::Origin;
use crate::tensor::Tensor;

/// `of` the operands, in f32 where the type of its result is one of halves; no scope of autocast converts what it is made of.
#[track_caller]
pub(super) fn rounded_once<const N: usize>(
    op: &'static str,
    operands: [&Tensor; N],
    of: impl Fn([&Tensor; N]) -> Result<Tensor>,
) -> Result<Tensor> {
    let (_origin, _not_again) = (Origin::enter(), autocast_guard(DType::F32)?);
    let half = match result_type(op, operands.map(ops::elementwise::operand))? {
        half @ (DType::F16 | DType::BF16) => half,
        _ => return of(operands),
    };
    let wide = operands.iter().map(|x| x.to_dtype(DType::F32)).collect::<Result<Vec<_>>>()?;
    of(std::array::from_fn(|i| &wide[i]))?.to_dtype(half)
}
