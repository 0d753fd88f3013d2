//! Layer normalisation.

use crate::autograd::graph::{Backward, Grads};
use crate::error::Result;
use crate::memory::Category;
use crate::ops::norm::layer_norm_backward;

/// y = n w + b with n = (x - mean) rstd, per row of length C:
/// dn = g w; dx = rstd (dn - mean(dn) - n mean(dn n)); dw = sum of g n over rows; db = sum of g over rows.
/// Saved: x, mean, rstd, then w where there is one.
pub(crate) fn layer_norm(b: &Backward<'_>, weight: Option<usize>, bias: Option<usize>) -> Result<Grads> {
    let w = weight.map(|_| b.saved(3));
    let wants = |operand: Option<usize>| operand.is_some_and(|i| b.needs(i));
    let sum = b.take_sum(0);
    let (x, mean, rstd) = (b.saved(0), b.saved(1), b.saved(2));
    let (dx, dw, db) = layer_norm_backward(b.grad(), sum.as_ref(), x, w, mean, rstd, wants(weight), wants(bias))?;
    if sum.is_some() {
        dx.set_category(Category::Gradient);
    }
    let mut grads = Grads::from_iter([Some(dx)]);
    grads.extend(weight.map(|_| dw));
    grads.extend(bias.map(|_| db));
    Ok(grads)
}
