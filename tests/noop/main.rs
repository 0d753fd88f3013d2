//! Tests that need wgpu or naga but no driver.

mod data_loader;
mod device;
mod exit;
mod field_reports;
mod mem_pool;
mod memory;
mod observers;
mod pinned;
#[path = "../support/reference.rs"]
mod reference;
mod refusals;
mod shaders;
#[path = "../support/refusals.rs"]
mod sweep;
#[path = "../support/watch.rs"]
mod watch;
