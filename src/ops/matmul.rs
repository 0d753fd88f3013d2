//! Matrix products.
use crate::error::Result;
use crate::tensor::Tensor;

/// a @ b by PyTorch's rules (1-D, 2-D, batched with broadcasting), any strides.
#[track_caller]
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _ = (a, b);
    todo!()
}
/// x @ weight^T + bias; x [.., K], weight [N, K], bias [N] -> [.., N].
#[track_caller]
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let _ = (x, weight, bias);
    todo!()
}
