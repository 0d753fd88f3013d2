//! Seconds of work beside a thread that buys memory and gives it back. On GL any call beside a long submission of another thread
//! would end in a panic of wgpu.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linn::{DeviceOptions, Tensor};

use crate::device::{open, products};

#[test]
fn ten_seconds_of_work_on_gl_stop_no_thread_that_allocates() {
    let device = open(DeviceOptions::default());
    // Elsewhere submissions do not stop other calls.
    let work = Duration::from_secs(if device.info().backend == "gl" { 10 } else { 1 });
    let want = products(&device, 512, 20).to_vec::<f32>().unwrap();
    let (side, urgent) = (device.new_stream(), device.new_stream_with_priority(-1));
    let (done, before) = (AtomicBool::new(false), device.stats());
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let (start, mut queued, mut batches) = (Instant::now(), VecDeque::new(), 0);
            while start.elapsed() < work {
                products(&device, 512, 4);
                queued.push_back(device.default_stream().record_event());
                batches += 1;
                if queued.len() > 2 {
                    queued.pop_front().map_or(Ok(()), |event| event.synchronize()).unwrap();
                }
            }
            device.default_stream().synchronize().unwrap();
            done.store(true, Ordering::Release);
            (batches, start.elapsed())
        });
        let (mut rounds, mut longest, mut kept) = (0u32, Duration::ZERO, Vec::new());
        while !done.load(Ordering::Acquire) {
            let stream = if rounds % 2 == 0 { &side } else { &urgent };
            let _current = stream.enter();
            // Segments of their own, which go back to the driver at once, and small blocks that stay for a while.
            let start = Instant::now();
            let large = Tensor::full(&device, &[(5 << 20) + 4 * rounds as usize % 4096], 1.0).unwrap();
            longest = longest.max(start.elapsed());
            drop(large);
            kept.push((rounds, Tensor::from_slice(&device, &[1000], &[rounds as f32; 1000]).unwrap().add_scalar(1.0).unwrap()));
            if rounds % 16 == 15 {
                device.empty_cache().unwrap();
            }
            if rounds % 8 == 7 {
                for (round, values) in kept.drain(..) {
                    assert_eq!(values.to_vec::<f32>().unwrap(), [round as f32 + 1.0; 1000]);
                }
            }
            rounds += 1;
        }
        let ((batches, wall), after) = (busy.join().unwrap(), device.stats());
        let segments = after.memory.segment.allocated - before.memory.segment.allocated;
        println!(
            "{batches} x 4 products in {wall:.1?}: {rounds} rounds, {segments} segments bought, longest allocation {longest:.1?}"
        );
        assert!(rounds > 0 && segments > 0 && after.queue.failures == 0, "{rounds} rounds, {after:?}");
    });
    assert_eq!(products(&device, 512, 20).to_vec::<f32>().unwrap(), want);
    device.validate_memory().unwrap();
}
