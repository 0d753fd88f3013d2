//! Tests that need wgpu or naga but no driver.

#[path = "../support/reference.rs"]
mod reference;
mod shaders;
