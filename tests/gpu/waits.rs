//! Where the host waits: counted by line, and hidden waits that warn or are refused.

use std::time::{Duration, Instant};

use linn::device::{HostWait, SyncDebug, WaitKind};
use linn::{DeviceOptions, Event, Tensor};

use crate::device::{open, products};
use crate::stop::stop;

/// Waits of this file.
fn here(device: &linn::Device) -> Vec<HostWait> {
    let waits = device.host_waits();
    assert!(waits.is_sorted_by(|a, b| a.waited >= b.waited), "{waits:?}");
    waits.into_iter().filter(|wait| wait.location.file().ends_with("waits.rs")).collect()
}

#[test]
fn waits_are_counted_by_line() {
    let device = open(DeviceOptions::default());
    let x = Tensor::new(&device, [1.0f32, 2.0]).unwrap();
    let line = line!() + 2;
    for _ in 0..3 {
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
        products(&device, 128, 8); // long enough that it is waited for
        device.synchronize().unwrap();
    }
    let later = x.to_vec_async::<f32>().unwrap();
    later.wait().unwrap();
    let find = |kind, line| here(&device).into_iter().find(|wait| wait.kind == kind && wait.location.line() == line);
    assert_eq!(find(WaitKind::Read, line).map(|wait| wait.count), Some(3));
    assert!(find(WaitKind::Synchronize, line + 2).is_some());
    assert_eq!(find(WaitKind::Read, line + 5).map(|wait| wait.count), Some(1));
    let mut all = device.host_waits();
    let counters = device.stats().queue;
    all.retain(|wait| wait.kind != WaitKind::Room);
    assert_eq!(all.iter().map(|wait| wait.count).sum::<u64>(), counters.host_syncs, "every wait has a line");
    assert_eq!(all.iter().map(|wait| wait.waited.as_nanos() as u64).sum::<u64>(), counters.host_sync_nanos);
    device.reset_host_waits();
    device.synchronize().unwrap();
    assert!(device.host_waits().is_empty(), "there was nothing to wait for");
}

#[test]
fn hidden_waits_can_be_refused() {
    let device = open(DeviceOptions::default());
    assert_eq!(device.sync_debug(), SyncDebug::Off);
    let x = Tensor::new(&device, [3.0f32]).unwrap();
    device.set_sync_debug(SyncDebug::Warn);
    for _ in 0..2 {
        assert_eq!(x.item::<f32>().unwrap(), 3.0);
    }
    device.set_sync_debug(SyncDebug::Error);
    let waits = device.stats().queue.host_syncs;
    let error = x.item::<f32>().unwrap_err().to_string();
    let line = line!() - 1;
    assert!(error.contains(&format!("waits.rs:{line}")) && error.contains("help: await item_async"), "{error}");
    assert!(x.to_vec::<f32>().unwrap_err().to_string().contains("to_vec_async"));
    assert!(x.to_string().contains("SyncDebug::Error"), "{x}");
    assert_eq!(device.stats().queue.host_syncs, waits, "nothing was waited for");
    // What says that it waits may.
    device.synchronize().unwrap();
    assert_eq!(x.item_async::<f32>().unwrap().wait().unwrap(), [3.0]);
    assert_eq!(pollster::block_on(x.to_vec_async::<f32>().unwrap()).unwrap(), [3.0]);
    device.set_sync_debug(SyncDebug::Off);
    assert_eq!(x.item::<f32>().unwrap(), 3.0);
}

#[test]
fn a_flood_waits_for_room_on_its_own_line() {
    let device = open(DeviceOptions::default());
    let mut x = Tensor::new(&device, [0.0f32]).unwrap();
    let line = line!() + 2;
    for _ in 0..40_000 {
        x = x.add_scalar(1.0).unwrap();
    }
    assert_eq!(x.item::<f32>().unwrap(), 40_000.0);
    let room: Vec<HostWait> = here(&device).into_iter().filter(|wait| wait.kind == WaitKind::Room).collect();
    let counted = device.stats().queue.back_pressure_waits;
    assert!(room.iter().all(|wait| wait.location.line() == line), "{room:?}");
    assert_eq!(room.iter().map(|wait| wait.count).sum::<u64>(), counted);
    assert!(counted > 0, "40,000 commands are more than may be recorded");
}

/// About a second of work on a software driver, and more than can be under way at once.
fn long_work(device: &linn::Device) -> Tensor {
    products(device, 512, 60)
}

#[test]
fn a_wait_with_a_bound_ends_and_frees_nothing() {
    let device = open(DeviceOptions::default());
    let (event, stream) = (Event::new(), device.default_stream());
    assert!(event.synchronize_timeout(Duration::ZERO).unwrap(), "never recorded");
    let want = long_work(&device).to_vec::<f32>().unwrap();
    let y = long_work(&device);
    event.record(&stream).unwrap();
    let short = Duration::from_millis(1);
    for _ in 0..3 {
        assert!(!device.synchronize_timeout(short).unwrap() && !stream.synchronize_timeout(short).unwrap());
        assert!(!event.synchronize_timeout(Duration::ZERO).unwrap());
    }
    // What the work still uses is not lent out again.
    let others: Vec<Tensor> =
        (0..60).map(|_| Tensor::from_slice(&device, &[512, 512], &vec![7.0f32; 512 * 512]).unwrap()).collect();
    assert!(event.synchronize_timeout(Duration::MAX).unwrap());
    assert!(event.query() && device.synchronize_timeout(Duration::from_secs(60)).unwrap());
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
    drop(others);
}

#[test]
fn futures_of_streams_events_and_the_device_resolve_and_may_be_dropped() {
    let device = open(DeviceOptions::default());
    let stream = device.new_stream();
    for round in 0..20 {
        let x = stream.scope(|| Tensor::new(&device, [1.0f32; 64]).unwrap().add_scalar(round as f64).unwrap());
        let event = stream.record_event();
        let (of_device, of_stream, of_event) =
            (device.synchronize_async(), stream.synchronize_async(), event.synchronize_async());
        if round % 2 == 0 {
            drop((of_event, of_stream));
        }
        pollster::block_on(of_device).unwrap();
        assert!(event.query() && stream.query());
        assert!(x.item_async::<f32>().is_err(), "64 elements");
    }
    // An index out of range is reported by the future that waits for it.
    let table = Tensor::new(&device, [[1.0f32, 2.0]]).unwrap();
    let _row = table.embedding(&Tensor::new(&device, [5i32]).unwrap()).unwrap();
    let error = pollster::block_on(device.synchronize_async()).unwrap_err().to_string();
    assert!(error.contains("index 5") && error.contains("out of range"), "{error}");
    pollster::block_on(device.synchronize_async()).unwrap();
}

#[test]
fn an_urgent_stream_goes_before_work_that_was_enqueued_earlier() {
    let device = open(DeviceOptions::default());
    let (least, greatest) = device.stream_priority_range();
    let urgent = device.new_stream_with_priority(-1);
    let priorities = [7, -1, -9].map(|priority| device.new_stream_with_priority(priority).priority());
    assert_eq!((priorities, device.default_stream().priority()), ([least, -1, greatest], 0));
    let x = Tensor::new(&device, [1.0f32, 2.0]).unwrap();
    // Warm: what is compiled at first use is no part of this.
    urgent.scope(|| x.add_scalar(0.0)).unwrap();
    long_work(&device);
    device.synchronize().unwrap();
    for _ in 0..3 {
        let long = long_work(&device);
        let all = device.default_stream().record_event();
        let y = urgent.scope(|| x.add_scalar(1.0)).unwrap();
        urgent.synchronize().unwrap();
        let early = !all.query();
        assert_eq!(urgent.scope(|| y.to_vec::<f32>()).unwrap(), [2.0, 3.0]);
        // Without a wait, which would bring it forward too: it has been executed by the time that half of the rest is.
        let z = urgent.scope(|| x.add_scalar(2.0)).unwrap();
        let done = urgent.record_event();
        while !done.query() && !all.query() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(early && done.query() && !all.query(), "the urgent stream waited for the other one");
        device.synchronize().unwrap();
        drop((long, z));
    }
}

/// That the driver has what was enqueued within 10 ms is the policy's rule, tested on a simulated clock. Here the queue keeps to it by
/// a timer of its own: a single command, which is worth no submission, is handed over while the device is busy, and nobody calls.
#[test]
fn a_busy_device_gets_a_single_command_though_nobody_calls() {
    let device = open(DeviceOptions::default());
    let small = Tensor::new(&device, [1.0f32; 64]).unwrap();
    let side = device.new_stream();
    side.scope(|| small.add_scalar(1.0)).unwrap();
    products(&device, 512, 4);
    device.synchronize().unwrap();
    let start = Instant::now();
    products(&device, 512, 4);
    device.synchronize().unwrap();
    // About 60 ms, which is one submission and much longer than the rule.
    let count = (240.0 / (start.elapsed().as_secs_f64() * 1e3)).clamp(2.0, 1000.0) as usize;
    let submissions = || device.stats().timeline.submissions;
    let mut while_busy = false;
    // (A machine that is busy with something else may be late with the queue's thread, but hardly twenty times.)
    for _ in 0..20 {
        let go_on = stop(&device);
        let before = submissions();
        let long = products(&device, 512, count);
        let busy_until = device.default_stream().record_event();
        drop(go_on);
        while submissions() == before {
            std::thread::yield_now();
        }
        let before = submissions();
        let y = side.scope(|| small.add_scalar(1.0)).unwrap();
        let done = side.record_event();
        while submissions() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        while_busy |= !busy_until.query();
        // And executed.
        while !done.query() {
            std::thread::sleep(Duration::from_millis(1));
        }
        device.synchronize().unwrap();
        drop((long, y));
        if while_busy {
            break;
        }
    }
    // (On GL a submission does its work before it returns, so nothing can be handed over meanwhile.)
    assert!(while_busy || device.info().backend == "gl", "handed over only when the device was idle");
}
