//! linn inside a browser (wasm32 on WebGPU), where no call may block: `scripts/test-web`.
#![cfg(target_arch = "wasm32")]

#[path = "../support/close.rs"]
mod close;
mod device;
mod memory;
mod ops;
mod random;
#[allow(clippy::duplicate_mod)]
#[path = "../support/reference.rs"]
mod reference;
mod training;
mod types;
mod waits;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_browser);
