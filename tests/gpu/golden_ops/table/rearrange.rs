//! Elements in other places.

use linn::Tensor;
use linn::autograd::{Indexing, PadMode, meshgrid};

use super::create::f32_only;
use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, KEY, done, give};

pub const ROWS: &[Row] = &[
    row("constant_pad_nd", |c| give(c.input()?.pad_signed(&c.ints(1, "pad")?, PadMode::Constant(c.float_or(2, "value", 0.0)?)))),
    row("cross", |c| {
        let (a, b) = (c.input()?, c.tensor(1, "other")?);
        // PyTorch's old default: the first dimension of length 3.
        let first = a.shape().iter().position(|len| *len == 3).unwrap_or(0) as isize;
        give(a.cross(&b, c.int_or(2, "dim", first)?))
    }),
    row("diag", |c| give(c.input()?.diag(c.int_or(1, "diagonal", 0)?))),
    row("diag_embed", |c| {
        give(c.input()?.diag_embed(c.int_or(1, "offset", 0)?, c.int_or(2, "dim1", -2)?, c.int_or(3, "dim2", -1)?))
    }),
    row("eye", |c| {
        let n = c.int(0, "n")?;
        f32_only(c).and(give(Tensor::eye(c.device(), n, c.int_or(1, "m", n)?)))
    }),
    row("flip", |c| give(c.input()?.flip(&c.ints(1, "dims")?))),
    row("fliplr", |c| give(c.input()?.fliplr())),
    row("flipud", |c| give(c.input()?.flipud())),
    row("index_select", |c| give(c.input()?.index_select(c.int(1, "dim")?, &c.tensor(2, "index")?))),
    row("linspace", line),
    row("linspace.tensor_overload", line),
    row("logspace", powers),
    row("logspace.tensor_overload", powers),
    row("meshgrid.list_of_tensors", |c| grids(c, c.tensors(0, "tensors")?)),
    row("meshgrid.variadic_tensors", |c| grids(c, c.tensors_from(0, "tensors")?)),
    row("nn.functional.glu", |c| give(c.input()?.glu(c.int_or(1, "dim", -1)?))),
    row("nn.functional.pad.circular", pad),
    row("nn.functional.pad.constant", pad),
    row("nn.functional.pad.reflect", pad),
    row("nn.functional.pad.replicate", pad),
    row("nn.functional.pad.replicate_negative", pad),
    row("nn.functional.pixel_shuffle", |c| give(c.input()?.pixel_shuffle(c.len(1, "upscale_factor")?))),
    row("nn.functional.pixel_unshuffle", |c| give(c.input()?.pixel_unshuffle(c.len(1, "downscale_factor")?))),
    row("repeat", |c| give(c.input()?.repeat(&c.lens(1, "repeats")?))),
    row("roll", |c| {
        let list = |at: usize, name: &str| match c.is_list(at, name) {
            true => c.ints(at, name),
            false => Ok(c.int_opt(at, name)?.into_iter().collect()),
        };
        give(c.input()?.roll(&list(1, "shifts")?, &list(2, "dims")?))
    }),
    row("rot90", |c| give(c.input()?.rot90(c.int_or(1, "k", 1)?, &c.ints_opt(2, "dims")?.unwrap_or(vec![0, 1])))),
    row("sum_to_size", |c| {
        let sizes: Vec<usize> = c.ints_from(1, "size")?.into_iter().map(|len| len as usize).collect();
        give(c.input()?.sum_to_size(&sizes))
    }),
    row("take", |c| give(c.input()?.take(&c.tensor(1, "index")?))),
    row("take_along_dim", |c| {
        let (x, index) = (c.input()?, c.tensor(1, "indices")?);
        match c.int_opt(2, "dim")? {
            Some(dim) => give(x.take_along_dim(&index, dim)),
            None => give(x.take(&index.flatten(0, -1)?)),
        }
    }),
    row("tile", |c| give(c.input()?.tile(&c.lens(1, "dims")?))),
    row("tril", |c| give(c.input()?.tril(c.int_or(1, "diagonal", 0)?)))
        .in_place(|c| done(c.input()?.tril_(c.int_or(1, "diagonal", 0)?))),
    row("triu", |c| give(c.input()?.triu(c.int_or(1, "diagonal", 0)?)))
        .in_place(|c| done(c.input()?.triu_(c.int_or(1, "diagonal", 0)?))),
    row("lerp", |c| give(c.input()?.lerp(&c.tensor(1, "end")?, &weight(c)?)))
        .broadcasts()
        .in_place(|c| done(c.input()?.lerp_(&c.tensor(1, "end")?, &weight(c)?))),
];

/// `start, end, steps`, where the ends are numbers or tensors.
fn line(c: &Call) -> Answer {
    let steps = c.len(2, "steps")?;
    f32_only(c)?;
    match c.is_tensor(0, "start") || c.is_tensor(1, "end") {
        true => give(Tensor::linspace_tensor(&c.tensor(0, "start")?, &c.tensor(1, "end")?, steps)),
        false => give(Tensor::linspace(c.device(), c.float(0, "start")?, c.float(1, "end")?, steps)),
    }
}

/// `start, end, steps, base=10`, where the ends are numbers or tensors.
fn powers(c: &Call) -> Answer {
    let (steps, base) = (c.len(2, "steps")?, c.float_or(3, "base", 10.0)?);
    f32_only(c)?;
    match c.is_tensor(0, "start") || c.is_tensor(1, "end") {
        true => give(Tensor::logspace_tensor(&c.tensor(0, "start")?, &c.tensor(1, "end")?, steps, base)),
        false => give(Tensor::logspace(c.device(), c.float(0, "start")?, c.float(1, "end")?, steps, base)),
    }
}

/// A tensor, or a number as one of 0 dimensions.
fn weight(c: &Call) -> Answer<Tensor> {
    match c.is_tensor(2, "weight") {
        true => c.tensor(2, "weight"),
        false => Ok(Tensor::full(c.device(), &[], c.float(2, "weight")?)?),
    }
}

fn pad(c: &Call) -> Answer {
    let mode = match c.text_or(2, "mode", "constant")? {
        "constant" => PadMode::Constant(c.float_or(3, "value", 0.0)?),
        "reflect" => PadMode::Reflect,
        "replicate" => PadMode::Replicate,
        "circular" => PadMode::Circular,
        other => return Err(Fault::Row(format!("mode {other}"))),
    };
    give(c.input()?.pad_signed(&c.ints(1, "pad")?, mode))
}

fn grids(c: &Call, tensors: Vec<Tensor>) -> Answer {
    let indexing = match c.text_or(KEY, "indexing", "ij")? {
        "ij" => Indexing::Ij,
        "xy" => Indexing::Xy,
        other => return Err(Fault::Row(format!("indexing {other}"))),
    };
    give(meshgrid(&tensors.iter().collect::<Vec<_>>(), indexing))
}
