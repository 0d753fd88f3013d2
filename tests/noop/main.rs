//! Tests that need wgpu or naga but no driver.

mod device;
mod exit;
mod field_reports;
#[path = "../support/reference.rs"]
mod reference;
mod shaders;
