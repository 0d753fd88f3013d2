//! Histories and snapshots of a real device name the program's own lines.

use linn::memory::{Category, HistoryOptions, Stacks};
use linn::{DeviceOptions, Tensor};
use serde_json::Value;

#[test]
fn a_training_step_names_its_own_lines_as_holders() {
    let device = crate::device::open(DeviceOptions::default());
    device.record_memory_history(Some(HistoryOptions::default()));
    let weights_line = line!() + 1;
    let weights = Tensor::zeros(&device, &[256, 512]).unwrap().requires_grad_(true).unwrap();
    let input_line = line!() + 1;
    let input = Tensor::ones(&device, &[64, 512]).unwrap();
    let hidden_line = line!() + 1;
    let hidden = input.linear(&weights, None).unwrap();
    let loss = hidden.relu().unwrap().sum_all().unwrap();
    let backward_line = line!() + 1;
    loss.backward().unwrap();
    device.synchronize().unwrap();

    let snapshot = device.memory_snapshot();
    let held: Vec<_> = snapshot.holders().iter().map(|h| (h.location.file(), h.location.line(), h.bytes)).collect();
    let (weights, input, hidden) = (256 * 512 * 4, 64 * 512 * 4, 64 * 256 * 4);
    for (line, bytes) in [(weights_line, weights), (input_line, input), (hidden_line, hidden), (backward_line, weights)] {
        let found = held.iter().any(|(file, at, size)| file.ends_with("memory_history.rs") && *at == line && *size >= bytes);
        assert!(found, "line {line} is not among {held:?}");
    }
    assert!(held.iter().all(|(file, ..)| file.ends_with("memory_history.rs")), "only the program's own lines: {held:?}");
    assert_eq!(snapshot.breakdown.of(Category::Gradient), 256 * 512 * 4);
    assert_eq!(snapshot.breakdown.sum(), snapshot.stats.reserved_bytes.current);
    assert!(snapshot.trace.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us), "in the order of time");
    assert!(snapshot.trace.iter().all(|event| event.time_us > 1_600_000_000_000_000), "microseconds of the wall clock");
    let json: Value = serde_json::from_str(&snapshot.to_json()).unwrap();
    let actions = json["device_traces"][0].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap());
    let count = |name| actions.clone().filter(|action| *action == name).count();
    assert!(count("alloc") >= 5 && count("segment_alloc") >= 1 && count("free_requested") == count("free_completed"));
}

#[test]
fn whole_stacks_are_captured_on_request() {
    #[inline(never)]
    fn my_own_function(device: &linn::Device) -> Tensor {
        // (Not the last thing it does: a call in that place may become a jump, and leave no frame.)
        let tensor = Tensor::zeros(device, &[1000]).unwrap();
        std::hint::black_box(&tensor);
        tensor
    }
    let device = crate::device::open(DeviceOptions::default());
    device.record_memory_history(Some(HistoryOptions { stacks: Stacks::All, ..HistoryOptions::default() }));
    let tensor = my_own_function(&device);
    let snapshot = device.memory_snapshot();
    let mut blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let stack = blocks.find(|block| block.requested_size == 4000).and_then(|block| block.stack).expect("a stack");
    let frames = &snapshot.stacks[stack.0 as usize];
    let own = frames.iter().find(|frame| frame.name.contains("my_own_function"));
    // A build without debug information knows names alone.
    let named = |frame: &linn::memory::Frame| frame.file.ends_with("memory_history.rs") && frame.line > 40;
    assert!(own.is_some_and(|frame| named(frame) || frame.file.is_empty() && !cfg!(debug_assertions)), "{frames:?}");
    assert!(!frames[0].name.contains("capture_stack"), "{:?}", frames[0]);
    drop(tensor);
    device.record_memory_history(None);
    assert!(device.memory_snapshot().trace.is_empty());
}
