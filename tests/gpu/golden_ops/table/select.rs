//! What tensors hold decides: comparisons as a whole, masks, sorted order.

use linn::ops::reduce::KeepDim;
use linn::ops::sort::{Order, Side};

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, KEY, Output, give};
use crate::golden_ops::manifest::{Arg, Case};

/// Why the host waits.
const COUNTS: &str = "the shape of the result depends on the elements";
const ASKS: &str = "the host asks whether they are";

pub const ROWS: &[Row] = &[
    row("allclose", |c| {
        let (rtol, atol) = (c.float_or(2, "rtol", 1e-5)?, c.float_or(3, "atol", 1e-8)?);
        give(c.input()?.allclose(&c.tensor(1, "other")?, rtol, atol, c.bool_or(4, "equal_nan", false)?))
    })
    .waits(ASKS),
    row("argsort", |c| {
        c.bool_or(KEY, "stable", false)?;
        give(c.input()?.argsort(c.int_or(1, "dim", -1)?, order(c, 2, false)?))
    })
    .ties(|case| dim(case, 1)),
    row("bucketize", |c| give(c.input()?.bucketize(&c.tensor(1, "boundaries")?, side(c)?))),
    row("equal", |c| give(c.input()?.equal(&c.tensor(1, "other")?))).waits(ASKS),
    row("masked_select", |c| give(c.input()?.masked_select(&c.tensor(1, "mask")?))).waits(COUNTS),
    row("median", |c| match c.has(1, "dim") {
        true => {
            let keep = if c.bool_or(2, "keepdim", false)? { KeepDim::Keep } else { KeepDim::Drop };
            give(c.input()?.median(c.int(1, "dim")?, keep))
        }
        false => give(c.input()?.median_all()),
    }),
    row("nonzero", |c| match c.bool_or(KEY, "as_tuple", false)? {
        true => give(c.input()?.nonzero_as_tuple()),
        false => give(c.input()?.nonzero()),
    })
    .waits(COUNTS),
    row("repeat_interleave", |c| {
        let (x, dim) = (c.input()?, c.int_opt(2, "dim")?);
        let len = c.int_opt(KEY, "output_size")?.map(|len| len as usize);
        match c.is_tensor(1, "repeats") {
            true => give(x.repeat_interleave_tensor(&c.tensor(1, "repeats")?, dim, len)),
            false => give(x.repeat_interleave(c.len(1, "repeats")?, dim)),
        }
    })
    .waits(COUNTS),
    row("searchsorted", |c| {
        let sorted = c.tensor(0, "sorted_sequence")?;
        match c.tensor_opt(KEY, "sorter")? {
            Some(sorter) => give(sorted.searchsorted_by(&sorter, &c.tensor(1, "input")?, side(c)?)),
            None => give(sorted.searchsorted(&c.tensor(1, "input")?, side(c)?)),
        }
    }),
    row("sort", |c| {
        c.bool_or(3, "stable", false)?;
        give(c.input()?.sort(c.int_or(1, "dim", -1)?, order(c, 2, false)?))
    })
    .ties(|case| dim(case, 1)),
    row("topk", |c| {
        c.bool_or(4, "sorted", true)?;
        let largest = c.bool_or(3, "largest", true)?;
        let order = if largest { Order::Descending } else { Order::Ascending };
        give(c.input()?.topk(c.len(1, "k")?, c.int_or(2, "dim", -1)?, order))
    })
    .ties(|case| dim(case, 2)),
    row("unique", |c| {
        // Sorted is one of the orders that `sorted=False` leaves open.
        c.bool_or(1, "sorted", true)?;
        let (inverse, counts) = (c.bool_or(2, "return_inverse", false)?, c.bool_or(3, "return_counts", false)?);
        let found = c.input()?.unique(c.int_opt(4, "dim")?)?;
        let more = [(inverse, found.inverse), (counts, found.counts)];
        let more = more.into_iter().filter(|(wanted, _)| *wanted).map(|(_, tensor)| tensor);
        Ok(Output::Tensors([found.values].into_iter().chain(more).collect()))
    })
    .waits(COUNTS),
];

/// `dim`, the last one where it is not given; `None` where the order has to be stable.
fn dim(case: &Case, at: usize) -> Option<i64> {
    if matches!(case.kwargs.get("stable"), Some(Arg::Bool(true))) {
        return None;
    }
    match case.args.get(at).or_else(|| case.kwargs.get("dim")) {
        Some(Arg::Int(dim)) => Some(*dim),
        _ => Some(-1),
    }
}

fn order(c: &Call, at: usize, default: bool) -> Answer<Order> {
    Ok(if c.bool_or(at, "descending", default)? { Order::Descending } else { Order::Ascending })
}

/// `right`, or `side`; `out_int32` changes nothing: linn's indices are i32.
fn side(c: &Call) -> Answer<Side> {
    c.bool_or(KEY, "out_int32", false)?;
    let right = c.bool_or(KEY, "right", false)? || c.text_or(KEY, "side", "left")? == "right";
    Ok(if right { Side::Right } else { Side::Left })
}
