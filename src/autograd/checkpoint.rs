//! Checkpointing: compute again instead of saving.

use smallvec::SmallVec;

use super::backward::BackwardOptions;
use super::graph::{Grads, Interior, Node, edge_of};
use super::mode::{enable_grad, is_grad_enabled, no_grad};
use super::saved::Saved;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// `f(inputs)` without keeping what `f` would save: only the inputs are kept, and the backward pass runs `f` once more.
///
/// `f` must compute the same each time (draw no random numbers). Gradients also reach leaves that `f` uses without being
/// passed them (its weights); so the result always wants gradients while recording is on.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::checkpoint;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
/// let y = checkpoint(|x| x[0].exp()?.log()?.square(), &[&x])?; // exp and log are computed again backward
/// y.sum_all()?.backward()?;
/// assert!(x.grad().is_some());
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn checkpoint(f: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static, inputs: &[&Tensor]) -> Result<Tensor> {
    let plain: Vec<Tensor> = inputs.iter().map(|input| input.detach()).collect();
    if !is_grad_enabled() {
        return f(&plain);
    }
    let out = no_grad(|| f(&plain))?;
    let edges: SmallVec<_> = inputs.iter().map(|input| edge_of("checkpoint", input)).collect::<Result<_>>()?;
    let saved = inputs.iter().map(|input| Saved::new("checkpoint", input)).collect::<Result<_>>()?;
    let count = inputs.len();
    let node = Node::new("checkpoint", out.device(), edges, saved, move |b| {
        let again: Vec<Tensor> = (0..count)
            .map(|i| if b.needs(i) { b.saved(i).clone().requires_grad_(true) } else { Ok(b.saved(i).clone()) })
            .collect::<Result<_>>()?;
        let out = enable_grad(|| f(&again))?;
        if !out.requires_grad() {
            return Ok(Grads::from_elem(None, count));
        }
        if out.shape() != b.grad().shape() {
            return Err(Error::autograd(
                format!("checkpoint: the second run gave shape {:?}, the first {:?}", out.shape(), b.grad().shape()),
                "pass a function that computes the same each time",
            ));
        }
        out.backward_with(BackwardOptions { gradient: Some(b.grad().clone()), ..Default::default() })?;
        Ok(again.iter().map(Tensor::grad).collect())
    });
    Ok(Tensor { grad_slot: Some(std::sync::Arc::new(Interior::new(node, 0))), ..out.detach() })
}
