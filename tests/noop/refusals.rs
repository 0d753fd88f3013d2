//! A driver that refuses: at any call, of any kind, the answer is an error, and life goes on.

use linn::device::ParamsVia;
use linn::memory::{OomCause, OomReport};
use linn::{DType, Device, DeviceOptions, Error, Tensor};

use crate::sweep::{Sweep, sweep};
use crate::watch::watched;

const MIB: u64 = 1 << 20;

#[test]
fn every_call_may_be_refused_once() {
    watched(300, || {
        let all = Sweep { open: Device::noop, computes: false, first: 0, step: 1, counts: &[1], params: ParamsVia::Best };
        let outcome = sweep(&all);
        println!("{outcome:?}");
        // Buffers that a caller waits for are errors; what the queue does is done again.
        assert!(outcome.errors > 5 && outcome.healed > 10 && outcome.lost == 0, "{outcome:?}");
        let outcome = sweep(&Sweep { params: ParamsVia::Uniform, ..all });
        assert!(outcome.errors > 5 && outcome.healed > 10 && outcome.lost == 0, "{outcome:?}");
    });
}

#[test]
fn every_call_may_be_refused_with_those_after_it() {
    watched(300, || {
        let counts = &[2, 5, u64::MAX];
        let all = Sweep { open: Device::noop, computes: false, first: 0, step: 1, counts, params: ParamsVia::Best };
        let outcome = sweep(&all);
        println!("{outcome:?}");
        assert!(outcome.errors > outcome.runs / 2, "{outcome:?}");
    });
}

fn megabytes(device: &Device, count: u64) -> linn::Result<Tensor> {
    Tensor::empty(device, &[(count * MIB / 4) as usize], DType::F32)
}

/// Fills 32 MiB, is refused, frees a part and goes on; returns the report.
fn fill_and_recover(device: &Device, refuse: impl Fn(bool)) -> OomReport {
    let mut held: Vec<Tensor> = (0..8).map(|_| megabytes(device, 4).unwrap()).collect();
    refuse(true);
    // What is cached of grown segments is used up first.
    let report = loop {
        match megabytes(device, 4) {
            Ok(tensor) => held.push(tensor),
            Err(Error::OutOfMemory(report)) => break *report,
            Err(error) => panic!("{error}"),
        }
        assert!(held.len() < 64);
    };
    let allocated = device.memory_allocated();
    device.validate_memory().unwrap();
    // Freed and asked for again at once, and the same request as failed.
    held.pop();
    held.push(megabytes(device, 4).unwrap());
    assert_eq!(device.memory_allocated(), allocated);
    held[0].narrow(0, 0, 3).unwrap().copy_from_slice_(&[1.0f32, 2.0, 3.0]).unwrap();
    assert_eq!(held[0].narrow(0, 0, 3).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    // Half of it in one piece: what is idle goes back, then it is refused again or fits, as the room says.
    held.truncate(4);
    let large = megabytes(device, 20);
    refuse(false);
    match large {
        Ok(_) => {}
        Err(Error::OutOfMemory(report)) => assert!(report.allocated == 16 * MIB, "{report}"),
        Err(error) => panic!("{error}"),
    }
    drop(megabytes(device, 16).unwrap());
    held.clear();
    device.validate_memory().unwrap();
    device.empty_cache().unwrap();
    assert_eq!((device.memory_allocated(), device.memory_reserved()), (0, 0));
    report
}

#[test]
fn a_refusal_and_the_limit_are_the_same_to_the_program() {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(32 * MIB);
    let limited = Device::noop(options).unwrap();
    let limit = fill_and_recover(&limited, |_| {});
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let refused = fill_and_recover(&device, |refuse| device.refuse_segments(if refuse { u64::MAX } else { 0 }));
    assert_eq!((limit.cause, refused.cause), (OomCause::Limit, OomCause::Driver));
    for report in [&limit, &refused] {
        assert_eq!((report.requested, report.label, report.location.file()), (4 * MIB, "empty", file!()));
        assert!(report.allocated >= 32 * MIB && report.allocated <= report.reserved, "{report}");
        assert_eq!(report.holders[0].bytes, report.allocated - report.holders[1..].iter().map(|held| held.bytes).sum::<u64>());
        assert_eq!(report.breakdown.sum(), report.reserved);
    }
    for stats in [limited.memory_stats(), device.memory_stats()] {
        assert!((1..=2).contains(&stats["num_ooms"]), "{stats:?}");
    }
}
