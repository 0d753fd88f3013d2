//! Recording: hanging a node on the results of an operation.

use std::sync::Arc;

use smallvec::SmallVec;

use super::graph::{Backward, Edge, Grads, Interior, Node, edge_of};
use super::mode::is_grad_enabled;
use super::saved::Saved;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops;
use crate::tensor::Tensor;

/// `out = op(inputs)`: remembers `saved` and `rule` where an input wants gradients. The rule answers with one gradient per input.
pub(crate) fn record(
    op: &'static str,
    inputs: &[&Tensor],
    saved: &[&Tensor],
    out: Tensor,
    rule: impl Fn(&Backward<'_>) -> Result<Grads> + Send + Sync + 'static,
) -> Result<Tensor> {
    let Some(node) = node(op, inputs, saved, rule)? else { return Ok(out) };
    Ok(Tensor { grad_slot: Some(Arc::new(Interior::new(node, 0))), ..out })
}

/// [`record`] for operations with one input, whose rule answers with one gradient.
pub(crate) fn record_unary(
    op: &'static str,
    input: &Tensor,
    saved: &[&Tensor],
    out: Tensor,
    rule: impl Fn(&Backward<'_>) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    record(op, &[input], saved, out, move |b| Ok(one(rule(b)?)))
}

/// [`record`] for results that share the storage of `input`.
pub(crate) fn record_view(
    op: &'static str,
    input: &Tensor,
    out: Tensor,
    rule: impl Fn(&Backward<'_>) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let mut outs = record_views(op, input, vec![out], move |b| rule(b))?;
    Ok(outs.swap_remove(0))
}

/// One node for several views of `input`: its rule sees all their gradients at once.
pub(crate) fn record_views(
    op: &'static str,
    input: &Tensor,
    outs: Vec<Tensor>,
    rule: impl Fn(&Backward<'_>) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Vec<Tensor>> {
    let Some(node) = node(op, &[input], &[], move |b| Ok(one(rule(b)?)))? else { return Ok(outs) };
    let with_slot = |(output, out): (usize, Tensor)| {
        let slot = Interior::view(node.clone(), output, input);
        Tensor { grad_slot: Some(Arc::new(slot)), ..out }
    };
    Ok(outs.into_iter().enumerate().map(with_slot).collect())
}

/// A node, where recording is on and an input wants gradients.
pub(crate) fn node(
    op: &'static str,
    inputs: &[&Tensor],
    saved: &[&Tensor],
    rule: impl Fn(&Backward<'_>) -> Result<Grads> + Send + Sync + 'static,
) -> Result<Option<Arc<Node>>> {
    let wanted = is_grad_enabled() && inputs.iter().any(|input| input.requires_grad());
    let (true, Some(first)) = (wanted, inputs.first()) else { return Ok(None) };
    let edges: SmallVec<[Option<Edge>; 3]> = inputs.iter().map(|input| edge_of(op, input)).collect::<Result<_>>()?;
    let saved = saved.iter().map(|tensor| Saved::new(op, tensor)).collect::<Result<_>>()?;
    if inputs.iter().all(|input| input.dtype() == first.dtype()) {
        return Ok(Some(Node::new(op, first.device(), edges, saved, rule)));
    }
    // Operands of several types were promoted to one, in which the rule answers.
    let dtypes: SmallVec<[DType; 3]> = inputs.iter().map(|input| input.dtype()).collect();
    let rule = move |b: &Backward<'_>| {
        let convert = |(grad, dtype): (Option<Tensor>, &DType)| {
            grad.filter(|_| dtype.is_float()).map(|grad| ops::copy::to_dtype(&grad, *dtype)).transpose()
        };
        rule(b)?.into_iter().zip(&dtypes).map(convert).collect::<Result<Grads>>()
    };
    Ok(Some(Node::new(op, first.device(), edges, saved, rule)))
}

/// The answer of a rule with one operand.
pub(crate) fn one(grad: Tensor) -> Grads {
    Grads::from_iter([Some(grad)])
}
