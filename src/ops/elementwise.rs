//! Launching element-wise kernels: which form, which strides, and copies where operands overlap the result.

use crate::dtype::{DType, Operand, Scalar, result_type};
use crate::error::{Error, Result};
use crate::kernel::params::{Contiguous, Rank8, Strided};
use crate::kernel::{CONTIGUOUS, Kernel, KernelId, PACKED, STRIDED, STRIDED_VEC4, grid};
use crate::layout::{Dims, Layout, MAX_RANK, collapse};
use crate::memory::Category;
use crate::ops;
use crate::ops::windows::pieces;
use crate::tensor::Tensor;

/// Most dimensions of the strided forms.
const STRIDED_RANK: usize = 4;

/// Workgroups per dimension on every device.
const MAX_GROUPS: u32 = 65_535;

/// Runs an element-wise kernel whose row is for `dtype`. The operands are its inputs, already broadcast to the shape of
/// the result, and last the result, which may share storage with them; `scalars` are the bits of `s` and `t`.
#[track_caller]
pub(crate) fn run<const M: usize>(
    op: &'static str,
    kernel: Kernel,
    dtype: DType,
    operands: [&Tensor; M],
    scalars: [u32; 2],
) -> Result<()> {
    check_dtype(op, kernel, dtype)?;
    let Some((out, inputs)) = operands.split_last() else { return Ok(()) };
    refuse_expanded(op, out)?;
    if out.is_empty() {
        return Ok(());
    }
    let too_large = operands.iter().any(|tensor| tensor.storage.is_too_large());
    if !owns_its_words(out) && !too_large {
        return into_packed_view(op, kernel, dtype, operands, scalars);
    }
    let mut copies: [Option<Tensor>; M] = std::array::from_fn(|_| None);
    for (i, input) in inputs.iter().enumerate() {
        if overlaps(input, out) && !(input.layout() == out.layout() && kernel.form(CONTIGUOUS).form().in_place.contains(&i)) {
            copies[i] = Some(ops::copy::copy(input)?);
        }
    }
    let operands: [&Tensor; M] = std::array::from_fn(|i| copies[i].as_ref().unwrap_or(operands[i]));
    if too_large {
        for piece in pieces(op, operands)? {
            run::<M>(op, kernel, dtype, std::array::from_fn(|i| &piece[i]), scalars)?;
        }
        return Ok(());
    }
    if operands.iter().all(|tensor| tensor.is_contiguous() && tensor.layout().offset().is_multiple_of(4)) {
        return contiguous(op, kernel, dtype, operands, scalars);
    }
    let layouts = operands.map(Tensor::layout);
    let collapsed = collapse(layouts);
    if collapsed.shape.len() <= STRIDED_RANK {
        let strides = collapsed.strides;
        return strided(op, kernel, dtype, operands, &collapsed.shape, &strides, scalars);
    }
    through_copies(op, kernel, dtype, operands, scalars)
}

/// [`run`] into a new contiguous tensor of the first input's shape.
#[track_caller]
pub(crate) fn map(op: &'static str, kernel: Kernel, x: &Tensor, scalars: [u32; 2]) -> Result<Tensor> {
    let dtype = kernel.row().result.unwrap_or(x.dtype());
    let out = Tensor::empty_as(op, x.device(), x.shape(), dtype, Category::Temporary)?;
    run(op, kernel, x.dtype(), [x, &out], scalars)?;
    Ok(out)
}

/// What a tensor contributes to the choice of a result's type.
pub(crate) fn operand(x: &Tensor) -> Operand {
    if x.rank() == 0 { Operand::ZeroDim(x.dtype()) } else { Operand::Tensor(x.dtype()) }
}

/// The type in which `kernel` computes on operands: their common one, or f32 where that is a whole one and the kernel is for
/// floats only (PyTorch's rule for `sin`, `/` and the like).
pub(crate) fn computes_in(op: &'static str, kernel: Kernel, operands: impl IntoIterator<Item = Operand>) -> Result<DType> {
    let common = result_type(op, operands)?;
    let takes = kernel.row().dtypes;
    Ok(if !common.is_float() && takes.iter().all(|dtype| dtype.is_float()) { DType::F32 } else { common })
}

/// The bits of `value` as kernels that compute on `dtype` take it; whole numbers in range for integer types.
pub(crate) fn scalar_bits(op: &'static str, value: impl Into<Scalar>, dtype: DType) -> Result<u32> {
    let value = value.into().value();
    let bits = match dtype {
        DType::F32 | DType::F16 | DType::BF16 => return Ok((value as f32).to_bits()),
        DType::I32 => (f64::from(value as i32) == value).then_some(value as i32 as u32),
        DType::U32 => (f64::from(value as u32) == value).then_some(value as u32),
        DType::Bool => return Ok(u32::from(value != 0.0)),
    };
    bits.ok_or_else(|| {
        Error::argument(op, format!("{value} is no {dtype}"), format!("pass a whole number in the range of {dtype}"))
    })
}

/// A length, stride or offset as kernels count them.
pub(crate) fn index(op: &'static str, n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::Limit {
        op,
        fact: format!("kernels count elements in 32 bits, and this needs {n}"),
        help: "split the tensor and work on the parts".into(),
    })
}

/// Enough workgroups of the kernel for `jobs` invocations.
pub(crate) fn grid_for(op: &'static str, kernel: KernelId, jobs: usize) -> Result<[u32; 3]> {
    grid::fold(grid::groups(jobs as u64, kernel.form().constant("WG")), MAX_GROUPS).ok_or_else(|| Error::Limit {
        op,
        fact: format!("{jobs} invocations do not fit one dispatch"),
        help: "split the tensor and work on the parts".into(),
    })
}

/// How many of `len` items one invocation handles.
pub(crate) fn per_invocation(device: &crate::device::Device, kernel: KernelId, len: usize) -> usize {
    grid::rounds(len.saturating_mul(4), kernel.form().constant("WG"), device.class().is_cpu()) as usize
}

/// Refuses an element type that the kernel does not exist for.
pub(crate) fn check_dtype(op: &'static str, kernel: Kernel, dtype: DType) -> Result<()> {
    if kernel.row().dtypes.contains(&dtype) {
        return Ok(());
    }
    Err(Error::DType { op, got: dtype, expected: kernel.row().takes() })
}

/// Writing through a view that names an element twice has no defined result.
pub(crate) fn refuse_expanded(op: &'static str, out: &Tensor) -> Result<()> {
    if !out.layout().is_expanded() {
        return Ok(());
    }
    Err(Error::shape(
        op,
        format!("the written view of shape {:?} names elements several times", out.shape()),
        "make a copy of the expanded view and write to that",
    ))
}

/// True when kernels may write all words in which the elements lie: always where elements are words, else where no other
/// elements lie in the first and the last one.
fn owns_its_words(out: &Tensor) -> bool {
    let (dtype, layout) = (out.dtype(), out.layout());
    dtype.per_word() == 1 || (out.is_contiguous() && layout.offset().is_multiple_of(4) && out.owns_last_word())
}

/// [`run`] into a view whose words hold other elements too: through a new tensor, whose elements are then put in their places.
#[track_caller]
fn into_packed_view<const M: usize>(
    op: &'static str,
    kernel: Kernel,
    dtype: DType,
    operands: [&Tensor; M],
    scalars: [u32; 2],
) -> Result<()> {
    let out = operands[M - 1];
    let result = Tensor::empty_as(op, out.device(), out.shape(), out.dtype(), Category::Temporary)?;
    let mut operands = operands;
    operands[M - 1] = &result;
    run(op, kernel, dtype, operands, scalars)?;
    copy_rank8(op, &result, out)
}

/// True when the two may have elements in common.
pub(crate) fn overlaps(a: &Tensor, b: &Tensor) -> bool {
    let (a_layout, b_layout) = (a.layout(), b.layout());
    a.shares_storage(b) && a_layout.offset() < b_layout.end() && b_layout.offset() < a_layout.end()
}

/// Inputs fill a list of four from the front, the result is its last entry.
fn spread<const M: usize, T: Copy>(values: [T; M], fill: T) -> [T; 4] {
    let mut out = [fill; 4];
    for (i, value) in values.into_iter().enumerate() {
        out[if i + 1 == M { 3 } else { i }] = value;
    }
    out
}

#[track_caller]
fn contiguous<const M: usize>(
    op: &'static str,
    kernel: Kernel,
    dtype: DType,
    operands: [&Tensor; M],
    [s, t]: [u32; 2],
) -> Result<()> {
    let kernel = kernel.form(CONTIGUOUS);
    let out = operands[M - 1];
    let len = out.len();
    let workgroup = kernel.form().constant("WG");
    let rounds = grid::rounds(len, workgroup, out.device().class().is_cpu());
    let mut offsets = [0; M];
    for (offset, tensor) in offsets.iter_mut().zip(operands) {
        *offset = index(op, tensor.layout().offset() / 4)?;
    }
    let params = Contiguous { len: index(op, len)?, rounds, s, t, offsets: spread(offsets, 0) };
    let grid = grid_for(op, kernel, len.div_ceil(4).div_ceil(rounds as usize))?;
    ops::launch(op, kernel, dtype, &operands, &params, grid)
}

#[track_caller]
fn strided<const M: usize>(
    op: &'static str,
    kernel: Kernel,
    dtype: DType,
    operands: [&Tensor; M],
    shape: &Dims,
    strides: &[Dims; M],
    [s, t]: [u32; 2],
) -> Result<()> {
    let out = operands[M - 1];
    let last = shape.len() - 1;
    let packed = out.dtype().per_word() > 1;
    let aligned = |i: usize| {
        let (inner, outer) = (strides[i][last], &strides[i][..last]);
        inner == 1 && outer.iter().all(|stride| stride % 4 == 0) && operands[i].layout().offset().is_multiple_of(4)
    };
    let vector = !packed && shape[last].is_multiple_of(4) && (0..M).all(aligned);
    let unit = if vector { 4 } else { 1 };
    let kernel = kernel.form(if packed {
        PACKED
    } else if vector {
        STRIDED_VEC4
    } else {
        STRIDED
    });
    let mut lens = [1u32; 4];
    let mut steps = [[0u32; 4]; M];
    let mut offsets = [0u32; M];
    for dim in 0..shape.len() {
        let to = STRIDED_RANK - shape.len() + dim;
        lens[to] = index(op, if dim == last { shape[dim] / unit } else { shape[dim] })?;
        for i in 0..M {
            steps[i][to] = index(op, if dim == last { strides[i][dim] } else { strides[i][dim] / unit })?;
        }
    }
    for (offset, tensor) in offsets.iter_mut().zip(operands) {
        *offset = index(op, tensor.layout().offset() / unit)?;
    }
    let inner = lens[3] as usize;
    let rows = out.len() / unit / inner;
    let (jobs, chunks) = if packed {
        // The result is contiguous, and counted in fours.
        offsets[M - 1] /= 4;
        (out.len().div_ceil(4), 1)
    } else {
        let chunks = inner.div_ceil(per_invocation(out.device(), kernel, out.len() / unit));
        (rows * chunks, chunks)
    };
    let [a_strides, b_strides, c_strides, out_strides] = spread(steps, [0; 4]);
    let params = Strided {
        shape: lens,
        a_strides,
        b_strides,
        c_strides,
        out_strides,
        offsets: spread(offsets, 0),
        jobs: index(op, jobs)?,
        chunks: index(op, chunks)?,
        s,
        t,
        len: index(op, out.len())?,
        ..Strided::default()
    };
    let grid = grid_for(op, kernel, jobs)?;
    ops::launch(op, kernel, dtype, &operands, &params, grid)
}

/// Views that keep more than 4 dimensions: contiguous copies of the inputs, and of the result where it is a view.
#[track_caller]
fn through_copies<const M: usize>(
    op: &'static str,
    kernel: Kernel,
    dtype: DType,
    operands: [&Tensor; M],
    scalars: [u32; 2],
) -> Result<()> {
    let out = operands[M - 1];
    if kernel == Kernel::copy {
        return copy_rank8(op, operands[0], out);
    }
    let mut copies: [Option<Tensor>; M] = std::array::from_fn(|_| None);
    for (copy, tensor) in copies.iter_mut().zip(&operands[..M - 1]) {
        if !tensor.is_contiguous() {
            *copy = Some(ops::copy::copy(tensor)?);
        }
    }
    let result = if out.is_contiguous() {
        None
    } else {
        Some(Tensor::empty_as(op, out.device(), out.shape(), out.dtype(), Category::Temporary)?)
    };
    copies[M - 1] = result.clone();
    let dense: [&Tensor; M] = std::array::from_fn(|i| copies[i].as_ref().unwrap_or(operands[i]));
    run(op, kernel, dtype, dense, scalars)?;
    match result {
        Some(result) => run(op, Kernel::copy, out.dtype(), [&result, out], [0; 2]),
        None => Ok(()),
    }
}

/// Copies between views of up to 8 dimensions.
#[track_caller]
fn copy_rank8(op: &'static str, x: &Tensor, out: &Tensor) -> Result<()> {
    let kernel = Kernel::copy_rank8.form(0);
    let spread = |items: &[usize], fill: u32| -> Result<[[u32; 4]; 2]> {
        let mut list = [[fill; 4]; 2];
        for (i, item) in items.iter().enumerate() {
            let to = MAX_RANK - items.len() + i;
            list[to / 4][to % 4] = index(op, *item)?;
        }
        Ok(list)
    };
    let (from, to): (&Layout, &Layout) = (x.layout(), out.layout());
    let params = Rank8 {
        shape: spread(to.shape(), 1)?,
        a_strides: spread(from.strides(), 0)?,
        out_strides: spread(to.strides(), 0)?,
        len: index(op, out.len())?,
        a_offset: index(op, from.offset())?,
        out_offset: index(op, to.offset())?,
        pad: 0,
    };
    ops::launch(op, kernel, x.dtype(), &[x, out], &params, grid_for(op, kernel, out.len())?)
}
