//! Cross entropies. Letters: N rows, V classes.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::Loss;
use crate::kernel::{Kernel, labels};
use crate::memory::Category;
use crate::ops::binary::{mul, sub};
use crate::ops::elementwise::{grid_for, index, per_invocation};
use crate::ops::unary::{add_scalar, clamp, log, log1p, neg};
use crate::ops::{copy, expect_dtype, expect_same_device, launch, reduce};
use crate::tensor::Tensor;

/// (mean loss 0-d, logsumexp `[N]`) of logits `[N, V]` against targets `[N]` (i32). The mean of no rows is NaN. The loss of halves
/// is rounded once, and logsumexp is f32.
/// A target outside 0..V is reported at the next synchronising call.
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)> {
    const OP: &str = "cross_entropy";
    if let half @ (DType::F16 | DType::BF16) = logits.dtype() {
        let (loss, lse) = cross_entropy(&copy::to_dtype(logits, DType::F32)?, targets)?;
        return Ok((copy::to_dtype(&loss, half)?, lse));
    }
    let (n, v) = check(OP, logits, targets)?;
    let empty = |shape: &[usize]| Tensor::empty_as(OP, logits.device(), shape, DType::F32, Category::Temporary);
    let (losses, lse) = (empty(&[n])?, empty(&[n])?);
    if n == 0 {
        return Ok((copy::full(logits.device(), &[], f64::NAN, DType::F32)?, lse));
    }
    let (logits, targets) = (copy::contiguous(logits)?, copy::contiguous(targets)?);
    // An invocation walks its part of a row twice: enough parts to keep the device busy and each below 16,384 elements.
    let wanted = if logits.device().class().is_cpu() { 256 } else { 16_384 };
    let splits = (wanted / n).min(v / 16).max(v.div_ceil(16_384)).clamp(1, v);
    let params = Loss { splits: index(OP, splits)?, ..params(OP, &logits, &targets, n, v)? };
    let (maxima, sums) = (empty(&[n * splits])?, empty(&[n * splits])?);
    let parts = Kernel::cross_entropy_partial.form(0);
    launch(OP, parts, DType::F32, &[&logits, &maxima, &sums], &params, grid_for(OP, parts, n * splits)?)?;
    let kernel = Kernel::cross_entropy.form(0);
    let operands = [&logits, &targets, &maxima, &sums, &losses, &lse];
    launch(OP, kernel, DType::F32, &operands, &params, grid_for(OP, kernel, n)?)?;
    Ok((reduce::mean(&losses, &[], reduce::KeepDim::Drop)?, lse))
}

/// dlogits = (softmax - onehot) * dloss / N; dloss 0-d on the device.
#[track_caller]
pub fn cross_entropy_backward(logits: &Tensor, targets: &Tensor, logsumexp: &Tensor, dloss: &Tensor) -> Result<Tensor> {
    const OP: &str = "cross_entropy_backward";
    if let half @ (DType::F16 | DType::BF16) = logits.dtype() {
        let wide = |x: &Tensor| copy::to_dtype(x, DType::F32);
        return copy::to_dtype(&cross_entropy_backward(&wide(logits)?, targets, logsumexp, &wide(dloss)?)?, half);
    }
    let (n, v) = check(OP, logits, targets)?;
    expect_dtype(OP, dloss, DType::F32)?;
    if dloss.len() != 1 || logsumexp.len() != n {
        return Err(Error::shape(
            OP,
            format!("a gradient of shape {:?} and a logsumexp of shape {:?} for {n} rows", dloss.shape(), logsumexp.shape()),
            "pass what cross_entropy returned and the gradient of its loss",
        ));
    }
    let out = Tensor::empty_as(OP, logits.device(), logits.shape(), DType::F32, Category::Temporary)?;
    if n == 0 {
        return Ok(out);
    }
    let (logits, targets) = (copy::contiguous(logits)?, copy::contiguous(targets)?);
    let kernel = Kernel::cross_entropy_backward.form(0);
    let splits = v.div_ceil(per_invocation(logits.device(), kernel, n * v));
    let params = Loss {
        splits: index(OP, splits)?,
        dout_offset: index(OP, dloss.layout().offset())?,
        scale: 1.0 / n as f32,
        ..params(OP, &logits, &targets, n, v)?
    };
    let operands = [&logits, &targets, logsumexp, dloss, &out];
    launch(OP, kernel, DType::F32, &operands, &params, grid_for(OP, kernel, n * splits)?)?;
    Ok(out)
}

/// (N, V).
fn check(op: &'static str, logits: &Tensor, targets: &Tensor) -> Result<(usize, usize)> {
    expect_same_device(op, &[logits, targets])?;
    expect_dtype(op, logits, DType::F32)?;
    expect_dtype(op, targets, DType::I32)?;
    match (logits.shape(), targets.shape()) {
        ([n, v], [m]) if n == m && (*v > 0 || *n == 0) => Ok((*n, *v)),
        _ => Err(Error::shape(
            op,
            format!("logits of shape {:?} and targets of shape {:?}", logits.shape(), targets.shape()),
            "pass logits [N, V] and targets [N]",
        )),
    }
}

fn params(op: &'static str, logits: &Tensor, targets: &Tensor, n: usize, v: usize) -> Result<Loss> {
    Ok(Loss {
        rows: index(op, n)?,
        n: index(op, v)?,
        a_offset: index(op, logits.layout().offset())?,
        targets_offset: index(op, targets.layout().offset())?,
        label: labels::number(op),
        ..Loss::default()
    })
}

/// -(target log(x) + (1 - target) log(1 - x)), element by element; logarithms count from -100 on.
#[track_caller]
pub fn binary_cross_entropy(x: &Tensor, target: &Tensor) -> Result<Tensor> {
    let bounded = |x: &Tensor| clamp(x, -100.0, f64::INFINITY);
    let (yes, no) = (bounded(&log(x)?)?, bounded(&log1p(&neg(x)?)?)?);
    // (target - 1) log(1 - x) - target log(x)
    sub(&mul(&add_scalar(target, -1.0)?, &no)?, &mul(target, &yes)?)
}
