//! Matrix products. Letters: out `[.., M, N]` = a `[.., M, K]` b `[.., K, N]`.
//!
//! The kernels read and write any strides, so transposed, broadcast and sliced operands are never copied.

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::grid::Work;
use crate::kernel::params::Matmul;
use crate::kernel::sharing::LARGEST_COPY;
use crate::kernel::{Class, Kernel, KernelId, MATMUL_TEXTURE};
use crate::layout::{Dims, Layout, broadcast_shapes};
use crate::memory::Category;
use crate::ops::elementwise::{check_dtype, grid_for, index};
use crate::ops::{binary, copy, expect_dtype, expect_same_device, launch, reduce};
use crate::stream::Origin;
use crate::tensor::Tensor;

/// a @ b by PyTorch's rules (1-D, 2-D, batched with broadcasting), any strides; both of one type, which the result has.
///
/// A vector on the left is a row, one on the right a column; the result has no dimension for it. Where K is 0 the result
/// is zeros. Products of halves are summed in f32 and rounded once; whole numbers wrap.
#[track_caller]
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    expect_dtype(OP, b, a.dtype())?;
    in_f32(a, b, product)
}

const OP: &str = "matmul";

/// `of` of the operands in f32 where they are halves, rounded to their type at the end.
#[track_caller]
fn in_f32(a: &Tensor, b: &Tensor, of: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let _origin = Origin::enter();
    match a.dtype() {
        half @ (DType::F16 | DType::BF16) => {
            copy::to_dtype(&of(&copy::to_dtype(a, DType::F32)?, &copy::to_dtype(b, DType::F32)?)?, half)
        }
        _ => of(a, b),
    }
}

#[track_caller]
fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Error::shape(
            OP,
            format!("shapes {:?} and {:?}", a.shape(), b.shape()),
            "both operands need at least one dimension; use mul for scalars",
        ));
    }
    let unsqueezed = |x: &Tensor, dim: usize| {
        let layout = if x.rank() == 1 { x.layout().unsqueeze(dim) } else { None };
        layout.map_or_else(|| x.clone(), |layout| x.with_layout(layout))
    };
    let (a2, b2) = (unsqueezed(a, 0), unsqueezed(b, 1));
    let (m, k) = matrix(&a2);
    let (b_k, n) = matrix(&b2);
    if k != b_k {
        return Err(Error::shape(
            OP,
            format!("shapes {:?} and {:?}: rows of {k} elements meet columns of {b_k}", a.shape(), b.shape()),
            "make the last dimension of the left operand as long as the second last of the right (transpose swaps two)",
        ));
    }
    let batch = broadcast_shapes(OP, &a2.shape()[..a2.rank() - 2], &b2.shape()[..b2.rank() - 2])?;
    let with = |tail: [usize; 2]| batch.iter().copied().chain(tail).collect::<Vec<usize>>();
    let (a_view, b_view) = (a2.layout().broadcast_to(OP, &with([m, k]))?, b2.layout().broadcast_to(OP, &with([k, n]))?);
    let out = Tensor::empty_as(OP, a.device(), &with([m, n]), a.dtype(), Category::Temporary)?;
    product_into(OP, &a2.with_layout(a_view), &b2.with_layout(b_view), &out)?;
    let mut layout = *out.layout();
    if b.rank() == 1 {
        layout = layout.without(layout.rank() - 1);
    }
    if a.rank() == 1 {
        let rows = layout.rank() - if b.rank() == 1 { 1 } else { 2 };
        layout = layout.without(rows);
    }
    Ok(out.with_layout(layout))
}

/// x @ weight^T + bias; x `[.., K]`, weight `[N, K]`, bias `[N]` -> `[.., N]`, all of one type. Halves are rounded once, after the bias.
#[track_caller]
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    const OP: &str = "linear";
    let fits = match (x.shape().last(), weight.shape(), bias.map(Tensor::shape)) {
        (Some(k), [_, weight_k], None) => k == weight_k,
        (Some(k), [n, weight_k], Some([bias_n])) => k == weight_k && n == bias_n,
        _ => false,
    };
    if !fits {
        return Err(Error::shape(
            OP,
            format!("x {:?}, weight {:?}, bias {:?}", x.shape(), weight.shape(), bias.map(Tensor::shape)),
            "pass x [.., K], weight [N, K] and bias [N]",
        ));
    }
    [Some(weight), bias].into_iter().flatten().try_for_each(|other| expect_dtype(OP, other, x.dtype()))?;
    in_f32(x, weight, |x, weight| {
        let y = product(x, &weight.with_layout(weight.layout().transpose(0, 1))).map_err(|error| error.of(OP))?;
        match bias {
            Some(bias) => binary::add(&y, &copy::to_dtype(bias, y.dtype())?),
            None => Ok(y),
        }
    })
}

/// out = a b with batch dimensions of equal lengths, through views: the strides of all three are arbitrary.
///
/// `out` must not share elements with an operand, nor name one of its elements twice. All three are f32, i32 or u32.
#[track_caller]
pub(crate) fn product_into(op: &'static str, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    expect_same_device(op, &[a, b, out])?;
    // Which of the types there are kernels for, the kernel's row says.
    [b, out].into_iter().try_for_each(|x| expect_dtype(op, x, a.dtype()))?;
    let kernel = if a.dtype().is_float() { Kernel::matmul } else { Kernel::matmul_integer };
    check_dtype(op, kernel, a.dtype())?;
    if out.is_empty() {
        return Ok(());
    }
    if matrix(a).1 == 0 {
        return copy::fill_(out, 0);
    }
    let mut job = Job::new([a.layout(), b.layout(), out.layout()]);
    job.simplify();
    run(op, &job, a, b, out)
}

/// Lengths of the last two dimensions.
fn matrix(x: &Tensor) -> (usize, usize) {
    match x.shape() {
        [.., rows, columns] => (*rows, *columns),
        _ => (1, 1),
    }
}

/// Strides and offsets of a, b and out.
type Three = [usize; 3];

/// A product as the kernel sees it.
#[derive(Clone, Debug, PartialEq)]
struct Job {
    /// (length, strides) of the batch dimensions, outermost first.
    batch: SmallVec<[(usize, Three); 4]>,
    m: usize,
    n: usize,
    k: usize,
    offsets: Three,
    /// Strides of `[a's rows, a's k]`, `[b's k, b's columns]`, `[out's rows, out's columns]`.
    strides: [[usize; 2]; 3],
}

impl Job {
    fn new(layouts: [&Layout; 3]) -> Job {
        let rank = layouts[2].rank();
        let of = |dim: usize| layouts.map(|layout| layout.strides()[dim]);
        let (rows, columns) = (of(rank - 2), of(rank - 1));
        Job {
            batch: (0..rank - 2).map(|dim| (layouts[2].shape()[dim], of(dim))).collect(),
            m: layouts[2].shape()[rank - 2],
            n: layouts[2].shape()[rank - 1],
            k: layouts[0].shape()[rank - 1],
            offsets: layouts.map(Layout::offset),
            strides: [0, 1, 2].map(|i| [rows[i], columns[i]]),
        }
    }

    /// Merges batch dimensions, and makes a batch of a's under one b more rows: `[12, 64, K] @ [K, N]` is 768 rows.
    fn simplify(&mut self) {
        let mut merged: SmallVec<[(usize, Three); 4]> = SmallVec::new();
        for (len, strides) in self.batch.drain(..).filter(|(len, _)| *len != 1) {
            match merged.last_mut() {
                Some((outer, outer_strides)) if (0..3).all(|i| outer_strides[i] == len * strides[i]) => {
                    *outer *= len;
                    *outer_strides = strides;
                }
                _ => merged.push((len, strides)),
            }
        }
        self.batch = merged;
        while let Some((len, strides)) = self.batch.last().copied() {
            let follows = |i: usize| self.m == 1 || strides[i] == self.m * self.strides[i][0];
            if strides[1] != 0 || !follows(0) || !follows(2) {
                break;
            }
            if self.m == 1 {
                (self.strides[0][0], self.strides[2][0]) = (strides[0], strides[2]);
            }
            self.m *= len;
            self.batch.pop();
        }
    }
}

/// One launch per entry of the batch dimensions beyond the two that the kernel counts.
#[track_caller]
fn run(op: &'static str, job: &Job, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    if job.batch.len() > 2 {
        let mut inner = job.clone();
        let (len, strides) = inner.batch.remove(0);
        for _ in 0..len {
            run(op, &inner, a, b, out)?;
            (0..3).for_each(|i| inner.offsets[i] += strides[i]);
        }
        return Ok(());
    }
    let entries: usize = job.batch.iter().map(|(len, _)| len).product();
    let kernel = form(job, entries, [a, b, out]);
    let plan = Plan::new(kernel, job.m, job.n, job.k, entries);
    if plan.parts == 1 {
        return dispatch(op, job, &plan, 0, [a, b, out]);
    }
    // Every part of K has a result of its own, contiguous over (batch, M, N); they are added in order.
    let len = entries * job.m * job.n;
    let empty = |len: usize| Tensor::empty_as(op, out.device(), &[len], out.dtype(), Category::Temporary);
    let parts = empty(plan.parts * len)?;
    let mut apart = job.clone();
    apart.offsets[2] = 0;
    apart.strides[2] = [job.n, 1];
    let mut stride = job.m * job.n;
    for (len, strides) in apart.batch.iter_mut().rev() {
        strides[2] = stride;
        stride *= *len;
    }
    dispatch(op, &apart, &plan, len, [a, b, &parts])?;
    if out.is_contiguous() && out.layout().offset() == 0 && out.len() == len {
        return reduce::sum_splits(op, &parts, plan.parts, out);
    }
    let sum = empty(len)?;
    reduce::sum_splits(op, &parts, plan.parts, &sum)?;
    copy::copy_(&result(op, job, out)?, &result(op, &apart, &sum)?)
}

/// The elements of x that the job writes.
fn result(op: &'static str, job: &Job, x: &Tensor) -> Result<Tensor> {
    let shape: SmallVec<[usize; 4]> = job.batch.iter().map(|(len, _)| *len).chain([job.m, job.n]).collect();
    let strides: SmallVec<[usize; 4]> = job.batch.iter().map(|(_, strides)| strides[2]).chain(job.strides[2]).collect();
    match (Dims::from_slice(&shape), Dims::from_slice(&strides)) {
        (Some(shape), Some(strides)) => Ok(x.with_layout(Layout::strided(shape, strides, job.offsets[2]))),
        _ => Err(Error::shape(op, "too many dimensions", "use fewer batch dimensions")),
    }
}

/// How a product is spread over workgroups: a pure function of the kernel and the shape.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    kernel: KernelId,
    tiles: [usize; 2],
    entries: usize,
    parts: usize,
    part_len: usize,
}

/// No invocation loops more than 32,768 times in all, and the workgroup form needs 25 rounds for 16 steps of K.
const LONGEST_PART: usize = 16_384;
/// Shorter parts are not worth the addition of their results.
const SHORTEST_PART: usize = 256;

impl Plan {
    fn new(kernel: KernelId, m: usize, n: usize, k: usize, entries: usize) -> Plan {
        let form = kernel.form();
        let tiles = [n.div_ceil(form.constant("TN") as usize), m.div_ceil(form.constant("TM") as usize)];
        let groups = tiles[0] * tiles[1] * entries;
        // CPU drivers have a few cores to keep busy, GPUs dozens of compute units.
        let wanted = if form.class.is_cpu() { 4 } else { 64 };
        let parts = (wanted / groups.max(1)).min(k / SHORTEST_PART).max(k.div_ceil(LONGEST_PART)).max(1);
        // Texels hold four steps of K.
        let part_len = k.div_ceil(parts).next_multiple_of(4).min(LONGEST_PART);
        Plan { kernel, tiles, entries, parts: k.div_ceil(part_len.max(1)).max(1), part_len }
    }
}

/// The texture forms where they exist and the strides let a texel hold four neighbours along some dimension.
fn form(job: &Job, entries: usize, [a, b, out]: [&Tensor; 3]) -> KernelId {
    if out.dtype() != DType::F32 {
        return Kernel::matmul_integer.form(0);
    }
    let class = out.device().class();
    let plain = Kernel::matmul.select(class);
    let fours = |n: usize| n.is_multiple_of(4);
    // Whole blocks are copied: not for the sake of a small part of a large one.
    let worth = |x: &Tensor, len: usize| x.storage.size() <= (32 * len as u64).clamp(1 << 20, LARGEST_COPY);
    let fits = class == Class::Subgroup
        && fours(job.k)
        && !(out.shares_storage(a) || out.shares_storage(b))
        && worth(a, entries * job.m * job.k)
        && worth(b, entries * job.k * job.n);
    // The stride that is 1 says along which dimension texels lie; all else must keep them whole.
    let along = |i: usize, near: usize, far: usize| {
        let batch = job.batch.iter().all(|(_, strides)| fours(strides[i]));
        job.strides[i][near] == 1 && fours(job.strides[i][far]) && fours(job.offsets[i]) && batch
    };
    let (a_along_k, b_along_k) = (along(0, 1, 0), along(1, 0, 1));
    if !fits || !(a_along_k || along(0, 0, 1)) || !(b_along_k || along(1, 1, 0)) {
        return plain;
    }
    Kernel::matmul.form(MATMUL_TEXTURE + if a_along_k { 0 } else { 2 } + u8::from(b_along_k))
}

#[track_caller]
fn dispatch(op: &'static str, job: &Job, plan: &Plan, part_stride: usize, operands: [&Tensor; 3]) -> Result<()> {
    let kernel = plan.kernel;
    let unit = (1, [0; 3]);
    let (outer, inner) = match job.batch.as_slice() {
        [] => (unit, unit),
        [inner] => (unit, *inner),
        [outer, inner, ..] => (*outer, *inner),
    };
    let groups = plan.tiles[0] * plan.tiles[1] * plan.entries * plan.parts;
    let index = |n: usize| index(op, n);
    let four = |values: [usize; 4]| -> Result<[u32; 4]> {
        Ok([index(values[0])?, index(values[1])?, index(values[2])?, index(values[3])?])
    };
    let operand = |i: usize| four([job.offsets[i], job.strides[i][0], job.strides[i][1], inner.1[i]]);
    let params = Matmul {
        size: four([job.m, job.n, job.k, inner.0])?,
        a: operand(0)?,
        b: operand(1)?,
        out: operand(2)?,
        outer: four([outer.1[0], outer.1[1], outer.1[2], part_stride])?,
        tiles: four([plan.tiles[0], plan.tiles[1], plan.entries * plan.parts, 0])?,
        parts: index(plan.parts)?,
        part_len: index(plan.part_len)?,
        ..Matmul::default()
    };
    let workgroup = kernel.form().constant("WG") as usize;
    let work = Work::from(grid_for(op, kernel, groups * workgroup)?).with_steps(plan.part_len.min(job.k));
    launch(op, kernel, operands[2].dtype(), &operands, &params, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_bound_the_loop_and_cover_k() {
        for kernel in (0..MATMUL_TEXTURE + 4).map(|form| Kernel::matmul.form(form)) {
            for k in [1, 2, 255, 512, 768, 16_384, 16_385, 1 << 20, 1 << 24] {
                for (m, n, entries) in [(1, 1, 1), (128, 128, 1), (768, 512, 1), (64, 64, 48)] {
                    let plan = Plan::new(kernel, m, n, k, entries);
                    assert!(plan.part_len <= LONGEST_PART, "{plan:?}");
                    assert!(plan.parts * plan.part_len >= k && (plan.parts - 1) * plan.part_len < k, "{plan:?} for {k}");
                }
            }
        }
    }

    #[test]
    fn a_batch_under_one_b_becomes_rows() {
        let layout = |shape: &[usize]| Layout::contiguous("test", shape).unwrap();
        let b = layout(&[128, 384]).broadcast_to("test", &[12, 128, 384]).unwrap();
        let mut job = Job::new([&layout(&[12, 64, 128]), &b, &layout(&[12, 64, 384])]);
        job.simplify();
        assert_eq!((job.batch.len(), job.m, job.n, job.k), (0, 768, 384, 128));
        let mut job = Job::new([&layout(&[12, 4, 64, 32]), &layout(&[12, 4, 32, 64]), &layout(&[12, 4, 64, 64])]);
        job.simplify();
        assert_eq!((job.batch.as_slice(), job.m), (&[(48, [2048, 2048, 4096])][..], 64));
    }
}
