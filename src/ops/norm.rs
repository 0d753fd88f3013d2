//! Layer normalisation over the last dimension. Letters: R rows, C elements per row.

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::Norm;
use crate::kernel::{Kernel, KernelId, VEC4};
use crate::layout::Layout;
use crate::memory::Category;
use crate::ops::elementwise::{grid_for, index};
use crate::ops::{binary, copy, expect_dtype, expect_same_device, launch, reduce, unary};
use crate::tensor::Tensor;

/// (y, mean, rstd): y = (x - mean) * rstd * weight + bias over the last dimension; mean and rstd `[R]`, for the backward pass.
///
/// x `[.., C]`, weight and bias `[C]`; rstd = 1 / sqrt(variance + eps) with the biased variance, as in PyTorch. Of halves y is
/// rounded once, and mean and rstd are f32.
#[track_caller]
pub fn layer_norm(x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "layer_norm";
    if let half @ (DType::F16 | DType::BF16) = x.dtype() {
        let [weight, bias] = [wide(weight)?, wide(bias)?];
        let (out, mean, rstd) = layer_norm(&copy::to_dtype(x, DType::F32)?, weight.as_ref(), bias.as_ref(), eps)?;
        return Ok((copy::to_dtype(&out, half)?, mean, rstd));
    }
    let (rows, c) = rows_of(OP, x)?;
    let x = copy::contiguous(x)?;
    let weight = vector(OP, &x, weight, c)?;
    let bias_or_weight = match bias {
        Some(bias) => vector(OP, &x, Some(bias), c)?,
        None => weight.clone(),
    };
    let empty = |shape: &[usize]| Tensor::empty_as(OP, x.device(), shape, DType::F32, Category::Temporary);
    let (out, mean, rstd) = (empty(x.shape())?, empty(&[rows])?, empty(&[rows])?);
    if x.is_empty() {
        return Ok((out, mean, rstd));
    }
    let (kernel, unit) = form(Kernel::layer_norm, c, &[&x, &weight, &bias_or_weight]);
    if c / unit > LONGEST_ROW {
        return composed(&x, &weight, bias.map(|_| &bias_or_weight), eps);
    }
    let params = Norm {
        has_bias: u32::from(bias.is_some()),
        a_offset: index(OP, x.layout().offset() / unit)?,
        weight_offset: index(OP, weight.layout().offset() / unit)?,
        bias_offset: index(OP, bias_or_weight.layout().offset() / unit)?,
        eps: eps as f32,
        ..shape_params(OP, rows, c, unit)?
    };
    let operands = [&x, &weight, &bias_or_weight, &out, &mean, &rstd];
    launch(OP, kernel, DType::F32, &operands, &params, grid_for(OP, kernel, rows)?)?;
    Ok((out, mean, rstd))
}

/// (dx, dweight, dbias) of [`layer_norm`], in the type of x; the last two only where wanted. `sum`, another gradient of x, is added
/// to dx.
#[track_caller]
#[allow(clippy::too_many_arguments)]
pub fn layer_norm_backward(
    dy: &Tensor,
    sum: Option<&Tensor>,
    x: &Tensor,
    weight: Option<&Tensor>,
    mean: &Tensor,
    rstd: &Tensor,
    want_weight: bool,
    want_bias: bool,
) -> Result<(Tensor, Option<Tensor>, Option<Tensor>)> {
    const OP: &str = "layer_norm_backward";
    if let half @ (DType::F16 | DType::BF16) = x.dtype() {
        let [x, dy] = [copy::to_dtype(x, DType::F32)?, copy::to_dtype(dy, DType::F32)?];
        let [sum, weight] = [wide(sum)?, wide(weight)?];
        let (dx, dweight, dbias) =
            layer_norm_backward(&dy, sum.as_ref(), &x, weight.as_ref(), mean, rstd, want_weight, want_bias)?;
        let halved = |grad: Option<Tensor>| grad.map(|grad| copy::to_dtype(&grad, half)).transpose();
        return Ok((copy::to_dtype(&dx, half)?, halved(dweight)?, halved(dbias)?));
    }
    let (rows, c) = rows_of(OP, x)?;
    for grad in [Some(dy), sum].into_iter().flatten() {
        if grad.shape() != x.shape() {
            return Err(Error::shape(
                OP,
                format!("a gradient has shape {:?}, the input {:?}", grad.shape(), x.shape()),
                "pass gradients of layer_norm's input and result",
            ));
        }
        expect_dtype(OP, grad, DType::F32)?;
    }
    let (x, dy, sum) = (copy::contiguous(x)?, copy::contiguous(dy)?, sum.map(copy::contiguous).transpose()?);
    let weight = vector(OP, &x, weight, c)?;
    let dx = Tensor::empty_as(OP, x.device(), x.shape(), DType::F32, Category::Temporary)?;
    if x.is_empty() {
        let zeros = |wanted: bool| wanted.then(|| copy::full(x.device(), &[c], 0.0, DType::F32)).transpose();
        return Ok((dx, zeros(want_weight)?, zeros(want_bias)?));
    }
    let mut operands: SmallVec<[&Tensor; 7]> = [&x, &dy].into_iter().chain(&sum).chain([&weight]).collect();
    let kernel = if sum.is_some() { Kernel::layer_norm_backward_add } else { Kernel::layer_norm_backward };
    let (kernel, unit) = form(kernel, c, &operands);
    if c / unit > LONGEST_ROW {
        drop(operands);
        let dx = composed_backward([&dy, &x, &weight, mean, rstd], sum.as_ref())?;
        let (dweight, dbias) = weight_gradients(&x, &dy, mean, rstd, [want_weight, want_bias])?;
        return Ok((dx, dweight, dbias));
    }
    operands.extend([mean, rstd, &dx]);
    let params = Norm {
        sum_offset: index(OP, sum.as_ref().map_or(0, |sum| sum.layout().offset()) / unit)?,
        a_offset: index(OP, x.layout().offset() / unit)?,
        dout_offset: index(OP, dy.layout().offset() / unit)?,
        weight_offset: index(OP, weight.layout().offset() / unit)?,
        ..shape_params(OP, rows, c, unit)?
    };
    launch(OP, kernel, DType::F32, &operands, &params, grid_for(OP, kernel, rows)?)?;
    drop(operands);
    if !want_weight && !want_bias {
        return Ok((dx, None, None));
    }
    let (dweight, dbias) = weight_gradients(&x, &dy, mean, rstd, [want_weight, want_bias])?;
    Ok((dx, dweight, dbias))
}

/// Most items of a row for the kernels: an invocation walks one three times, and may loop 32,768 times in all.
const LONGEST_ROW: usize = 10_922;

/// [`layer_norm`] from reductions, which spread a long row over many invocations.
#[track_caller]
fn composed(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f64) -> Result<(Tensor, Tensor, Tensor)> {
    let mean = row_mean(x)?;
    let centred = binary::sub(x, &mean)?;
    let rstd = unary::rsqrt(&unary::add_scalar(&row_mean(&unary::square(&centred)?)?, eps)?)?;
    let out = binary::mul(&binary::mul(&centred, &rstd)?, weight)?;
    let out = match bias {
        Some(bias) => binary::add(&out, bias)?,
        None => out,
    };
    let per_row = |x: &Tensor| Ok::<_, Error>(x.with_layout(Layout::contiguous("layer_norm", &[x.len()])?));
    Ok((out, per_row(&mean)?, per_row(&rstd)?))
}

/// dx, with `sum` added, from (dy, x, weight, mean, rstd): rstd (g - mean(g) - n mean(g n)), g = dy weight, n = (x - mean) rstd.
#[track_caller]
fn composed_backward([dy, x, weight, mean, rstd]: [&Tensor; 5], sum: Option<&Tensor>) -> Result<Tensor> {
    let column: Vec<usize> = x.shape()[..x.rank() - 1].iter().copied().chain([1]).collect();
    let column = Layout::contiguous("layer_norm_backward", &column)?;
    let (mean, rstd) = (copy::contiguous(mean)?.with_layout(column), copy::contiguous(rstd)?.with_layout(column));
    let normal = binary::mul(&binary::sub(x, &mean)?, &rstd)?;
    let g = binary::mul(dy, weight)?;
    let along = binary::mul(&normal, &row_mean(&binary::mul(&g, &normal)?)?)?;
    let dx = binary::mul(&binary::sub(&binary::sub(&g, &row_mean(&g)?)?, &along)?, &rstd)?;
    match sum {
        Some(sum) => binary::add(&dx, sum),
        None => Ok(dx),
    }
}

#[track_caller]
fn row_mean(x: &Tensor) -> Result<Tensor> {
    reduce::mean(x, &[-1], reduce::KeepDim::Keep)
}

/// The gradients of weight and bias that are wanted.
#[track_caller]
fn weight_gradients(
    x: &Tensor,
    dy: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    wanted: [bool; 2],
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    const OP: &str = "layer_norm_backward_weight";
    let (rows, c) = rows_of(OP, x)?;
    let (kernel, unit) = form(Kernel::layer_norm_backward_weight, c, &[x, dy]);
    let most = if x.device().class().is_cpu() { 256 } else { 16_384 };
    // Each invocation has at least 16 rows to add where there are so many, and never more than 16,384.
    let splits = (most / (c / unit)).min(rows / 16).max(rows.div_ceil(16_384)).max(1);
    let params = Norm {
        splits: index(OP, splits)?,
        a_offset: index(OP, x.layout().offset() / unit)?,
        dout_offset: index(OP, dy.layout().offset() / unit)?,
        ..shape_params(OP, rows, c, unit)?
    };
    let empty = |shape: &[usize]| Tensor::empty_as(OP, x.device(), shape, DType::F32, Category::Temporary);
    let parts = [empty(&[splits * c])?, empty(&[splits * c])?];
    let operands = [x, dy, mean, rstd, &parts[0], &parts[1]];
    launch(OP, kernel, DType::F32, &operands, &params, grid_for(OP, kernel, splits * c / unit)?)?;
    let finish = |parts: Tensor, wanted: bool| -> Result<Option<Tensor>> {
        if !wanted || splits == 1 {
            return Ok(wanted.then_some(parts));
        }
        let sum = empty(&[c])?;
        reduce::sum_splits(OP, &parts, splits, &sum)?;
        Ok(Some(sum))
    };
    let [weight, bias] = parts;
    Ok((finish(weight, wanted[0])?, finish(bias, wanted[1])?))
}

/// An operand in f32.
#[track_caller]
fn wide(x: Option<&Tensor>) -> Result<Option<Tensor>> {
    x.map(|x| copy::to_dtype(x, DType::F32)).transpose()
}

/// (R, C) of x `[.., C]`.
fn rows_of(op: &'static str, x: &Tensor) -> Result<(usize, usize)> {
    expect_dtype(op, x, DType::F32)?;
    let Some(c) = x.shape().last().copied() else {
        return Err(Error::shape(op, "the input has 0 dimensions", "pass a tensor of at least one dimension"));
    };
    Ok((x.shape()[..x.rank() - 1].iter().product(), c))
}

/// A contiguous vector of length C, ones where there is none.
#[track_caller]
fn vector(op: &'static str, x: &Tensor, vector: Option<&Tensor>, c: usize) -> Result<Tensor> {
    let Some(vector) = vector else { return copy::full(x.device(), &[c], 1.0, DType::F32) };
    expect_same_device(op, &[x, vector])?;
    expect_dtype(op, vector, DType::F32)?;
    if vector.shape() != [c] {
        return Err(Error::shape(
            op,
            format!("weight or bias of shape {:?} for rows of {c} elements", vector.shape()),
            format!("pass shape [{c}]"),
        ));
    }
    copy::contiguous(vector)
}

/// The form over `vec4`s where all offsets and the row length allow it, and elements per item.
fn form(kernel: Kernel, c: usize, operands: &[&Tensor]) -> (KernelId, usize) {
    let fours = c.is_multiple_of(4) && operands.iter().all(|tensor| tensor.layout().offset().is_multiple_of(4));
    if fours { (kernel.form(VEC4), 4) } else { (kernel.form(0), 1) }
}

fn shape_params(op: &'static str, rows: usize, c: usize, unit: usize) -> Result<Norm> {
    Ok(Norm { rows: index(op, rows)?, n: index(op, c / unit)?, inverse_len: 1.0 / c as f32, ..Norm::default() })
}
