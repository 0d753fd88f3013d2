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

/// The bound on waiting for the queue is one on working: a program that is stopped while it ends (Ctrl-Z) still waits for it.
/// Longer than the bound, so only with `LINN_LONG=1`.
#[cfg(unix)]
#[test]
fn a_program_that_is_stopped_while_it_ends_still_waits() {
    use std::io::{BufRead, BufReader, Read};
    let pauses = if std::env::var_os("LINN_LONG").is_some() { 1 } else { 0 };
    for way in &WAYS[1..] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "exit::the_program_that_ends", "--nocapture", "--test-threads=1"])
            .env("LINN_EXIT", way)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains(ENDING) && words.read_line(&mut text).unwrap() > 0 {}
        let signal = |name: &str| {
            // The shell's own `kill`: not every machine has the program.
            let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {}", child.id())]).status();
            assert!(sent.unwrap().success());
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        signal("STOP");
        std::thread::sleep(std::time::Duration::from_secs(21 * pauses));
        signal("CONT");
        words.read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "way {way}: {text}");
        assert!(text.contains(WOKEN), "way {way}: {text}");
    }
}

/// The program has nothing more to do than to end.
const ENDING: &str = "the program ends";

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
    eprintln!("{ENDING}");
    match way.as_str() {
        "return" => drop((x, read, side, device)),
        "exit" => std::process::exit(0),
        "leak" => std::mem::forget((x, read, side, device)),
        other => panic!("there is no way {other}"),
    }
}
