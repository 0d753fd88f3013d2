//! Live tensors move: contents, views, gradients, reads and streams stay right.

use std::sync::atomic::{AtomicBool, Ordering};

use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup};
use linn::{Device, DeviceOptions, Tensor};

use crate::device::open;

const MIB: usize = 1 << 20;
/// Elements of a tensor of 1 MiB.
const ONE: usize = MIB / 4;

fn limited(megabytes: usize) -> Device {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some((megabytes * MIB) as u64);
    open(options)
}

/// A tensor whose elements say which tensor it is and where they lie.
fn marked(device: &Device, mark: usize, len: usize) -> Tensor {
    let values: Vec<f32> = (0..len).map(|i| (mark * 1_000_003 + i) as f32).collect();
    Tensor::from_slice(device, &[len], &values).unwrap()
}

fn check(tensor: &Tensor, mark: usize) {
    let values = tensor.to_vec::<f32>().unwrap();
    let wrong = values.iter().enumerate().find(|(i, value)| **value != (mark * 1_000_003 + i) as f32);
    assert_eq!(wrong, None, "tensor {mark}");
}

#[test]
fn compact_gives_segments_back_and_keeps_contents() {
    let device = open(DeviceOptions::default());
    let mut kept = Vec::new();
    let mut dropped = Vec::new();
    for mark in 0..48 {
        let tensor = marked(&device, mark, ONE / 2 + mark * 1000);
        if mark % 3 == 0 { kept.push((mark, tensor)) } else { dropped.push(tensor) }
    }
    let view = kept[3].1.narrow(0, 100, 50).unwrap();
    let early = kept[5].1.to_vec_async::<f32>().unwrap();
    drop(dropped);
    let before = device.memory_reserved();
    let none = device.compact(0).unwrap();
    assert_eq!((none.moves, none.released_bytes), (0, 0));
    let done = device.compact(u64::MAX).unwrap();
    assert!(done.moves > 0 && done.released_bytes > 0, "{done:?}");
    // New work on moved tensors, before anything was submitted or waited for.
    let sum = (&kept[0].1 + 1.0).unwrap();
    for (mark, tensor) in &kept {
        check(tensor, *mark);
    }
    assert_eq!(sum.to_vec::<f32>().unwrap()[7], 8.0);
    assert_eq!(view.to_vec::<f32>().unwrap()[..], kept[3].1.to_vec::<f32>().unwrap()[100..150]);
    assert_eq!(pollster::block_on(early).unwrap()[1], (kept[5].0 * 1_000_003 + 1) as f32);
    device.synchronize().unwrap();
    assert!(device.memory_reserved() <= before - done.released_bytes, "{} of {before}", device.memory_reserved());
    assert_eq!(device.memory_breakdown().sum(), device.memory_reserved());
}

/// One segment with eight tensors and equal gaps between them.
fn comb(device: &Device, len: usize, gap: usize) -> Vec<Tensor> {
    drop(Tensor::full(device, &[8 * (len + gap)], 0.0).unwrap());
    let mut kept = Vec::new();
    let mut gaps = Vec::new();
    for mark in 0..8 {
        kept.push(marked(device, mark, len));
        gaps.push(Tensor::full(device, &[gap], -1.0).unwrap());
    }
    kept
}

#[test]
fn memory_in_one_piece_comes_from_moves() {
    // Gaps as large as the tensors: a few go elsewhere. Gaps of half the size: they slide, over bytes of their own.
    for (gap, wanted) in [(ONE, 3 * ONE), (ONE / 2, 2 * ONE), (ONE / 2, 4 * ONE)] {
        let device = limited(8 * (ONE + gap) * 4 / MIB);
        let kept = comb(&device, ONE, gap);
        assert_eq!(device.stats().memory.num_device_alloc, 1);
        let large = marked(&device, 99, wanted);
        let memory = device.stats().memory;
        assert!(memory.moves > 0 && memory.num_device_alloc == 1, "{memory:?}");
        check(&large, 99);
        kept.iter().enumerate().for_each(|(mark, tensor)| check(tensor, mark));
    }
}

#[test]
fn without_compaction_the_same_request_fails_and_says_so() {
    let mut options = DeviceOptions::default();
    (options.memory_limit, options.alloc_conf) = (Some(16 * MIB as u64), Some("compaction:off".into()));
    let device = open(options);
    let kept = comb(&device, ONE, ONE);
    let error = Tensor::full(&device, &[3 * ONE], 0.0).unwrap_err().to_string();
    assert!(error.contains("cached but in pieces"), "{error}");
    kept.iter().enumerate().for_each(|(mark, tensor)| check(tensor, mark));
}

#[test]
fn moves_are_ordered_with_busy_streams() {
    let device = limited(64);
    let (main, side) = (device.default_stream(), device.new_stream());
    let mut moves = 0;
    for round in 0..20 {
        let tensors: Vec<Tensor> = (0..16).map(|mark| marked(&device, mark, ONE + mark * 512)).collect();
        let odd: Vec<Tensor> = tensors.iter().skip(1).step_by(2).cloned().collect();
        drop(tensors);
        let before: Vec<Tensor> = side.scope(|| odd.iter().map(|x| (x * 2.0).unwrap()).collect());
        let event = side.record_event();
        moves += device.compact(u64::MAX).unwrap().moves;
        main.wait_event(&event).unwrap();
        let after: Vec<Tensor> = side.scope(|| odd.iter().map(|x| (x + 1.0).unwrap()).collect());
        for (i, x) in odd.iter().enumerate() {
            let expected = (2 * i + 1) * 1_000_003;
            check(x, 2 * i + 1);
            assert_eq!(before[i].to_vec::<f32>().unwrap()[0], expected as f32 * 2.0, "round {round}");
            assert_eq!(after[i].to_vec::<f32>().unwrap()[0], expected as f32 + 1.0, "round {round}");
        }
    }
    assert!(moves > 0);
}

/// Parameters after a few steps of training, with blocks of other sizes coming and going.
fn train(device: &Device, compacting: bool) -> (Vec<f32>, u64) {
    let layer = |seed: usize| {
        let weight: Vec<f32> = (0..128 * 128).map(|i| ((i * seed) % 61) as f32 / 610.0 - 0.05).collect();
        Tensor::from_slice(device, &[128, 128], &weight).unwrap().requires_grad_(true).unwrap()
    };
    let (first, second) = (layer(7), layer(11));
    let named = vec![("first".to_string(), first.clone()), ("second".to_string(), second.clone())];
    let mut adam = Adam::adamw(vec![ParamGroup::new(named, 0.01, 0.0)], AdamOptions::default());
    let mut holes = Vec::new();
    for step in 0..12 {
        let data: Vec<f32> = (0..64 * 128).map(|i| ((i + step * 17) % 23) as f32 / 23.0).collect();
        let x = Tensor::from_slice(device, &[64, 128], &data).unwrap();
        holes.push(Tensor::full(device, &[ONE * 2 + step * 4096], 1.0).unwrap());
        let y = x.matmul(&first).unwrap().relu().unwrap();
        holes.push(Tensor::full(device, &[ONE / 2 + step * 1024], 1.0).unwrap());
        let loss = y.matmul(&second).unwrap().square().unwrap().mean_all().unwrap();
        if step % 3 == 2 {
            holes.clear();
        }
        if compacting {
            device.compact(u64::MAX).unwrap();
        }
        loss.backward().unwrap();
        if compacting {
            device.compact(u64::MAX).unwrap();
        }
        adam.step().unwrap();
        adam.zero_grad();
    }
    let mut out = first.to_vec::<f32>().unwrap();
    out.extend(second.to_vec::<f32>().unwrap());
    (out, device.stats().memory.moves)
}

#[test]
fn training_has_the_same_bits_when_memory_moves_in_every_step() {
    let (still, moves) = train(&open(DeviceOptions::default()), false);
    assert_eq!(moves, 0);
    let (moved, moves) = train(&open(DeviceOptions::default()), true);
    assert!(moves > 0);
    let same = still.iter().zip(&moved).all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(same && still.iter().any(|x| *x != 0.0));
}

#[test]
fn threads_allocate_while_another_compacts() {
    let device = limited(96);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let device = &device;
                scope.spawn(move || {
                    let stream = device.new_stream();
                    let _guard = stream.enter();
                    let mut held = Vec::new();
                    for round in 0..40 {
                        let mark = worker * 1000 + round;
                        held.push((mark, marked(device, mark, ONE / 4 + (mark * 7919) % ONE)));
                        if held.len() > 6 {
                            let (mark, tensor) = held.swap_remove(mark % 6);
                            check(&tensor, mark);
                        }
                    }
                    held.iter().for_each(|(mark, tensor)| check(tensor, *mark));
                })
            })
            .collect();
        let compactor = scope.spawn(|| {
            let mut moves = 0;
            while !stop.load(Ordering::Acquire) {
                moves += device.compact(8 * MIB as u64).unwrap().moves;
                std::thread::yield_now();
            }
            moves
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Release);
        assert!(results.iter().all(Result::is_ok));
        assert!(compactor.join().unwrap() > 0);
    });
    device.synchronize().unwrap();
    assert_eq!(device.memory_allocated(), 0);
}
