//! Pinned memory beside a busy device: nobody waits, nothing is read or overwritten too early.

use linn::device::{SyncDebug, WaitKind};
use linn::{Device, DeviceOptions, Tensor};

use crate::device::{open, products};

/// Enough work to be busy for a while, on a software driver about 0.2 s.
fn long_work(device: &Device) -> Tensor {
    products(device, 512, 12)
}

#[test]
fn copies_both_ways_wait_for_nobody() {
    let device = open(DeviceOptions::default());
    let stream = device.new_stream();
    let len = 2_500_000; // 10 MB
    let values: Vec<f32> = (0..len).map(|i| i as f32).collect();
    let up = device.pin_memory(&values).unwrap();
    let (mut down, mut part) = (device.pinned_download::<f32>(len).unwrap(), device.pinned_download::<f32>(1000).unwrap());
    device.set_sync_debug(SyncDebug::Error);
    let syncs = device.stats().queue;
    let (read, slice) = stream.scope(|| {
        let x = Tensor::from_pinned(&[len], &up).unwrap();
        let y = x.mul_scalar(2.0).unwrap();
        // Of a view that begins elsewhere, and through another stream.
        let slice = y.narrow(0, 777, 1000).unwrap().copy_to_pinned(&mut part).unwrap();
        (device.default_stream().scope(|| y.copy_to_pinned(&mut down).unwrap()), slice)
    });
    let after = device.stats().queue;
    assert_eq!((syncs.host_syncs, syncs.back_pressure_waits), (after.host_syncs, after.back_pressure_waits));
    let twice: Vec<f32> = values.iter().map(|x| 2.0 * x).collect();
    assert!(read.wait().unwrap() == twice);
    assert_eq!(pollster::block_on(slice).unwrap(), &twice[777..1777]);
    assert!(up.query() || up.synchronize().is_ok());
}

#[test]
fn a_buffer_in_flight_is_filled_only_when_the_device_has_its_elements() {
    let device = open(DeviceOptions::default());
    long_work(&device);
    let x = Tensor::from_slice(&device, &[4096], &[0.0f32; 4096]).unwrap();
    let mut up = device.pin_memory(&[1.0f32; 4096]).unwrap();
    device.synchronize().unwrap();
    for round in 0..3 {
        let busy = long_work(&device);
        // Behind the work: read by it, in place.
        let scale = busy.narrow(0, 0, 1).unwrap().narrow(1, 0, 1).unwrap().reshape(&[1]).unwrap().mul_scalar(0.0).unwrap();
        x.copy_from_pinned_(&up).unwrap();
        let y = (&x + &scale).unwrap();
        let early = !up.query();
        device.set_sync_debug(SyncDebug::Error);
        if early {
            let error = up.copy_from_slice(&[9.0; 4096]).unwrap_err().to_string();
            assert!(error.contains("in flight") && error.contains("synchronize_async"), "{error}");
        }
        device.set_sync_debug(SyncDebug::Off);
        match round {
            0 => up.copy_from_slice(&[2.0; 4096]).unwrap(),
            1 => {
                pollster::block_on(up.synchronize_async()).unwrap();
                assert!(up.query());
                up.fill_with(|_| 3.0).unwrap();
            }
            _ => {
                up.synchronize().unwrap();
                up.write(0, &[4.0; 4096]).unwrap();
            }
        }
        assert_eq!(y.to_vec::<f32>().unwrap(), [1.0 + round as f32; 4096], "the elements of then");
    }
    let waits = device.host_waits();
    assert!(waits.iter().filter(|wait| wait.kind == WaitKind::Pinned).all(|wait| wait.location.file().ends_with("pinned.rs")));
    x.copy_from_pinned_(&up).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [4.0; 4096]);
}

#[test]
fn what_is_dropped_in_flight_is_not_lent_before_it_is_done() {
    let device = open(DeviceOptions::default());
    let mut results = Vec::new();
    for round in 0..40 {
        let busy = if round % 8 == 0 { Some(long_work(&device)) } else { None };
        let up = device.pin_memory(&vec![round as f32; 50_000]).unwrap();
        let x = Tensor::from_pinned(&[50_000], &up).unwrap();
        drop(up);
        // The same size again, at once: another buffer, or the same one when it is free.
        let other = device.pin_memory(&vec![-1.0f32; 50_000]).unwrap();
        let mut down = device.pinned_download::<f32>(50_000).unwrap();
        let _unread = x.copy_to_pinned(&mut down).unwrap();
        drop(down);
        results.push((x.add_scalar(0.5).unwrap(), other, busy));
    }
    for (round, (y, _, _)) in results.iter().enumerate() {
        assert!(y.to_vec::<f32>().unwrap() == vec![round as f32 + 0.5; 50_000], "round {round}");
    }
    drop(results);
    device.synchronize().unwrap();
    let stats = device.pinned_memory_stats();
    assert_eq!(stats.held.current, 0);
    device.empty_cache().unwrap();
    assert_eq!(device.pinned_memory_stats().reserved_bytes.current, 0);
}

#[test]
fn an_index_out_of_range_is_told_with_the_elements() {
    let device = open(DeviceOptions::default());
    let table = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]]).unwrap();
    let mut down = device.pinned_download::<f32>(2).unwrap();
    let wrong = table.embedding(&Tensor::new(&device, [5i32]).unwrap()).unwrap();
    let error = wrong.reshape(&[2]).unwrap().copy_to_pinned(&mut down).unwrap().wait().unwrap_err().to_string();
    assert!(error.contains("index 5") && error.contains("out of range"), "{error}");
    let right = table.embedding(&Tensor::new(&device, [1i32]).unwrap()).unwrap();
    assert_eq!(right.copy_to_pinned(&mut down).unwrap().wait().unwrap(), [3.0, 4.0]);
}
