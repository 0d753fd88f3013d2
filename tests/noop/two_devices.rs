//! Streams that wait for events of another device: the host does not wait, other streams go on, nothing hangs whoever goes first.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use linn::stream::interop::Window;
use linn::wgpu;
use linn::{Device, DeviceOptions, Error, Event, Stream, Tensor};

use crate::chance::Random;
use crate::stop::stop;
use crate::watch::watched;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

fn ones(device: &Device) -> Tensor {
    Tensor::ones(device, &[64]).unwrap()
}

/// An event of a device that stands still until the answer is dropped.
fn event_to_come(device: &Device) -> (Event, impl Send + use<>) {
    let go_on = stop(device);
    ones(device).relu().unwrap();
    (device.default_stream().record_event(), go_on)
}

#[test]
fn a_stream_waits_for_another_device_and_nobody_else_does() {
    watched(60, || {
        let (here, there) = (open(), open());
        let (waiting, free) = (here.new_stream(), here.new_stream());
        let x = ones(&here);
        here.synchronize().unwrap();
        let (event, go_on) = event_to_come(&there);
        let syncs = here.stats().queue.host_syncs + there.stats().queue.host_syncs;
        waiting.wait_event(&event).unwrap();
        assert_eq!(here.stats().queue.host_syncs + there.stats().queue.host_syncs, syncs, "the host does not wait");
        // Also where nothing comes after the wait, as in PyTorch.
        assert!(!waiting.query() && !waiting.synchronize_timeout(Duration::from_millis(20)).unwrap());
        let y = waiting.scope(|| x.add_scalar(1.0)).unwrap();
        let after = waiting.record_event();
        // Others go on, whether somebody waits for them or not.
        free.scope(|| x.mul_scalar(2.0)).unwrap();
        free.synchronize().unwrap();
        here.default_stream().scope(|| x.relu()).unwrap();
        while !here.default_stream().query() {
            std::thread::yield_now();
        }
        // What depends on it waits with it: by its operand, and by an event.
        let dependent = [free.clone(), here.default_stream()];
        let z = free.scope(|| y.relu()).unwrap();
        dependent[1].wait_event(&after).unwrap();
        dependent[1].scope(|| x.relu()).unwrap();
        here.default_stream().flush();
        assert!(!free.synchronize_timeout(Duration::from_millis(20)).unwrap());
        assert!(!dependent[1].query() && !after.query() && !event.query());
        drop(go_on);
        after.synchronize().unwrap();
        assert!(event.query() && waiting.query());
        here.synchronize().unwrap();
        drop((z, y));
    });
}

#[test]
fn a_stream_of_another_device_is_waited_for() {
    watched(60, || {
        let (here, there) = (open(), open());
        let go_on = stop(&there);
        let (waiting, side) = (here.new_stream_with_priority(-3), there.new_stream());
        side.scope(|| ones(&there)).relu().unwrap();
        waiting.wait_stream(&side).unwrap();
        assert!(!waiting.query());
        drop(go_on);
        waiting.synchronize().unwrap();
        assert!(side.query());
        // What has passed is not waited for, and neither is what was never recorded.
        let commands = here.stats().timeline.commands;
        waiting.wait_stream(&side).unwrap();
        waiting.wait_event(&Event::new()).unwrap();
        Event::new().wait(&waiting).unwrap();
        assert_eq!(here.stats().timeline.commands, commands);
    });
}

#[test]
fn whichever_device_is_lost_or_dropped_nobody_hangs() {
    for round in 0..40 {
        watched(60, move || {
            let (here, there) = (open(), open());
            let waiting = here.new_stream();
            let (event, go_on) = event_to_come(&there);
            waiting.wait_event(&event).unwrap();
            let x = waiting.scope(|| ones(&here).relu()).unwrap();
            let future = x.to_vec_async::<f32>().unwrap();
            match round % 5 {
                0 => {
                    // What the other device does is not to come any more: the work goes on.
                    there.mark_lost("gone");
                    assert_eq!(future.wait().unwrap().len(), 64);
                    let error = waiting.wait_event(&event).unwrap_err();
                    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
                }
                1 => {
                    here.mark_lost("gone");
                    future.wait().unwrap_err();
                    assert!(matches!(waiting.wait_event(&event), Err(Error::DeviceLost { .. })));
                    drop(go_on);
                    there.synchronize().unwrap();
                }
                2 => drop((future, x, waiting, here)),
                3 => {
                    let last = std::thread::spawn(move || drop((event, there)));
                    drop(go_on);
                    last.join().unwrap();
                    future.wait().unwrap();
                }
                _ => {
                    let last = std::thread::spawn(move || drop((future, event, x, waiting, there, here)));
                    drop(go_on);
                    last.join().unwrap();
                }
            }
        });
    }
}

#[test]
fn an_applications_work_is_submitted_though_linn_ends_before_it_may_be() {
    watched(60, || {
        let there = open();
        let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
        let here = Device::from_wgpu(&device, &queue, DeviceOptions::default()).unwrap();
        let (event, go_on) = event_to_come(&there);
        let stream = here.default_stream();
        stream.wait_event(&event).unwrap();
        let (sender, recorded) = channel();
        stream.with_encoder(&[], &[], move |_, _| sender.send(()).unwrap()).unwrap();
        let ending = std::thread::spawn(move || drop((stream, here)));
        assert!(recorded.recv_timeout(Duration::from_millis(30)).is_err(), "it waits for the other device");
        drop(go_on);
        ending.join().unwrap();
        recorded.recv().unwrap();
    });
}

#[test]
fn a_flood_behind_a_wait_waits_for_room_and_goes_on() {
    watched(60, || {
        let (here, there) = (open(), open());
        let waiting = here.new_stream();
        let (event, go_on) = event_to_come(&there);
        waiting.wait_event(&event).unwrap();
        let flood = std::thread::spawn({
            let (here, waiting) = (here.clone(), waiting.clone());
            move || {
                let x = ones(&here);
                let _guard = waiting.enter();
                (0..40_000).for_each(|_| x.add_scalar_(1.0).unwrap());
            }
        });
        while here.stats().queue.back_pressure_waits == 0 {
            std::thread::yield_now();
        }
        // Others are not held up meanwhile, neither by the wait nor by the flood.
        assert_eq!(ones(&here).to_vec::<f32>().unwrap().len(), 64);
        drop(go_on);
        flood.join().unwrap();
        waiting.synchronize().unwrap();
    });
}

/// Each runs a closure that waits for the other device and then drops its last handle.
#[test]
fn threads_of_two_devices_do_not_wait_for_each_other() {
    watched(60, || {
        for _ in 0..20 {
            let devices = [open(), open()];
            let (both, (tell, told)) = (Arc::new(Barrier::new(2)), channel());
            for which in [0, 1] {
                let (other, both, tell) = (devices[1 - which].clone(), both.clone(), tell.clone());
                let closure = move |_: &mut wgpu::CommandEncoder, _: &[Window]| {
                    both.wait();
                    other.default_stream().flush();
                    tell.send([other.synchronize(), ones(&other).to_vec::<f32>().map(drop)]).unwrap();
                    both.wait();
                    drop(other);
                };
                devices[which].default_stream().with_encoder(&[], &[], closure).unwrap();
            }
            drop(devices);
            for result in told.iter().take(2).flatten() {
                let error = result.unwrap_err().to_string();
                assert!(error.starts_with("wait: this is a device's own thread"), "{error}");
            }
        }
    });
}

/// Every thread works on all devices, waits across them as it likes, and drops what it has.
#[test]
fn random_waits_across_devices_come_to_an_end() {
    watched(200, || {
        let devices = [open(), open(), open()];
        let threads: Vec<_> = (0..4u64)
            .map(|seed| {
                let devices = devices.clone();
                std::thread::spawn(move || {
                    let r = &mut Random::new(seed + 1);
                    let mut streams: Vec<Stream> = devices.iter().map(Device::new_stream).collect();
                    let mut tensors: Vec<Tensor> = devices.iter().map(ones).collect();
                    let mut events: Vec<Event> = Vec::new();
                    for _ in 0..1500 {
                        let which = r.below(3);
                        match r.below(12) {
                            0..4 => tensors[which] = streams[which].scope(|| tensors[which].add_scalar(1.0)).unwrap(),
                            4..6 => events.push(streams[which].record_event()),
                            6..9 if !events.is_empty() => {
                                let event = r.below(events.len() as u64);
                                streams[which].wait_event(&events[event]).unwrap();
                                if r.below(2) == 0 {
                                    events.swap_remove(event);
                                }
                            }
                            9 => streams[which] = devices[which].new_stream_with_priority(-(r.below(3) as i32)),
                            10 => streams[which].wait_stream(&streams[r.below(3)]).unwrap(),
                            11 => {
                                let event = streams[which].record_event();
                                streams[which].synchronize().unwrap();
                                assert!(event.query());
                            }
                            _ => _ = tensors[which].to_vec_async::<f32>().unwrap(),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        devices.iter().for_each(|device| device.synchronize().unwrap());
        devices.iter().for_each(|device| assert_eq!(device.memory_allocated(), 0));
    });
}
