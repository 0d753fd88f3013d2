//! The end of the process. `exit` runs the drivers' own exit handlers while other threads go on, and a queue thread that is
//! inside a driver then reads what was torn down (SwiftShader: a segmentation fault in one of 300 programs that leak a
//! device with work in flight; lavapipe: LLVM's destructors under a running compiler). So a handler of ours, registered after
//! the driver was loaded and has compiled once (`driver::warm_up`) and therefore run before its handlers, stops every queue
//! first.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Shared;

static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Stops the device's queue when the process ends, unless its last handle does so before.
pub(super) fn watch(shared: &Arc<Shared>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|device| device.strong_count() > 0);
    open.push(Arc::downgrade(shared));
    // Once more for every device: its driver may have been loaded just now. Fails only without memory for one pointer; then
    // programs end as they would without us.
    let _ = atexit(stop_all);
}

// The only unsafe code of the crate: the standard library has no exit handlers. `atexit` stores the pointer and nothing
// else, so it is safe to call. Windows needs none: there ExitProcess ends the other threads before any library is told.
#[allow(unsafe_code)]
unsafe extern "C" {
    safe fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
}

extern "C" fn stop_all() {
    // `try_lock`: the thread that ends the process may be the one that holds the lock.
    let devices: Vec<Arc<Shared>> = match OPEN.try_lock() {
        Ok(open) => open.iter().filter_map(Weak::upgrade).collect(),
        Err(_) => return,
    };
    for device in &devices {
        device.stop_and_wait();
    }
    // A queue that has ended may have left us the last handle, and wgpu cannot drop a device here: the thread's own storage, which it
    // uses for that, is gone. The process ends anyway.
    std::mem::forget(devices);
}
