//! Public reports against others about streams, waits and events: one test per row of the project's collection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use linn::device::AdapterKind;
use linn::{Device, DeviceOptions, Event, Tensor};

use crate::device::open;
use crate::stop::{LONG, stop};
use crate::timing::can_measure;

/// A matrix whose powers are itself, and how many products of it make many submissions.
fn long_chain(device: &Device) -> (Tensor, usize) {
    let (n, count) = match device.info().kind {
        // Several milliseconds each, and 100 ms of estimated work make a submission.
        AdapterKind::Software => (512, 60),
        // However fast it is, a submission has 1024 commands at most.
        _ => (1024, 2500),
    };
    (Tensor::full(device, &[n, n], 1.0 / n as f64).unwrap(), count)
}

fn chain(x: &Tensor, count: usize) -> Tensor {
    (0..count).fold(x.clone(), |y, _| y.matmul(x).unwrap())
}

/// Each product sums n times 1/n^2 = 1/n.
fn is_a_power(y: &Tensor) -> bool {
    let (values, n) = (y.to_vec::<f32>().unwrap(), y.shape()[0]);
    values.iter().all(|value| (value * n as f32 - 1.0).abs() < 1e-3)
}

/// burn, llama.cpp: too much work in one submission, and the driver ended it. (The bound itself: `policy`'s test of this name.)
#[test]
fn field_05_a_chain_of_large_matmuls_is_many_submissions() {
    let device = open(DeviceOptions::default());
    let (x, count) = long_chain(&device);
    // Compiled; the kernel for a product of two different matrices, of which the chain consists, has not been measured yet.
    chain(&x, 1);
    device.synchronize().unwrap();
    let before = device.stats();
    let y = chain(&x, count);
    device.synchronize().unwrap();
    let after = device.stats();
    let submissions = after.timeline.submissions - before.timeline.submissions;
    let commands = after.timeline.commands - before.timeline.commands;
    println!("{commands} commands in {submissions} submissions");
    assert!(submissions >= 4, "{commands} commands in {submissions} submissions");
    assert_eq!(after.queue.failures, 0);
    assert!(is_a_power(&y));
}

/// wgpu: a thread that waited kept others from submitting. Here A waits for a long job, and what B does takes no part in that.
#[test]
fn field_11_a_wait_holds_up_nobody_else() {
    let device = open(DeviceOptions::default());
    let (x, count) = long_chain(&device);
    let small = Tensor::full(&device, &[64], 1.0).unwrap();
    // What is compiled and bought at first use is no part of this.
    let (side, urgent) = (device.new_stream(), device.new_stream_with_priority(-1));
    let warm = |stream: &linn::Stream| stream.scope(|| (0..100).fold(small.clone(), |y, _| (&y + 1.0).unwrap()));
    drop((warm(&side), warm(&urgent), chain(&x, count)));
    device.synchronize().unwrap();

    let long = chain(&x, 2 * count);
    let all = device.default_stream().record_event();
    let waits = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let (begins, began) = channel();
        let a = {
            let (waits, all) = (&waits, &all);
            scope.spawn(move || {
                begins.send(()).unwrap();
                all.synchronize().unwrap();
                waits.store(false, Ordering::Release);
            })
        };
        began.recv_timeout(LONG).unwrap();
        let b = scope.spawn(|| {
            let commands = device.stats().timeline.commands;
            let y = warm(&side);
            side.flush();
            let enqueued = device.stats().timeline.commands - commands;
            let (not_held_up, not_done) = (waits.load(Ordering::Acquire), !all.query());
            assert!(enqueued >= 100 && not_held_up && not_done, "B was held up until A's job was done");
            // On a stream that goes first it is even executed before.
            let z = warm(&urgent);
            let done = urgent.record_event();
            urgent.flush();
            while !done.query() && !all.query() {
                std::thread::yield_now();
            }
            assert!(done.query() && waits.load(Ordering::Acquire), "B's work was executed after A's job");
            (y, z)
        });
        let (y, z) = b.join().unwrap();
        a.join().unwrap();
        for (stream, result) in [(&side, y), (&urgent, z)] {
            assert_eq!(stream.scope(|| result.to_vec::<f32>()).unwrap(), [101.0; 64]);
        }
    });
    assert!(is_a_power(&long));
}

/// The same where the queue itself stands still, as inside a driver whose submission blocks.
#[test]
fn field_11_a_queue_that_stands_still_holds_up_nobody() {
    let device = open(DeviceOptions::default());
    let side = device.new_stream();
    let x = Tensor::full(&device, &[64], 1.0).unwrap();
    let go_on = stop(&device);
    x.fill_(5.0).unwrap();
    let first = device.default_stream().record_event();
    std::thread::scope(|scope| {
        let a = scope.spawn(|| first.synchronize().unwrap());
        // In place, because on some drivers it is the queue that buys memory.
        scope.spawn(|| side.scope(|| (0..100).for_each(|_| x.add_(&x, 0.0).unwrap()))).join().unwrap();
        side.flush();
        let second = side.record_event();
        assert!(!a.is_finished() && !first.query() && !second.query());
        go_on.send(()).unwrap();
        second.synchronize().unwrap();
        a.join().unwrap();
    });
    assert_eq!(x.to_vec::<f32>().unwrap(), [5.0; 64]);
}

/// cubecl: a tensor was dropped on its stream while another stream still read it, and its memory was used again too early.
#[test]
fn field_14_memory_is_not_used_again_before_its_readers() {
    let device = open(DeviceOptions::default());
    let (a, b) = (device.new_stream(), device.new_stream());
    for block in 0..20 {
        // Nothing waits in between, so all of it is under way together.
        let results: Vec<(f32, Tensor)> = (0..50)
            .map(|round| {
                let value = (block * 50 + round) as f32;
                let x = a.scope(|| Tensor::full(&device, &[4096], f64::from(value))).unwrap();
                let y = b.scope(|| &x + 1.0).unwrap();
                drop(x);
                let _other = a.scope(|| Tensor::full(&device, &[4096], -1.0)).unwrap();
                let _uploaded = a.scope(|| Tensor::from_slice(&device, &[4096], &[-2.0f32; 4096])).unwrap();
                (value, y)
            })
            .collect();
        for (value, y) in results {
            assert_eq!(b.scope(|| y.to_vec::<f32>()).unwrap(), [value + 1.0; 4096], "{value}");
        }
    }
}

/// cubecl: timestamp query sets ran out.
#[test]
fn field_27_events_on_many_streams_take_few_query_sets() {
    let device = open(DeviceOptions::default());
    if !can_measure(&device) {
        return;
    }
    let streams: Vec<linn::Stream> = (0..64).map(|_| device.new_stream()).collect();
    let x = Tensor::full(&device, &[256], 1.0).unwrap();
    let starts: Vec<Event> = std::iter::repeat_with(Event::with_timing).take(64).collect();
    let ends: Vec<Event> = std::iter::repeat_with(Event::with_timing).take(64).collect();
    let mut most = 0;
    for round in 0..50 {
        for ((stream, start), end) in streams.iter().zip(&starts).zip(&ends) {
            start.record(stream).unwrap();
            stream.scope(|| &x + f64::from(round)).unwrap();
            end.record(stream).unwrap();
        }
        most = most.max(device.stats().queue.timestamp_sets);
        if round % 10 == 9 {
            for ((stream, start), end) in streams.iter().zip(&starts).zip(&ends) {
                stream.synchronize().unwrap();
                assert!(start.elapsed_time(end).unwrap() >= 0.0);
            }
        }
    }
    device.synchronize().unwrap();
    let stats = device.stats();
    assert!((1..=3).contains(&most.max(stats.queue.timestamp_sets)), "{most} sets");
    assert_eq!(stats.queue.failures, 0);
}
