//! The same operation on many tensors, in as many dispatches as they lie in segments (or a few more), not one for each.

use std::borrow::Cow;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::Squares;
use crate::kernel::{Kernel, grid};
use crate::memory::Category;
use crate::ops::elementwise::{grid_for, index};
use crate::ops::optim::{Control, Rule, Stepping, step_};
use crate::ops::{copy, reduce, unary};
use crate::stream::multi::{self, Dispatch, Part, Row};
use crate::stream::{self, BINDING_UNIT};
use crate::tensor::Tensor;

/// Multiplies floats in place by `scale`, one f32.
#[track_caller]
pub(crate) fn mul_(op: &'static str, tensors: &[Tensor], scale: &Tensor) -> Result<()> {
    let scale = |device: &Device| copy::to_dtype(scale, DType::F32)?.to(device).map(Some);
    change(op, Kernel::scale_gradients, tensors, 0.0, &scale)
}

/// Brings floats in place into -bound..=bound; NaN stays NaN.
#[track_caller]
pub(crate) fn clamp_(op: &'static str, tensors: &[Tensor], bound: f64) -> Result<()> {
    change(op, Kernel::clamp_gradients, tensors, bound, &|_| Ok(None))
}

/// A step of a rule whose parameters are their own gradients.
#[track_caller]
fn change(
    op: &'static str,
    kernel: Kernel,
    tensors: &[Tensor],
    lr: f64,
    scale: &dyn Fn(&Device) -> Result<Option<Tensor>>,
) -> Result<()> {
    let rule = Rule { op, kernel, slots: &[], a: [0.0; 4], b: [0.0; 4], flag: false, momentum: (0.0, 0.0) };
    tensors.iter().try_for_each(|tensor| reduce::expect_float(op, tensor))?;
    // What kernels of many tensors do not reach is changed in a copy.
    let reached: Vec<Cow<'_, Tensor>> =
        tensors.iter().filter(|tensor| !tensor.is_empty()).map(reachable).collect::<Result<_>>()?;
    let mut rest: Vec<&Tensor> = reached.iter().map(Cow::as_ref).collect();
    while let Some(device) = rest.first().map(|tensor| tensor.device().clone()) {
        let (here, others): (Vec<&Tensor>, Vec<&Tensor>) = rest.into_iter().partition(|tensor| tensor.device().same(&device));
        let mut control = Control::new(&device, here.len())?;
        control.numbers([scale(&device)?, None])?;
        let stepping: Vec<Stepping<'_>> = here
            .iter()
            .enumerate()
            .map(|(number, tensor)| Stepping { param: tensor, grad: tensor, state: &[], number, group: 0 })
            .collect();
        step_(&mut control, &rule, &stepping, &[(lr, 0.0)])?;
        rest = others;
    }
    let copies = tensors.iter().filter(|tensor| !tensor.is_empty()).zip(&reached);
    copies.filter(|(_, copy)| matches!(copy, Cow::Owned(_))).try_for_each(|(tensor, copied)| copy::copy_(tensor, copied))
}

/// Kernels of many tensors read whole `vec4`s of contiguous elements.
#[track_caller]
fn reachable(x: &Tensor) -> Result<Cow<'_, Tensor>> {
    match x.is_contiguous() && x.layout().offset().is_multiple_of(4) {
        true => Ok(Cow::Borrowed(x)),
        false => copy::copy(x).map(Cow::Owned),
    }
}

/// The 2-norm of all elements of all tensors, 0-d, on the device. There must be a tensor; empty ones add nothing.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::foreach::total_norm;
/// let x = Tensor::new(&device, [3.0f32, 0.0])?;
/// let y = Tensor::new(&device, [[4.0f32]])?;
/// assert_eq!(total_norm(&[&x, &y])?.item::<f32>()?, 5.0);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn total_norm(tensors: &[&Tensor]) -> Result<Tensor> {
    const OP: &str = "total_norm";
    let Some(first) = tensors.first() else {
        return Err(Error::argument(OP, "there are no tensors", "pass at least one tensor"));
    };
    super::expect_same_device(OP, tensors)?;
    tensors.iter().try_for_each(|tensor| reduce::expect_float(OP, tensor))?;
    let tensors = tensors.iter().filter(|tensor| !tensor.is_empty()).map(|tensor| reachable(tensor));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    match square_parts(OP, first.device(), &tensors)? {
        None => copy::full(first.device(), &[], 0.0, DType::F32),
        Some(parts) => unary::sqrt(&reduce::sum(&parts, &[], reduce::KeepDim::Drop)?),
    }
}

/// Sums of squares in parts, f32. How the tensors are divided into parts does not depend on where they lie: the same tensors give the
/// same bits.
#[track_caller]
fn square_parts(op: &'static str, device: &Device, tensors: &[Cow<'_, Tensor>]) -> Result<Option<Tensor>> {
    let lanes = Kernel::square_parts.form(0).form().constant("WG") as usize;
    let groups: usize = tensors.iter().map(|tensor| items(tensor).div_ceil(lanes)).sum();
    let rounds = (groups / if device.class().is_cpu() { 32 } else { 4096 }).clamp(1, 64);
    // Where the parts of each tensor start, in `vec4`s. Invocations of a last chunk that have no elements write no part.
    let mut starts = Vec::with_capacity(tensors.len());
    let mut end = 0;
    for tensor in tensors {
        starts.push(end);
        let (whole, rest) = (items(tensor) / (lanes * rounds), items(tensor) % (lanes * rounds));
        end += whole * lanes + rest.min(lanes);
    }
    if end == 0 {
        return Ok(None);
    }
    let out = Tensor::empty_as(op, device, &[4 * end], DType::F32, Category::Temporary)?;
    let table = Tensor::empty_as(op, device, &[4 * tensors.len()], DType::U32, Category::Temporary)?;
    let mut before = 0;
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let members: Vec<(&Tensor, usize)> =
            tensors.iter().map(Cow::as_ref).zip(starts.iter().copied()).filter(|(tensor, _)| tensor.dtype() == dtype).collect();
        if !members.is_empty() {
            square_parts_of(op, dtype, &members, [&table, &out], before, rounds)?;
            before += members.len();
        }
    }
    Ok(Some(out))
}

/// The parts of tensors of one type, each with where they start; its table lies behind `before` rows of others.
#[track_caller]
fn square_parts_of(
    op: &'static str,
    dtype: DType,
    members: &[(&Tensor, usize)],
    [table, out]: [&Tensor; 2],
    before: usize,
    rounds: usize,
) -> Result<()> {
    let (kernel, device) = (Kernel::square_parts.form(0), out.device());
    let lanes = kernel.form().constant("WG") as usize;
    let mut rows: Vec<Row<'_>> = Vec::with_capacity(members.len());
    for (tensor, _) in members {
        rows.push([part(op, tensor)?, part(op, table)?, part(op, out)?].into_iter().collect());
    }
    let sizes = [dtype.size(), 4, 4];
    let limit = device.limits().max_storage_buffer_binding_size;
    let alignment = u64::from(device.limits().storage_alignment).max(BINDING_UNIT);
    loop {
        let extents = multi::locate(device, &rows);
        let shares = multi::shares(&extents, alignment, limit).map_err(|row| too_large(op, device, members[row].0.shape()))?;
        let (mut words, mut dispatches) = (Vec::new(), Vec::new());
        for share in &shares {
            // In `vec4`s of the operand's elements.
            let start = |row: usize, operand: usize| {
                let bytes = extents[row][operand].bytes.start - share.windows[operand].bytes.start;
                index(op, bytes as usize / (4 * sizes[operand]))
            };
            let first_row = before + words.len() / 4;
            let (mut chunks, mut len) = (0, 0);
            for row in &share.rows {
                let (tensor, parts) = members[*row];
                let to = start(*row, 2)? + index(op, parts)?;
                words.extend([index(op, chunks)?, index(op, tensor.len())?, start(*row, 0)?, to]);
                chunks += items(tensor).div_ceil(lanes * rounds);
                len += tensor.len();
            }
            let params = Squares {
                rows: share.rows.len() as u32,
                chunks: index(op, chunks)?,
                rounds: rounds as u32,
                table: start(share.rows[0], 1)? + index(op, first_row)?,
            };
            let work = grid::Work::from(grid_for(op, kernel, chunks * lanes)?).with_elements(len);
            dispatches.push(Dispatch { params: bytemuck::bytes_of(&params).to_vec(), work });
        }
        stream::upload(device, memory(op, table)?, 16 * before as u64, bytemuck::cast_slice(&words), op)?;
        // Where blocks have moved since, again.
        if multi::launch(device, (kernel, dtype), &rows, &extents, &shares, &dispatches)? {
            return Ok(());
        }
    }
}

/// `vec4`s of a tensor.
fn items(tensor: &Tensor) -> usize {
    tensor.len().div_ceil(4)
}

/// A tensor as an operand, in whole `vec4`s.
fn part<'a>(op: &'static str, x: &'a Tensor) -> Result<Part<'a>> {
    let start = x.layout().offset() * x.dtype().size();
    Ok(Part { memory: memory(op, x)?, bytes: start as u64..(start + 4 * items(x) * x.dtype().size()) as u64 })
}

fn memory<'a>(op: &'static str, x: &'a Tensor) -> Result<&'a crate::device::Memory> {
    x.storage.memory().ok_or_else(|| Error::shape(op, "an operand has no elements", "report this as a fault of linn"))
}

/// The error of a tensor that no binding reaches whole.
pub(super) fn too_large(op: &'static str, device: &Device, shape: &[usize]) -> Error {
    Error::Limit {
        op,
        fact: format!(
            "a parameter of shape {shape:?} is larger than the adapter lets a kernel see (max_storage_buffer_binding_size is {})",
            device.limits().max_storage_buffer_binding_size
        ),
        help: "make the layer of several smaller parameters".into(),
    }
}
