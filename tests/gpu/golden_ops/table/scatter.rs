//! Writing by positions and masks.

use linn::Tensor;
use linn::autograd::{Own, Put, ScatterReduce};

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, KEY, done, give};

pub const ROWS: &[Row] = &[
    row("index_add", |c| {
        let (dim, index, source) = indexed(c)?;
        give(c.input()?.index_add(dim, &index, &source, c.float_or(KEY, "alpha", 1.0)?))
    })
    .in_place(|c| {
        let (dim, index, source) = indexed(c)?;
        done(c.input()?.index_add_(dim, &index, &source, c.float_or(KEY, "alpha", 1.0)?))
    }),
    row("index_copy", |c| {
        let (dim, index, source) = indexed(c)?;
        give(c.input()?.index_copy(dim, &index, &source))
    })
    .in_place(|c| {
        let (dim, index, source) = indexed(c)?;
        done(c.input()?.index_copy_(dim, &index, &source))
    }),
    row("index_fill", |c| {
        let (x, dim, index) = (c.input()?, c.int(1, "dim")?, c.tensor(2, "index")?);
        match c.is_tensor(3, "value") {
            true => give(x.index_fill_tensor(dim, &index, &c.tensor(3, "value")?)),
            false => give(x.index_fill(dim, &index, c.scalar(3, "value")?)),
        }
    })
    .in_place(|c| {
        let (x, dim, index) = (c.input()?, c.int(1, "dim")?, c.tensor(2, "index")?);
        match c.is_tensor(3, "value") {
            true => done(x.index_fill_tensor_(dim, &index, &c.tensor(3, "value")?)),
            false => done(x.index_fill_(dim, &index, c.scalar(3, "value")?)),
        }
    }),
    row("index_put", |c| {
        let indices = c.tensors(1, "indices")?;
        give(c.input()?.index_put(indices.iter().collect::<Vec<_>>(), &c.tensor(2, "values")?, put(c)?))
    })
    .in_place(|c| {
        let indices = c.tensors(1, "indices")?;
        done(c.input()?.index_put_(indices.iter().collect::<Vec<_>>(), &c.tensor(2, "values")?, put(c)?))
    })
    .waits("how many places a mask names depends on it"),
    row("masked_fill", |c| {
        let (x, mask) = (c.input()?, c.tensor(1, "mask")?);
        match c.is_tensor(2, "value") {
            true => give(x.masked_fill_tensor(&mask, &c.tensor(2, "value")?)),
            false => give(x.masked_fill(&mask, c.scalar(2, "value")?)),
        }
    })
    .in_place(|c| {
        let (x, mask) = (c.input()?, c.tensor(1, "mask")?);
        match c.is_tensor(2, "value") {
            true => done(x.masked_fill_tensor_(&mask, &c.tensor(2, "value")?)),
            false => done(x.masked_fill_(&mask, c.scalar(2, "value")?)),
        }
    }),
    row("masked_scatter", |c| give(c.input()?.masked_scatter(&c.tensor(1, "mask")?, &c.tensor(2, "source")?)))
        .in_place(|c| done(c.input()?.masked_scatter_(&c.tensor(1, "mask")?, &c.tensor(2, "source")?))),
    row("scatter", |c| {
        let (x, dim, index) = (c.input()?, c.int(1, "dim")?, c.tensor(2, "index")?);
        match (reduce_word(c)?, c.is_tensor(3, "src")) {
            (None, true) => give(x.scatter(dim, &index, &c.tensor(3, "src")?)),
            (None, false) => give(x.scatter_value(dim, &index, value(c)?)),
            (Some(reduce), _) => give(x.scatter_reduce(dim, &index, &elements(c, &x, &index)?, reduce, Own::Included)),
        }
    })
    .in_place(|c| {
        let (x, dim, index) = (c.input()?, c.int(1, "dim")?, c.tensor(2, "index")?);
        match (reduce_word(c)?, c.is_tensor(3, "src")) {
            (None, true) => done(x.scatter_(dim, &index, &c.tensor(3, "src")?)),
            (None, false) => done(x.scatter_value_(dim, &index, value(c)?)),
            (Some(reduce), _) => done(x.scatter_reduce_(dim, &index, &elements(c, &x, &index)?, reduce, Own::Included)),
        }
    }),
    row("scatter_add", |c| {
        let (dim, index, source) = indexed(c)?;
        give(c.input()?.scatter_add(dim, &index, &source))
    })
    .in_place(|c| {
        let (dim, index, source) = indexed(c)?;
        done(c.input()?.scatter_add_(dim, &index, &source))
    }),
    row("scatter_reduce.amax", reduce).in_place(reduce_),
    row("scatter_reduce.amin", reduce).in_place(reduce_),
    row("scatter_reduce.mean", reduce).in_place(reduce_),
    row("scatter_reduce.prod", reduce).in_place(reduce_),
    row("scatter_reduce.sum", reduce).in_place(reduce_),
];

/// `dim, index, source` behind the input.
fn indexed(c: &Call) -> Answer<(isize, Tensor, Tensor)> {
    let name = if c.has(KEY, "src") { "src" } else { "source" };
    Ok((c.int(1, "dim")?, c.tensor(2, "index")?, c.tensor(3, name)?))
}

fn put(c: &Call) -> Answer<Put> {
    Ok(if c.bool_or(3, "accumulate", false)? { Put::Add } else { Put::Replace })
}

/// scatter's old `reduce`.
fn reduce_word(c: &Call) -> Answer<Option<ScatterReduce>> {
    match c.text_or(KEY, "reduce", "")? {
        "" => Ok(None),
        "add" => Ok(Some(ScatterReduce::Sum)),
        "multiply" => Ok(Some(ScatterReduce::Prod)),
        other => Err(Fault::Row(format!("reduce {other}"))),
    }
}

fn value(c: &Call) -> Answer<linn::Scalar> {
    let name = if c.has(KEY, "src") { "src" } else { "value" };
    c.scalar(3, name)
}

/// scatter's elements, a tensor or one number for all.
fn elements(c: &Call, x: &Tensor, index: &Tensor) -> Answer<Tensor> {
    match c.is_tensor(3, "src") {
        true => c.tensor(3, "src"),
        false => {
            let sizes: Vec<isize> = index.shape().iter().map(|len| *len as isize).collect();
            Ok(Tensor::full(x.device(), &[], value(c)?)?.expand(&sizes)?)
        }
    }
}

/// `input, dim, index, src, reduce, *, include_self=True`.
fn how(c: &Call) -> Answer<(ScatterReduce, Own)> {
    let reduce = match c.text_or(4, "reduce", "")? {
        "sum" => ScatterReduce::Sum,
        "prod" => ScatterReduce::Prod,
        "mean" => ScatterReduce::Mean,
        "amax" => ScatterReduce::Amax,
        "amin" => ScatterReduce::Amin,
        other => return Err(Fault::Row(format!("reduce {other}"))),
    };
    Ok((reduce, if c.bool_or(KEY, "include_self", true)? { Own::Included } else { Own::Excluded }))
}

fn reduce(c: &Call) -> Answer {
    let ((dim, index, src), (reduce, own)) = (indexed(c)?, how(c)?);
    give(c.input()?.scatter_reduce(dim, &index, &src, reduce, own))
}

fn reduce_(c: &Call) -> Answer<()> {
    let ((dim, index, src), (reduce, own)) = (indexed(c)?, how(c)?);
    done(c.input()?.scatter_reduce_(dim, &index, &src, reduce, own))
}
