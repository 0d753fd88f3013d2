//! Waiting: futures come true by themselves, and calls that would block say that they cannot.

use std::collections::BTreeMap;

use linn::device::DeviceOptions;
use linn::{Device, Event, Tensor};
use wasm_bindgen_test::wasm_bindgen_test;

use crate::device::{device, open, read, tensor};

#[wasm_bindgen_test]
async fn the_adapter_is_the_browsers() {
    let device = device().await;
    assert_eq!(device.info().backend, "webgpu");
    assert!(device.limits().max_storage_buffers >= 8);
    assert_eq!(device.limits().max_immediate_size, 0, "wgpu 30 has none in browsers: then test shaders with them here");
}

#[wasm_bindgen_test]
async fn streams_and_events_are_awaited() {
    let device = device().await;
    let side = device.new_stream();
    let x = tensor(&device, &[1000], &vec![1.0f32; 1000]);
    let y = side.scope(|| x.add_scalar(1.0)).unwrap();
    let event = side.record_event();
    device.current_stream().wait_event(&event).unwrap();
    let z = y.mul(&x).unwrap();
    event.synchronize_async().await.unwrap();
    assert!(event.query() && side.query());
    device.current_stream().synchronize_async().await.unwrap();
    assert!(device.current_stream().query());
    assert_eq!(read::<f32>(&z).await, vec![2.0; 1000]);
    device.synchronize_async().await.unwrap();
    // What was never asked for is done too, once somebody waits for everything.
    let unread = side.scope(|| z.add(&z)).unwrap();
    device.synchronize_async().await.unwrap();
    assert!(side.query());
    assert_eq!(read::<f32>(&unread).await[999], 4.0);
}

#[wasm_bindgen_test]
async fn flushed_work_is_done_without_anybody_waiting() {
    let device = device().await;
    let stream = device.new_stream();
    let _y = stream.scope(|| tensor(&device, &[8], &[1.0f32; 8]).exp()).unwrap();
    let event: Event = stream.record_event();
    stream.flush();
    for _ in 0..200 {
        if event.query() {
            return;
        }
        sleep(10).await;
    }
    panic!("nothing happened for two seconds");
}

async fn sleep(ms: i32) {
    let promise = js_sys::Promise::new(&mut |resolve, _| {
        let global: js_sys::Object = js_sys::global().into();
        let set = js_sys::Reflect::get(&global, &"setTimeout".into()).unwrap();
        let set: js_sys::Function = set.into();
        set.call2(&global, &resolve, &ms.into()).unwrap();
    });
    wasm_bindgen_futures::JsFuture::from(promise).await.unwrap();
}

#[wasm_bindgen_test]
async fn thousands_of_operations_in_flight() {
    let device = device().await;
    let x = tensor(&device, &[64], &[0.0f32; 64]);
    // More than are kept recorded where a thread can wait.
    for _ in 0..20_000 {
        x.add_scalar_(1.0).unwrap();
    }
    assert_eq!(read::<f32>(&x).await, [20_000.0; 64]);
    let reads: Vec<_> = (0..200).map(|i| x.add_scalar(f64::from(i)).unwrap().to_vec_async::<f32>().unwrap()).collect();
    for (i, read) in (0u16..).zip(reads) {
        assert_eq!(read.await.unwrap()[63], 20_000.0 + f32::from(i));
    }
}

#[wasm_bindgen_test]
async fn a_dropped_read_harms_nobody() {
    let device = device().await;
    let x = tensor(&device, &[300], &[3.0f32; 300]);
    drop(x.to_vec_async::<f32>().unwrap());
    drop(device.synchronize_async());
    assert_eq!(read::<f32>(&x).await, [3.0; 300]);
}

#[wasm_bindgen_test]
async fn calls_that_would_block_are_refused() {
    let device = device().await;
    let x = tensor(&device, &[2], &[1.0f32, 2.0]);
    let event = device.current_stream().record_event();
    let mut pinned = device.pinned_upload::<f32>(2).unwrap();
    pinned.copy_from_slice(&[5.0, 6.0]).unwrap();
    x.copy_from_pinned_(&pinned).unwrap();
    let refused = [
        ("open", Device::open().err()),
        ("to_vec", x.to_vec::<f32>().err()),
        ("item", x.sum_all().unwrap().item::<f32>().err()),
        ("synchronize", device.synchronize().err()),
        ("synchronize of a stream", device.current_stream().synchronize().err()),
        ("synchronize of an event", event.synchronize().err()),
        ("empty_cache", device.empty_cache().err()),
        ("filling memory in flight", pinned.copy_from_slice(&[7.0, 8.0]).err()),
        ("export", x.export().err()),
        ("save", linn::nn::state::save(std::path::Path::new("x"), &[("x".into(), x.clone())], &BTreeMap::new()).err()),
        ("nonzero", x.nonzero().err()),
    ];
    for (what, error) in refused {
        let error = error.unwrap_or_else(|| panic!("{what} did not fail")).to_string();
        assert!(error.contains("a browser's thread cannot block") && error.contains("\nhelp: "), "{what}: {error}");
    }
    let text = x.to_string();
    assert!(text.contains("a browser's thread cannot block"), "{text}");
    // Nothing of it did any harm, and once all is done nothing has to block.
    pinned.synchronize_async().await.unwrap();
    pinned.copy_from_slice(&[7.0, 8.0]).unwrap();
    assert_eq!(read::<f32>(&x).await, [5.0, 6.0]);
    assert_eq!(device.stats().queue.host_syncs, 0);
}

#[wasm_bindgen_test]
async fn errors_of_enqueued_work_come_with_the_next_wait() {
    let device = open(DeviceOptions::default()).await;
    let x = tensor(&device, &[3, 2], &[0.0f32; 6]);
    let picked = x.embedding(&tensor(&device, &[2], &[1i32, 7])).unwrap();
    let error = device.synchronize_async().await.unwrap_err().to_string();
    assert!(error.contains("index 7 at position 1 is out of range for 3 entries"), "{error}");
    assert_eq!(read::<f32>(&picked).await.len(), 4, "told once");
    let wrong = x.matmul(&tensor(&device, &[3, 2], &[0.0f32; 6])).unwrap_err().to_string();
    assert!(wrong.contains("matmul"), "{wrong}");
}

#[wasm_bindgen_test]
async fn several_devices_and_their_end() {
    let (first, second) = (open(DeviceOptions::default()).await, open(DeviceOptions::default()).await);
    let x = tensor(&first, &[4], &[1.0f32; 4]);
    let y: Tensor = tensor(&second, &[4], &[2.0f32; 4]);
    assert!(x.add(&y).is_err(), "tensors of two devices do not mix");
    let read_later = y.to_vec_async::<f32>().unwrap();
    drop((x, first));
    assert_eq!(read_later.await.unwrap(), [2.0; 4]);
}
