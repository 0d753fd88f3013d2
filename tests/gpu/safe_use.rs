//! Safe use: random programs of several threads on several streams get what their calls give one by one.
//!
//! Each thread takes a turn, one call long, in which it enqueues on a stream of its choice and does the same to numbers of the
//! host. Reads are looked at later, beside the turns of others.

use std::sync::Mutex;

use linn::stream::PinnedUpload;
use linn::{Device, DeviceOptions, Event, Stream, Tensor};

use crate::device::open;

/// Lengths of the tensors; on some drivers kernels read the long ones from copies.
const LENGTHS: [usize; 6] = [64, 64, 1000, 1000, 20_000, 20_000];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

/// A tensor and what it holds.
struct Slot {
    tensor: Tensor,
    values: Vec<f32>,
}

struct Program {
    device: Device,
    streams: Vec<Stream>,
    slots: Mutex<Vec<Slot>>,
    event: Event,
}

impl Program {
    /// One call of a thread; answers with a check for later.
    fn turn(&self, random: &mut Random, pinned: &mut PinnedUpload<f32>) -> Option<Box<dyn FnOnce()>> {
        let slots = &mut *self.slots.lock().unwrap();
        let stream = &self.streams[random.below(self.streams.len())];
        let _current = stream.enter();
        let (a, kind) = (random.below(slots.len()), random.below(14));
        // Another of the same length, and part of both.
        let b = a ^ 1;
        let len = slots[a].values.len();
        let start = random.below(len / 2);
        let part = start..start + 1 + random.below(len / 2);
        let view = |slot: &Slot| slot.tensor.narrow(0, part.start as isize, part.len()).unwrap();
        let value = random.below(100) as f32;
        match kind {
            0 => {
                slots[a].tensor.fill_(f64::from(value)).unwrap();
                slots[a].values.fill(value);
            }
            1 => {
                view(&slots[a]).fill_(f64::from(value)).unwrap();
                slots[a].values[part].fill(value);
            }
            2 | 3 => {
                // (a + b) / 2, in place, of a part.
                let (to, from) = (view(&slots[a]), view(&slots[b]));
                to.add_(&from, 1.0).unwrap();
                to.mul_scalar_(0.5).unwrap();
                let other = slots[b].values[part.clone()].to_vec();
                slots[a].values[part].iter_mut().zip(other).for_each(|(x, y)| *x = (*x + y) * 0.5);
            }
            4 | 5 => {
                // A new tensor in place of the old one, whose memory is free from here on.
                slots[a].tensor = slots[a].tensor.maximum(&slots[b].tensor).unwrap();
                let other = slots[b].values.clone();
                slots[a].values.iter_mut().zip(other).for_each(|(x, y)| *x = x.max(y));
            }
            6 => {
                slots[a].tensor = slots[b].tensor.add_scalar(1.0).unwrap();
                slots[a].values = slots[b].values.iter().map(|y| y + 1.0).collect();
            }
            7 => {
                let values: Vec<f32> = (0..len).map(|i| value + (i % 17) as f32).collect();
                slots[a].tensor = Tensor::from_slice(&self.device, &[len], &values).unwrap();
                slots[a].values = values;
            }
            8 => {
                let values = vec![value; part.len()];
                view(&slots[a]).copy_from_slice_(&values).unwrap();
                slots[a].values[part].fill(value);
            }
            9 => {
                let to = slots[a].tensor.narrow(0, 0, pinned.len()).unwrap();
                // (It may be in flight: then this waits.)
                pinned.fill_with(|i| value - i as f32).unwrap();
                to.copy_from_pinned_(pinned).unwrap();
                slots[a].values[..pinned.len()].iter_mut().enumerate().for_each(|(i, x)| *x = value - i as f32);
            }
            10 => {
                view(&slots[a]).copy_(&view(&slots[b])).unwrap();
                let other = slots[b].values[part.clone()].to_vec();
                slots[a].values[part].copy_from_slice(&other);
            }
            11 => match value as u32 % 5 {
                0 => drop(self.device.compact(1 << 20).unwrap()),
                1 => stream.flush(),
                2 => self.event.record(stream).unwrap(),
                3 => self.event.wait(stream).unwrap(),
                _ => stream.wait_stream(&self.streams[random.below(self.streams.len())]).unwrap(),
            },
            _ => {
                let (read, want) = (view(&slots[a]).to_vec_async::<f32>().unwrap(), slots[a].values[part].to_vec());
                return Some(Box::new(move || assert!(read.wait().unwrap() == want, "a read")));
            }
        }
        None
    }
}

#[test]
fn random_programs_of_many_threads_get_what_their_calls_give_one_by_one() {
    let device = open(DeviceOptions::default());
    let streams = [0, 0, -1, 0].map(|priority| device.new_stream_with_priority(priority));
    let slots = LENGTHS.map(|len| Slot { tensor: Tensor::zeros(&device, &[len]).unwrap(), values: vec![0.0; len] });
    let streams = streams.into_iter().chain([device.default_stream()]).collect();
    let program = Program { device: device.clone(), streams, slots: Mutex::new(slots.into()), event: Event::new() };
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            let program = &program;
            scope.spawn(move || {
                let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let mut pinned = program.device.pinned_upload::<f32>(64).unwrap();
                let mut checks = Vec::new();
                for _ in 0..600 {
                    checks.extend(program.turn(&mut random, &mut pinned));
                    if checks.len() > random.below(20) {
                        checks.drain(..).for_each(|check: Box<dyn FnOnce()>| check());
                    }
                }
                checks.into_iter().for_each(|check| check());
            });
        }
    });
    for (at, slot) in program.slots.into_inner().unwrap().iter().enumerate() {
        assert!(slot.tensor.to_vec::<f32>().unwrap() == slot.values, "tensor {at}");
    }
    let edges = device.stats().timeline.order_edges;
    println!("{edges} order edges");
    assert!(edges > 0);
    device.validate_memory().unwrap();
}
