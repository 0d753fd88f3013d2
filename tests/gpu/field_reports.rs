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
