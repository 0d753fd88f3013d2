//! Sums, products, means and extremes over dimensions. Empty `dims` means all dimensions; the order of summation is fixed.
//! Halves are reduced in f32 and rounded once, at the end.
//!
//! Every reduction is one over the middle of `[outer, n, inner]` with strides. Long ones take several stages: `splits`
//! invocations share a result, and the next stage reduces what they found.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::Reduce;
use crate::kernel::{COLUMNS_VEC4, Class, Kernel, KernelId, ROWS_VEC4};
use crate::layout::{Layout, resolve_dim};
use crate::memory::Category;
use crate::ops::binary::{add, sub, where_scalar};
use crate::ops::copy::{self, contiguous, to_dtype};
use crate::ops::elementwise::{check_dtype, grid_for, index, scalar_bits};
use crate::ops::launch;
use crate::ops::unary::{abs, exp, isfinite, log, neg, pow_scalar, rsub_scalar, sqrt, square};
use crate::stream::Origin;
use crate::tensor::Tensor;

/// Keep reduced dimensions with length 1, or drop them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepDim {
    /// Length 1 in the result.
    Keep,
    /// Gone from the result.
    Drop,
}

/// Sum over `dims`; integers wrap, bool counts as i32. The sum of nothing is 0.
#[track_caller]
pub fn sum(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    in_words(x, |x| reduce("sum", Kernel::sum, x, dims, keep, Empty::Value(0.0), false))
}

/// Product over `dims`; integers wrap, bool counts as i32. The product of nothing is 1.
#[track_caller]
pub fn prod(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    in_words(x, |x| reduce("prod", Kernel::prod, x, dims, keep, Empty::Value(1.0), false))
}

/// Mean over `dims`; floats. The mean of nothing is NaN.
#[track_caller]
pub fn mean(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    expect_float("mean", x)?;
    in_words(x, |x| reduce("mean", Kernel::sum, x, dims, keep, Empty::Value(f64::NAN), true))
}

/// Maximum over `dims` (NaN wins).
#[track_caller]
pub fn amax(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    let kernel = if x.dtype().is_float() { Kernel::max } else { Kernel::max_integer };
    to_dtype(&in_words(x, |x| reduce("amax", kernel, x, dims, keep, Empty::Refused, false))?, x.dtype())
}

/// Minimum over `dims` (NaN wins).
#[track_caller]
pub fn amin(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    let kernel = if x.dtype().is_float() { Kernel::min } else { Kernel::min_integer };
    to_dtype(&in_words(x, |x| reduce("amin", kernel, x, dims, keep, Empty::Refused, false))?, x.dtype())
}

/// Whether an element over `dims` is not 0 (NaN is not), as bool; false for none.
#[track_caller]
pub fn any(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    let any = reduce("any", Kernel::max_integer, &ones_where_true(x)?, dims, keep, Empty::Value(0.0), false)?;
    to_dtype(&any, DType::Bool)
}

/// Whether all elements over `dims` are not 0 (NaN is not), as bool; true for none.
#[track_caller]
pub fn all(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    let all = reduce("all", Kernel::min_integer, &ones_where_true(x)?, dims, keep, Empty::Value(1.0), false)?;
    to_dtype(&all, DType::Bool)
}

/// How many elements over `dims` are not 0 (NaN is not), as i32.
#[track_caller]
pub fn count_nonzero(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    reduce("count_nonzero", Kernel::sum, &ones_where_true(x)?, dims, keep, Empty::Value(0.0), false)
}

/// Position (i32) of the first maximum along `dim`; NaN counts as the largest.
#[track_caller]
pub fn argmax(x: &Tensor, dim: isize, keep: KeepDim) -> Result<Tensor> {
    in_words(x, |x| first_largest("argmax", x, dim, keep))
}

/// Position (i32) of the first minimum along `dim`; NaN counts as the smallest.
#[track_caller]
pub fn argmin(x: &Tensor, dim: isize, keep: KeepDim) -> Result<Tensor> {
    // What turns the order round and loses nothing: -x, and of whole numbers all bits changed.
    let turned = |x: &Tensor| match x.dtype() {
        DType::I32 => rsub_scalar(x, -1),
        DType::U32 => rsub_scalar(x, u32::MAX),
        _ => neg(x),
    };
    in_words(x, |x| first_largest("argmin", &turned(x)?, dim, keep))
}

/// log(sum(exp(x))) over `dims`, in f32.
#[track_caller]
pub fn logsumexp(x: &Tensor, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    const OP: &str = "logsumexp";
    in_words(x, |x| {
        // Less the largest element, unless that is an infinity: inf - inf is NaN. The logarithm of the sum of nothing is -inf.
        let largest = reduce(OP, Kernel::max, x, dims, KeepDim::Keep, Empty::Value(f64::NEG_INFINITY), false)?;
        let less = where_scalar(&isfinite(&largest)?, &largest, 0.0)?;
        let sum = sum(&exp(&sub(x, &less)?)?, dims, keep)?;
        let less = contiguous(&less)?.with_layout(*sum.layout());
        add(&log(&sum)?, &less)
    })
}

/// The p-norm over `dims`, in f32: (sum of |x|^p)^(1/p), the largest or smallest |x| for infinities, the number of elements that
/// are not 0 for p = 0.
#[track_caller]
pub fn norm(x: &Tensor, p: f64, dims: &[isize], keep: KeepDim) -> Result<Tensor> {
    in_words(x, |x| match p {
        0.0 => to_dtype(&count_nonzero(x, dims, keep)?, DType::F32),
        1.0 => sum(&abs(x)?, dims, keep),
        2.0 => sqrt(&sum(&square(x)?, dims, keep)?),
        f64::INFINITY => amax(&abs(x)?, dims, keep),
        f64::NEG_INFINITY => amin(&abs(x)?, dims, keep),
        _ => pow_scalar(&sum(&pow_scalar(&abs(x)?, p)?, dims, keep)?, 1.0 / p),
    })
}

/// Refuses types that are no floats.
pub(crate) fn expect_float(op: &'static str, x: &Tensor) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    Err(Error::DType { op, got: x.dtype(), expected: "f32, f16 and bf16" })
}

/// 1 (i32) where an element is not 0, else 0.
#[track_caller]
fn ones_where_true(x: &Tensor) -> Result<Tensor> {
    to_dtype(&to_dtype(x, DType::Bool)?, DType::I32)
}

/// `of` in a type whose elements are words: halves through f32 and back, bool as i32.
#[track_caller]
pub(crate) fn in_words(x: &Tensor, of: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let _origin = Origin::enter();
    match x.dtype() {
        half @ (DType::F16 | DType::BF16) => {
            let out = of(&to_dtype(x, DType::F32)?)?;
            if out.dtype() == DType::F32 { to_dtype(&out, half) } else { Ok(out) }
        }
        DType::Bool => of(&to_dtype(x, DType::I32)?),
        _ => of(x),
    }
}

#[track_caller]
fn first_largest(op: &'static str, x: &Tensor, dim: isize, keep: KeepDim) -> Result<Tensor> {
    let [first, further] = match x.dtype().is_float() {
        true => [Kernel::argmax, Kernel::argmax_merge],
        false => [Kernel::argmax_integer, Kernel::argmax_merge_integer],
    };
    let dim = resolve_dim(op, dim, x.rank())?;
    let mut reduced = vec![false; x.rank()];
    reduced.iter_mut().skip(dim).take(1).for_each(|flag| *flag = true);
    let out = Tensor::empty_as(op, x.device(), &kept_shape(x.shape(), &reduced, keep), DType::I32, Category::Temporary)?;
    if out.is_empty() {
        return Ok(out);
    }
    refuse_empty(op, x)?;
    let x = copy::contiguous(x)?;
    let mut middle = Middle::of(x.layout(), &reduced).ok_or_else(|| refuse_middle(op))?;
    let (mut values, mut positions): (Tensor, Option<Tensor>) = (x.clone(), None);
    loop {
        let splits = splits(&middle, x.device().class());
        let last = splits == 1;
        let parts = [middle.outer * splits * middle.inner];
        let best = Tensor::empty_as(op, x.device(), &parts, x.dtype(), Category::Temporary)?;
        let at = if last { out.clone() } else { Tensor::empty_as(op, x.device(), &parts, DType::I32, Category::Temporary)? };
        match &positions {
            None => stage(op, first.form(0), &middle, splits, &[&values, &best, &at], x.dtype(), 0, 0)?,
            Some(found) => {
                stage(op, further.form(0), &middle, splits, &[&values, found, &best, &at], x.dtype(), 0, 0)?;
            }
        }
        if last {
            return Ok(out);
        }
        middle = middle.after(splits);
        (values, positions) = (best, Some(at));
    }
}

/// Sums over whatever dimensions broadcasting would have repeated, so that the result has `shape`.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::reduce::sum_to;
/// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
/// assert_eq!(sum_to(&x, &[2])?.to_vec::<f32>()?, [4.0, 6.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn sum_to(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    let small = Layout::contiguous("sum_to", shape)?;
    small.broadcast_to("sum_to", x.shape())?;
    let added = x.rank() - shape.len();
    let repeated = |i: usize| i < added || (shape[i - added] == 1 && x.shape()[i] != 1);
    let dims: Vec<isize> = (0..x.rank()).filter(|i| repeated(*i)).map(|i| i as isize).collect();
    if dims.is_empty() {
        return Ok(x.with_layout(x.layout().reshape(shape).unwrap_or(*x.layout())));
    }
    let summed = sum(x, &dims, KeepDim::Keep)?;
    Ok(summed.with_layout(small))
}

/// [`sum`] of `[splits, n]` over the splits into `out` `[n]`, both contiguous from the start of their storage.
#[track_caller]
pub(crate) fn sum_splits(op: &'static str, parts: &Tensor, splits: usize, out: &Tensor) -> Result<()> {
    let n = out.len();
    let middle = Middle { outer: 1, n: splits, inner: n, outer_stride: 0, stride: n, inner_stride: 1, offset: 0 };
    stages(op, Kernel::sum, parts, middle, out, scalar_bits(op, 1.0, parts.dtype())?)
}

/// What a reduction of no elements gives.
#[derive(Clone, Copy, Debug)]
enum Empty {
    Value(f64),
    Refused,
}

#[track_caller]
fn reduce(
    op: &'static str,
    kernel: Kernel,
    x: &Tensor,
    dims: &[isize],
    keep: KeepDim,
    empty: Empty,
    average: bool,
) -> Result<Tensor> {
    check_dtype(op, kernel, x.dtype())?;
    let mut reduced = vec![dims.is_empty(); x.rank()];
    for dim in dims {
        let dim = resolve_dim(op, *dim, x.rank())?;
        if reduced.get(dim) == Some(&true) {
            return Err(Error::argument(
                op,
                format!("dimension {dim} of shape {:?} is named twice", x.shape()),
                "name each dimension once",
            ));
        }
        reduced.iter_mut().skip(dim).take(1).for_each(|flag| *flag = true);
    }
    let shape = kept_shape(x.shape(), &reduced, keep);
    let out = Tensor::empty_as(op, x.device(), &shape, x.dtype(), Category::Temporary)?;
    if out.is_empty() {
        return Ok(out);
    }
    if x.is_empty() {
        match empty {
            Empty::Value(value) => copy::fill_(&out, value)?,
            Empty::Refused => refuse_empty(op, x)?,
        }
        return Ok(out);
    }
    let n = x.len() / out.len();
    let scale = scalar_bits(op, if average { 1.0 / n as f64 } else { 1.0 }, x.dtype())?;
    if let Some(middle) = Middle::of(x.layout(), &reduced) {
        stages(op, kernel, x, middle, &out, scale)?;
        return Ok(out);
    }
    // Several groups of reduced dimensions: one after the other, the innermost first, on contiguous tensors.
    let mut current = copy::contiguous(x)?;
    while let Some(end) = reduced.iter().rposition(|flag| *flag) {
        let start = reduced[..end].iter().rposition(|flag| !*flag).map_or(0, |before| before + 1);
        let group: Vec<bool> = (0..reduced.len()).map(|i| (start..=end).contains(&i)).collect();
        let last = reduced[..start].iter().all(|flag| !*flag);
        let middle = Middle::of(current.layout(), &group).ok_or_else(|| refuse_middle(op))?;
        let next = if last {
            out.clone()
        } else {
            let shape = kept_shape(current.shape(), &group, KeepDim::Keep);
            Tensor::empty_as(op, x.device(), &shape, x.dtype(), Category::Temporary)?
        };
        stages(op, kernel, &current, middle, &next, if last { scale } else { scalar_bits(op, 1.0, x.dtype())? })?;
        reduced[start..=end].fill(false);
        current = next;
    }
    Ok(out)
}

fn kept_shape(shape: &[usize], reduced: &[bool], keep: KeepDim) -> Vec<usize> {
    let dims = shape.iter().zip(reduced);
    match keep {
        KeepDim::Keep => dims.map(|(len, gone)| if *gone { 1 } else { *len }).collect(),
        KeepDim::Drop => dims.filter(|(_, gone)| !**gone).map(|(len, _)| *len).collect(),
    }
}

fn refuse_empty(op: &'static str, x: &Tensor) -> Result<()> {
    if !x.is_empty() {
        return Ok(());
    }
    Err(Error::shape(
        op,
        format!("shape {:?} has no elements to choose from", x.shape()),
        "reduce over a dimension that is not empty",
    ))
}

fn refuse_middle(op: &'static str) -> Error {
    Error::shape(op, "a contiguous tensor did not collapse to three dimensions", "report this as a bug of linn")
}

/// A reduction over the middle of `[outer, n, inner]`; lengths and strides in items, nothing is 0 but strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Middle {
    outer: usize,
    n: usize,
    inner: usize,
    outer_stride: usize,
    stride: usize,
    inner_stride: usize,
    offset: usize,
}

impl Middle {
    /// The layout as `[outer, n, inner]`, where its kept dimensions merge into two and its reduced ones into one.
    fn of(layout: &Layout, reduced: &[bool]) -> Option<Middle> {
        let merged = |wanted: bool| {
            let mut groups: Vec<(usize, usize)> = Vec::new();
            for ((len, stride), gone) in layout.shape().iter().zip(layout.strides()).zip(reduced) {
                match groups.last_mut() {
                    _ if *gone != wanted || *len == 1 => {}
                    Some((group_len, group_stride)) if *group_stride == len * stride => {
                        *group_len *= len;
                        *group_stride = *stride;
                    }
                    _ => groups.push((*len, *stride)),
                }
            }
            groups
        };
        let (n, stride) = match merged(true)[..] {
            [] => (1, 0),
            [group] => group,
            _ => return None,
        };
        let ((outer, outer_stride), (inner, inner_stride)) = match merged(false)[..] {
            [] => ((1, 0), (1, 0)),
            [(len, 1)] if stride != 1 => ((1, 0), (len, 1)),
            [group] => (group, (1, 0)),
            [outer, inner] => (outer, inner),
            _ => return None,
        };
        Some(Middle { outer, n, inner, outer_stride, stride, inner_stride, offset: layout.offset() })
    }

    /// What is left to reduce after a stage: `[outer, splits, inner]`, contiguous.
    fn after(&self, splits: usize) -> Middle {
        let inner = self.inner;
        Middle { n: splits, outer_stride: splits * inner, stride: inner, inner_stride: 1, offset: 0, ..*self }
    }

    /// The form that loads four elements of a row at a time, where rows allow it.
    fn rows_form(self, kernel: Kernel) -> (KernelId, Middle) {
        let fours = [self.n, self.outer_stride, self.offset].iter().all(|n| n.is_multiple_of(4));
        if self.inner == 1 && self.stride == 1 && fours {
            let (n, outer_stride, offset) = (self.n / 4, self.outer_stride / 4, self.offset / 4);
            return (kernel.form(ROWS_VEC4), Middle { n, outer_stride, offset, ..self });
        }
        (kernel.form(0), self)
    }

    /// The form that reduces four neighbouring columns at a time, else [`Middle::rows_form`].
    fn form(self, kernel: Kernel, out: &Tensor) -> (KernelId, Middle) {
        let offsets = [self.offset, out.layout().offset()];
        let fours = [self.inner, self.outer_stride, self.stride].iter().chain(&offsets).all(|n| n.is_multiple_of(4));
        if self.inner_stride == 1 && fours {
            let (inner, outer_stride) = (self.inner / 4, self.outer_stride / 4);
            let (stride, offset) = (self.stride / 4, self.offset / 4);
            return (kernel.form(COLUMNS_VEC4), Middle { inner, outer_stride, stride, offset, ..self });
        }
        self.rows_form(kernel)
    }
}

/// Invocations that share one result: enough to keep the device busy, few enough that each has work, and no
/// invocation loops more than 16,384 times.
fn splits(middle: &Middle, class: Class) -> usize {
    let (wanted, least_work) = if class.is_cpu() { (256, 16) } else { (16_384, 8) };
    let results = middle.outer * middle.inner;
    let useful = (wanted / results).min(middle.n / least_work);
    useful.max(middle.n.div_ceil(16_384)).clamp(1, middle.n)
}

#[track_caller]
fn stages(op: &'static str, kernel: Kernel, x: &Tensor, middle: Middle, out: &Tensor, scale: u32) -> Result<()> {
    let one = scalar_bits(op, 1.0, x.dtype())?;
    let (mut middle, mut source) = (middle, x.clone());
    loop {
        let (form, items) = middle.form(kernel, out);
        let splits = splits(&items, x.device().class());
        if splits == 1 {
            let unit = if form == kernel.form(COLUMNS_VEC4) { 4 } else { 1 };
            return stage(op, form, &items, 1, &[&source, out], x.dtype(), out.layout().offset() / unit, scale);
        }
        let parts = Tensor::empty_as(op, x.device(), &[middle.outer * splits * middle.inner], x.dtype(), Category::Temporary)?;
        stage(op, form, &items, splits, &[&source, &parts], x.dtype(), 0, one)?;
        middle = middle.after(splits);
        source = parts;
    }
}

#[allow(clippy::too_many_arguments)]
#[track_caller]
fn stage(
    op: &'static str,
    kernel: KernelId,
    middle: &Middle,
    splits: usize,
    operands: &[&Tensor],
    dtype: DType,
    out_offset: usize,
    scale: u32,
) -> Result<()> {
    let jobs = middle.outer * splits * middle.inner;
    let params = Reduce {
        jobs: index(op, jobs)?,
        n: index(op, middle.n)?,
        splits: index(op, splits)?,
        inner: index(op, middle.inner)?,
        outer_stride: index(op, middle.outer_stride)?,
        stride: index(op, middle.stride)?,
        inner_stride: index(op, middle.inner_stride)?,
        offset: index(op, middle.offset)?,
        out_offset: index(op, out_offset)?,
        s: scale,
        pad: 0,
        pad2: 0,
    };
    launch(op, kernel, dtype, operands, &params, grid_for(op, kernel, jobs)?)
}
