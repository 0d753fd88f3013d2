//! Reading by index: the gradient is added back to the rows it was read from, in a fixed order.

use crate::error::Result;
use crate::ops::index::embedding_backward;
use crate::ops::scatter::gather_backward;
use crate::tensor::Tensor;

/// `y[i]` = `w[ids[i]]`: `dw[r]` = sum of `g[i]` over all i with `ids[i]` = r
pub(crate) fn embedding(ids: &Tensor, g: &Tensor, rows: usize) -> Result<Tensor> {
    embedding_backward(g, ids, rows)
}

/// `y[i][j]` = `x[i][index[i][j]]` (dim 1): `dx[i][k]` = sum of `g[i][j]` over all j with `index[i][j]` = k
pub(crate) fn gather(index: &Tensor, g: &Tensor, dim: isize, shape: &[usize]) -> Result<Tensor> {
    gather_backward(g, dim, index, shape)
}
