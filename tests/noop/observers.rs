//! Observers of memory: told before a request fails and near the limit, without any lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use linn::memory::OomReport;
use linn::{DType, Device, DeviceOptions, Error, Tensor};

const MIB: u64 = 1 << 20;

fn open_with_limit(bytes: u64) -> Device {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(bytes);
    Device::noop(options).unwrap()
}

fn megabytes(device: &Device, count: u64) -> linn::Result<Tensor> {
    Tensor::empty(device, &[(count * MIB / 4) as usize], DType::F32)
}

#[test]
fn an_observer_sees_the_report_before_the_error_comes() {
    let device = open_with_limit(16 * MIB);
    let seen: Arc<Mutex<Vec<(ThreadId, OomReport)>>> = Arc::default();
    let told = seen.clone();
    let observer = device.attach_out_of_memory_observer(move |_, report| {
        told.lock().unwrap().push((std::thread::current().id(), report.clone()));
    });
    let held = megabytes(&device, 12).unwrap();
    assert!(seen.lock().unwrap().is_empty(), "nothing has failed");
    let Err(Error::OutOfMemory(report)) = megabytes(&device, 8) else { panic!("12 + 8 > 16") };
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].0, std::thread::current().id());
        assert_eq!(seen[0].1.to_string(), report.to_string());
    }
    drop(observer);
    assert!(megabytes(&device, 8).is_err());
    assert_eq!(seen.lock().unwrap().len(), 1, "it was detached");
    drop(held);
    assert!(megabytes(&device, 8).is_ok());
}

#[test]
fn an_observer_may_use_the_device() {
    let device = open_with_limit(16 * MIB);
    let kept = Arc::new(Mutex::new(Some(megabytes(&device, 12).unwrap())));
    let calls = Arc::new(AtomicU64::new(0));
    let (for_observer, counter) = (kept.clone(), calls.clone());
    let _observer = device.attach_out_of_memory_observer(move |device, report| {
        counter.fetch_add(1, Ordering::Relaxed);
        let snapshot = device.memory_snapshot();
        assert_eq!(snapshot.stats.all.allocated_bytes.current, report.allocated);
        assert_eq!(device.memory_breakdown(), report.breakdown);
        assert!(device.memory_summary(true).contains("GPU OOMs: 1"));
        // Fails too; that is not told again.
        assert!(megabytes(device, 15).is_err());
        assert!(for_observer.lock().unwrap().take().is_some());
        device.empty_cache().unwrap();
        assert_eq!(device.memory_reserved(), 0);
        let inside = Tensor::from_slice(device, &[2], &[1, 2]).unwrap();
        assert_eq!(inside.to_vec::<i32>().unwrap(), [1, 2]);
        // Attaching and detaching from inside.
        drop(device.attach_out_of_memory_observer(|_, _| {}));
    });
    assert!(matches!(megabytes(&device, 8), Err(Error::OutOfMemory(_))), "this one fails all the same");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(megabytes(&device, 8).is_ok(), "there is room for the next");
    device.validate_memory().unwrap();
}

#[test]
fn a_panic_in_an_observer_poisons_nothing() {
    let device = open_with_limit(8 * MIB);
    let panics = device.attach_out_of_memory_observer(|_, _| std::panic::resume_unwind(Box::new("as planned")));
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    let _second = device.attach_out_of_memory_observer(move |_, _| _ = counter.fetch_add(1, Ordering::Relaxed));
    let near = device.attach_memory_limit_observer(0.5, |_, _| std::panic::resume_unwind(Box::new("as planned"))).unwrap();
    let held = megabytes(&device, 6).unwrap();
    for round in 1..=3 {
        assert!(matches!(megabytes(&device, 6), Err(Error::OutOfMemory(_))));
        assert_eq!(calls.load(Ordering::Relaxed), round, "the other one is called");
    }
    drop((panics, near, held));
    let again = Tensor::from_slice(&device, &[3], &[1, 2, 3]).unwrap();
    assert_eq!(again.to_vec::<i32>().unwrap(), [1, 2, 3]);
    device.validate_memory().unwrap();
}

#[test]
fn an_observer_of_the_limit_fires_once_until_less_is_reserved() {
    let device = open_with_limit(32 * MIB);
    let seen: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let told = seen.clone();
    let _observer = device
        .attach_memory_limit_observer(0.5, move |device, now| {
            assert_eq!(device.memory_reserved(), now.reserved);
            told.lock().unwrap().push((now.reserved, now.limit));
        })
        .unwrap();
    for round in 1..=3 {
        let mut held = Vec::new();
        while device.memory_reserved() < 16 * MIB {
            assert_eq!(seen.lock().unwrap().len(), round - 1, "below the half");
            held.push(megabytes(&device, 3).unwrap());
        }
        let (reserved, limit) = *seen.lock().unwrap().last().unwrap();
        assert!(reserved >= 16 * MIB && limit == 32 * MIB);
        while let Ok(more) = megabytes(&device, 3) {
            held.push(more);
        }
        assert_eq!(seen.lock().unwrap().len(), round, "once");
        drop(held);
        device.empty_cache().unwrap();
    }
    // A lower limit passes it as well.
    let held = megabytes(&device, 10).unwrap();
    assert_eq!(seen.lock().unwrap().len(), 3);
    device.set_memory_limit(15 * MIB);
    assert_eq!(seen.lock().unwrap().last(), Some(&(device.memory_reserved(), 15 * MIB)));
    drop(held);
}

#[test]
fn an_observer_of_the_limit_may_empty_the_cache() {
    let device = open_with_limit(32 * MIB);
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    let observer = device.attach_memory_limit_observer(0.25, move |device, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        device.empty_cache().unwrap();
        drop(megabytes(device, 20).unwrap());
    });
    let made = megabytes(&device, 9).unwrap();
    made.narrow(0, 0, 2).unwrap().copy_from_slice_(&[1.0f32, 2.0]).unwrap();
    assert_eq!(made.narrow(0, 0, 2).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    drop(observer);
    for share in [-0.1, 1.5, f64::NAN] {
        let Err(error) = device.attach_memory_limit_observer(share, |_, _| {}) else { panic!("{share}") };
        assert!(error.to_string().contains("\nhelp: pass a share of the limit from 0 to 1"), "{error}");
    }
}

/// What an observer holds goes when it is detached, also when the device is gone before.
#[test]
fn observers_and_devices_go_in_any_order() {
    let device = open_with_limit(MIB);
    let held = megabytes(&device, 1).unwrap();
    let observer = device.attach_out_of_memory_observer(move |_, _| assert_eq!(held.len(), 1 << 18));
    assert!(megabytes(&device, 1).is_err());
    drop(observer);
    assert!(megabytes(&device, 1).is_ok(), "the tensor went with its observer");
    let observer = device.attach_out_of_memory_observer(|_, _| {});
    drop(device);
    drop(observer);
}
