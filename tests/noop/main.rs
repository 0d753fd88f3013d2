//! Tests that need wgpu or naga but no driver.

mod data_loader;
mod device;
mod events;
mod exit;
mod field_reports;
mod futures;
mod interop;
mod lost;
mod mem_pool;
mod memory;
mod observers;
mod order_edges;
mod pinned;
#[path = "../support/reference.rs"]
mod reference;
mod refusals;
mod shaders;
#[path = "../support/stop.rs"]
mod stop;
#[path = "../support/refusals.rs"]
mod sweep;
#[path = "../support/timing.rs"]
mod timing;
#[path = "../support/watch.rs"]
mod watch;
