//! Calls are enqueued: what returns at once, what waits, and how two streams keep their order by themselves.

use std::time::Instant;

use linn::{Device, Tensor};

fn main() -> anyhow::Result<()> {
    run(false)
}

/// The example; `quick` is for the tests that run it.
pub fn run(quick: bool) -> anyhow::Result<()> {
    let device = Device::open()?;
    let n = if quick { 64 } else { 512 };
    let x = Tensor::full(&device, &[n, n], 1.0 / n as f64)?;
    x.matmul(&x)?; // the first use of a kernel compiles it; keep that out of the timing
    device.synchronize()?;

    // Timing without a synchronise measures how fast calls are enqueued.
    let start = Instant::now();
    let mut y = x.clone();
    for _ in 0..10 {
        y = y.matmul(&x)?;
    }
    let enqueued = start.elapsed();
    device.synchronize()?;
    println!("10 matmuls of {n}: enqueued after {enqueued:?}, done after {:?}", start.elapsed());

    // A second stream. What it reads from the first comes first, without any event.
    let side = device.new_stream();
    let z = side.scope(|| &y + 1.0)?;
    let expected = 1.0 + 1.0 / n as f32;
    assert!(z.to_vec::<f32>()?.iter().all(|value| (value - expected).abs() < 1e-5));

    // Events mark a point of a stream: ask for it, wait for it, or make another stream wait without the host waiting.
    let main = device.current_stream();
    let event = main.record_event();
    side.wait_event(&event)?;
    event.synchronize()?;
    assert!(event.query());

    // A read waits for its own tensor only; its async form waits when it is awaited.
    let later = side.scope(|| z.sum_all())?.item_async::<f32>()?;
    println!("the host goes on; the sum arrives: {:?}", later.wait()?);
    let stats = device.stats();
    println!(
        "{} commands in {} submissions, {} order edges, the host blocked {} times",
        stats.timeline.commands, stats.timeline.submissions, stats.timeline.order_edges, stats.queue.host_syncs
    );
    Ok(())
}
