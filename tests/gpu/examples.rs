//! Every example runs, with small settings.

#[path = "../../examples/04_autograd.rs"]
#[allow(dead_code)]
mod autograd;
#[path = "../../examples/01_hello_tensor.rs"]
#[allow(dead_code)]
mod hello_tensor;
#[path = "../../examples/info.rs"]
#[allow(dead_code)]
mod info;
#[path = "../../examples/03_memory.rs"]
#[allow(dead_code)]
mod memory;
#[path = "../../examples/06_rules_in_numbers.rs"]
#[allow(dead_code)]
mod rules_in_numbers;
#[path = "../../examples/02_streams_and_events.rs"]
#[allow(dead_code)]
mod streams_and_events;

#[test]
fn example_01_hello_tensor() {
    hello_tensor::run(true).unwrap();
}

#[test]
fn example_02_streams_and_events() {
    streams_and_events::run(true).unwrap();
}

#[test]
fn example_03_memory() {
    memory::run(true).unwrap();
}

#[test]
fn example_04_autograd() {
    autograd::run(true).unwrap();
}

#[test]
fn example_06_rules_in_numbers() {
    rules_in_numbers::run(true).unwrap();
}

#[test]
fn example_info_names_the_adapter_and_the_versions() {
    let device = crate::device::device();
    let text = info::describe(&device);
    for word in [device.name(), "backend", "largest binding", "features", env!("CARGO_PKG_VERSION")] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
}
