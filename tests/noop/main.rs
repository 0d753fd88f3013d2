//! Tests that need wgpu or naga but no driver.

#[allow(dead_code)]
#[path = "../pure/chance.rs"]
mod chance;
mod data_loader;
mod device;
mod display;
mod events;
#[path = "../support/every_shader.rs"]
mod every_shader;
mod exit;
mod extremes;
mod field_reports;
mod files;
mod futures;
mod hostile;
mod interop;
mod lost;
mod mem_pool;
mod memory;
mod observers;
mod order_edges;
mod own_kernels;
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
mod two_devices;
#[path = "../support/watch.rs"]
mod watch;
