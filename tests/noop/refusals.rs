//! A driver that refuses: at any call, of any kind, the answer is an error, and life goes on.

use linn::device::ParamsVia;
use linn::memory::{OomCause, OomReport, Way};
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
    assert_eq!((limit.limit, refused.limit), (32 * MIB, u64::MAX));
    // All else is alike: the facts of the error ...
    let facts = |report: &OomReport| {
        let at = (report.stream, report.pool, report.label, report.location.file(), report.location.line());
        let bytes = [report.requested, report.rounded, report.allocated, report.reserved, report.pending, report.largest_free];
        (at, bytes, report.breakdown, report.holders.clone(), report.max_segment)
    };
    assert_eq!(facts(&limit), facts(&refused));
    assert_eq!((limit.requested, limit.allocated, limit.reserved), (4 * MIB, 32 * MIB, 32 * MIB));
    let holds = |way: &Way| matches!(way, Way::Free(holder) if *holder == limit.holders[0]);
    assert!(limit.ways.iter().any(holds) && refused.ways.iter().any(holds), "{limit}\n{refused}");
    // ... and every counter, but for whether the driver had been asked.
    let (mut ours, mut theirs) = (limited.memory_stats(), device.memory_stats());
    let rejections = [&mut ours, &mut theirs].map(|stats| stats.remove("num_oom_rejections").unwrap());
    assert_eq!(ours["num_ooms"], 2, "{ours:?}");
    assert_eq!(rejections, [2, 0]);
    assert_eq!(ours, theirs);
}
