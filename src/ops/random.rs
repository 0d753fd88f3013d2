//! Random numbers: Philox 4x32-10, the same bits on every adapter.
//!
//! Every device has one generator, a (seed, offset) pair: four elements take one counter, so a fill of n elements moves
//! the offset by n / 4, rounded up. The state is on the host, so drawing never waits for the device.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::params::Random;
use crate::kernel::{Kernel, grid};
use crate::memory::Category;
use crate::ops::elementwise::{grid_for, index};
use crate::ops::launch;
use crate::tensor::Tensor;

/// What a generator has left to say: the same state gives the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GeneratorState {
    /// Key of the stream of numbers.
    pub seed: u64,
    /// Counters used so far.
    pub offset: u64,
}

#[derive(Default)]
struct Generator(Mutex<GeneratorState>);

/// Starts the device's generator over with `seed`.
pub fn manual_seed(device: &Device, seed: u64) -> Result<()> {
    set_generator_state(device, GeneratorState { seed, offset: 0 })
}

/// The state of the device's generator, to be kept in a checkpoint.
pub fn generator_state(device: &Device) -> Result<GeneratorState> {
    Ok(*generator(device)?)
}

/// Puts the device's generator into a state that [`generator_state`] gave.
pub fn set_generator_state(device: &Device, state: GeneratorState) -> Result<()> {
    *generator(device)? = state;
    Ok(())
}

/// Uniform in [low, high), from the device's generator.
#[track_caller]
pub fn uniform(device: &Device, shape: &[usize], low: f64, high: f64) -> Result<Tensor> {
    fill("uniform", Kernel::uniform, device, shape, DType::F32, [(low as f32).to_bits(), (high as f32).to_bits()])
}

/// Normal with the given mean and standard deviation, from the device's generator.
#[track_caller]
pub fn normal(device: &Device, shape: &[usize], mean: f64, std: f64) -> Result<Tensor> {
    fill("normal", Kernel::normal, device, shape, DType::F32, [(mean as f32).to_bits(), (std as f32).to_bits()])
}

/// Integers (i32) in [low, high), from the device's generator.
#[track_caller]
pub fn randint(device: &Device, shape: &[usize], low: i32, high: i32) -> Result<Tensor> {
    if low >= high {
        return Err(Error::argument("randint", format!("the range {low}..{high} is empty"), "pass low < high"));
    }
    fill("randint", Kernel::randint, device, shape, DType::I32, [low as u32, high as u32])
}

/// Random words (u32), from the device's generator.
#[track_caller]
pub fn random_bits(device: &Device, shape: &[usize]) -> Result<Tensor> {
    fill("random_bits", Kernel::random_bits, device, shape, DType::U32, [0; 2])
}

#[track_caller]
fn fill(op: &'static str, kernel: Kernel, device: &Device, shape: &[usize], dtype: DType, [s, t]: [u32; 2]) -> Result<Tensor> {
    let out = Tensor::empty_as(op, device, shape, dtype, Category::Temporary)?;
    let len = out.len();
    if len == 0 {
        return Ok(out);
    }
    let state = {
        let mut generator = generator(device)?;
        let state = *generator;
        generator.offset = state.offset.wrapping_add(len.div_ceil(4) as u64);
        state
    };
    let kernel = kernel.form(0);
    let rounds = grid::rounds(len, kernel.form().constant("WG"), device.class().is_cpu());
    let params = Random {
        len: index(op, len)?,
        rounds,
        counter_low: state.offset as u32,
        counter_high: (state.offset >> 32) as u32,
        seed_low: state.seed as u32,
        seed_high: (state.seed >> 32) as u32,
        s,
        t,
        ..Random::default()
    };
    launch(op, kernel, dtype, &[&out], &params, grid_for(op, kernel, len.div_ceil(4).div_ceil(rounds as usize))?)?;
    Ok(out)
}

fn generator(device: &Device) -> Result<MutexGuard<'_, GeneratorState>> {
    let generator: Option<&Generator> = device.shared().attachment(Generator::default);
    let generator = generator
        .ok_or_else(|| Error::argument("random", "the device has no room for a generator", "report this as a bug of linn"))?;
    Ok(generator.0.lock().unwrap_or_else(PoisonError::into_inner))
}
