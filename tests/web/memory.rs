//! Memory: reuse, a limit, running out, giving back.

use linn::profile::replay::{Options, replay};
use linn::profile::synthetic;
use linn::{DeviceOptions, Error, Tensor};
use wasm_bindgen_test::wasm_bindgen_test;

use crate::device::{open, read, tensor};

#[wasm_bindgen_test]
async fn freed_memory_is_lent_again() {
    let device = open(DeviceOptions::default()).await;
    let x = tensor(&device, &[1 << 18], &vec![1.0f32; 1 << 18]);
    let mut y = x.add_scalar(1.0).unwrap();
    let reserved = device.memory_reserved();
    for _ in 0..50 {
        y = y.add_scalar(1.0).unwrap();
    }
    assert_eq!(read::<f32>(&y).await[0], 52.0);
    assert!(device.memory_reserved() <= reserved + (4 << 20), "from {reserved} to {}", device.memory_reserved());
    drop((x, y));
    assert_eq!(device.memory_allocated(), 0);
    // All is done, so there is nothing to wait for.
    device.synchronize_async().await.unwrap();
    device.empty_cache().unwrap();
    assert_eq!(device.memory_reserved(), 0);
}

#[wasm_bindgen_test]
async fn out_of_memory_is_a_value() {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(16 << 20);
    let device = open(options).await;
    let held = Tensor::zeros(&device, &[2 << 20]).unwrap();
    let Err(error) = Tensor::zeros(&device, &[4 << 20]) else { panic!("16 MiB do not fit beside 8") };
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("asked 16.0 MiB") && text.contains("memory.rs"), "{text}");
    // It goes on, and the memory of what is dropped is enough once that is done.
    assert_eq!(read::<f32>(&held.narrow(0, 0, 3).unwrap()).await, [0.0; 3]);
    drop(held);
    device.synchronize_async().await.unwrap();
    let all = Tensor::ones(&device, &[2 << 20]).unwrap();
    assert_eq!(read::<f32>(&all).await[(2 << 20) - 1], 1.0);
}

#[wasm_bindgen_test]
fn replays_run_on_the_pretend_device() {
    for family in synthetic::FAMILIES {
        let workload = synthetic::generate(family, 1, 1).unwrap();
        let figures = replay(&workload, &Options::default());
        assert_eq!(figures.failed, 0, "{family}");
        assert!(figures.peak_reserved >= figures.peak_live && figures.peak_live > 0, "{family}");
    }
}
