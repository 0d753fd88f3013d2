//! Tests that need wgpu or naga but no driver.

mod device;
mod exit;
#[path = "../support/reference.rs"]
mod reference;
mod shaders;
