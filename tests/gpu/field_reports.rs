//! Public reports against others that need results to be told; the rest of them stand in the noop and the pure tier.

use linn::{DeviceOptions, Tensor};

use crate::device::open;

/// tract: operands in one arena buffer are illegal in WebGPU; here blocks share segments all the time.
#[test]
fn field_20_operands_share_one_segment() {
    let device = open(DeviceOptions::default());
    let values = |start: f32| -> Vec<f32> { (0..64).map(|i| start + i as f32).collect() };
    let make = |start: f32| Tensor::from_slice(&device, &[8, 8], &values(start)).unwrap();
    let (a, b, c) = (make(1.0), make(-3.5), make(0.25));
    let sum: Vec<f32> = values(1.0).iter().zip(values(-3.5)).map(|(a, b)| a + b).collect();
    assert_eq!((&a + &b).unwrap().to_vec::<f32>().unwrap(), sum);
    // The result overwrites an operand, and one operand is given twice.
    let doubled: Vec<f32> = values(0.25).iter().map(|c| c + c).collect();
    assert_eq!((&c + &c).unwrap().to_vec::<f32>().unwrap(), doubled);
    c.add_(&c, 1.0).unwrap();
    assert_eq!(c.to_vec::<f32>().unwrap(), doubled);
    c.add_(&b, 1.0).unwrap();
    let more: Vec<f32> = doubled.iter().zip(values(-3.5)).map(|(c, b)| c + b).collect();
    assert_eq!(c.to_vec::<f32>().unwrap(), more);
    // Overlapping views of one block, and the same block on both sides of a product.
    let (upper, lower) = (a.narrow(0, 0, 6).unwrap(), a.narrow(0, 2, 6).unwrap());
    let expected: Vec<f32> = (0..48).map(|i| values(1.0)[i] * values(1.0)[i + 16]).collect();
    assert_eq!((&upper * &lower).unwrap().to_vec::<f32>().unwrap(), expected);
    let square = a.matmul(&a).unwrap().to_vec::<f32>().unwrap();
    for (at, value) in square.iter().enumerate() {
        let dot: f32 = (0..8).map(|k| values(1.0)[at / 8 * 8 + k] * values(1.0)[k * 8 + at % 8]).sum();
        assert!((value - dot).abs() <= 1e-4 * dot.abs(), "{at}: {value} instead of {dot}");
    }
    assert_eq!(device.stats().memory.segment.peak, 1, "the operands were meant to share a segment");
}

/// cubecl: after hundreds of small uploads without a submission staging was exhausted, and early tensors were corrupt.
#[test]
fn field_07_a_thousand_uploads_keep_their_contents() {
    let device = open(DeviceOptions::default());
    for len in [1, 37, 1024, 20_000] {
        let value = |i: usize, k: usize| (i * 13 + k % 251) as f32;
        let contents = |i: usize| -> Vec<f32> { (0..len).map(|k| value(i, k)).collect() };
        let tensors: Vec<Tensor> = (0..1000).map(|i| Tensor::from_slice(&device, &[len], &contents(i)).unwrap()).collect();
        let stats = device.stats();
        assert!(stats.staging_upload_bytes <= 64 << 20, "{stats:?}");
        for (i, tensor) in tensors.iter().enumerate() {
            assert!(tensor.to_vec::<f32>().unwrap() == contents(i), "tensor {i} of {len} elements");
        }
    }
}

/// cubecl: an upload jumped ahead of kernels that were encoded before it and overwrote the memory that they read.
#[test]
fn field_15_an_upload_waits_for_the_readers_of_its_memory() {
    let device = open(DeviceOptions::default());
    let side = device.new_stream();
    let mut same_block = 0;
    for round in 0..200 {
        let old = Tensor::from_slice(&device, &[3000], &vec![round as f32; 3000]).unwrap();
        let sum = old.add_scalar(1.0).unwrap();
        let before = device.memory_allocated();
        drop(old);
        let upload = || Tensor::from_slice(&device, &[3000], &vec![-1.0f32; 3000]).unwrap();
        // On the same stream and on another one; pinned, too, which is not copied at the call.
        let pinned = device.pin_memory(&vec![-1.0f32; 3000]).unwrap();
        let new = match round % 3 {
            0 => upload(),
            1 => side.scope(upload),
            _ => Tensor::from_pinned(&[3000], &pinned).unwrap(),
        };
        same_block += u32::from(device.memory_allocated() == before);
        assert!(sum.to_vec::<f32>().unwrap() == vec![round as f32 + 1.0; 3000], "round {round}");
        assert!(new.to_vec::<f32>().unwrap() == vec![-1.0; 3000], "round {round}");
    }
    assert_eq!(same_block, 200);
    // All of it fits the first segment: blocks were used again.
    assert_eq!(device.stats().memory.segment.peak, 1);
}

/// pytorch: stale data after a non-blocking copy to the host.
#[test]
fn field_32_no_elements_before_the_copy_is_done() {
    let device = open(DeviceOptions::default());
    let x = Tensor::from_slice(&device, &[512, 512], &vec![0.001f32; 512 * 512]).unwrap();
    x.matmul(&x).unwrap();
    device.synchronize().unwrap();
    let (mut first, mut second) = (device.pinned_download::<f32>(4).unwrap(), device.pinned_download::<f32>(4).unwrap());
    let mut early = 0;
    for round in 0..5 {
        let mut y = x.clone();
        for _ in 0..8 {
            y = y.matmul(&x).unwrap();
        }
        // What is there only when all of that has been computed.
        let last = y.narrow(0, 511, 1).unwrap().narrow(1, 508, 4).unwrap().mul_scalar(0.0).unwrap();
        let last = last.add_scalar(f64::from(round)).unwrap().reshape(&[4]).unwrap();
        let mut read = last.copy_to_pinned(&mut first).unwrap();
        let done = device.default_stream().record_event();
        let elements = loop {
            match read.try_take().unwrap() {
                Some(elements) => break elements,
                None => early += 1,
            }
            std::thread::yield_now();
        };
        assert!(done.query(), "elements before the copy was done");
        assert_eq!(*elements, [round as f32; 4]);
        let awaited = last.copy_to_pinned(&mut second).unwrap();
        assert_eq!(pollster::block_on(awaited).unwrap(), [round as f32; 4]);
    }
    assert!(early > 0, "the host was never early");
}
