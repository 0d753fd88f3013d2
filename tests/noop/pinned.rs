//! Pinned memory without a driver: copies are real, so contents are compared.

use linn::device::{SyncDebug, WaitKind};
use linn::stream::{PinnedDownload, PinnedUpload};
use linn::{DType, Device, DeviceOptions, Error, Tensor};

const MIB: u64 = 1 << 20;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| i as f32 * 0.5 - 3.0).collect()
}

#[test]
fn every_size_makes_the_round_trip_and_wastes_little() {
    let device = open();
    let mut held = Vec::new();
    for len in [0, 1, 2, 3, 4, 5, 63, 64, 65, 1000, 1023, 1025, 8193, 100_003, 1 << 20] {
        let before = device.pinned_memory_stats().held_bytes.current;
        let up = device.pin_memory(&numbers(len)).unwrap();
        let bought = device.pinned_memory_stats().held_bytes.current - before;
        assert!(bought as f64 <= (up.size() as f64 * 1.08).max(up.size() as f64 + 16.0), "{bought} bytes for {}", up.size());
        let x = Tensor::from_pinned(&[len], &up).unwrap();
        let mut down = device.pinned_download::<f32>(len).unwrap();
        let bought = device.pinned_memory_stats().held_bytes.current - before - bought;
        // The status words come along with what is read.
        assert!(bought as f64 <= down.size() as f64 * 1.08 + 64.0, "{bought} bytes for {}", down.size());
        assert_eq!(x.copy_to_pinned(&mut down).unwrap().wait().unwrap(), numbers(len), "{len}");
        assert_eq!(pollster::block_on(x.copy_to_pinned(&mut down).unwrap()).unwrap(), numbers(len), "{len}");
        assert_eq!((up.len(), up.is_empty(), down.len()), (len, len == 0, len));
        held.push((up, down));
    }
}

#[test]
fn parts_are_written_wherever_they_begin() {
    let device = open();
    let mut pinned = device.pinned_upload::<i32>(11).unwrap();
    pinned.fill_with(|i| i as i32).unwrap();
    pinned.write(3, &[-1, -2]).unwrap();
    pinned.write(10, &[-3]).unwrap();
    pinned.write(11, &[]).unwrap();
    assert!(matches!(pinned.write(10, &[1, 2]), Err(Error::Argument { .. })));
    assert!(matches!(pinned.write(usize::MAX, &[1, 2]), Err(Error::Argument { .. })));
    assert!(matches!(pinned.copy_from_slice(&[1]), Err(Error::Shape { .. })));
    let expected = [0, 1, 2, -1, -2, 5, 6, 7, 8, 9, -3];
    assert_eq!(Tensor::from_pinned(&[11], &pinned).unwrap().to_vec::<i32>().unwrap(), expected);
    // Into a part of a tensor and from one.
    let x = Tensor::from_slice(&device, &[3, 11], &[7i32; 33]).unwrap();
    x.narrow(0, 1, 1).unwrap().copy_from_pinned_(&pinned).unwrap();
    let mut down = device.pinned_download::<i32>(22).unwrap();
    let read = x.narrow(0, 0, 2).unwrap().copy_to_pinned(&mut down).unwrap();
    assert_eq!(read.wait().unwrap(), [&[7; 11][..], &expected].concat());
    // A fill of more than one block, and what was written stays when more is written.
    let mut large = device.pinned_upload::<f32>(5000).unwrap();
    large.fill_with(|i| i as f32).unwrap();
    let first = Tensor::from_pinned(&[5000], &large).unwrap();
    large.write(4999, &[-1.0]).unwrap();
    let second = Tensor::from_pinned(&[5000], &large).unwrap();
    let mut expected: Vec<f32> = (0..5000).map(|i| i as f32).collect();
    assert_eq!(first.to_vec::<f32>().unwrap(), expected);
    expected[4999] = -1.0;
    assert_eq!(second.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let (device, other) = (open(), open());
    let pinned = device.pin_memory(&[1.0f32; 6]).unwrap();
    let mut down = device.pinned_download::<f32>(6).unwrap();
    let explained = |error: linn::Result<()>, word: &str| {
        let text = error.unwrap_err().to_string();
        assert!(text.contains(word) && text.matches("\nhelp: ").count() == 1, "{text}");
    };
    let x = Tensor::empty(&device, &[2, 3], DType::F32).unwrap();
    x.copy_from_pinned_(&pinned).unwrap();
    explained(x.transpose(0, 1).unwrap().copy_from_pinned_(&pinned), "contiguous");
    explained(x.narrow(0, 0, 1).unwrap().copy_from_pinned_(&pinned), "6 elements");
    explained(x.transpose(0, 1).unwrap().copy_to_pinned(&mut down).map(drop), "contiguous");
    explained(Tensor::empty(&device, &[6], DType::I32).unwrap().copy_from_pinned_(&pinned), "takes f32");
    explained(Tensor::empty(&other, &[6], DType::F32).unwrap().copy_from_pinned_(&pinned), "two devices");
    explained(Tensor::empty(&other, &[6], DType::F32).unwrap().copy_to_pinned(&mut down).map(drop), "two devices");
    explained(device.pinned_upload::<f32>(usize::MAX).map(drop), "max_buffer_size");
    explained(device.pinned_download::<f32>(usize::MAX / 8).map(drop), "max_buffer_size");
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0; 6]);
}

#[test]
fn dropped_buffers_serve_the_next_and_empty_cache_gives_them_back() {
    let device = open();
    let make = |len: usize| (device.pinned_upload::<f32>(len).unwrap(), device.pinned_download::<f32>(len).unwrap());
    let first = make(1 << 18);
    let held = device.pinned_memory_stats();
    assert_eq!((held.held.current, held.held_bytes.current, held.cached_bytes), (2, held.reserved_bytes.current, 0));
    assert!((2 * MIB..2 * MIB + MIB / 5).contains(&held.held_bytes.current), "{held:?}");
    drop(first);
    for _ in 0..100 {
        let (mut up, mut down) = make(1 << 18);
        up.write(0, &[4.0]).unwrap();
        let x = Tensor::from_pinned(&[1 << 18], &up).unwrap();
        assert_eq!(x.copy_to_pinned(&mut down).unwrap().wait().unwrap()[0], 4.0);
        up.synchronize().unwrap();
    }
    let cached = device.pinned_memory_stats();
    assert_eq!((cached.held.current, cached.held.allocated, cached.num_host_alloc), (0, 202, 2));
    assert_eq!((cached.cached_bytes, cached.reserved_bytes.peak), (held.held_bytes.current, held.reserved_bytes.current));
    // An account of its own: neither device memory nor transient staging.
    let stats = device.stats();
    assert_eq!(stats.pinned, cached);
    assert!(stats.staging_upload_bytes == 0 && stats.staging_download_bytes == 0, "{stats:?}");
    assert!(device.memory_summary(true).contains("\npinned "), "{}", device.memory_summary(true));
    let keep = device.pinned_upload::<f32>(1 << 18).unwrap();
    device.empty_cache().unwrap();
    let empty = device.pinned_memory_stats();
    assert_eq!((empty.cached_bytes, empty.reserved_bytes.current), (0, empty.held_bytes.current));
    assert_eq!((empty.num_host_alloc, empty.num_host_free), (2, 1));
    drop(keep);
    device.reset_peak_memory_stats();
    device.empty_cache().unwrap();
    let none = device.pinned_memory_stats();
    assert_eq!((none.reserved_bytes.current, none.reserved_bytes.peak, none.num_host_free), (0, MIB, 2));
    assert!(!device.memory_summary(true).contains("\npinned "));
}

#[test]
fn transient_staging_goes_back_too() {
    let device = open();
    let data = vec![1.0f32; 20 << 20];
    let x = Tensor::from_slice(&device, &[data.len()], &data).unwrap();
    assert!(x.to_vec::<f32>().unwrap() == data);
    let stats = device.stats();
    assert!(stats.staging_upload_bytes <= 64 * MIB, "{stats:?}");
    // The host has read them, and so much is not kept for the next.
    assert_eq!(stats.staging_download_bytes, 0);
    device.empty_cache().unwrap();
    let stats = device.stats();
    assert_eq!((stats.staging_upload_bytes, stats.staging_download_bytes), (0, 0));
    assert!(x.narrow(0, 5, 1000).unwrap().to_vec::<f32>().unwrap() == data[..1000]);
}

#[test]
fn buffers_futures_and_reads_are_dropped_and_forgotten_at_any_time() {
    let device = open();
    let x = Tensor::from_slice(&device, &[1000], &numbers(1000)).unwrap();
    let mut down = device.pinned_download::<f32>(1000).unwrap();
    for round in 0..300 {
        let up = device.pin_memory(&vec![round as f32; 1000]).unwrap();
        let y = Tensor::from_pinned(&[1000], &up).unwrap();
        match round % 4 {
            0 => drop(up.synchronize_async()),
            1 => drop(x.copy_to_pinned(&mut down).unwrap()),
            2 => assert_eq!(x.copy_to_pinned(&mut down).unwrap().wait().unwrap(), numbers(1000)),
            _ => pollster::block_on(up.synchronize_async()).unwrap(),
        }
        drop(up);
        let mut late = device.pinned_download::<f32>(1000).unwrap();
        let mut read = y.copy_to_pinned(&mut late).unwrap();
        if round % 2 == 0 {
            let elements = loop {
                match read.try_take().unwrap() {
                    Some(elements) => break elements,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(elements, [round as f32; 1000]);
        } else {
            drop((read, y));
            drop(late);
        }
    }
    device.synchronize().unwrap();
    assert_eq!(x.copy_to_pinned(&mut down).unwrap().wait().unwrap(), numbers(1000));
    let stats = device.pinned_memory_stats();
    assert!(stats.held.current == 1 && stats.num_host_alloc < 100, "{stats:?}");
    assert_eq!(device.memory_allocated(), 4096);
}

#[test]
fn uploads_do_not_wait_while_there_is_room() {
    let device = open();
    device.set_sync_debug(SyncDebug::Error);
    let mut kept = Vec::new();
    for i in 0..1000 {
        kept.push(Tensor::from_slice(&device, &[1024], &[i as f32; 1024]).unwrap());
    }
    let pinned: Vec<PinnedUpload<f32>> = (0..100).map(|i| device.pin_memory(&[i as f32; 5000]).unwrap()).collect();
    kept.extend(pinned.iter().map(|pinned| Tensor::from_pinned(&[5000], pinned).unwrap()));
    let mut down: Vec<PinnedDownload<f32>> = (0..100).map(|_| device.pinned_download(5000).unwrap()).collect();
    let reads: Vec<_> = kept[1000..].iter().zip(&mut down).map(|(x, down)| x.copy_to_pinned(down).unwrap()).collect();
    let queue = device.stats().queue;
    assert_eq!((queue.host_syncs, queue.back_pressure_waits), (0, 0));
    assert!(device.host_waits().is_empty());
    for (i, read) in reads.into_iter().enumerate() {
        assert_eq!(read.wait().unwrap(), [i as f32; 5000]);
    }
    assert!(device.host_waits().iter().all(|wait| wait.kind == WaitKind::Read));
}

#[test]
fn a_buffer_that_cannot_be_mapped_any_more_is_replaced() {
    let device = open();
    let mut up = device.pin_memory(&[1.0f32; 100]).unwrap();
    let mut down = device.pinned_download::<f32>(100).unwrap();
    let x = Tensor::from_pinned(&[100], &up).unwrap();
    up.synchronize().unwrap();
    for round in 0..20 {
        // Commands, submission, mapping: one of them is refused.
        device.refuse_driver_calls(round % 4, 1);
        let _ = x.copy_from_pinned_(&up);
        let _ = up.synchronize();
        let _ = device.synchronize();
        device.refuse_driver_calls(round % 4, 1);
        let _ = x.copy_to_pinned(&mut down).and_then(|read| read.wait().map(drop));
        device.refuse_driver_calls(0, 0);
        let _ = device.synchronize();
        let values = vec![round as f32; 100];
        up.copy_from_slice(&values).unwrap();
        x.copy_from_pinned_(&up).unwrap();
        assert_eq!(x.copy_to_pinned(&mut down).unwrap().wait().unwrap(), values, "round {round}");
    }
    let stats = device.pinned_memory_stats();
    assert_eq!(stats.held.current, 2);
    assert!(stats.num_host_free > 0, "no mapping was refused: {stats:?}");
}
