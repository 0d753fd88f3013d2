//! Attention.

use crate::autograd::graph::{Backward, Grads};
use crate::error::Result;
use crate::ops::attention::scaled_dot_product_attention_backward;

/// y = p v with p = softmax(s), s = q k^T / sqrt(D):
/// dv = p^T g; dp = g v^T; ds = p (dp - sum(dp p)); dq = ds k / sqrt(D); dk = ds^T q / sqrt(D).
/// Saved: q, k, v, p.
pub(crate) fn scaled_dot_product_attention(b: &Backward<'_>) -> Result<Grads> {
    let (dq, dk, dv) = scaled_dot_product_attention_backward(b.saved(0), b.saved(1), b.saved(2), b.saved(3), b.grad())?;
    Ok(Grads::from_iter([Some(dq), Some(dk), Some(dv)].into_iter().enumerate().map(|(i, d)| d.filter(|_| b.needs(i)))))
}
