//! Limits, foreign uses of memory, and what is left of it.

use linn::{DType, Device, DeviceOptions, Error, Tensor};

const MIB: u64 = 1 << 20;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

fn megabytes(device: &Device, count: u64) -> Tensor {
    Tensor::empty(device, &[(count * MIB / 4) as usize], DType::F32).unwrap()
}

#[test]
fn a_lower_limit_gives_idle_memory_back_at_once() {
    let device = open();
    assert_eq!(device.mem_get_info(), None, "there is no limit");
    let kept = megabytes(&device, 20);
    drop((megabytes(&device, 30), megabytes(&device, 40)));
    let reserved = device.memory_reserved();
    assert!(reserved >= 60 * MIB);
    device.synchronize().unwrap();
    device.set_memory_limit(25 * MIB);
    // Nothing was enqueued, so nothing has to be waited for; the queue drops the buffers and says so.
    for _ in 0..2000 {
        if device.memory_reserved() <= 25 * MIB {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(device.memory_reserved() <= 25 * MIB, "{} of {reserved}", device.memory_reserved());
    assert_eq!(device.mem_get_info(), Some((25 * MIB - device.memory_reserved(), 25 * MIB)));
    assert!(Tensor::empty(&device, &[8 << 20], DType::F32).is_err());
    device.set_memory_limit(8 * MIB);
    assert_eq!(device.mem_get_info(), Some((0, 8 * MIB)), "more is live than may be");
    drop(kept);
    device.set_memory_limit(u64::MAX);
    assert_eq!(device.mem_get_info(), None);
    device.validate_memory().unwrap();
    assert_eq!(device.driver_memory(), None, "there is no driver");
}

/// PyTorch's test_record_stream: what was recorded is not used by others before what that stream had enqueued.
#[test]
fn recorded_memory_is_reused_after_what_the_stream_has_enqueued() {
    // Room for one such tensor: the next one takes its memory.
    const LEN: usize = 4 << 20;
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(24 * MIB);
    let device = Device::noop(options).unwrap();
    let (main, side, other) = (device.default_stream(), device.new_stream(), device.new_stream());
    let edges = || device.stats().timeline.order_edges;
    let busy = Tensor::from_slice(&device, &[1 << 20], &vec![1u32; 1 << 20]).unwrap();
    for recorded in [false, true] {
        let made = side.scope(|| Tensor::from_slice(&device, &[LEN], &vec![7u32; LEN]).unwrap());
        if recorded {
            // Of a view, and the base goes first: the storage counts.
            let view = made.narrow(0, 500, 10).unwrap();
            view.record_stream(&main).unwrap();
            view.record_stream(&main).unwrap();
        }
        device.synchronize().unwrap();
        let reads: Vec<_> =
            (0..200).map(|_| main.scope(|| busy.narrow(0, 0, 4).unwrap().to_vec_async::<u32>().unwrap())).collect();
        let before = edges();
        drop(made);
        let again = other.scope(|| Tensor::from_slice(&device, &[LEN], &vec![8u32; LEN]).unwrap());
        if recorded {
            // The upload comes after all 200 reads: when it is done, so are they.
            other.synchronize().unwrap();
            assert!(main.query());
        } else {
            assert_eq!(edges(), before, "nobody waits for main");
        }
        assert_eq!(again.narrow(0, (LEN - 2) as isize, 2).unwrap().to_vec::<u32>().unwrap(), [8, 8]);
        reads.into_iter().for_each(|read| assert_eq!(read.wait().unwrap(), [1; 4]));
    }
    let foreign = open();
    assert!(matches!(busy.record_stream(&foreign.default_stream()), Err(Error::DeviceMismatch { op: "record_stream", .. })));
}

/// PyTorch's test_caching_allocator_record_stream_oom: recorded memory is never stranded.
#[test]
fn recording_streams_never_runs_out_of_memory() {
    for policy in ["linn", "pytorch"] {
        let mut options = DeviceOptions::default();
        (options.memory_limit, options.alloc_conf) = (Some(48 * MIB), Some(format!("policy:{policy}")));
        let device = Device::noop(options).unwrap();
        let side = device.new_stream();
        for i in 0..100 {
            let made = megabytes(&device, 20);
            side.scope(|| made.narrow(0, 0, 1).unwrap().copy_from_slice_(&[i as f32]).unwrap());
            made.record_stream(&side).unwrap();
        }
        device.validate_memory().unwrap();
        assert_eq!((device.memory_allocated(), device.memory_stats()["num_ooms"]), (0, 0), "{policy}");
    }
}

/// Numbers that are shown together are of one moment, whatever other threads do meanwhile.
#[test]
fn statistics_and_their_summary_are_of_one_moment() {
    let device = open();
    // (Rows without bytes are left out of the summary.)
    drop(megabytes(&device, 1));
    let reserved = |summary: &str| {
        let line = |start: &str| summary.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{summary}"));
        let cells: Vec<&str> = line("| GPU reserved memory").split('|').map(str::trim).collect();
        let words: Vec<&str> = cells[2].split_whitespace().chain(line("= reserved").split_whitespace().skip(2)).collect();
        let mib = |number: &str, unit: &str| {
            let scale = ["B", "KiB", "MiB"].iter().position(|known| *known == unit).unwrap_or_else(|| panic!("{unit}"));
            number.parse::<f64>().unwrap() * [1.0 / MIB as f64, 1.0 / 1024.0, 1.0][scale]
        };
        (mib(words[0], words[1]), mib(words[2], words[3]))
    };
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            for _ in 0..300 {
                let stats = device.stats();
                assert_eq!(stats.breakdown.sum(), stats.memory.reserved_bytes.current);
                assert_eq!(stats.breakdown.allocated(), stats.memory.allocated_bytes.current);
                let (table, categories) = reserved(&device.memory_summary(true));
                assert_eq!(table, categories);
            }
        });
        while !watcher.is_finished() {
            drop((megabytes(&device, 1), megabytes(&device, 20)));
            device.empty_cache().unwrap();
        }
    });
}
