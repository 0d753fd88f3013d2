//! Matrix products. Products of transposed operands take views: `matmul` reads any strides.

use crate::error::Result;
use crate::ops::matmul::matmul;
use crate::ops::reduce::{KeepDim, sum};
use crate::tensor::Tensor;

use super::binary::to_shape;

/// y = a b: da = g b^T, summed over broadcast batches
pub(crate) fn matmul_a(a: &Tensor, b: &Tensor, g: &Tensor) -> Result<Tensor> {
    let g = matrix_gradient(a, b, g)?;
    let da = matmul(&g, &transposed(&column(b)?))?;
    let da = to_shape(&da, row(a)?.shape())?;
    reshaped(&da, a.shape())
}

/// y = a b: db = a^T g, summed over broadcast batches
pub(crate) fn matmul_b(a: &Tensor, b: &Tensor, g: &Tensor) -> Result<Tensor> {
    let g = matrix_gradient(a, b, g)?;
    let (a, b2) = (row(a)?, column(b)?);
    // One matrix b under a batch of a's: the batch is more rows, and the sum over it part of the product.
    let (a, g) = if b2.rank() == 2 && a.rank() > 2 { (rows(&a)?, rows(&g)?) } else { (a, g) };
    let db = to_shape(&matmul(&transposed(&a), &g)?, b2.shape())?;
    reshaped(&db, b.shape())
}

/// y = x w^T + c: dx = g w
pub(crate) fn linear_x(w: &Tensor, g: &Tensor) -> Result<Tensor> {
    matmul(g, w)
}

/// y = x w^T + c: dw = g^T x over all rows
pub(crate) fn linear_w(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    matmul(&transposed(&rows(g)?), &rows(x)?)
}

/// y = x w^T + c: dc = sum of g over all rows
pub(crate) fn linear_bias(g: &Tensor) -> Result<Tensor> {
    sum(&rows(g)?, &[0], KeepDim::Drop)
}

/// All leading dimensions as rows: `[.., N]` -> `[M, N]`.
fn rows(x: &Tensor) -> Result<Tensor> {
    let width = x.shape().last().copied().unwrap_or(1);
    let height: usize = x.shape().iter().rev().skip(1).product();
    reshaped(x, &[height, width])
}

/// A vector on the left is a row: `[K]` -> `[1, K]`.
fn row(a: &Tensor) -> Result<Tensor> {
    if a.rank() == 1 { reshaped(a, &[1, a.len()]) } else { Ok(a.clone()) }
}

/// A vector on the right is a column: `[K]` -> `[K, 1]`.
fn column(b: &Tensor) -> Result<Tensor> {
    if b.rank() == 1 { reshaped(b, &[b.len(), 1]) } else { Ok(b.clone()) }
}

/// The gradient with the dimensions that vectors among the operands took away.
fn matrix_gradient(a: &Tensor, b: &Tensor, g: &Tensor) -> Result<Tensor> {
    let mut shape = g.shape().to_vec();
    if a.rank() == 1 {
        let at = if b.rank() == 1 { shape.len() } else { shape.len() - 1 };
        shape.insert(at, 1);
    }
    if b.rank() == 1 {
        shape.push(1);
    }
    reshaped(g, &shape)
}

fn transposed(x: &Tensor) -> Tensor {
    x.with_layout(x.layout().transpose(x.rank() - 2, x.rank() - 1))
}

fn reshaped(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    super::copy::reshaped("matmul", x, shape)
}
