//! Copies, casts, fills and concatenation.

use crate::device::Device;
use crate::dtype::{DType, Element, Scalar};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::kernel::params::Arange;
use crate::layout::resolve_dim;
use crate::memory::Category;
use crate::ops::elementwise::{grid_for, index, map, run, scalar_bits};
use crate::ops::windows::write_in_order;
use crate::ops::{expect_same_device, launch};
use crate::stream::Origin;
use crate::tensor::Tensor;

/// The same values in row-major order: `x` itself where it is contiguous already, else a copy.
#[track_caller]
pub fn contiguous(x: &Tensor) -> Result<Tensor> {
    if x.is_contiguous() { Ok(x.clone()) } else { copy(x) }
}

/// A contiguous copy.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::copy::copy;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// let y = copy(&x)?;
/// assert!(!y.shares_storage(&x));
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn copy(x: &Tensor) -> Result<Tensor> {
    map("copy", Kernel::copy, x, [0; 2])
}

/// The same values as another type: floats become integers by cutting off fractions, and halves by rounding to the nearest;
/// what is not 0, NaN too, is true. `x` itself where it has that type already.
#[track_caller]
pub fn to_dtype(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    let kernel = match dtype {
        DType::F32 => Kernel::cast_f32,
        DType::F16 => Kernel::cast_f16,
        DType::BF16 => Kernel::cast_bf16,
        DType::I32 => Kernel::cast_i32,
        DType::U32 => Kernel::cast_u32,
        DType::Bool => Kernel::cast_bool,
    };
    map("to_dtype", kernel, x, [0; 2])
}

/// `of`, which moves elements and computes nothing, on elements that are words: halves as f32, bool as i32, and back.
#[track_caller]
pub(crate) fn through_words(x: &Tensor, of: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let _origin = Origin::enter();
    let words = match x.dtype() {
        DType::F16 | DType::BF16 => DType::F32,
        DType::Bool => DType::I32,
        _ => return of(x),
    };
    to_dtype(&of(&to_dtype(x, words)?)?, x.dtype())
}

/// dst = src (broadcast, cast), in place, through views; overlapping views are safe.
#[track_caller]
pub fn copy_(dst: &Tensor, src: &Tensor) -> Result<()> {
    expect_same_device("copy_", &[dst, src])?;
    let src = to_dtype(src, dst.dtype())?;
    let src = src.with_layout(src.layout().broadcast_to("copy_", dst.shape())?);
    run("copy_", Kernel::copy, dst.dtype(), [&src, dst], [0; 2])
}

/// All elements of x become `value`, through views.
#[track_caller]
pub fn fill_(x: &Tensor, value: impl Into<Scalar>) -> Result<()> {
    run("fill_", Kernel::fill, x.dtype(), [x], [scalar_bits("fill_", value, x.dtype())?, 0])
}

/// A tensor filled with `value`.
#[track_caller]
pub fn full(device: &Device, shape: &[usize], value: impl Into<Scalar>, dtype: DType) -> Result<Tensor> {
    let out = Tensor::empty_as("full", device, shape, dtype, Category::Temporary)?;
    run("full", Kernel::fill, dtype, [&out], [scalar_bits("full", value, dtype)?, 0])?;
    Ok(out)
}

/// 0, 1, .. len-1.
#[track_caller]
pub fn arange(device: &Device, len: usize, dtype: DType) -> Result<Tensor> {
    arange_from(device, 0, 1, len, dtype)
}

/// start, start + step, .. : `len` numbers.
///
/// ```
/// # use linn::Device;
/// # let device = Device::open()?;
/// use linn::{DType, ops::copy::arange_from};
/// assert_eq!(arange_from(&device, 1.0, 0.5, 3, DType::F32)?.to_vec::<f32>()?, [1.0, 1.5, 2.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn arange_from(
    device: &Device,
    start: impl Into<Scalar>,
    step: impl Into<Scalar>,
    len: usize,
    dtype: DType,
) -> Result<Tensor> {
    const OP: &str = "arange";
    let out = Tensor::empty_as(OP, device, &[len], dtype, Category::Temporary)?;
    if len > 0 {
        let kernel = Kernel::arange.form(0);
        let (s, t) = (scalar_bits(OP, start, dtype)?, scalar_bits(OP, step, dtype)?);
        write_in_order(OP, &out, |out, before| {
            let (len, out_offset) = (index(OP, out.len())?, index(OP, out.layout().offset())?);
            let params = Arange { len, out_offset, s, t, first: index(OP, before)?, pad: 0, pad2: 0, pad3: 0 };
            launch(OP, kernel, dtype, &[out], &params, grid_for(OP, kernel, out.len())?)
        })?;
    }
    Ok(out)
}

/// The tensors one after the other along `dim`; all other lengths and the types are the same.
#[track_caller]
pub fn cat(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
    const OP: &str = "cat";
    let Some((first, rest)) = tensors.split_first() else {
        return Err(Error::argument(OP, "there are no tensors", "pass at least one tensor"));
    };
    expect_same_device(OP, tensors)?;
    let dim = resolve_dim(OP, dim, first.rank())?;
    if first.rank() == 0 {
        return Err(Error::shape(OP, "a tensor of 0 dimensions", "reshape it to [1] first"));
    }
    let mut shape = first.shape().to_vec();
    for tensor in rest {
        let fits = tensor.rank() == shape.len() && (0..shape.len()).all(|i| i == dim || tensor.shape()[i] == shape[i]);
        if !fits {
            return Err(Error::shape(
                OP,
                format!("shapes {:?} and {:?} differ outside dimension {dim}", first.shape(), tensor.shape()),
                "make all other dimensions equal",
            ));
        }
        if tensor.dtype() != first.dtype() {
            return Err(Error::DType { op: OP, got: tensor.dtype(), expected: first.dtype().name() });
        }
        shape[dim] += tensor.shape()[dim];
    }
    let out = Tensor::empty_as(OP, first.device(), &shape, first.dtype(), Category::Temporary)?;
    let mut start = 0;
    for tensor in tensors {
        let len = tensor.shape()[dim];
        let window = out.with_layout(out.layout().narrow(dim, start, len)?);
        run(OP, Kernel::copy, out.dtype(), [tensor, &window], [0; 2])?;
        start += len;
    }
    Ok(out)
}

/// A copy on `device`, through the host; waits for x's last command.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::copy::to_device;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// assert_eq!(to_device(&x, &Device::open()?)?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn to_device(x: &Tensor, device: &Device) -> Result<Tensor> {
    match x.dtype() {
        DType::F32 => through_host::<f32>(x, device),
        DType::F16 => through_host::<half::f16>(x, device),
        DType::BF16 => through_host::<half::bf16>(x, device),
        DType::I32 => through_host::<i32>(x, device),
        DType::U32 => through_host::<u32>(x, device),
        DType::Bool => through_host::<u8>(x, device),
    }
}

#[track_caller]
fn through_host<T: Element>(x: &Tensor, device: &Device) -> Result<Tensor> {
    Tensor::from_slice(device, x.shape(), &x.to_vec_async::<T>()?.wait()?)
}
