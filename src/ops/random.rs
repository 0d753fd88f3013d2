//! Random numbers: Philox 4x32-10. Words, whole numbers and uniforms are the same bits on every adapter; normals and exponentials
//! are within 1e-6 of their formula.
//!
//! Uniforms are multiples of 2^-24 (f32), 2^-11 (f16) or 2^-8 (bf16) of their range, as in PyTorch. Numbers of halves are drawn in
//! f32 and rounded once.

use half::{bf16, f16};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::checks::Subject;
use crate::kernel::params::{Check, Random};
use crate::kernel::{Kernel, grid};
use crate::memory::Category;
use crate::ops::elementwise::{grid_for, index, per_invocation, refuse_expanded};
use crate::ops::windows::write_in_order;
use crate::ops::{copy, generator, launch};
use crate::tensor::Tensor;

/// A distribution to draw from, with what it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Distribution {
    op: &'static str,
    kernel: Kernel,
    /// The element type that the kernel writes.
    draws: DType,
    s: u32,
    t: u32,
    shift: u32,
    limit: f32,
}

impl Distribution {
    fn new(op: &'static str, kernel: Kernel, draws: DType, [s, t]: [u32; 2]) -> Distribution {
        Distribution { op, kernel, draws, s, t, shift: 8, limit: f32::INFINITY }
    }

    fn floats(op: &'static str, kernel: Kernel, s: f64, t: f64) -> Distribution {
        Distribution::new(op, kernel, DType::F32, [(s as f32).to_bits(), (t as f32).to_bits()])
    }

    /// Random words.
    pub fn bits() -> Distribution {
        Distribution::new("random_bits", Kernel::random_bits, DType::U32, [0; 2])
    }

    /// Uniform in [low, high), or `low` where both are equal, for elements of `dtype`.
    pub fn uniform(op: &'static str, low: f64, high: f64, dtype: DType) -> Result<Distribution> {
        let (digits, most) = match dtype {
            DType::F32 => (24, f64::from(f32::MAX)),
            DType::F16 => (11, f64::from(f16::MAX)),
            DType::BF16 => (8, f64::from(bf16::MAX)),
            other => return Err(Error::DType { op, got: other, expected: "f32, f16 and bf16" }),
        };
        let fits = |bound: f64| bound.abs() <= most;
        if !(fits(low) && fits(high) && fits(high - low) && low <= high) {
            return Err(Error::argument(
                op,
                format!("low is {low:?} and high is {high:?} for {dtype}"),
                "pass low <= high, both and their difference in the range of the element type",
            ));
        }
        let (low, high) = (to_type(low, dtype), to_type(high, dtype));
        let uniform = Distribution::floats(op, Kernel::uniform, f64::from(low), f64::from(high) - f64::from(low));
        Ok(Distribution { shift: 32 - digits, limit: least_that_becomes(high, dtype), ..uniform })
    }

    /// Normal; `std` is not negative.
    pub fn normal(op: &'static str, mean: f64, std: f64) -> Result<Distribution> {
        if std >= 0.0 {
            return Ok(Distribution::floats(op, Kernel::normal, mean, std));
        }
        Err(Error::argument(op, format!("std is {std:?}"), "pass a standard deviation that is not negative"))
    }

    /// Exponential with mean 1 / `rate`, never 0 in f32; `rate` is positive.
    pub fn exponential(op: &'static str, rate: f64) -> Result<Distribution> {
        if rate > 0.0 {
            return Ok(Distribution::floats(op, Kernel::exponential, 1.0 / rate, 0.0));
        }
        Err(Error::argument(op, format!("the rate is {rate:?}"), "pass a rate above 0"))
    }

    /// `value` with probability `p`, else 0.
    pub fn bernoulli(op: &'static str, p: f64, value: f64) -> Result<Distribution> {
        Ok(Distribution::floats(op, Kernel::bernoulli, probability(op, p)?, value))
    }

    /// Whole numbers in [low, high), each as probable as any other to 2^-32, for elements of `dtype`. Floats take numbers that they
    /// hold exactly: to 2^24 (f32), 2^11 (f16), 2^8 (bf16).
    pub fn randint(op: &'static str, low: i64, high: i64, dtype: DType) -> Result<Distribution> {
        let (least, most) = match dtype {
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            DType::U32 => (0, i64::from(u32::MAX)),
            DType::F32 => (-(1 << 24), 1 << 24),
            DType::F16 => (-(1 << 11), 1 << 11),
            DType::BF16 => (-(1 << 8), 1 << 8),
            DType::Bool => (0, 1),
        };
        if low >= high || low < least || high > most + 1 {
            return Err(Error::argument(
                op,
                format!("the range {low}..{high} for {dtype}"),
                format!("pass low < high within {least}..{}", most + 1),
            ));
        }
        let draws = if dtype == DType::U32 { DType::U32 } else { DType::I32 };
        // 2^32 of them are written as 0.
        Ok(Distribution::new(op, Kernel::randint, draws, [low as u32, (high - low) as u32]))
    }

    /// A new tensor of drawn elements.
    #[track_caller]
    pub fn draw(self, device: &Device, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let out = Tensor::empty_as(self.op, device, shape, self.draws, Category::Temporary)?;
        self.fill_words(&out)?;
        copy::to_dtype(&out, dtype)
    }

    /// Draws the elements of `out` anew, in row-major order, through views too.
    #[track_caller]
    pub fn fill_(self, out: &Tensor) -> Result<()> {
        refuse_expanded(self.op, out)?;
        if out.dtype() == self.draws && out.is_contiguous() {
            return self.fill_words(out);
        }
        copy::copy_(out, &self.draw(out.device(), out.shape(), self.draws)?)
    }

    /// [`Distribution::fill_`] of a contiguous tensor of the type that is drawn.
    #[track_caller]
    fn fill_words(self, out: &Tensor) -> Result<()> {
        let (op, device) = (self.op, out.device());
        if out.is_empty() {
            return Ok(());
        }
        let state = generator::take(device, out.len().div_ceil(4) as u64)?;
        let kernel = self.kernel.form(0);
        write_in_order(op, out, |out, before| {
            let counter = state.offset.wrapping_add(before as u64 / 4);
            let rounds = grid::rounds(out.len(), kernel.form().constant("WG"), device.class().is_cpu());
            let params = Random {
                len: index(op, out.len())?,
                rounds,
                counter_low: counter as u32,
                counter_high: (counter >> 32) as u32,
                seed_low: state.seed as u32,
                seed_high: (state.seed >> 32) as u32,
                s: self.s,
                t: self.t,
                out_offset: index(op, out.layout().offset())?,
                shift: self.shift,
                limit: self.limit,
                zero: 0,
            };
            let jobs = out.len().div_ceil(4).div_ceil(rounds as usize);
            launch(op, kernel, self.draws, &[out], &params, grid_for(op, kernel, jobs)?)
        })
    }
}

/// `p`, where it is from 0 to 1.
pub(crate) fn probability(op: &'static str, p: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&p) {
        return Ok(p);
    }
    Err(Error::argument(op, format!("p is {p:?}"), "pass a probability from 0 to 1"))
}

/// Reports elements of the contiguous f32 tensor `x` that its subject may not have, at the next synchronising call.
#[track_caller]
pub(crate) fn check(op: &'static str, x: &Tensor, subject: Subject) -> Result<()> {
    if x.is_empty() {
        return Ok(());
    }
    let kernel = Kernel::check_range.form(0);
    let jobs = x.len().div_ceil(per_invocation(x.device(), kernel, x.len()));
    let [low, high] = subject.range();
    let params = Check {
        jobs: index(op, jobs)?,
        len: index(op, x.len())?,
        offset: index(op, x.layout().offset())?,
        label: subject.label(),
        low,
        high,
        ..Check::default()
    };
    launch(op, kernel, DType::F32, &[x], &params, grid_for(op, kernel, jobs)?)
}

/// `value` as an element of `dtype` holds it.
fn to_type(value: f64, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => f16::from_f64(value).to_f32(),
        DType::BF16 => bf16::from_f64(value).to_f32(),
        _ => value as f32,
    }
}

/// The least f32 that may be rounded to `bound` or beyond as an element of `dtype`: `bound` itself, for halves the middle between it
/// and the half below.
fn least_that_becomes(bound: f32, dtype: DType) -> f32 {
    let below = |bits: u16| match bits {
        0x0000 | 0x8000 => 0x8001,
        negative if negative & 0x8000 != 0 => negative + 1,
        positive => positive - 1,
    };
    match dtype {
        DType::F16 => (bound + f16::from_bits(below(f16::from_f32(bound).to_bits())).to_f32()) / 2.0,
        DType::BF16 => (bound + bf16::from_bits(below(bf16::from_f32(bound).to_bits())).to_f32()) / 2.0,
        _ => bound,
    }
}

impl Tensor {
    /// f32, uniform in [0, 1), from the device's generator.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// device.manual_seed(0)?;
    /// let x = linn::Tensor::rand(&device, &[2, 3])?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|x| (0.0..1.0).contains(x)));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn rand(device: &Device, shape: &[usize]) -> Result<Tensor> {
        Distribution::uniform("rand", 0.0, 1.0, DType::F32)?.draw(device, shape, DType::F32)
    }

    /// f32, normal with mean 0 and deviation 1, from the device's generator.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// device.manual_seed(0)?;
    /// let x = linn::Tensor::randn(&device, &[10_000])?;
    /// assert!(x.mean_all()?.item::<f32>()?.abs() < 0.05);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn randn(device: &Device, shape: &[usize]) -> Result<Tensor> {
        Distribution::normal("randn", 0.0, 1.0)?.draw(device, shape, DType::F32)
    }

    /// f32, normal with mean `mean` and standard deviation `std`.
    ///
    /// # Errors
    /// Where `std` is negative or NaN.
    #[track_caller]
    pub fn normal(device: &Device, mean: f64, std: f64, shape: &[usize]) -> Result<Tensor> {
        Distribution::normal("normal", mean, std)?.draw(device, shape, DType::F32)
    }

    /// i32 in [low, high), from the device's generator. For another type, [`Tensor::random_`] on [`Tensor::empty`].
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let dice = linn::Tensor::randint(&device, 1, 7, &[100])?;
    /// assert!(dice.to_vec::<i32>()?.iter().all(|n| (1..=6).contains(n)));
    /// # Ok::<(), linn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where the range is empty or not within i32.
    #[track_caller]
    pub fn randint(device: &Device, low: i64, high: i64, shape: &[usize]) -> Result<Tensor> {
        Distribution::randint("randint", low, high, DType::I32)?.draw(device, shape, DType::I32)
    }
}
