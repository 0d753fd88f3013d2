//! A device that is lost, or whose own thread panics: nobody hangs, and a new one can be opened. Waiters on real work stand in the
//! gpu tier.

use linn::wgpu;
use linn::{Device, DeviceOptions, Error, Event, Tensor};

fn is_lost<T>(result: linn::Result<T>) {
    match result.map(drop) {
        Err(error @ Error::DeviceLost { .. }) => assert!(error.to_string().contains("\nhelp: open a new device"), "{error}"),
        other => panic!("not lost: {other:?}"),
    }
}

/// Every kind of later call fails at once.
fn everything_fails(device: &Device, x: &Tensor) {
    let stream = device.default_stream();
    is_lost(device.synchronize());
    is_lost(device.synchronize_timeout(std::time::Duration::from_secs(3600)));
    is_lost(stream.synchronize());
    is_lost(stream.record_event().synchronize());
    is_lost(pollster::block_on(device.synchronize_async()));
    is_lost(x.to_vec::<f32>());
    is_lost(x.to_vec_async::<f32>());
    is_lost(x.add(x));
    is_lost(x.copy_from_slice_(&[1.0f32; 4]));
    is_lost(Tensor::zeros(device, &[1 << 20]));
    is_lost(Tensor::from_slice(device, &[1], &[1.0f32]));
    is_lost(x.export());
    is_lost(pollster::block_on(x.export_mut_async()));
    is_lost(stream.with_encoder(&[], &[x], |_, _| {}));
    is_lost(device.compact(u64::MAX));
    is_lost(device.empty_cache());
    // Nothing more will happen, so that loops over `query` end.
    let event = Event::new();
    event.record(&stream).unwrap();
    assert!(stream.query() && event.query());
    stream.flush();
    assert!(x.to_string().contains("device lost"), "{x}");
}

#[test]
fn a_destroyed_device_is_lost_for_every_later_call_and_a_new_one_opens() {
    for round in 0..20 {
        let device = Device::noop(DeviceOptions::default()).unwrap();
        let x = Tensor::from_slice(&device, &[4], &[1.0f32; 4]).unwrap();
        let side = device.new_stream();
        let pending = (x.to_vec_async::<f32>().unwrap(), device.synchronize_async(), side.scope(|| x.relu()).unwrap());
        device.lose();
        // The first call that waits finds out.
        let _ = x.copy_from_slice_(&[2.0f32; 4]);
        let _ = x.to_vec::<f32>();
        is_lost(device.synchronize());
        everything_fails(&device, &x);
        device.validate_memory().unwrap();
        if round % 2 == 0 {
            drop(pending);
        } else {
            // Futures that were under way end, one way or the other.
            let _ = pollster::block_on(pending.1);
            let _ = pollster::block_on(pending.0);
        }
        drop((x, side, device));
        let fresh = Device::noop(DeviceOptions::default()).unwrap();
        assert_eq!(Tensor::from_slice(&fresh, &[1], &[round]).unwrap().item::<i32>().unwrap(), round);
    }
}

#[test]
fn an_application_that_loses_its_device_finds_out_and_can_say_so() {
    let open = || {
        let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
        let linn = Device::from_wgpu(&device, &queue, DeviceOptions::default()).unwrap();
        (device, linn)
    };
    // It tells linn.
    let (_device, linn) = open();
    let x = Tensor::from_slice(&linn, &[4], &[1.0f32; 4]).unwrap();
    linn.mark_lost("the driver went away");
    assert!(linn.synchronize().unwrap_err().to_string().starts_with("device lost: the driver went away\n"));
    everything_fails(&linn, &x);
    drop((x, linn));
    // It does not: the next wait finds out.
    let (device, linn) = open();
    let x = Tensor::from_slice(&linn, &[4], &[1.0f32; 4]).unwrap();
    linn.synchronize().unwrap();
    device.destroy();
    let _ = x.copy_from_slice_(&[2.0f32; 4]);
    is_lost(linn.synchronize());
    everything_fails(&linn, &x);
}

/// As wgpu's answer to a driver's worst moment is.
#[test]
fn a_panic_of_the_devices_thread_is_a_lost_device_and_no_hang() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let x = Tensor::from_slice(&device, &[4], &[1.0f32; 4]).unwrap();
    let future = device.synchronize_async();
    device.panic_at_submission();
    x.relu().unwrap();
    let error = loop {
        if let Err(error) = device.synchronize() {
            break error.to_string();
        }
    };
    assert!(error.starts_with("device lost: the queue panicked: linn.submit was made to panic by a test\nhelp: "), "{error}");
    everything_fails(&device, &x);
    drop(future);
    drop((x, device));
}
