//! Scaled dot-product attention. Shape letters: B batch, H heads, T and S positions, D head width.
use crate::error::Result;
use crate::tensor::Tensor;

/// Which keys a query may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    None,
    Causal,
}

/// softmax(q k^T / sqrt(D)) v; q [B,H,T,D], k and v [B,H,S,D], any strides. Returns (out [B,H,T,D] laid out as [B,T,H,D]
/// in memory so that the caller's transpose(1, 2) is contiguous, probs [B,H,T,S] for the backward pass).
#[track_caller]
pub fn scaled_dot_product_attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Mask) -> Result<(Tensor, Tensor)> {
    let _ = (q, k, v, mask);
    todo!()
}
/// (dq, dk, dv) from dout; each laid out in memory as [B,T,H,D].
#[track_caller]
pub fn scaled_dot_product_attention_backward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    probs: &Tensor,
    dout: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    let _ = (q, k, v, probs, dout);
    todo!()
}
