//! Where the host waits: counted by line, and hidden waits that warn or are refused.

use linn::Tensor;
use linn::device::{HostWait, SyncDebug, WaitKind};

use crate::device::open;

/// Waits of this file.
fn here(device: &linn::Device) -> Vec<HostWait> {
    let waits = device.host_waits();
    assert!(waits.is_sorted_by(|a, b| a.waited >= b.waited), "{waits:?}");
    waits.into_iter().filter(|wait| wait.location.file().ends_with("waits.rs")).collect()
}

#[test]
fn waits_are_counted_by_line() {
    let device = open(linn::DeviceOptions::default());
    let x = Tensor::new(&device, [1.0f32, 2.0]).unwrap();
    let line = line!() + 2;
    for _ in 0..3 {
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
        x.add_scalar(1.0).unwrap();
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
    assert!(device.host_waits().is_empty());
}

#[test]
fn hidden_waits_can_be_refused() {
    let device = open(linn::DeviceOptions::default());
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
    let device = open(linn::DeviceOptions::default());
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
