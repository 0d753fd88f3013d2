//! The runtime on a device without a driver: its copies are real (host memory), its kernels do nothing.

use std::sync::Arc;

use linn::memory::OomCause;
use linn::{Device, DeviceOptions, Error, Event, Stream, Tensor};

use crate::stop::stop;
use crate::watch::watched;

const MIB: u64 = 1 << 20;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

fn open_with_limit(bytes: u64) -> Device {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(bytes);
    Device::noop(options).unwrap()
}

fn tensor(device: &Device, data: &[u32]) -> Tensor {
    Tensor::from_slice(device, &[data.len()], data).unwrap()
}

/// The books balance.
fn check_books(device: &Device) {
    let breakdown = device.memory_breakdown();
    assert_eq!(breakdown.sum(), device.memory_reserved(), "{breakdown:?}");
    let used = breakdown.sum() - breakdown.cached - breakdown.retiring;
    assert_eq!(used, device.memory_allocated(), "{breakdown:?}");
}

#[test]
fn handles_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Device>();
    check::<Tensor>();
    check::<Stream>();
    check::<Event>();
    check::<Error>();
}

#[test]
fn what_goes_up_comes_back() {
    let device = open();
    for len in [0, 1, 2, 3, 63, 1000, 8191, 8192, 8193, 65_536, 3_000_001] {
        let data: Vec<u32> = (0..len).map(|i| i ^ 0x5555).collect();
        assert_eq!(tensor(&device, &data).to_vec::<u32>().unwrap(), data, "{len} elements");
        check_books(&device);
    }
    assert_eq!(Tensor::new(&device, [[1.5f32], [2.5]]).unwrap().to_vec::<f32>().unwrap(), [1.5, 2.5]);
    assert_eq!(Tensor::new(&device, [[0.0f32; 3]; 0]).unwrap().shape(), [0, 3]);
}

#[test]
fn the_limit_ends_in_an_error_and_everything_goes_on() {
    let device = open_with_limit(8 * MIB);
    assert_eq!((device.memory_limit(), open().memory_limit()), (8 * MIB, u64::MAX));
    let mut held = Vec::new();
    let report = loop {
        match Tensor::empty(&device, &[1 << 18], linn::DType::F32) {
            Ok(tensor) => held.push(tensor),
            Err(Error::OutOfMemory(report)) => break report,
            Err(error) => panic!("{error}"),
        }
        check_books(&device);
        assert!(device.memory_reserved() <= 8 * MIB && held.len() <= 8);
    };
    assert_eq!((held.len(), report.cause), (8, OomCause::Limit));
    assert_eq!(report.location.file(), file!(), "the caller's line");
    held.pop();
    let data: Vec<u32> = (0..1 << 18).collect();
    let again = tensor(&device, &data);
    assert_eq!(again.to_vec::<u32>().unwrap(), data);
    drop((held, again));
    assert_eq!(device.memory_allocated(), 0);
    // All of it in one piece: the pieces it was bought in have to be given back first.
    let whole = Tensor::empty(&device, &[2 << 20], linn::DType::F32).unwrap();
    assert!(matches!(Tensor::empty(&device, &[(2 << 20) + 1], linn::DType::F32), Err(Error::OutOfMemory(_))));
    drop(whole);
    check_books(&device);
    device.empty_cache().unwrap();
    assert_eq!(device.memory_reserved(), 0);
}

#[test]
fn a_driver_that_refuses_is_an_error_and_everything_goes_on() {
    let device = open();
    device.refuse_segments(1);
    let first = tensor(&device, &[1, 2, 3]);
    assert_eq!(first.to_vec::<u32>().unwrap(), [1, 2, 3], "a smaller segment was bought instead");
    device.refuse_segments(u64::MAX);
    match Tensor::empty(&device, &[64 << 20 >> 2], linn::DType::F32) {
        Err(Error::OutOfMemory(report)) => assert_eq!(report.cause, OomCause::Driver),
        other => panic!("{:?}", other.map(|tensor| tensor.len())),
    }
    check_books(&device);
    device.refuse_segments(0);
    let second = Tensor::empty(&device, &[64 << 20 >> 2], linn::DType::F32).unwrap();
    assert_eq!(first.to_vec::<u32>().unwrap(), [1, 2, 3]);
    assert_eq!(device.memory_stats()["num_ooms"], 1);
    drop((first, second));
    device.empty_cache().unwrap();
    assert_eq!((device.memory_allocated(), device.memory_reserved()), (0, 0));
}

#[test]
fn a_flood_of_small_uploads_keeps_staging_bounded() {
    watched(60, || {
        let device = open();
        let mut kept = Vec::new();
        for i in 0..100_000u32 {
            let tensor = tensor(&device, &[i]);
            if i % 1000 == 7 {
                kept.push((i, tensor));
            }
        }
        for (i, tensor) in &kept {
            assert_eq!(tensor.to_vec::<u32>().unwrap(), [*i]);
        }
        let stats = device.stats();
        assert!(stats.staging_upload_bytes <= 64 * MIB, "{stats:?}");
        check_books(&device);
    });
}

#[test]
fn uploads_of_one_size_do_not_shut_out_another() {
    watched(60, || {
        let device = open();
        let large: Vec<u32> = (0..30 << 20).collect();
        for _ in 0..2 {
            // Fills staging with large chunks ...
            let up = tensor(&device, &large);
            // ... which small ones have to share.
            let small: Vec<Tensor> = (0..100).map(|i| tensor(&device, &[i, i + 1])).collect();
            let middle: Vec<Tensor> = (0..100).map(|i| tensor(&device, &[i; 20_000])).collect();
            for (i, (small, middle)) in (0..).zip(small.iter().zip(&middle)) {
                assert_eq!(small.to_vec::<u32>().unwrap(), [i, i + 1]);
                assert_eq!(middle.to_vec::<u32>().unwrap(), [i; 20_000]);
            }
            assert!(up.to_vec::<u32>().unwrap() == large);
        }
        assert!(device.stats().staging_upload_bytes <= 64 * MIB, "{:?}", device.stats());
    });
}

#[test]
fn the_work_of_a_dropped_stream_still_runs() {
    let device = open();
    for i in 0..100 {
        let stream = device.new_stream();
        let made = stream.scope(|| tensor(&device, &[i, 2 * i]));
        let read = stream.scope(|| made.to_vec_async::<u32>().unwrap());
        drop(stream);
        drop(made);
        assert_eq!(read.wait().unwrap(), [i, 2 * i]);
        device.synchronize().unwrap();
        assert_eq!(device.new_stream().id(), 1, "the id is used again");
    }
}

#[test]
fn an_event_that_was_never_recorded_is_done() {
    let (device, event) = (open(), Event::new());
    assert!(event.query());
    let before = device.stats().queue.host_syncs;
    event.synchronize().unwrap();
    device.new_stream().wait_event(&event).unwrap();
    assert_eq!(device.stats().queue.host_syncs, before, "nothing to wait for");
}

#[test]
fn an_event_is_done_when_its_point_has_been_reached_and_can_be_recorded_again() {
    let device = open();
    let (main, side) = (device.default_stream(), device.new_stream());
    let event = main.record_event();
    assert!(event.query(), "nothing was enqueued before it");
    for i in 0..50 {
        let made = side.scope(|| tensor(&device, &[i]));
        event.record(&side).unwrap();
        event.synchronize().unwrap();
        assert!(event.query() && side.query());
        event.record(&main).unwrap();
        main.wait_event(&event).unwrap();
        assert_eq!(made.item::<u32>().unwrap(), i);
    }
    // As a future: the point is the one of the call.
    let made = side.scope(|| tensor(&device, &[7]));
    event.record(&side).unwrap();
    let done = event.synchronize_async();
    side.scope(|| tensor(&device, &[8]));
    event.record(&side).unwrap();
    pollster::block_on(done).unwrap();
    assert_eq!(made.item::<u32>().unwrap(), 7);
    pollster::block_on(Event::new().synchronize_async()).unwrap();
    let other = open();
    // A stream of another device may wait for it.
    other.default_stream().wait_event(&event).unwrap();
}

#[test]
fn waits_pass_on_through_streams_without_work() {
    let device = open();
    let (a, b, c) = (device.new_stream(), device.new_stream(), device.new_stream());
    for _ in 0..200 {
        let _made = a.scope(|| tensor(&device, &[1; 5000]));
        let end = a.record_event();
        b.wait_stream(&a).unwrap();
        // `b` has no work of its own; what waits for it waits for `a`.
        c.wait_stream(&b).unwrap();
        c.synchronize().unwrap();
        assert!(end.query());
    }
}

/// The queue stands still, and one thread has recorded all that may be: only that one waits.
/// On drivers that take a second for a shader, others would wait for it too.
#[test]
fn what_comes_before_a_new_kernel_is_handed_over_before_that_is_compiled() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let x = Tensor::ones(&device, &[64]).unwrap();
    device.synchronize().unwrap();
    let go_on = stop(&device);
    let (submissions, pipelines) = (device.stats().timeline.submissions, device.stats().queue.pipelines);
    x.fill_(2.0).unwrap();
    x.fill_(3.0).unwrap();
    x.exp().unwrap();
    x.fill_(4.0).unwrap();
    drop(go_on);
    device.synchronize().unwrap();
    assert_eq!(device.stats().queue.pipelines - pipelines, 1, "one of them is new");
    assert_eq!(device.stats().timeline.submissions - submissions, 2, "what comes before it, then it and the rest");
}

#[test]
fn who_floods_waits_and_nobody_else() {
    watched(60, || {
        let device = open();
        let (x, y) = (tensor(&device, &[1; 64]), tensor(&device, &[1; 64]));
        let (flood, side) = (device.new_stream(), device.new_stream());
        let go_on = crate::stop::stop(&device);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| flood.scope(|| (0..20_000).for_each(|_| x.fill_(2.0).unwrap())));
            while device.stats().timeline.commands < 16_000 {
                std::thread::yield_now();
            }
            // More than is left until the bound.
            side.scope(|| (0..1000).for_each(|_| y.fill_(3.0).unwrap()));
            assert!(!thread.is_finished());
            drop(go_on);
        });
        device.synchronize().unwrap();
    });
}

#[test]
fn a_stream_is_waited_for_while_another_floods() {
    watched(60, || {
        let device = open();
        let quiet = device.new_stream();
        let flood = device.clone();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let stream = flood.new_stream();
            let _guard = stream.enter();
            let mut uploads = 0;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                drop(tensor(&flood, &[uploads; 1000]));
                uploads += 1;
            }
            uploads
        });
        for i in 0..200 {
            let made = quiet.scope(|| tensor(&device, &[i]));
            quiet.synchronize().unwrap();
            assert!(quiet.query());
            assert_eq!(quiet.scope(|| made.item::<u32>()).unwrap(), i);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(thread.join().unwrap() > 0);
    });
}

#[test]
fn the_innermost_guard_alive_counts() {
    let device = open();
    let (a, b) = (device.new_stream(), device.new_stream());
    let first = a.enter();
    let second = b.enter();
    assert_eq!(device.current_stream(), b);
    drop(first);
    assert_eq!(device.current_stream(), b, "the outer guard went first");
    let third = a.enter();
    assert_eq!(device.current_stream(), a);
    drop(second);
    drop(third);
    assert_eq!(device.current_stream(), device.default_stream());
    a.scope(|| {
        assert_eq!(device.current_stream(), a);
        assert_eq!(open().current_stream().id(), 0, "another device is not concerned");
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(device.current_stream().id(), 0)).join().unwrap());
    });
}

/// Memory goes round between streams and threads while reads of its former contents are on their way.
#[test]
fn reused_memory_keeps_every_value_in_its_place() {
    watched(60, || {
        let device = open();
        let threads: Vec<_> = (0..4u32)
            .map(|t| {
                let device = device.clone();
                std::thread::spawn(move || {
                    let streams = [device.new_stream(), device.new_stream(), device.default_stream()];
                    let mut random = t + 1;
                    let mut pick = move |n: usize| {
                        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (random >> 16) as usize % n
                    };
                    let mut reads = std::collections::VecDeque::new();
                    for i in 0..1500u32 {
                        let (writer, reader, idle) = (pick(3), pick(3), pick(3));
                        let data = vec![t * 10_000 + i; 1 + pick(300)];
                        let made = streams[writer].scope(|| tensor(&device, &data));
                        reads.push_back((streams[reader].scope(|| made.to_vec_async::<u32>().unwrap()), data));
                        drop(made);
                        // Lent and given back without use: the next owner still comes after the uses before.
                        drop(streams[idle].scope(|| Tensor::empty(&device, &[1 + pick(300)], linn::DType::U32).unwrap()));
                        if reads.len() > pick(40) {
                            let (read, data) = reads.pop_front().unwrap();
                            assert_eq!(read.wait().unwrap(), data);
                        }
                    }
                    reads.into_iter().for_each(|(read, data)| assert_eq!(read.wait().unwrap(), data));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        check_books(&device);
        assert_eq!(device.memory_allocated(), 0);
        device.empty_cache().unwrap();
        assert_eq!(device.memory_reserved(), 0);
    });
}

#[test]
fn unpooled_memory_goes_back_at_once() {
    let mut options = DeviceOptions::default();
    options.caching = linn::memory::Caching::Unpooled;
    let device = Device::noop(options).unwrap();
    for i in 0..100 {
        let made = tensor(&device, &[i; 500]);
        assert_eq!(made.to_vec::<u32>().unwrap(), [i; 500]);
        drop(made);
        check_books(&device);
    }
    device.synchronize().unwrap();
    assert_eq!((device.memory_allocated(), device.memory_reserved()), (0, 0));
}

fn open_with_settings(settings: &str) -> linn::Result<Device> {
    let mut options = DeviceOptions::default();
    options.alloc_conf = Some(settings.into());
    Device::noop(options)
}

#[test]
fn settings_reach_the_pool() {
    let device = open_with_settings("policy:pytorch,large_segment_size_mb:32").unwrap();
    let made = Tensor::zeros(&device, &[3 << 17]).unwrap();
    assert_eq!(device.memory_reserved(), 32 * MIB, "1.5 MiB come from a segment of PyTorch's size");
    drop(made);
    check_books(&device);
    let error = open_with_settings("max_split_size_mb:2").unwrap_err().to_string();
    assert_eq!(
        error, "memory settings: max_split_size_mb is \"2\"\nhelp: allowed: a whole number of MiB from 20",
        "a setting that cannot be obeyed is no setting"
    );
    assert!(open_with_settings("per_process_memory_fraction:0.5").unwrap_err().to_string().contains("no limit"));
}

/// Runs itself again with the variable set.
#[test]
fn the_environment_is_read_first_and_code_wins() {
    if std::env::var_os("LINN_ALLOC_CONF").is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "device::the_environment_is_read_first_and_code_wins"])
            .env("LINN_ALLOC_CONF", "limit_mb:4,policy:pytorch")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let elements = |device: &Device, mib: u64| Tensor::zeros(device, &[(mib * MIB / 4) as usize]);
    assert!(elements(&open(), 4).is_err(), "1 MiB < 4 MiB, so it takes a segment of 20 MiB");
    assert!(elements(&open_with_settings("limit_mb:20").unwrap(), 4).is_ok());
    assert!(elements(&open_with_settings("policy:linn").unwrap(), 4).is_ok(), "the limit of the environment holds");
    assert!(elements(&open_with_settings("policy:linn").unwrap(), 5).is_err());
    assert!(elements(&open_with_limit(20 * MIB), 4).is_ok());
}
