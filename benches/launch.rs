//! What one tiny operation costs: 10,000 x (x + 1) on 1,024 elements, chained and with every result kept.
//!
//! Measured: CPU time of the enqueueing thread per operation, everything included that happens on it; back-pressure waits
//! (apart); wall time until the last result is there, beside the same dispatches on bare wgpu. Results are checked first.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use linn::kernel::params::Contiguous;
use linn::{Device, DeviceOptions, Tensor};

#[allow(dead_code)] // the benches that share it use parts of it
#[path = "support/bare.rs"]
mod bare;
use bare::Bare;

const OPS: usize = 10_000;
const LEN: usize = 1_024;
/// Pairs of runs, ours and the bare one. The machine's speed changes by a third within seconds, so that pairs are compared.
const ROUNDS: usize = 21;

/// One run of all operations.
#[derive(Clone, Copy)]
struct Run {
    cpu: Duration,
    wall: Duration,
    back_pressure: Duration,
}

fn linn_run(device: &Device, keep: bool) -> linn::Result<Run> {
    let mut x = Tensor::from_slice(device, &[LEN], &[0.0f32; LEN])?;
    x.to_vec::<f32>()?;
    let mut kept = Vec::with_capacity(OPS);
    let before = device.stats().queue.back_pressure_nanos;
    let (cpu, wall) = (ThreadTime::now(), Instant::now());
    for _ in 0..OPS {
        let next = linn::ops::unary::add_scalar(&x, 1.0)?;
        if keep {
            kept.push(std::mem::replace(&mut x, next));
        } else {
            x = next;
        }
    }
    let cpu = cpu.elapsed();
    device.synchronize()?;
    let wall = wall.elapsed();
    let back_pressure = Duration::from_nanos(device.stats().queue.back_pressure_nanos - before);
    assert_eq!(x.to_vec::<f32>()?, vec![OPS as f32; LEN], "the last result");
    if let Some(middle) = kept.get(OPS / 2) {
        assert_eq!(middle.to_vec::<f32>()?, vec![(OPS / 2) as f32; LEN], "a kept result");
    }
    Ok(Run { cpu, wall, back_pressure })
}

/// The same dispatches on bare wgpu: the same shader, one pass and one submission per 256 dispatches; ping-pong between two buffers,
/// or from slot to slot of one buffer, with a bind group for each, where every result is `kept`.
fn bare_run(bare: &Bare, kept: Option<&wgpu::Buffer>) -> Duration {
    let size = 4 * LEN as u64;
    let slot = |buffer, index: usize| wgpu::BufferBinding { buffer, offset: index as u64 * size, size: NonZeroU64::new(size) };
    let mut clear = bare.device.create_command_encoder(&Default::default());
    clear.clear_buffer(kept.unwrap_or(&bare.buffers[0]), 0, Some(size));
    bare.queue.submit([clear.finish()]);
    bare.wait();
    let wall = Instant::now();
    for batch in 0..OPS.div_ceil(256) {
        let mut encoder = bare.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&bare.pipeline);
        let mut params: Contiguous = bytemuck::Zeroable::zeroed();
        (params.len, params.rounds, params.s) = (LEN as u32, 1, 1.0f32.to_bits());
        for op in batch * 256..((batch + 1) * 256).min(OPS) {
            match kept {
                None => pass.set_bind_group(0, &bare.groups[op % 2], &[]),
                Some(buffer) => pass.set_bind_group(0, &bare.group(slot(buffer, op), slot(buffer, op + 1)), &[]),
            }
            pass.set_immediates(0, bytemuck::bytes_of(&params));
            pass.dispatch_workgroups(4, 1, 1);
        }
        drop(pass);
        bare.queue.submit([encoder.finish()]);
    }
    bare.wait();
    let wall = wall.elapsed();
    let mut encoder = bare.device.create_command_encoder(&Default::default());
    match kept {
        None => encoder.copy_buffer_to_buffer(&bare.buffers[OPS % 2], 0, &bare.read, 0, size),
        Some(buffer) => encoder.copy_buffer_to_buffer(buffer, OPS as u64 * size, &bare.read, 0, size),
    }
    bare.queue.submit([encoder.finish()]);
    bare.read.map_async(wgpu::MapMode::Read, .., |result| result.expect("mapped"));
    bare.wait();
    let result: Vec<f32> = bytemuck::pod_collect_to_vec(&bare.read.get_mapped_range(..).expect("mapped")[..]);
    assert_eq!(result, vec![OPS as f32; LEN], "the bare result");
    bare.read.unmap();
    wall
}

/// Operations per second of so many threads, each on a stream of its own, until the device (one that does nothing) has seen all.
fn threads_run(device: &Device, threads: usize) -> f64 {
    let before = device.stats().queue.dispatches;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let stream = device.new_stream();
                let _guard = stream.enter();
                let mut x = Tensor::zeros(device, &[LEN]).expect("memory");
                (1..OPS).for_each(|_| x = linn::ops::unary::add_scalar(&x, 1.0).expect("an operation"));
            });
        }
    });
    device.synchronize().expect("the device answers");
    let taken = start.elapsed();
    let seen = device.stats().queue.dispatches - before;
    assert_eq!(seen, (threads * OPS) as u64, "every operation was handed over");
    seen as f64 / taken.as_secs_f64()
}

fn launch(criterion: &mut Criterion) {
    let device = Device::open().expect("an adapter");
    let bare = Bare::new(LEN);
    eprintln!("{} | {OPS} x (x + 1) on {LEN} elements", device.info());
    // One table with everything from the same minutes, so that its rows can be compared.
    let median = |mut values: Vec<Duration>| {
        values.sort();
        values[values.len() / 2]
    };
    let per_op = |duration: Duration| duration.as_secs_f64() * 1e6 / OPS as f64;
    let slots = bare.buffer((OPS as u64 + 1) * 4 * LEN as u64);
    let rounds: Vec<[(Run, Duration); 2]> = (0..ROUNDS)
        .map(|_| {
            [(false, None), (true, Some(&slots))]
                .map(|(keep, kept)| (linn_run(&device, keep).expect("a run"), bare_run(&bare, kept)))
        })
        .collect();
    eprintln!(
        "medians of {ROUNDS}, us per operation: CPU of the enqueueing thread | its back-pressure waits | wall to completion | bare \
         wgpu's right after it | x bare wgpu, of these pairs"
    );
    for (name, pick) in [("chained", 0), ("kept", 1)] {
        let runs: Vec<Run> = rounds.iter().map(|round| round[pick].0).collect();
        let bare_wall = median(rounds.iter().map(|round| round[pick].1).collect());
        let of = |part: fn(&Run) -> Duration| median(runs.iter().map(part).collect());
        let wall = of(|run| run.wall);
        let ratio = |round: &[(Run, Duration); 2]| round[pick].0.wall.as_secs_f64() / round[pick].1.as_secs_f64();
        let mut ratios: Vec<f64> = rounds.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        eprintln!(
            "{name:8} {:.2} | {:.2} | {:.2} | {:.2} | {:.2}",
            per_op(of(|run| run.cpu)),
            per_op(of(|run| run.back_pressure)),
            per_op(wall),
            per_op(bare_wall),
            ratios[ROUNDS / 2]
        );
    }

    let noop = Device::noop(DeviceOptions::default()).expect("a device");
    threads_run(&noop, 2);
    let mut pairs: Vec<[f64; 2]> = (0..15).map(|_| [1, 2].map(|threads| threads_run(&noop, threads))).collect();
    pairs.sort_by(|a, b| (a[1] / a[0]).total_cmp(&(b[1] / b[0])));
    let [one, two] = pairs[pairs.len() / 2].map(|rate| rate / 1e6);
    eprintln!(
        "noop device, the pair of runs with the median ratio of 15: {one:.2} million operations/s on one thread, {two:.2} on two"
    );

    let mut group = criterion.benchmark_group("launch");
    group.sample_size(10).throughput(Throughput::Elements(OPS as u64));
    for (name, keep) in [("chained_cpu", false), ("kept_cpu", true)] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| (0..times).map(|_| linn_run(&device, keep).expect("a run").cpu).sum());
        });
    }
    group.bench_function("chained_wall", |bencher| {
        bencher.iter_custom(|times| (0..times).map(|_| linn_run(&device, false).expect("a run").wall).sum());
    });
    group.bench_function("bare_wall", |bencher| bencher.iter_custom(|times| (0..times).map(|_| bare_run(&bare, None)).sum()));
    group.finish();
}

criterion_group!(benches, launch);
criterion_main!(benches);
