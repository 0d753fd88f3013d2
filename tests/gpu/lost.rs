//! A device that is lost while threads and futures wait for real work, and waits that give up.

use std::sync::mpsc;
use std::time::Duration;

use linn::data::{DataLoader, DataLoaderOptions, HostTensor, Upload};
use linn::{Device, DeviceOptions, Error, Result, Tensor};

use crate::device::{open, products};

/// Work for a tenth of a second and more on a software driver, in several submissions.
fn long_work(device: &Device) -> Tensor {
    products(device, 256, 60)
}

fn is_lost<T>(result: Result<T>) -> bool {
    matches!(result.map(drop), Err(Error::DeviceLost { .. }))
}

#[test]
fn a_lost_device_wakes_every_waiter_and_the_next_one_opens() {
    for way in ["destroyed", "told"] {
        let device = open(DeviceOptions::default());
        let y = long_work(&device);
        // Pinned buffers for copies that come after that work. (On GL, the thread that is held up below would have to buy them.)
        let first = y.narrow(0, 0, 1).unwrap().add_scalar(0.0).unwrap().reshape(&[256]).unwrap();
        let part = || first.narrow(0, 0, 4).unwrap().add_scalar(0.0).unwrap();
        let uploads: Vec<_> = (0..4).map(|_| (device.pin_memory(&[1.0f32; 4]).unwrap(), part())).collect();
        let downloads: Vec<_> = (0..2).map(|_| device.pinned_download::<f32>(256).unwrap()).collect();
        let (mut uploads, mut downloads) = (uploads.into_iter(), downloads.into_iter());
        // The device's thread is held up behind that, so that everything below waits for certain.
        let (hold, go) = mpsc::channel::<()>();
        device.default_stream().with_encoder(&[], &[&y], move |_, _| _ = go.recv()).unwrap();
        let (tell, told) = mpsc::channel::<(&str, bool)>();
        std::thread::scope(|scope| {
            let wait = |name: &'static str, wait: Box<dyn FnOnce() -> bool + Send>| {
                let tell = tell.clone();
                scope.spawn(move || tell.send((name, wait())).unwrap());
            };
            let d = device.clone();
            wait("synchronize", Box::new(move || is_lost(d.synchronize())));
            let d = device.clone();
            wait("with a bound", Box::new(move || is_lost(d.synchronize_timeout(Duration::from_secs(3600)))));
            let d = device.clone();
            wait("stream", Box::new(move || is_lost(d.default_stream().synchronize())));
            let event = device.default_stream().record_event();
            wait("event", Box::new(move || is_lost(event.synchronize())));
            let event = device.default_stream().record_event();
            wait(
                "query",
                Box::new(move || {
                    while !event.query() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    true
                }),
            );
            let future = device.synchronize_async();
            wait("future", Box::new(move || is_lost(pollster::block_on(future))));
            let read = y.to_vec_async::<f32>().unwrap();
            wait("read", Box::new(move || is_lost(read.wait())));
            let y2 = y.clone();
            wait("export", Box::new(move || y2.export().map_or_else(|error| is_lost::<()>(Err(error)), |_| true)));
            let (up, to) = uploads.next().unwrap();
            to.copy_from_pinned_(&up).unwrap();
            wait("pinned", Box::new(move || is_lost(up.synchronize())));
            let (up, to) = uploads.next().unwrap();
            to.copy_from_pinned_(&up).unwrap();
            wait("pinned future", Box::new(move || is_lost(pollster::block_on(up.synchronize_async()))));
            let (up, to) = uploads.next().unwrap();
            to.copy_from_pinned_(&up).unwrap();
            let future = up.synchronize_async();
            drop(up);
            wait("pinned and dropped", Box::new(move || is_lost(pollster::block_on(future))));
            let (mut up, to) = uploads.next().unwrap();
            to.copy_from_pinned_(&up).unwrap();
            wait("pinned fill", Box::new(move || is_lost(up.copy_from_slice(&[2.0; 4]))));
            let (mut down, from) = (downloads.next().unwrap(), first.clone());
            wait("pinned read", Box::new(move || is_lost(from.copy_to_pinned(&mut down).and_then(|read| read.wait().map(drop)))));
            let (mut down, from) = (downloads.next().unwrap(), first.clone());
            assert!(from.copy_to_pinned(&mut down).is_ok());
            wait("pinned read again", Box::new(move || is_lost(from.copy_to_pinned(&mut down).map(drop))));
            let mut options = DataLoaderOptions::default();
            options.upload = Upload::CurrentStream;
            let produce = |i: u64| HostTensor::new(&[4], vec![i as f32; 4]).map(|x| vec![x]);
            let mut loader = DataLoader::new(&device, 0..1_000_000, options, produce).unwrap();
            // A worker waits for the pinned memory of items that the device does not get to, and the loader for the worker.
            wait("data loader", Box::new(move || is_lost(loader.find(Result::is_err).unwrap_or_else(|| Ok(Vec::new())))));
            // Floods staging, and a recording: both wait for room.
            let (d, data) = (device.clone(), vec![1.0f32; 2 << 20]);
            wait(
                "uploads",
                Box::new(move || {
                    let held: Result<Vec<Tensor>> = (0..40).map(|_| Tensor::from_slice(&d, &[data.len()], &data)).collect();
                    is_lost(held)
                }),
            );
            let y2 = y.clone();
            wait(
                "launches",
                Box::new(move || {
                    let x = y2.narrow(0, 0, 1).unwrap();
                    (0..100_000).any(|_| is_lost(x.add_scalar(1.0)))
                }),
            );
            drop(tell);
            std::thread::sleep(Duration::from_millis(100));
            match way {
                "destroyed" => device.lose(),
                _ => device.mark_lost("a test says so"),
            }
            drop(hold);
            for (name, lost) in told {
                assert!(lost, "{way}: {name} ended without the error");
            }
        });
        let started = std::time::Instant::now();
        assert!(is_lost(device.synchronize()) && is_lost(y.add_scalar(1.0)) && is_lost(y.to_vec::<f32>()));
        assert!(is_lost(Tensor::zeros(&device, &[16])) && is_lost(device.empty_cache()));
        assert!(started.elapsed() < Duration::from_secs(30), "later calls fail fast");
        device.validate_memory().unwrap();
        drop((y, device));
        let fresh = open(DeviceOptions::default());
        assert_eq!(Tensor::ones(&fresh, &[64]).unwrap().sum_all().unwrap().item::<f32>().unwrap(), 64.0);
    }
}

/// Elsewhere a wait that timed out was taken for done. Here it frees no block and no staging: not while the work is under way, and
/// what was asked for comes.
#[test]
fn field_12_a_wait_that_gives_up_frees_nothing() {
    let device = open(DeviceOptions::default());
    let want = long_work(&device).to_vec::<f32>().unwrap();
    device.synchronize().unwrap();
    let y = long_work(&device);
    // Uploads and a read that come after the work, in chunks of their own; their source tensors are dropped at once.
    let len = 1 << 20;
    let sums: Vec<Tensor> = (0..6)
        .map(|i| {
            Tensor::from_slice(&device, &[len], &vec![i as f32; len]).unwrap().add(&y.narrow(0, 0, 1).unwrap().sum_all().unwrap())
        })
        .collect::<Result<_>>()
        .unwrap();
    let early = y.to_vec_async::<f32>().unwrap();
    let (staging, reserved) = (device.stats().staging_upload_bytes, device.memory_reserved());
    let mut gave_up = 0;
    let mut others = Vec::new();
    for i in 0..40u64 {
        let bound = Duration::from_micros(50 * (i % 4));
        let streams = device.default_stream().synchronize_timeout(bound).unwrap();
        gave_up += u32::from(!device.synchronize_timeout(bound).unwrap()) + u32::from(!streams);
        // What would overwrite whatever was freed too early.
        others.push(Tensor::from_slice(&device, &[256, 256], &vec![-7.0f32; 256 * 256]).unwrap());
        let stats = device.stats();
        assert!(stats.staging_upload_bytes >= staging, "staging was given back");
        assert!(stats.memory.reserved_bytes.current >= reserved, "a segment was given back");
    }
    assert!(gave_up > 0, "the work was meant to last longer than the waits");
    assert!(device.synchronize_timeout(Duration::from_secs(600)).unwrap());
    assert_eq!(early.wait().unwrap(), want);
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
    let first = y.narrow(0, 0, 1).unwrap().sum_all().unwrap().item::<f32>().unwrap();
    for (i, sum) in sums.iter().enumerate() {
        assert!(sum.to_vec::<f32>().unwrap().iter().all(|value| *value == i as f32 + first), "upload {i}");
    }
    others.iter().for_each(|other| assert_eq!(other.to_vec::<f32>().unwrap(), vec![-7.0; 256 * 256]));
    device.validate_memory().unwrap();
}
