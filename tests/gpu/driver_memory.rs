//! What the driver holds is what we say: a system monitor can be explained.

use linn::nn::{Gpt, GptConfig, Module};
use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup};
use linn::{Device, DeviceOptions, Tensor};

const MIB: u64 = 1 << 20;

/// Bytes between the driver's sum and ours. A buffer that was dropped goes when its work has been looked after.
fn apart(device: &Device) -> u64 {
    let ours = || {
        let stats = device.stats();
        let staging = stats.staging_upload_bytes + stats.staging_download_bytes + stats.queue.staging_texture_bytes;
        device.memory_reserved() + staging
    };
    let distance = || device.driver_memory().map_or(0, |driver| driver.allocated.abs_diff(ours()));
    for _ in 0..100 {
        if distance() <= 8 * MIB {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    distance()
}

#[test]
fn the_drivers_view_is_ours() {
    let device = crate::device::open(DeviceOptions::default());
    if device.driver_memory().is_none() {
        assert!(!["vulkan", "dx12"].contains(&device.info().backend.as_str()), "wgpu keeps a list there");
        assert!(!device.memory_summary(true).contains("\ndriver "));
        println!("not compared: wgpu keeps no list of its memory on {}", device.info());
        return;
    }
    assert!(apart(&device) <= 8 * MIB, "at first: {:?}", device.driver_memory());
    let config = GptConfig { n_layer: 2, n_head: 2, n_embd: 64, block_size: 64, vocab_size: 100, bias: false, tied: true };
    let model = Gpt::new(&device, config).unwrap();
    let groups = ParamGroup::by_rank(model.named_parameters(), 1e-3, 0.1);
    let mut optimizer = Adam::adamw(groups, AdamOptions::default());
    for step in 0..6 {
        let len = 24 + 8 * step;
        let ids = Tensor::from_slice(&device, &[4, len], &vec![(step + 1) as i32; 4 * len]).unwrap();
        optimizer.zero_grad();
        let loss = model.loss(&ids, &ids).unwrap();
        loss.backward().unwrap();
        optimizer.step().unwrap();
        assert!(loss.item::<f32>().unwrap().is_finite());
    }
    device.synchronize().unwrap();
    let trained = device.memory_reserved();
    assert!(apart(&device) <= 8 * MIB, "after training: {:?}, {trained} reserved", device.driver_memory());
    let summary = device.memory_summary(true);
    assert!(summary.contains("\ndriver ") && summary.contains("\nstaging "), "{summary}");
    let large = Tensor::ones(&device, &[24 << 18]).unwrap();
    device.synchronize().unwrap();
    let before = device.driver_memory().unwrap();
    drop(large);
    device.empty_cache().unwrap();
    assert!(apart(&device) <= 8 * MIB, "after empty_cache: {:?}, {}", device.driver_memory(), device.memory_reserved());
    let after = device.driver_memory().unwrap();
    assert!(before.allocated - after.allocated >= 24 * MIB && after.reserved < before.reserved, "{before:?} {after:?}");
    assert!(after.allocated <= after.reserved && after.blocks <= after.allocations, "{after:?}");
    let summary = device.memory_summary(true);
    assert!(summary.contains("\ndriver ") && !summary.contains("\nstaging "), "idle staging went too: {summary}");
}
