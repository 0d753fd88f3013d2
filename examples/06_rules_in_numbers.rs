//! The two rules' first half with numbers of your own machine: calls are enqueued.
//!
//! Timing with and without a synchronise, a read that waits, preparation on the host while the device computes, a stream that
//! goes first, and what a hidden sync costs. Every result is checked; times are printed, not judged.

use std::time::{Duration, Instant};

use linn::device::SyncDebug;
use linn::{Device, Tensor};

fn main() -> anyhow::Result<()> {
    run(false)
}

/// The example; `quick` is for the tests that run it.
pub fn run(quick: bool) -> anyhow::Result<()> {
    let device = Device::open()?;
    println!("on {}", device.info());
    let n = if quick { 64 } else { 512 };
    let x = Tensor::full(&device, &[n, n], 1.0 / n as f64)?;
    work(&x, 1)?.to_vec::<f32>()?; // the first use of a kernel compiles it; keep that out of the timing
    timing(&x)?;
    reads(&x)?;
    overlap(&x, if quick { 4 } else { 20 })?;
    priority(&x, if quick { 8 } else { 100 })?;
    hidden_syncs(&x, if quick { 4 } else { 50 })
}

/// `count` products in a row; x is such that x x = x.
fn work(x: &Tensor, count: usize) -> linn::Result<Tensor> {
    (0..count).try_fold(x.clone(), |y, _| y.matmul(x))
}

fn is_right(x: &Tensor, y: &Tensor) -> anyhow::Result<()> {
    let want = 1.0 / x.shape()[0] as f32;
    anyhow::ensure!(y.to_vec::<f32>()?.iter().all(|value| (value / want - 1.0).abs() < 1e-4), "a product is wrong");
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn timing(x: &Tensor) -> anyhow::Result<()> {
    let flops = 20.0 * 2.0 * (x.shape()[0] as f64).powi(3);
    let start = Instant::now();
    let y = work(x, 20)?;
    let enqueued = start.elapsed();
    x.device().synchronize()?;
    let done = start.elapsed();
    is_right(x, &y)?;
    println!("\n1. Timing 20 products of {:?}:", x.shape());
    let rate = |time: Duration| flops / time.as_secs_f64() / 1e9;
    println!(
        "   without a synchronise {:9.3} ms, as if it were {:.0} GFLOP/s: that is only the enqueueing",
        ms(enqueued),
        rate(enqueued)
    );
    println!("   with one              {:9.3} ms, {:.1} GFLOP/s", ms(done), rate(done));
    Ok(())
}

fn reads(x: &Tensor) -> anyhow::Result<()> {
    let y = work(x, 10)?.sum_all()?;
    let start = Instant::now();
    let first = y.item::<f32>()?;
    let waited = start.elapsed();
    let start = Instant::now();
    let again = y.item::<f32>()?;
    anyhow::ensure!(first == again, "one value");
    println!("\n2. Reading one number:");
    println!("   behind 10 products    {:9.3} ms: `item` waits for what it reads", ms(waited));
    println!("   once it is computed   {:9.3} ms: a copy and a round trip", ms(start.elapsed()));
    Ok(())
}

/// Host work that takes as long as asked for.
fn prepare(time: Duration) -> u64 {
    let start = Instant::now();
    let mut state = 1u64;
    while start.elapsed() < time {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    state
}

fn overlap(x: &Tensor, batches: u32) -> anyhow::Result<()> {
    let start = Instant::now();
    let y = work(x, 3)?;
    x.device().synchronize()?;
    let device_time = start.elapsed();
    // As long as the device takes, up to what a fast device would make too short to see.
    let host_time = device_time.max(Duration::from_millis(1));
    let run = |waits: bool| -> anyhow::Result<Duration> {
        let start = Instant::now();
        for _ in 0..batches {
            std::hint::black_box(prepare(host_time));
            work(x, 3)?;
            if waits {
                x.device().synchronize()?;
            }
        }
        x.device().synchronize()?;
        Ok(start.elapsed())
    };
    is_right(x, &y)?;
    let (serial, ahead) = (run(true)?, run(false)?);
    let (host, device) = (host_time * batches, device_time * batches);
    let share = |wall: Duration| (ms(host) + ms(device) - ms(wall)) / ms(host) * 100.0;
    println!("\n3. {batches} batches, each prepared for {:.1} ms and computed in {:.1} ms:", ms(host_time), ms(device_time));
    println!("   a synchronise after each {:9.1} ms, {:.0} % of the preparation hidden", ms(serial), share(serial));
    println!("   the host runs ahead      {:9.1} ms, {:.0} % of the preparation hidden", ms(ahead), share(ahead));
    println!("   (a software driver computes on the cores that prepare; with a GPU nearly all of it can be hidden)");
    Ok(())
}

fn priority(x: &Tensor, count: usize) -> anyhow::Result<()> {
    let device = x.device();
    let (least, greatest) = device.stream_priority_range();
    let streams = [least, greatest].map(|priority| device.new_stream_with_priority(priority));
    println!("\n4. {count} products stand in the default stream. One addition on another stream is there after");
    for stream in streams {
        let y = work(x, count)?;
        let start = Instant::now();
        // The read belongs to that stream too: on the default stream it would stand behind the products.
        let value = stream.scope(|| Tensor::ones(device, &[1])?.add_scalar(1.0)?.item::<f32>())?;
        let waited = start.elapsed();
        anyhow::ensure!(value == 2.0, "1 + 1");
        let (left, start) = (!device.default_stream().query(), Instant::now());
        is_right(x, &y)?;
        let behind = if left { format!("the products took {:.1} ms more", ms(start.elapsed())) } else { "all was done".into() };
        println!("   {:9.1} ms with priority {:2}; {behind}", ms(waited), stream.priority());
    }
    println!("   (a read goes first in any case, as far as it depends on nothing else; what is submitted is not interrupted)");
    Ok(())
}

fn hidden_syncs(x: &Tensor, steps: usize) -> anyhow::Result<()> {
    let device = x.device();
    let train = |reads: bool| -> anyhow::Result<Duration> {
        let start = Instant::now();
        let mut loss = x.sum_all()?;
        for _ in 0..steps {
            std::hint::black_box(prepare(Duration::from_millis(1)));
            loss = work(x, 1)?.sum_all()?;
            if reads {
                loss.item::<f32>()?; // a progress line that prints the loss of every step
            }
        }
        let last = loss.item::<f32>()?;
        anyhow::ensure!((last / x.shape()[0] as f32 - 1.0).abs() < 1e-4, "the sum is n");
        Ok(start.elapsed())
    };
    let free = train(false)?;
    let before = device.host_waits().len();
    let waiting = train(true)?;
    println!("\n5. {steps} steps with 1 ms on the host each:");
    println!("   reading the last loss only {:9.1} ms", ms(free));
    println!("   reading every loss         {:9.1} ms; where the host waited, by `device.host_waits()`:", ms(waiting));
    anyhow::ensure!(device.host_waits().len() > before, "the line of the read is known");
    let mut waits = device.host_waits();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited));
    for wait in waits.iter().take(2) {
        println!("   {} times, {:.1} ms in all: {}", wait.count, ms(wait.waited), wait.location);
    }
    device.set_sync_debug(SyncDebug::Error);
    let refused = x.sum_all()?.item::<f32>();
    device.set_sync_debug(SyncDebug::Off);
    let Err(error) = refused else { anyhow::bail!("SyncDebug::Error lets a hidden sync pass") };
    println!("   and `SyncDebug::Error` says:\n   {}", error.to_string().replace('\n', "\n   "));
    Ok(())
}
