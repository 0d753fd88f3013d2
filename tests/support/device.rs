//! One device for all tests of a binary, so that pipelines are compiled once.

use linn::{Device, DeviceOptions, Tensor};

/// The shared device. Panics with the library's own help where there is no adapter.
pub fn device() -> Device {
    use std::sync::{Mutex, PoisonError};
    // Never closed: the process ends with it, as a user's static would.
    static SHARED: Mutex<Option<Device>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.get_or_insert_with(|| open(DeviceOptions::default())).clone()
}

/// A device of its own, for tests that look at its memory or counters.
pub fn open(options: DeviceOptions) -> Device {
    match Device::open_with(options) {
        Ok(device) => device,
        Err(error) => panic!("{error}"),
    }
}

/// Work to be busy with: `count` products of n x n matrices, one after the other.
pub fn products(device: &Device, n: usize, count: usize) -> Tensor {
    let x = Tensor::from_slice(device, &[n, n], &vec![0.001f32; n * n]).unwrap();
    let mut y = x.clone();
    for _ in 0..count {
        y = y.matmul(&x).unwrap();
    }
    y
}
