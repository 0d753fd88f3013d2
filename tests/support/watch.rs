//! Tests that would hang fail.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `work` on a thread of its own, for `seconds` at most.
pub fn watched(seconds: u64, work: impl FnOnce() + Send + 'static) {
    let (done, wait) = channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match wait.recv_timeout(Duration::from_secs(seconds)) {
        Err(RecvTimeoutError::Timeout) => panic!("still running after {seconds} seconds"),
        _ => thread.join().unwrap(),
    }
}
