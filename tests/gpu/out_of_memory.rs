//! Memory that the driver really does not have, and calls that it is made to refuse.

use std::process::Command;

use linn::device::ParamsVia;
use linn::memory::OomCause;
use linn::{DType, Device, DeviceOptions, Error, Tensor};

use crate::sweep::{Sweep, sweep};

const MIB: u64 = 1 << 20;

/// Every seventh call (`LINN_LONG=1`: every call); the noop tier does every one. Here kernels compute.
#[test]
fn calls_may_be_refused_and_results_stay_right() {
    let step = if std::env::var_os("LINN_LONG").is_some() { 1 } else { 7 };
    let some = Sweep { open: Device::open_with, computes: true, first: 2, step, counts: &[1, u64::MAX], params: ParamsVia::Best };
    let outcome = sweep(&some);
    assert!(outcome.errors > 0 && outcome.healed > 0, "{outcome:?}");
    let outcome = sweep(&Sweep { params: ParamsVia::Uniform, first: 4, counts: &[1], ..some });
    assert!(outcome.healed > 0 && outcome.lost == 0, "{outcome:?}");
}

fn child(way: &str, shell: &str) -> (bool, String) {
    let output = Command::new("sh")
        .args(["-c", shell, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "out_of_memory::the_program_with_little_memory", "--nocapture", "--test-threads=1"])
        .env("LINN_LITTLE_MEMORY", way)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), words)
}

/// Memory of the process is limited, so that the driver fails: natively on unix, with drivers that take their memory from the
/// process and report what they do not get. Of a GPU's own memory a process cannot be deprived; there the injected
/// failures stand for it. On GL it cannot be forced: wgpu 30 does not ask whether a buffer could be made.
#[test]
#[cfg(unix)]
fn a_driver_without_memory_is_an_error_and_everything_goes_on() {
    use linn::device::AdapterKind;
    let info = crate::device::device().info().clone();
    if info.kind != AdapterKind::Software || info.backend == "gl" {
        println!("not tried: {info} cannot be made to run out of memory by a limit of this process");
        return;
    }
    let (ok, words) = child("measure", "exec \"$@\"");
    let used = words.lines().find_map(|line| line.split_once("address space: ")?.1.trim().parse::<u64>().ok());
    let Some(used) = used.filter(|_| ok) else { panic!("the program does not run without a limit: {words}") };
    let (ok, words) = child("fill", &format!("ulimit -v {} && exec \"$@\"", (used + 700 * MIB) / 1024));
    assert!(ok, "{words}");
    assert!(words.contains("the driver refused"), "{words}");
}

/// Does something only when the test above runs it.
#[test]
fn the_program_with_little_memory() {
    let Ok(way) = std::env::var("LINN_LITTLE_MEMORY") else { return };
    let device = Device::open_with(DeviceOptions::default()).unwrap();
    let small = Tensor::from_slice(&device, &[3], &[1.0f32, 2.0, 3.0]).unwrap();
    let works = || assert_eq!((&small + 1.0).unwrap().to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0]);
    works();
    if way == "measure" {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
        println!("\naddress space: {}", pages * 4096);
        return;
    }
    let make = || Tensor::empty(&device, &[100 << 18], DType::F32);
    let mut held = Vec::new();
    let report = loop {
        assert!(held.len() < 100, "10 GB in an address space of less");
        match make() {
            Ok(tensor) => held.push(tensor),
            Err(Error::OutOfMemory(report)) => break report,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(report.cause, OomCause::Driver, "{report}");
    assert_eq!((report.requested, report.limit), (100 * MIB, u64::MAX));
    assert!(!held.is_empty() && report.reserved >= held.len() as u64 * 100 * MIB, "{report}");
    assert!(report.to_string().contains("help: the driver has no more memory"), "{report}");
    assert_eq!(report.holders[0].count, held.len() as u64, "{report}");
    // The device is alive, and what comes back can be had again.
    works();
    let made = held.len();
    assert!(make().is_err());
    drop(held.pop());
    held.push(make().unwrap());
    works();
    held.clear();
    held.extend((0..made).map(|_| make().unwrap()));
    drop(held);
    device.empty_cache().unwrap();
    device.validate_memory().unwrap();
    works();
    assert!(device.memory_reserved() < 16 * MIB);
    println!("the driver refused after {made} tensors");
}
