//! A convolutional network tells shapes apart wherever they lie in a picture; a linear model cannot.
//!
//! The pictures are made here: a cross, a ring, a frame or two bars, of any size, at any place, under noise. Train and test pictures
//! come from different seeds. Both models are trained alike: batches of 64, AdamW, one-cycle learning rate.

use anyhow::ensure;
use linn::autograd::{ConvOptions, Padding, PoolOptions, no_grad};
use linn::data::random_unit;
use linn::nn::{Bias, Conv2d, Flatten, Linear, MaxPool2d, Module, Relu, Sequential, loss};
use linn::ops::reduce::KeepDim;
use linn::optim::{Adam, AdamOptions, OneCycleLr, Optimizer, ParamGroup, Schedule};
use linn::{Device, Result, Tensor};

/// Pixels of a side.
const SIDE: usize = 16;
const CLASSES: usize = 4;
const BATCH: usize = 64;
const TRAIN: u64 = 1;
const TEST: u64 = 2;

fn main() -> anyhow::Result<()> {
    run(false)
}

/// The example; `quick` is for the tests that run it.
pub fn run(quick: bool) -> anyhow::Result<()> {
    let device = Device::open()?;
    device.manual_seed(3)?;
    let steps = if quick { 80 } else { 500 };
    let same = ConvOptions { padding: Padding::Same, ..ConvOptions::default() };
    let convolution = |from, to| Conv2d::new(&device, from, to, [3, 3], Bias::With, same);
    let pool = || MaxPool2d::new([2, 2], PoolOptions::default());
    let network = Sequential::new()
        .add(convolution(1, 8)?) // [N,1,16,16] -> [N,8,16,16]
        .add(Relu::default())
        .add(pool()) // [N,8,8,8]
        .add(convolution(8, 16)?)
        .add(Relu::default())
        .add(pool()) // [N,16,4,4]
        .add(Flatten::default())
        .add(Linear::new(&device, 16 * 16, CLASSES, Bias::With)?);
    let linear = Sequential::new().add(Flatten::default()).add(Linear::new(&device, SIDE * SIDE, CLASSES, Bias::With)?);
    let mut found = Vec::new();
    for (name, model) in [("linear model", &linear), ("convolutional network", &network)] {
        let parameters: usize = model.parameters().iter().map(Tensor::len).sum();
        let start = std::time::Instant::now();
        train(&device, model, steps)?;
        let share = accuracy(&device, model)?;
        println!("{name:22} {parameters:6} parameters: {:.2} % of test pictures right, {:.1?}", 100.0 * share, start.elapsed());
        found.push(share);
    }
    ensure!(found[0] < 0.85, "the linear model should not be able to do this");
    ensure!(found[1] > if quick { found[0] + 0.1 } else { 0.97 }, "the network should be");
    Ok(())
}

fn train(device: &Device, model: &dyn Module, steps: u64) -> Result<()> {
    let groups = vec![ParamGroup::new(model.named_parameters(), 0.0, 1e-4)];
    let mut adam = Adam::adamw(groups, AdamOptions::default());
    let schedule = OneCycleLr::new(5e-3, steps);
    for step in 0..steps {
        let (pictures, classes) = batch(device, TRAIN, step)?;
        adam.zero_grad();
        adam.set_lr(schedule.lr(step, 0.0));
        loss::cross_entropy(&model.forward(&pictures)?, &classes)?.backward()?;
        adam.step()?;
    }
    Ok(())
}

/// Share of 2,048 test pictures whose class gets the highest score.
fn accuracy(device: &Device, model: &dyn Module) -> Result<f64> {
    model.eval();
    let mut right = Tensor::zeros(device, &[])?;
    for i in 0..32 {
        let (pictures, classes) = batch(device, TEST, i)?;
        let best = no_grad(|| model.forward(&pictures)?.argmax(-1, KeepDim::Drop))?;
        // A sum that stays on the device: it is read once.
        right = right.add(&best.eq(&classes)?.to_dtype(linn::DType::F32)?.sum_all()?)?;
    }
    model.train();
    Ok(f64::from(right.item::<f32>()?) / (32 * BATCH) as f64)
}

/// Pictures `[64,1,16,16]` and their classes.
fn batch(device: &Device, seed: u64, at: u64) -> Result<(Tensor, Tensor)> {
    let (mut pixels, mut classes) = (Vec::with_capacity(BATCH * SIDE * SIDE), Vec::with_capacity(BATCH));
    for i in 0..BATCH as u64 {
        let picture = at * BATCH as u64 + i;
        let chance = |what: u64| random_unit(seed, picture, what);
        let class = (chance(0) * CLASSES as f64) as usize;
        let radius = 2.0 + 2.0 * chance(1);
        let place = |what: u64| radius + chance(what) * (SIDE as f64 - 1.0 - 2.0 * radius);
        let (x0, y0) = (place(2), place(3));
        for y in 0..SIDE {
            for x in 0..SIDE {
                let (dx, dy) = ((x as f64 - x0).abs(), (y as f64 - y0).abs());
                let inside = dx <= radius && dy <= radius;
                let drawn = match class {
                    0 => inside && (dx < 0.8 || dy < 0.8),                        // a cross
                    1 => ((dx * dx + dy * dy).sqrt() - radius + 0.4).abs() < 0.7, // a ring
                    2 => inside && (dx > radius - 1.0 || dy > radius - 1.0),      // a frame
                    _ => inside && dx > radius - 1.0,                             // two bars
                };
                let noise = chance(4 + (y * SIDE + x) as u64) - 0.5;
                pixels.push((0.6 * noise + if drawn { 1.0 } else { 0.0 }) as f32);
            }
        }
        classes.push(class as i32);
    }
    Ok((Tensor::from_slice(device, &[BATCH, 1, SIDE, SIDE], &pixels)?, Tensor::from_slice(device, &[BATCH], &classes)?))
}
