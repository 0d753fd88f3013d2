//! One training step of nanoGPT's CPU setting: 4 layers, 4 heads, width 128, context 64, batch 12, AdamW, clipping.
//!
//! Time from completion to completion, in tokens per second; the loss is checked before anything is timed, and the steady
//! state after it (no purchase, bind groups from the cache).

use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use linn::nn::{Gpt, GptConfig, Module};
use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup, Scaling, clip_scale, grad_norm};
use linn::{Device, Tensor};

const BATCH: usize = 12;
const CONTEXT: usize = 64;
const VOCABULARY: usize = 65;

struct Bench {
    device: Device,
    model: Gpt,
    parameters: Vec<Tensor>,
    optimizer: Adam,
    inputs: Tensor,
    targets: Tensor,
}

impl Bench {
    fn new() -> linn::Result<Bench> {
        let device = Device::open()?;
        device.manual_seed(1)?;
        let config = GptConfig {
            n_layer: 4,
            n_head: 4,
            n_embd: 128,
            block_size: CONTEXT,
            vocab_size: VOCABULARY,
            bias: false,
            tied: true,
        };
        let model = Gpt::new(&device, config)?;
        let groups = ParamGroup::by_rank(model.named_parameters(), 1e-3, 0.1);
        let optimizer = Adam::adamw(groups, AdamOptions { betas: (0.9, 0.99), eps: 1e-8, amsgrad: false });
        let tokens: Vec<i32> = (0..BATCH * (CONTEXT + 1)).map(|i| (i * i % VOCABULARY) as i32).collect();
        let part = |shift: usize| -> linn::Result<Tensor> {
            let rows: Vec<i32> = (0..BATCH).flat_map(|row| &tokens[row * (CONTEXT + 1) + shift..][..CONTEXT]).copied().collect();
            Tensor::from_slice(&device, &[BATCH, CONTEXT], &rows)
        };
        let (inputs, targets) = (part(0)?, part(1)?);
        let parameters = model.parameters();
        Ok(Bench { device, model, parameters, optimizer, inputs, targets })
    }

    fn step(&mut self) -> linn::Result<Tensor> {
        self.optimizer.zero_grad();
        let loss = self.model.loss(&self.inputs, &self.targets)?;
        loss.backward()?;
        let scale = clip_scale(&grad_norm(&self.parameters)?, 1.0)?;
        self.optimizer.step_with(Scaling { grad_scale: Some(&scale), ..Scaling::default() })?;
        Ok(loss.detach())
    }
}

fn training_step(criterion: &mut Criterion) {
    let mut bench = Bench::new().expect("an adapter");
    eprintln!("{}", bench.device.info());
    let first = bench.step().expect("a step").item::<f32>().expect("a loss");
    assert!((first - (VOCABULARY as f32).ln()).abs() < 0.3, "an untrained model guesses: {first}");
    for _ in 0..19 {
        bench.step().expect("a step");
    }
    let later = bench.step().expect("a step").item::<f32>().expect("a loss");
    assert!(later < first - 0.5, "20 steps on one batch lower its loss: {first} to {later}");
    let before = bench.device.stats();

    let mut group = criterion.benchmark_group("training_step");
    group.sample_size(10).throughput(Throughput::Elements((BATCH * CONTEXT) as u64));
    group.bench_function("gpt_4x128", |bencher| {
        bencher.iter_custom(|times| {
            bench.device.synchronize().expect("idle");
            let start = Instant::now();
            for _ in 0..times {
                bench.step().expect("a step");
            }
            bench.device.synchronize().expect("done");
            start.elapsed()
        });
    });
    group.finish();
    let after = bench.device.stats();
    assert_eq!(after.memory.num_device_alloc, before.memory.num_device_alloc, "no purchase in the steady state");
    eprintln!(
        "{} dispatches, bind-group hit rate {:.4}, {} bind groups",
        after.queue.dispatches,
        after.bind_group_hit_rate(),
        after.queue.bind_groups
    );
}

criterion_group!(benches, training_step);
criterion_main!(benches);
