//! The device of all tests, and what they ask of it.

use std::sync::{Mutex, PoisonError};

use linn::{Device, DeviceOptions, Element, Tensor};

/// The shared device: pipelines are compiled once.
pub async fn device() -> Device {
    static SHARED: Mutex<Option<Device>> = Mutex::new(None);
    let there = SHARED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(device) = there {
        return device;
    }
    let device = open(DeviceOptions::default()).await;
    *SHARED.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.clone());
    device
}

/// A device of its own.
pub async fn open(options: DeviceOptions) -> Device {
    match Device::open_async(options).await {
        Ok(device) => device,
        Err(error) => panic!("{error}"),
    }
}

pub fn tensor<T: Element>(device: &Device, shape: &[usize], data: &[T]) -> Tensor {
    Tensor::from_slice(device, shape, data).unwrap()
}

pub async fn read<T: Element>(x: &Tensor) -> Vec<T> {
    x.to_vec_async().unwrap().await.unwrap()
}
