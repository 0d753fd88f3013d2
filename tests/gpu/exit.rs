//! A program may end with work in flight: its exit code is its own. The programs here are this test binary, run again.

use std::future::Future;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Wake};

use linn::{Device, Tensor};

/// Ways to end.
const WAYS: [&str; 3] = ["return", "exit", "leak"];

/// Runs per way; `LINN_LONG=1` makes it a hundred.
fn runs() -> usize {
    if std::env::var_os("LINN_LONG").is_some() { 100 } else { 5 }
}

#[test]
fn programs_that_end_with_work_in_flight_exit_with_0() {
    for way in WAYS {
        for run in 0..runs() {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "exit::the_program_that_ends", "--nocapture", "--test-threads=1"])
                .env("LINN_EXIT", way)
                .output()
                .unwrap();
            let words = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "way {way}, run {run}: {words}");
            // Only a queue that was stopped before the process ended has woken its waiters.
            assert!(way == "return" || words.contains(WOKEN), "way {way}, run {run}: {words}");
        }
    }
}

const WOKEN: &str = "the waiter was woken";

struct SaysSo;

impl Wake for SaysSo {
    fn wake(self: Arc<Self>) {
        eprintln!("{WOKEN}");
    }
}

/// Does something only when the test above runs it.
#[test]
fn the_program_that_ends() {
    let Ok(way) = std::env::var("LINN_EXIT") else { return };
    let device = Device::open().unwrap();
    let side = device.new_stream();
    let mut x = Tensor::ones(&device, &[256, 256]).unwrap();
    for _ in 0..200 {
        x = x.matmul(&x).unwrap();
        side.scope(|| x.sum_all()).unwrap();
    }
    let mut read = Box::pin(x.to_vec_async::<f32>().unwrap());
    let waker = Arc::new(SaysSo).into();
    if read.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
        eprintln!("{WOKEN}");
    }
    match way.as_str() {
        "return" => drop((x, read, side, device)),
        "exit" => std::process::exit(0),
        "leak" => std::mem::forget((x, read, side, device)),
        other => panic!("there is no way {other}"),
    }
}
