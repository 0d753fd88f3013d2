//! The same memory under another layout, and joins.

use linn::autograd::{cat, stack};

use super::{Row, row};
use crate::golden_ops::call::give;

/// Why `narrow` and `tensor_split` wait where a position is a tensor.
const READS_POSITIONS: &str = "a position given as a tensor decides where the view lies: PyTorch reads it too";

pub const ROWS: &[Row] = &[
    row("broadcast_to", |c| give(c.input()?.broadcast_to(&c.ints(1, "size")?))),
    row("cat", |c| give(cat(&c.tensors(0, "tensors")?.iter().collect::<Vec<_>>(), c.int_or(1, "dim", 0)?))),
    row("chunk", |c| give(c.input()?.chunk(c.len(1, "chunks")?, c.int_or(2, "dim", 0)?))),
    row("contiguous", |c| give(c.input()?.contiguous())),
    row("diagonal", |c| give(c.input()?.diagonal(c.int_or(1, "offset", 0)?, c.int_or(2, "dim1", 0)?, c.int_or(3, "dim2", 1)?))),
    row("expand", |c| give(c.input()?.expand(&c.ints(1, "size")?))),
    row("expand_as", |c| give(c.input()?.expand_as(&c.tensor(1, "other")?))),
    row("flatten", |c| give(c.input()?.flatten(c.int_or(1, "start_dim", 0)?, c.int_or(2, "end_dim", -1)?))),
    row("movedim", |c| give(c.input()?.movedim(&c.ints(1, "source")?, &c.ints(2, "destination")?))),
    row("narrow", |c| {
        let (dim, len) = (c.int(1, "dim")?, c.len(3, "length")?);
        match c.is_tensor(2, "start") {
            true => give(c.input()?.narrow_tensor(dim, &c.tensor(2, "start")?, len)),
            false => give(c.input()?.narrow(dim, c.int(2, "start")?, len)),
        }
    })
    .waits(READS_POSITIONS),
    row("permute", |c| give(c.input()?.permute(&c.ints(1, "dims")?))),
    row("reshape", |c| give(c.input()?.reshape(&c.ints(1, "shape")?))),
    row("select", |c| give(c.input()?.select(c.int(1, "dim")?, c.int(2, "index")?))),
    row("slice", |c| {
        let (from, to) = (c.int_or(2, "start", 0)?, c.int_or(3, "end", isize::MAX)?);
        give(c.input()?.slice(c.int_or(1, "dim", 0)?, from..to, c.len_or(4, "step", 1)?))
    }),
    row("split", |c| give(c.input()?.split(c.len(1, "split_size")?, c.int_or(2, "dim", 0)?))),
    row("split.list_args", |c| give(c.input()?.split_with_sizes(&c.lens(1, "split_size")?, c.int_or(2, "dim", 0)?))),
    row("split_with_sizes", |c| give(c.input()?.split_with_sizes(&c.lens(1, "split_sizes")?, c.int_or(2, "dim", 0)?))),
    row("squeeze", |c| match c.has(1, "dim") {
        true => give(c.input()?.squeeze(c.int(1, "dim")?)),
        false => give(c.input()?.squeeze_all()),
    }),
    row("squeeze.multiple", |c| give(c.input()?.squeeze_dims(&c.ints(1, "dim")?))),
    row("stack", |c| give(stack(&c.tensors(0, "tensors")?.iter().collect::<Vec<_>>(), c.int_or(1, "dim", 0)?))),
    row("tensor_split", |c| {
        let (x, at) = (c.input()?, c.ints(1, "indices_or_sections")?);
        let dim = c.int_or(2, "dim", 0)?;
        match c.is_list(1, "indices_or_sections") {
            true => give(x.tensor_split_at(&at, dim)),
            false => give(x.tensor_split(c.len(1, "indices_or_sections")?, dim)),
        }
    })
    .waits(READS_POSITIONS),
    row("transpose", |c| give(c.input()?.transpose(c.int(1, "dim0")?, c.int(2, "dim1")?))),
    row("unbind", |c| give(c.input()?.unbind(c.int_or(1, "dim", 0)?))),
    row("unflatten", |c| give(c.input()?.unflatten(c.int(1, "dim")?, &c.ints(2, "sizes")?))),
    row("unfold", |c| give(c.input()?.unfold(c.int(1, "dimension")?, c.len(2, "size")?, c.len(3, "step")?))),
    row("unsqueeze", |c| give(c.input()?.unsqueeze(c.int(1, "dim")?))),
    row("view", |c| give(c.input()?.view(&c.ints(1, "size")?))).may_refuse_layouts(),
];
