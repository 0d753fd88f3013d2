//! Reading and writing by i32 indices.
use crate::error::Result;
use crate::tensor::Tensor;

/// Rows of weight [V, C] named by ids [..] -> [.., C]. An index out of range is reported at the next synchronising call.
#[track_caller]
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let _ = (weight, ids);
    todo!()
}
/// dweight [rows, C] from dout [.., C] and ids [..]; fixed order of summation.
#[track_caller]
pub fn embedding_backward(dout: &Tensor, ids: &Tensor, rows: usize) -> Result<Tensor> {
    let _ = (dout, ids, rows);
    todo!()
}
/// out[i][j] = x[i][index[i][j]] for dim = 1, PyTorch's `gather`.
#[track_caller]
pub fn gather(x: &Tensor, dim: isize, index: &Tensor) -> Result<Tensor> {
    let _ = (x, dim, index);
    todo!()
}
/// dx of shape `shape` from the gradient of `gather`; fixed order of summation.
#[track_caller]
pub fn gather_backward(dout: &Tensor, dim: isize, index: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let _ = (dout, dim, index, shape);
    todo!()
}
