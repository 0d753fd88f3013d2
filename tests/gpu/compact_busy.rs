//! Memory moves while everything is in use: recordings not submitted, events outstanding, several streams and threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use linn::{Device, DeviceOptions, Event, Tensor};

const MIB: usize = 1 << 20;
/// Elements of a tensor of 1 MiB.
const ONE: usize = MIB / 4;

fn values(mark: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((mark * 31 + i) % 4093) as f32).collect()
}

/// A tensor, and two results of it that were made on two streams.
struct Family {
    mark: usize,
    x: Tensor,
    y: Tensor,
    z: Tensor,
}

impl Family {
    fn check(&self) {
        let expected = values(self.mark, self.x.len());
        let same = |tensor: &Tensor, of: fn(f32) -> f32| {
            tensor.to_vec::<f32>().unwrap().iter().zip(&expected).all(|(a, b)| *a == of(*b))
        };
        assert!(same(&self.x, |x| x), "x of {}", self.mark);
        assert!(same(&self.y, |x| 2.0 * x + 1.0), "y of {}", self.mark);
        assert!(same(&self.z, |x| 3.0 * x + 1.0), "z of {}", self.mark);
    }
}

/// One thread with two streams of its own; nothing is waited for but what is read.
fn work(device: &Device, worker: usize) {
    let (a, b) = (device.new_stream(), device.new_stream());
    let mut held: Vec<Family> = Vec::new();
    let mut events: VecDeque<Event> = VecDeque::new();
    let mut reads = VecDeque::new();
    for round in 0..24 {
        let mark = worker * 1000 + round;
        let len = ONE / 8 + (mark * 7919) % (ONE / 2);
        let x = a.scope(|| Tensor::from_slice(device, &[len], &values(mark, len)).unwrap());
        let y = b.scope(|| ((&x * 2.0).unwrap() + 1.0).unwrap());
        let event = b.record_event();
        a.wait_event(&event).unwrap();
        let z = a.scope(|| (&x + &y).unwrap());
        events.push_back(event);
        reads.push_back((mark, b.scope(|| z.to_vec_async::<f32>().unwrap())));
        held.push(Family { mark, x, y, z });
        if held.len() > 4 {
            held.swap_remove(mark % 4).check();
        }
        if reads.len() > 6
            && let Some((mark, read)) = reads.pop_front()
        {
            let read = read.wait().unwrap();
            assert!(read.iter().zip(values(mark, read.len())).all(|(z, x)| *z == 3.0 * x + 1.0), "read of {mark}");
            events.pop_front().unwrap().synchronize().unwrap();
        }
    }
    held.iter().for_each(Family::check);
    assert!(events.iter().all(|event| event.synchronize().is_ok() && event.query()));
}

#[test]
fn contents_stay_while_streams_threads_and_events_are_busy() {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some((96 * MIB) as u64);
    let device = crate::device::open(options);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let device = &device;
        let workers: Vec<_> = (0..3).map(|worker| scope.spawn(move || work(device, worker))).collect();
        let compactor = scope.spawn(|| {
            let mut done = (0, 0);
            while !stop.load(Ordering::Acquire) {
                let step = device.compact(6 * MIB as u64).unwrap();
                assert!(step.moved_bytes <= 6 * MIB as u64, "{step:?}");
                done = (done.0 + step.moves, done.1 + step.moved_bytes);
                device.validate_memory().unwrap();
                std::thread::yield_now();
            }
            done
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Release);
        let (moves, moved) = compactor.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
        let stats = device.stats().memory;
        assert!(moves > 0 && moved > 0 && stats.moves >= moves && stats.moved_bytes >= moved, "{moves} moves, {moved} bytes");
    });
    device.synchronize().unwrap();
    assert_eq!(device.memory_allocated(), 0);
    device.empty_cache().unwrap();
    assert_eq!(device.memory_reserved(), 0);
}

/// A recording that nobody has submitted: moves in the middle of it, several times, and events that were recorded before.
#[test]
fn moves_within_an_unsubmitted_recording() {
    let device = crate::device::open(DeviceOptions::default());
    let (main, side) = (device.default_stream(), device.new_stream());
    let mut made = Vec::new();
    for mark in 0..24 {
        let len = ONE / 3 + mark * 100;
        let x = side.scope(|| Tensor::from_slice(&device, &[len], &values(mark, len)).unwrap());
        made.push((mark, x));
    }
    let event = side.record_event();
    let mut moves = 0;
    for round in 0..4 {
        // Every third goes, the others are used on both streams, moved, and used again.
        made.retain(|(mark, _)| mark % 5 != round);
        let doubled: Vec<Tensor> = made.iter().map(|(_, x)| main.scope(|| (x * 2.0).unwrap())).collect();
        moves += device.compact(u64::MAX).unwrap().moves;
        side.scope(|| made.iter().for_each(|(_, x)| x.add_scalar_(1.0).unwrap()));
        moves += device.compact(u64::MAX).unwrap().moves;
        let late: Vec<_> = made.iter().map(|(_, x)| main.scope(|| x.to_vec_async::<f32>().unwrap())).collect();
        for (((mark, x), doubled), late) in made.iter().zip(&doubled).zip(late) {
            let base = values(*mark, x.len());
            let so_far = round as f32;
            assert!(doubled.to_vec::<f32>().unwrap().iter().zip(&base).all(|(d, x)| *d == 2.0 * (x + so_far)), "{mark}, {round}");
            assert!(late.wait().unwrap().iter().zip(&base).all(|(l, x)| *l == x + so_far + 1.0), "{mark}, {round}");
        }
    }
    assert!(moves > 0 && event.query());
}
