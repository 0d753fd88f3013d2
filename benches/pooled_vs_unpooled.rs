//! What pooling gains: the same operations with freed memory kept, and with one driver buffer per tensor.
//!
//! `DeviceOptions::caching` is the only difference. For each size: host time per operation (the enqueueing thread, its
//! waits included), time to completion per operation, buffers bought from the driver, peak reserved. Both sides include
//! everything: with pooling that is the pool, the places and the queue; without it also creating, zeroing (wgpu does that at
//! first use) and dropping a buffer for every result. Results are checked before anything is timed.
//! Run it with `LINN_BACKEND=gl` or another driver's `VK_ICD_FILENAMES` for other drivers.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use linn::memory::Caching;
use linn::{Device, DeviceOptions, Tensor};

/// Three operations: two results die at once, one lives until the next round.
fn round(x: &Tensor) -> linn::Result<Tensor> {
    let a = linn::ops::unary::add_scalar(x, 1.0)?;
    let b = linn::ops::unary::mul_scalar(&a, 0.5)?;
    linn::ops::binary::add(&a, &b)
}
const OPS_PER_ROUND: u32 = 3;

struct Measured {
    host: Duration,
    total: Duration,
    bought: u64,
    peak: u64,
}

fn measure(device: &Device, len: usize, rounds: u32) -> linn::Result<Measured> {
    let x = Tensor::from_slice(device, &[len], &vec![1.0f32; len])?;
    let result = round(&x)?.to_vec::<f32>()?;
    assert!(result.iter().all(|value| *value == 3.0), "(1 + 1) + (1 + 1) / 2 = 3");
    device.synchronize()?;
    device.reset_peak_memory_stats();
    let before = device.stats().memory.num_device_alloc;
    let start = Instant::now();
    let mut last = None;
    for _ in 0..rounds {
        last = Some(round(&x)?);
    }
    let host = start.elapsed();
    device.synchronize()?;
    let total = start.elapsed();
    drop(last);
    let bought = device.stats().memory.num_device_alloc - before;
    Ok(Measured { host, total, bought, peak: device.max_memory_reserved() })
}

fn pooled_vs_unpooled(criterion: &mut Criterion) {
    let open = |caching| {
        let mut options = DeviceOptions::default();
        options.caching = caching;
        Device::open_with(options).expect("an adapter")
    };
    let sides = [("pooled", open(Caching::Pooled)), ("unpooled", open(Caching::Unpooled))];
    eprintln!("{}", sides[0].1.info());
    eprintln!("size      side     | host us/op | total us/op | driver buffers | peak reserved MiB");
    let sizes = [4usize << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];
    for size in sizes {
        let rounds = (64 << 20) / size.max(1 << 20) as u32;
        for (name, device) in &sides {
            let measured = measure(device, size / 4, rounds.max(2)).expect("a run");
            let ops = f64::from(rounds.max(2) * OPS_PER_ROUND);
            eprintln!(
                "{:>6} KiB {name:9}| {:10.2} | {:11.2} | {:14} | {:.1}",
                size >> 10,
                measured.host.as_secs_f64() * 1e6 / ops,
                measured.total.as_secs_f64() * 1e6 / ops,
                measured.bought,
                measured.peak as f64 / f64::from(1 << 20)
            );
        }
    }
    let mut group = criterion.benchmark_group("pooled_vs_unpooled");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    for size in [4usize << 10, 1 << 20] {
        group.throughput(Throughput::Elements(u64::from(16 * OPS_PER_ROUND)));
        for (name, device) in &sides {
            group.bench_function(BenchmarkId::new(*name, format!("{}KiB", size >> 10)), |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| measure(device, size / 4, 16).expect("a run").total).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, pooled_vs_unpooled);
criterion_main!(benches);
