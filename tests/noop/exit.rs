//! Closing: handles go in any order, from any thread, with work on its way, and nothing hangs.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use linn::{Device, DeviceOptions, Event, Tensor};

use crate::watch::watched;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

/// Everything a user can hold of a device, with a read, an event and uploads on their way.
fn handles(device: Device) -> Vec<Box<dyn Send>> {
    let stream = device.new_stream();
    let guard = stream.enter();
    let large = Tensor::from_slice(&device, &[200_000], &vec![1.0f32; 200_000]).unwrap();
    let small = Tensor::from_slice(&device, &[3], &[1, 2, 3]).unwrap();
    drop(guard);
    let read = large.to_vec_async::<f32>().unwrap();
    let event = Event::new();
    event.record(&stream).unwrap();
    let done = Box::pin(stream.synchronize_async());
    vec![Box::new(device), Box::new(stream), Box::new(large), Box::new(small), Box::new(read), Box::new(event), Box::new(done)]
}

#[test]
fn handles_may_go_in_any_order() {
    watched(60, || {
        // Every one of the 7 first, and every one last.
        for first in 0..7 {
            for last in (0..7).filter(|last| *last != first) {
                let mut handles: Vec<Option<Box<dyn Send>>> = handles(open()).into_iter().map(Some).collect();
                handles[first] = None;
                for middle in (0..7).filter(|middle| *middle != last) {
                    handles[middle] = None;
                }
                handles[last] = None;
            }
        }
    });
}

#[test]
fn handles_may_go_from_many_threads_at_once() {
    watched(60, || {
        for _ in 0..20 {
            let device = open();
            let shares: Vec<_> = (0..4).map(|_| handles(device.clone())).collect();
            drop(device);
            let all: Vec<Box<dyn Send>> = shares.into_iter().flatten().collect();
            let start = Arc::new(Barrier::new(all.len()));
            let threads: Vec<_> = all
                .into_iter()
                .map(|handle| {
                    let start = start.clone();
                    std::thread::spawn(move || {
                        start.wait();
                        drop(handle);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    });
}

#[test]
fn a_hundred_devices_come_and_go() {
    watched(60, || {
        for i in 0..100 {
            let device = open();
            let tensor = Tensor::from_slice(&device, &[2], &[i, i + 1]).unwrap();
            // Half of them close with the upload on its way.
            if i % 2 == 0 {
                assert_eq!(tensor.to_vec::<i32>().unwrap(), [i, i + 1]);
            }
        }
    });
}

#[test]
fn what_is_dropped_leaves_nothing_behind() {
    watched(60, || {
        let device = open();
        for _ in 0..10 {
            let mut all = handles(device.clone());
            // Reads that nobody waits for.
            all.remove(4);
            let threads: Vec<_> = all.into_iter().map(|handle| std::thread::spawn(move || drop(handle))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        assert_eq!(device.memory_allocated(), 0);
        device.empty_cache().unwrap();
        assert_eq!((device.memory_reserved(), device.memory_breakdown().sum()), (0, 0));
        // Chunks are reused, those of reads that were dropped too.
        let stats = device.stats();
        assert!(stats.staging_download_bytes <= 10 << 20, "{stats:?}");
    });
}

#[test]
fn a_thread_that_panics_takes_nothing_along() {
    watched(60, || {
        let device = open();
        let for_thread = device.clone();
        let thread = std::thread::spawn(move || {
            let stream = for_thread.new_stream();
            let _guard = stream.enter();
            let _tensor = Tensor::from_slice(&for_thread, &[1], &[1.0f32]).unwrap();
            std::panic::resume_unwind(Box::new("as planned"));
        });
        assert!(thread.join().is_err());
        let tensor = Tensor::from_slice(&device, &[1], &[2.0f32]).unwrap();
        assert_eq!(tensor.item::<f32>().unwrap(), 2.0);
        drop(tensor);
        assert_eq!(device.memory_allocated(), 0);
    });
}

/// A task that only its waker holds.
struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Task {
    fn wake(self: Arc<Task>) {}
}

/// Reports when it is dropped, and whether that happened in a panic.
struct Report(Sender<bool>);

impl Drop for Report {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::panicking());
    }
}

#[test]
fn a_waker_may_drop_the_last_handle() {
    watched(60, || {
        for _ in 0..20 {
            let device = open();
            let tensor = Tensor::from_slice(&device, &[1000], &[1.0f32; 1000]).unwrap();
            let read = tensor.to_vec_async::<f32>().unwrap();
            let (sender, receiver) = channel();
            // Dropped in this order: the handles, then the report.
            let held = (tensor, device, Report(sender));
            let future = Box::pin(async move {
                let _held = held;
                let _ = read.await;
                std::future::pending::<()>().await;
            });
            let task = Arc::new(Task(Mutex::new(Some(future))));
            let waker = Waker::from(task.clone());
            if let Some(future) = task.0.lock().unwrap().as_mut() {
                let _ = future.as_mut().poll(&mut Context::from_waker(&waker));
            }
            drop((waker, task));
            assert!(!receiver.recv().unwrap(), "closing panicked");
        }
    });
}

/// Not a test of its own: what the next one runs as a process.
#[test]
#[ignore = "run by a_process_may_end_with_work_in_flight"]
fn child_with_work_in_flight() {
    if std::env::var_os("LINN_TEST_CHILD").is_none() {
        return;
    }
    let device = open();
    let tensors: Vec<Tensor> = (0..100).map(|i| Tensor::from_slice(&device, &[1000], &[i; 1000]).unwrap()).collect();
    let _reads: Vec<_> = tensors.iter().map(|tensor| tensor.to_vec_async::<i32>().unwrap()).collect();
    std::process::exit(0);
}

#[test]
fn a_process_may_end_with_work_in_flight() {
    let exe = std::env::current_exe().unwrap();
    for _ in 0..10 {
        let mut child = std::process::Command::new(&exe)
            .args(["--exact", "exit::child_with_work_in_flight", "--ignored", "--nocapture"])
            .env("LINN_TEST_CHILD", "1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let start = std::time::Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("the process hangs");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        assert_eq!(status.code(), Some(0));
    }
}
