//! Streams, events, reads: what is enqueued where, and who waits for whom.

use linn::Tensor;

use crate::device::device;

#[test]
fn a_slice_comes_back() {
    let device = device();
    let data: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let tensor = Tensor::from_slice(&device, &[10, 100], &data).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), data);
}

#[test]
fn large_uploads_are_cut_and_come_back() {
    let device = device();
    let data: Vec<u32> = (0..5_000_000).collect();
    let tensor = Tensor::from_slice(&device, &[data.len()], &data).unwrap();
    assert_eq!(tensor.to_vec::<u32>().unwrap(), data);
}

#[test]
fn many_small_uploads_are_all_right() {
    let device = device();
    let tensors: Vec<Tensor> = (0..1000).map(|i| Tensor::from_slice(&device, &[1024], &[i; 1024]).unwrap()).collect();
    for (i, tensor) in tensors.iter().enumerate() {
        assert_eq!(tensor.to_vec::<i32>().unwrap(), vec![i as i32; 1024]);
    }
    assert!(device.stats().staging_upload_bytes <= 64 << 20);
}
