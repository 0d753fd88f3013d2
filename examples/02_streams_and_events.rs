//! Calls are enqueued: what returns at once, what waits, and how two streams keep their order by themselves.

use std::time::Instant;

use linn::{Device, Event, Tensor};

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

    // Events with timing measure on the device: no synchronise stands between, and what the host does meanwhile does not count.
    let main = device.current_stream();
    let (start, end) = (Event::with_timing(), Event::with_timing());
    if device.has_timestamps() {
        start.record(&main)?;
        x.matmul(&x)?;
        end.record(&main)?;
        end.synchronize()?;
        println!("one of them: {:.3} ms on the device", start.elapsed_time(&end)?);
    }

    // A second stream. What it reads from the first comes first, without any event. Each such order can be looked at; there is
    // none where the device keeps up, because what was handed to the driver goes first anyway.
    device.record_order_edges(Some(100));
    let side = device.new_stream();
    let y = (0..10).try_fold(y, |y, _| y.matmul(&x))?;
    let z = side.scope(|| &y + 1.0)?;
    let expected = 1.0 + 1.0 / n as f32;
    assert!(z.to_vec::<f32>()?.iter().all(|value| (value - expected).abs() < 1e-5));

    // Events mark a point of a stream: ask for it, wait for it, or make another stream wait without the host waiting.
    let event = main.record_event();
    side.wait_event(&event)?;
    event.synchronize()?;
    assert!(event.query());
    println!("{}\n{}", device.order_edges(), device.order_edges().to_dot());

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
