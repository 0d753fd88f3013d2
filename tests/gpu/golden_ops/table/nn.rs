//! What networks are made of.

use super::{Row, row};
use crate::golden_ops::call::{Fault, give};

pub const ROWS: &[Row] = &[row("nn.functional.layer_norm", |c| {
    let (x, shape) = (c.input()?, c.lens(1, "normalized_shape")?);
    let (weight, bias, eps) = (c.tensor_opt(2, "weight")?, c.tensor_opt(3, "bias")?, c.float_or(4, "eps", 1e-5)?);
    match shape.len() {
        1 => give(x.layer_norm(weight.as_ref(), bias.as_ref(), eps)),
        _ => Err(Fault::Row(format!("normalized_shape {shape:?}: linn normalises the last dimension"))),
    }
})];
