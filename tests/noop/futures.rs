//! Futures under odd executors, after their end, and without what they came from.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};

use linn::{Device, DeviceOptions, Error, Event, Result, Tensor};

use crate::stop::{LONG, stop};
use crate::watch::watched;

type Task = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// An executor that polls inside the waker: on the device's own thread, and on whichever thread gives memory back.
struct Inline {
    task: Mutex<Option<Task>>,
    again: AtomicBool,
    done: Mutex<Sender<Result<()>>>,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst) {
            // (Who has it looks again.)
            let Ok(mut task) = self.task.try_lock() else { return };
            self.again.store(false, Ordering::SeqCst);
            let Some(future) = task.as_mut() else { return };
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&self.clone().into())) {
                *task = None;
                self.done.lock().unwrap().send(result).unwrap();
            }
        }
    }
}

/// Every kind of future, one after the other; between them calls that enqueue, and those that cannot wait there.
async fn everything(device: Device, round: f32) -> Result<()> {
    let x = Tensor::from_slice(&device, &[4], &[round; 4])?;
    let up = device.pin_memory(&[round + 1.0; 4])?;
    let mut down = device.pinned_download::<f32>(4)?;
    let (event, stream) = (Event::with_timing(), device.new_stream());
    event.record(&stream)?;
    assert_eq!(x.to_vec_async::<f32>()?.await?, [round; 4]);
    x.copy_from_pinned_(&up)?;
    let futures = (event.synchronize_async(), stream.synchronize_async(), device.synchronize_async(), up.synchronize_async());
    // An index kernel makes the next wait read the status words too.
    let ids = Tensor::from_slice(&device, &[1], &[0])?;
    let row = x.reshape(&[4, 1])?.embedding(&ids)?;
    futures.0.await?;
    futures.1.await?;
    futures.2.await?;
    futures.3.await?;
    device.synchronize_async().await?;
    assert_eq!(*x.copy_to_pinned(&mut down)?.await?, [round + 1.0; 4]);
    row.to_vec_async::<f32>()?.await?;
    for refused in [device.synchronize(), x.to_vec::<f32>().map(drop), x.export().map(drop), event.synchronize()] {
        // Fine where it is some other thread, or there is nothing to wait for.
        assert!(matches!(refused, Ok(()) | Err(Error::Argument { op: "wait", .. })), "{refused:?}");
    }
    drop((up, stream, event));
    x.export_mut_async().await?.submitted();
    Ok(())
}

#[test]
fn futures_may_be_polled_inside_their_wakers() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    for round in 0..200 {
        let (done, is_done) = channel();
        let task: Task = Box::pin(everything(device.clone(), round as f32));
        let task = Arc::new(Inline { task: Mutex::new(Some(task)), again: AtomicBool::new(false), done: Mutex::new(done) });
        task.wake();
        is_done.recv_timeout(LONG).unwrap().unwrap();
    }
    device.synchronize().unwrap();
    assert_eq!((device.memory_allocated(), device.pinned_memory_stats().held.current), (0, 0));
}

#[test]
fn what_was_taken_is_not_given_again() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let x = Tensor::from_slice(&device, &[2], &[3.0f32, 4.0]).unwrap();
    let taken = |result: Result<()>| {
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with("read: what was read has been taken already\nhelp: "), "{text}");
    };
    let mut read = x.to_vec_async::<f32>().unwrap();
    while read.try_take().unwrap().is_none() {}
    assert_eq!(read.try_take().unwrap(), None);
    taken(pollster::block_on(&mut read).map(drop));
    taken(read.wait().map(drop));
    let mut down = device.pinned_download::<f32>(2).unwrap();
    let mut read = x.copy_to_pinned(&mut down).unwrap();
    assert_eq!(pollster::block_on(&mut read).unwrap(), [3.0, 4.0]);
    assert_eq!(read.try_take().unwrap(), None);
    taken(pollster::block_on(&mut read).map(drop));
    taken(read.wait().map(drop));
    device.synchronize().unwrap();
}

#[test]
fn a_future_outlives_the_pinned_buffer_that_it_waits_for() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let x = Tensor::from_slice(&device, &[2], &[0.0f32; 2]).unwrap();
    let go_on = stop(&device);
    let up = device.pin_memory(&[1.0f32, 2.0]).unwrap();
    x.copy_from_pinned_(&up).unwrap();
    let (end, mut future) = (device.default_stream().record_event(), Box::pin(up.synchronize_async()));
    drop(up);
    assert!(future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    drop(go_on);
    pollster::block_on(future).unwrap();
    assert!(end.query());
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics, on purpose");
    }
}

/// Wakers run on the device's own thread, or on whichever gives something back: a panic in one is nothing to the others.
#[test]
fn a_waker_that_panics_harms_nobody_else() {
    type Ends = Pin<Box<dyn Future<Output = bool> + Send>>;
    /// Every kind of future; true where it has what it was asked for.
    fn all(device: &Device, x: &Tensor) -> Vec<Ends> {
        let up = device.pin_memory(&[1.0f32, 2.0]).unwrap();
        x.copy_from_pinned_(&up).unwrap();
        let lent = Tensor::ones(device, &[2]).unwrap();
        let (stream, event) = (device.default_stream(), Event::new());
        event.record(&stream).unwrap();
        let (of_device, of_stream, of_event) =
            (device.synchronize_async(), stream.synchronize_async(), event.synchronize_async());
        let (read, pinned, export) = (x.to_vec_async::<f32>().unwrap(), up.synchronize_async(), lent.export_async());
        vec![
            Box::pin(async { of_device.await.is_ok() }),
            Box::pin(async { of_stream.await.is_ok() }),
            Box::pin(async { of_event.await.is_ok() }),
            Box::pin(async { read.await.is_ok_and(|values| values == [1.0, 2.0]) }),
            Box::pin(async { pinned.await.is_ok() }),
            Box::pin(async { export.await.is_ok() }),
        ]
    }
    watched(60, || {
        for lost in [false, true] {
            let device = Device::noop(DeviceOptions::default()).unwrap();
            let x = Tensor::from_slice(&device, &[2], &[0.0f32; 2]).unwrap();
            drop(all(&device, &x));
            device.synchronize().unwrap();
            let go_on = stop(&device);
            let (mut panicking, healthy) = (all(&device, &x), all(&device, &x));
            let waker = Arc::new(Panics).into();
            for future in &mut panicking {
                assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            // They wait on threads of their own.
            let threads: Vec<_> =
                healthy.into_iter().map(|future| std::thread::spawn(move || pollster::block_on(future))).collect();
            std::thread::sleep(std::time::Duration::from_millis(20));
            if lost {
                // Here it is this thread that wakes everybody.
                device.mark_lost("a test says so");
            }
            drop(go_on);
            let ended: Vec<bool> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let late: Vec<bool> = panicking.into_iter().map(pollster::block_on).collect();
            for result in [ended, late] {
                assert!(result.iter().all(|result| *result != lost), "lost: {lost}, {result:?}");
            }
            assert_eq!(device.synchronize().is_err(), lost);
        }
    });
}
