//! Scaled dot-product attention. Shape letters: B batch, H heads, T and S positions, D head width.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::memory::Category;
use crate::ops::matmul::product_into;
use crate::ops::softmax::{Rows, rows_into};
use crate::ops::{copy, expect_dtype};
use crate::tensor::Tensor;

/// Which keys a query may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All.
    None,
    /// Query t sees keys 0..=t.
    Causal,
}

/// softmax(q k^T / sqrt(D)) v; q `[B,H,T,D]`, k and v `[B,H,S,D]`, any strides. Returns (out `[B,H,T,D]` laid out as `[B,T,H,D]`
/// in memory so that the caller's transpose(1, 2) is contiguous, probs `[B,H,T,S]` for the backward pass). Of halves out is rounded
/// once, and probs are f32.
#[track_caller]
pub fn scaled_dot_product_attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Mask) -> Result<(Tensor, Tensor)> {
    const OP: &str = "scaled_dot_product_attention";
    if let half @ (DType::F16 | DType::BF16) = q.dtype() {
        expect_dtype(OP, k, half)?;
        expect_dtype(OP, v, half)?;
        let (out, probs) = scaled_dot_product_attention(&wide(q)?, &wide(k)?, &wide(v)?, mask)?;
        return Ok((rounded(&out, half)?, probs));
    }
    let [batch, heads, t, s, d] = shapes(OP, q, k, v)?;
    let probs = Tensor::empty_as(OP, q.device(), &[batch, heads, t, s], DType::F32, Category::Temporary)?;
    let out = by_position(OP, q, [batch, heads, t, d])?;
    if !probs.is_empty() {
        product_into(OP, q, &transposed(k), &probs)?;
        let causal = if mask == Mask::Causal { t } else { 0 };
        rows_into(OP, Kernel::softmax, &[&probs], &probs, &Rows { n: s, causal, scale: 1.0 / (d as f32).sqrt() })?;
    }
    product_into(OP, &probs, v, &out)?;
    Ok((out, probs))
}

/// (dq, dk, dv) from dout; each laid out in memory as `[B,T,H,D]`. Where q, k and v are parts of one storage, so are these: as
/// `[B,T,3,H,D]`, so that the gradient of a projection to all three need not be copied together.
#[track_caller]
pub fn scaled_dot_product_attention_backward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    probs: &Tensor,
    dout: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "scaled_dot_product_attention_backward";
    if let half @ (DType::F16 | DType::BF16) = q.dtype() {
        let (dq, dk, dv) = scaled_dot_product_attention_backward(&wide(q)?, &wide(k)?, &wide(v)?, probs, &wide(dout)?)?;
        return Ok((rounded(&dq, half)?, rounded(&dk, half)?, rounded(&dv, half)?));
    }
    let [batch, heads, t, s, d] = shapes(OP, q, k, v)?;
    if dout.shape() != q.shape() || probs.shape() != [batch, heads, t, s] || !probs.is_contiguous() {
        return Err(Error::shape(
            OP,
            format!("a gradient of shape {:?} and probabilities of shape {:?}", dout.shape(), probs.shape()),
            format!("pass {:?} and the probabilities that the forward pass returned", q.shape()),
        ));
    }
    let [dq, dk, dv] = if s == t && q.shares_storage(k) && q.shares_storage(v) {
        let memory = Tensor::empty_as(OP, q.device(), &[batch, t, 3, heads, d], DType::F32, Category::Temporary)?;
        let part = |i: usize| -> Result<Tensor> {
            let layout = memory.layout().narrow(2, i, 1)?.without(2).transpose(1, 2);
            Ok(memory.with_layout(layout))
        };
        [part(0)?, part(1)?, part(2)?]
    } else {
        let keys = || by_position(OP, q, [batch, heads, s, d]);
        [by_position(OP, q, [batch, heads, t, d])?, keys()?, keys()?]
    };
    product_into(OP, &transposed(probs), dout, &dv)?;
    let dscores = Tensor::empty_as(OP, q.device(), &[batch, heads, t, s], DType::F32, Category::Temporary)?;
    if !dscores.is_empty() {
        product_into(OP, dout, &transposed(v), &dscores)?;
        // Masked probabilities are 0, and so are the gradients there: the mask need not be known.
        let rows = Rows { n: s, causal: 0, scale: 1.0 / (d as f32).sqrt() };
        rows_into(OP, Kernel::softmax_backward, &[probs, &dscores], &dscores, &rows)?;
    }
    product_into(OP, &dscores, k, &dq)?;
    product_into(OP, &transposed(&dscores), q, &dk)?;
    Ok((dq, dk, dv))
}

#[track_caller]
fn wide(x: &Tensor) -> Result<Tensor> {
    copy::to_dtype(x, DType::F32)
}

/// `[B, H, T, D]` that lies as `[B, T, H, D]`, as halves that lie so too.
#[track_caller]
fn rounded(x: &Tensor, half: DType) -> Result<Tensor> {
    let x = copy::to_dtype(&x.with_layout(x.layout().transpose(1, 2)), half)?;
    Ok(x.with_layout(x.layout().transpose(1, 2)))
}

/// `[B, H, T, S, D]`.
fn shapes(op: &'static str, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<[usize; 5]> {
    match (q.shape(), k.shape()) {
        ([batch, heads, t, d], [k_batch, k_heads, s, k_d])
            if (batch, heads, d) == (k_batch, k_heads, k_d) && v.shape() == k.shape() =>
        {
            Ok([*batch, *heads, *t, *s, *d])
        }
        _ => Err(Error::shape(
            op,
            format!("q {:?}, k {:?}, v {:?}", q.shape(), k.shape(), v.shape()),
            "pass q [B, H, T, D], k and v [B, H, S, D]",
        )),
    }
}

/// An empty tensor of shape `[B, H, T, D]` laid out as `[B, T, H, D]`.
#[track_caller]
fn by_position(op: &'static str, like: &Tensor, [batch, heads, t, d]: [usize; 4]) -> Result<Tensor> {
    let memory = Tensor::empty_as(op, like.device(), &[batch, t, heads, d], DType::F32, Category::Temporary)?;
    Ok(memory.with_layout(memory.layout().transpose(1, 2)))
}

fn transposed(x: &Tensor) -> Tensor {
    x.with_layout(x.layout().transpose(x.rank() - 2, x.rank() - 1))
}
