//! The prefetching data loader: order, bounds, faults of a producer, and its end at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use linn::data::{DataLoader, DataLoaderOptions, HostTensor, Upload};
use linn::device::SyncDebug;
use linn::{DType, Device, DeviceOptions, Error, Tensor};

use crate::stop::stop;
use crate::watch::watched;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

fn options(num_workers: usize, prefetch_factor: usize) -> DataLoaderOptions {
    let mut options = DataLoaderOptions::default();
    (options.num_workers, options.prefetch_factor) = (num_workers, prefetch_factor);
    options
}

/// Item `i`: some numbers that begin with it, of a length of its own, and a scalar.
fn item(i: u64) -> linn::Result<Vec<HostTensor>> {
    let len = 1 + (i % 5) as usize * 700;
    let numbers = (0..len).map(|k| i as f32 + k as f32).collect();
    Ok(vec![HostTensor::new(&[len], numbers)?, HostTensor::new(&[], vec![i as i32])?])
}

fn check(i: u64, tensors: &[Tensor]) {
    let [numbers, scalar] = tensors else { panic!("{} tensors", tensors.len()) };
    assert_eq!((numbers.dtype(), scalar.dtype(), scalar.rank()), (DType::F32, DType::I32, 0));
    assert_eq!(scalar.item::<i32>().unwrap(), i as i32);
    let expected: Vec<f32> = (0..1 + (i % 5) * 700).map(|k| i as f32 + k as f32).collect();
    assert_eq!(numbers.to_vec::<f32>().unwrap(), expected, "item {i}");
}

#[test]
fn items_come_in_order_whatever_worker_is_done_first() {
    watched(120, || {
        for (workers, factor) in [(0, 1), (1, 1), (1, 4), (3, 2), (8, 1), (2, usize::MAX)] {
            for upload in [Upload::OwnStream, Upload::CurrentStream] {
                let mut options = options(workers, factor);
                options.upload = upload;
                let slow_first = move |i: u64| {
                    // Every eighth is much slower than those after it.
                    std::thread::sleep(Duration::from_micros(if i.is_multiple_of(8) { 2000 } else { 10 * (i % 3) }));
                    item(i)
                };
                let mut loader = DataLoader::new(&open(), 5..105, options, slow_first).unwrap();
                for i in 5..105 {
                    check(i, &loader.next().unwrap().unwrap());
                }
                assert!(loader.next().is_none() && loader.next().is_none());
                let stats = loader.stats();
                assert!(stats.items == 100 && stats.prepared >= Duration::from_millis(24), "{stats:?}");
            }
        }
    });
}

#[test]
fn workers_are_so_far_ahead_and_no_further() {
    watched(60, || {
        let device = open();
        let (started, most) = (Arc::new(AtomicU64::new(0)), 3 * 2);
        let count = started.clone();
        let produce = move |i| {
            count.fetch_add(1, Ordering::SeqCst);
            item(i)
        };
        let mut loader = DataLoader::new(&device, 0..200, options(3, 2), produce).unwrap();
        for taken in 0..200 {
            // Where workers are left alone they come to the bound, and stay there.
            while taken % 50 == 0 && started.load(Ordering::SeqCst) < (taken + most).min(200) {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(started.load(Ordering::SeqCst) <= taken + most);
            check(taken, &loader.next().unwrap().unwrap());
        }
        // Two arrays for each item that is ahead, and those that workers are at.
        let stats = device.pinned_memory_stats();
        assert!(stats.held.peak <= 2 * (most + 3 + 1), "{stats:?}");
        drop(loader);
        assert_eq!(device.pinned_memory_stats().held.current, 0);
    });
}

/// What is dropped with a panic can panic too.
struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("again");
    }
}

#[test]
fn errors_and_panics_are_the_answer_for_their_item() {
    watched(60, || {
        for workers in [0, 1, 3] {
            let produce = |i: u64| -> Result<Vec<HostTensor>, Box<dyn std::error::Error + Send + Sync>> {
                match i {
                    3 => Err("no such file".into()),
                    5 => panic!("item {i} is odd"),
                    6 => panic!("plain"),
                    7 => std::panic::panic_any(PanicsAgain),
                    8 => Err(Error::file("b.txt is empty", "write something").into()),
                    9 => Ok(vec![HostTensor::new(&[2, 2], vec![1.0f32; 3])?]),
                    _ => Ok(item(i)?),
                }
            };
            let mut loader = DataLoader::new(&open(), 0..12, options(workers, 2), produce).unwrap();
            for i in 0..12 {
                let expected = match i {
                    3 => "data loader: item 3 could not be prepared: no such file\nhelp: ",
                    5 => "data loader: the producer panicked at item 5: item 5 is odd\nhelp: ",
                    6 => "data loader: the producer panicked at item 6: plain\nhelp: ",
                    7 => "data loader: the producer panicked at item 7: without a word\nhelp: ",
                    8 => "b.txt is empty\nhelp: write something",
                    9 => "HostTensor: shape [2, 2] has 4 elements, the vector has 3\nhelp: ",
                    _ => {
                        check(i, &loader.next().unwrap().unwrap());
                        continue;
                    }
                };
                let text = loader.next().unwrap().unwrap_err().to_string();
                assert!(text.starts_with(expected), "{text}");
            }
            assert!(loader.next().is_none());
        }
    });
}

#[test]
fn a_loader_is_dropped_at_any_time_and_its_workers_end() {
    watched(120, || {
        let device = open();
        for round in 0..60u64 {
            let alive = Arc::new(());
            let held = alive.clone();
            let produce = move |i| {
                let _held = &held;
                std::thread::sleep(Duration::from_micros(50 * (i % 4)));
                item(i)
            };
            let mut loader = DataLoader::new(&device, 0..u64::MAX, options(1 + round as usize % 3, 3), produce).unwrap();
            for i in 0..round % 10 {
                check(i, &loader.next().unwrap().unwrap());
            }
            drop(loader);
            assert_eq!(Arc::strong_count(&alive), 1, "a worker is left");
        }
        // While all workers are inside the producer, and before anything was taken.
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let inside = Arc::new(AtomicU64::new(0));
        let (opened, entered) = (gate.clone(), inside.clone());
        let produce = move |i| {
            entered.fetch_add(1, Ordering::SeqCst);
            let closed = opened.0.lock().unwrap();
            drop(opened.1.wait_while(closed, |open| !*open).unwrap());
            item(i)
        };
        let loader = DataLoader::new(&device, 0..100, options(2, 2), produce).unwrap();
        while inside.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        let dropping = std::thread::spawn(move || drop(loader));
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        dropping.join().unwrap();
        assert!(inside.load(Ordering::SeqCst) <= 4);
        assert_eq!((device.pinned_memory_stats().held.current, device.memory_allocated()), (0, 0));
    });
}

/// A worker that waits for pinned memory whose copies the device does not get to.
#[test]
fn a_loader_is_dropped_while_the_device_stands_still() {
    watched(60, || {
        for num_workers in [1, 3] {
            let device = open();
            let mut options = options(num_workers, 2);
            options.upload = Upload::CurrentStream;
            let mut loader = DataLoader::new(&device, 0..1000, options, item).unwrap();
            check(0, &loader.next().unwrap().unwrap());
            let go_on = stop(&device);
            // As many as there are sets of pinned buffers, and one that is never handed out.
            let held: Vec<_> = (0..2 * num_workers).map(|_| loader.next().unwrap().unwrap()).collect();
            std::thread::sleep(Duration::from_millis(20));
            drop(loader);
            drop(go_on);
            held.iter().zip(1..).for_each(|(tensors, i)| check(i, tensors));
        }
    });
}

#[test]
fn tensors_that_are_held_keep_their_elements() {
    watched(60, || {
        for workers in [0, 2] {
            let device = open();
            device.set_sync_debug(SyncDebug::Off);
            let produce = |i: u64| HostTensor::new(&[1000], vec![i as f32; 1000]).map(|numbers| vec![numbers]);
            let loader = DataLoader::new(&device, 0..40, options(workers, 2), produce).unwrap();
            let held: Vec<Vec<Tensor>> = loader.map(|item| item.unwrap()).collect();
            for (i, tensors) in held.iter().enumerate() {
                assert_eq!(tensors[0].to_vec::<f32>().unwrap(), [i as f32; 1000]);
            }
            drop(held);
            assert_eq!(device.memory_allocated(), 0);
            // One at a time they take turns in the same memory.
            let mut loader = DataLoader::new(&device, 0..40, options(workers, 2), produce).unwrap();
            for i in 0..40 {
                let item = loader.next().unwrap().unwrap();
                assert_eq!(item[0].to_vec::<f32>().unwrap()[999], i as f32);
                assert!(device.memory_allocated() <= 3 * 4096, "{}", device.memory_allocated());
            }
        }
    });
}

#[test]
fn the_loader_waits_for_no_device_and_refusals_are_answers() {
    watched(60, || {
        let device = open();
        device.set_sync_debug(SyncDebug::Error);
        let mut loader = DataLoader::new(&device, 0..300, options(2, 2), item).unwrap();
        let mut errors = 0;
        for i in 0..300 {
            if i % 20 == 10 {
                device.refuse_driver_calls(0, 3);
            }
            match loader.next().unwrap() {
                Ok(tensors) => assert_eq!(tensors.len(), 2),
                Err(error) => {
                    errors += 1;
                    assert_eq!(error.to_string().matches("\nhelp: ").count(), 1, "{error}");
                }
            }
            device.refuse_driver_calls(0, 0);
            let _ = device.synchronize();
        }
        device.set_sync_debug(SyncDebug::Off);
        assert!(errors < 100, "{errors}");
        let mut after = DataLoader::new(&device, 0..5, options(1, 1), item).unwrap();
        for i in 0..5 {
            check(i, &after.next().unwrap().unwrap());
        }
        assert!(device.host_waits().iter().all(|wait| !wait.location.file().starts_with("src")), "{:?}", device.host_waits());
    });
}

/// Elements that are less than a word, and end inside one.
#[test]
fn items_of_every_type_and_length() {
    use half::f16;

    for workers in [0, 2] {
        let produce = |i: u64| {
            let halves: Vec<f16> = (0..=i).map(|k| f16::from_f32(k as f32 - 0.5)).collect();
            let bools: Vec<u8> = (0..=i).map(|k| u8::from(k % 2 == 0)).collect();
            let len = [halves.len()];
            Ok::<_, Error>(vec![HostTensor::new(&len, halves)?, HostTensor::new(&len, bools)?])
        };
        let loader = DataLoader::new(&open(), 0..9, options(workers, 2), produce).unwrap();
        for (i, item) in loader.enumerate() {
            let item = item.unwrap();
            let halves: Vec<f32> = item[0].to_vec::<f16>().unwrap().iter().map(|x| x.to_f32()).collect();
            assert_eq!(halves, (0..=i).map(|k| k as f32 - 0.5).collect::<Vec<_>>());
            assert_eq!(item[1].to_vec::<u8>().unwrap(), (0..=i).map(|k| u8::from(k % 2 == 0)).collect::<Vec<_>>());
        }
    }
}
