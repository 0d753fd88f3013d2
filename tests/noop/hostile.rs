//! A program that keeps no rule: several threads do whatever the API lets them, on two devices, in any order. Wakers that panic, poll
//! or drop handles, closures that panic or call back, things that are forgotten, a driver that refuses. Nothing hangs, nothing panics,
//! every error is a value, and when all is dropped no memory is left.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use linn::data::{DataLoader, DataLoaderOptions, HostTensor};
use linn::device::SyncDebug;
use linn::memory::MemPoolOptions;
use linn::stream::{PinnedDownload, PinnedUpload, StreamGuard};
use linn::{Device, DeviceOptions, Event, MemPool, Result, Stream, Tensor};

use crate::chance::Random;
use crate::watch::watched;

type Task = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A waker that does what wakers should not.
struct Odd {
    kind: usize,
    holds: Mutex<Vec<(Device, Tensor, Event)>>,
    task: Mutex<Option<Task>>,
}

impl Wake for Odd {
    fn wake(self: Arc<Self>) {
        match self.kind {
            0 => panic!("a waker that panics, on purpose"),
            1 => self.holds.lock().unwrap().clear(),
            2 => {
                let Ok(mut task) = self.task.try_lock() else { return };
                let ends = |future: &mut Task| future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
                if task.as_mut().is_some_and(ends) {
                    *task = None;
                }
            }
            _ => {
                for (device, x, event) in self.holds.lock().unwrap().drain(..) {
                    // Refused or done; it does not hang.
                    let _ = (device.synchronize(), x.to_vec::<f32>(), event.synchronize(), x.add_scalar(1.0));
                    let _ = device.empty_cache();
                }
            }
        }
    }
}

/// What a thread has.
#[derive(Default)]
struct Things {
    streams: Vec<Stream>,
    tensors: Vec<Tensor>,
    events: Vec<Event>,
    tasks: Vec<Task>,
    uploads: Vec<PinnedUpload<f32>>,
    downloads: Vec<PinnedDownload<f32>>,
    pools: Vec<MemPool>,
}

fn pick<'a, T>(r: &mut Random, things: &'a [T]) -> Option<&'a T> {
    (!things.is_empty()).then(|| &things[r.below(things.len() as u64)])
}

fn take<T>(r: &mut Random, things: &mut Vec<T>) -> Option<T> {
    (!things.is_empty()).then(|| things.swap_remove(r.below(things.len() as u64)))
}

/// Makes a future and does something odd with it.
fn future(r: &mut Random, device: &Device, things: &mut Things) -> Option<()> {
    let stream = pick(r, &things.streams)?.clone();
    let mut task: Task = match r.below(6) {
        0 => Box::pin(device.synchronize_async()),
        1 => Box::pin(stream.synchronize_async()),
        2 => Box::pin(pick(r, &things.events)?.synchronize_async()),
        3 => {
            let read = pick(r, &things.tensors)?.to_vec_async::<f32>().ok()?;
            Box::pin(async { read.await.map(drop) })
        }
        4 => Box::pin(pick(r, &things.uploads)?.synchronize_async()),
        _ => {
            let export = pick(r, &things.tensors)?.export_async();
            Box::pin(async { export.await.map(|export| export.submitted()) })
        }
    };
    let held = (device.clone(), pick(r, &things.tensors)?.clone(), stream.record_event());
    let odd = Arc::new(Odd { kind: r.below(5), holds: Mutex::new(vec![held]), task: Mutex::default() });
    if task.as_mut().poll(&mut Context::from_waker(&odd.clone().into())).is_ready() {
        return Some(());
    }
    match r.below(4) {
        0 => drop(task),
        1 if odd.kind == 2 => *odd.task.lock().unwrap() = Some(task),
        2 => _ = pollster::block_on(task),
        _ => things.tasks.push(task),
    }
    Some(())
}

fn encoder(r: &mut Random, device: &Device, things: &Things) -> Option<()> {
    let (stream, x, y) = (pick(r, &things.streams)?, pick(r, &things.tensors)?, pick(r, &things.tensors)?);
    let (kind, device, held, inner) = (r.below(6), device.clone(), x.clone(), stream.clone());
    let _ = stream.with_encoder(&[x], &[y], move |encoder, windows| match kind {
        0 => panic!("a closure that panics, on purpose"),
        1 => {
            // Calls back; what would wait is refused.
            let _guard = inner.enter();
            let _ = (held.add_scalar(1.0), held.to_vec::<f32>(), device.synchronize(), device.compact(1 << 20));
            let _ = inner.with_encoder(&[&held], &[], |_, _| {});
        }
        2 => encoder.clear_buffer(&windows[1].buffer, windows[1].offset, Some(windows[1].size)),
        // Refused by wgpu.
        3 => encoder.clear_buffer(&windows[1].buffer, windows[1].offset + 1, Some(3)),
        4 => drop((device, held, inner)),
        _ => {}
    });
    Some(())
}

fn loader(r: &mut Random, device: &Device) {
    let mut options = DataLoaderOptions::default();
    (options.num_workers, options.prefetch_factor) = (r.below(3), 1 + r.below(2));
    let bad = r.below(6) as u64;
    let held = device.clone();
    let produce = move |i: u64| {
        if i == bad {
            panic!("a producer that panics, on purpose");
        }
        // A worker may use the device itself.
        let _ = Tensor::ones(&held, &[4])?.add_scalar(1.0)?;
        Ok::<_, linn::Error>(vec![HostTensor::new(&[3], vec![i as f32; 3])?])
    };
    if let Ok(mut loader) = DataLoader::new(device, 0..5, options, produce) {
        for _ in 0..r.below(7) {
            let _ = loader.next();
        }
    }
}

fn step(r: &mut Random, devices: &[Device], things: &mut Things, guards: &mut Vec<StreamGuard>) -> Option<()> {
    let device = &devices[r.below(devices.len() as u64)];
    match r.below(32) {
        0 => things.streams.push(device.new_stream_with_priority(-(r.below(4) as i32))),
        1 => drop(take(r, &mut things.streams)),
        2 => guards.push(pick(r, &things.streams)?.enter()),
        3 | 4 => drop(take(r, guards)),
        5..8 => things.tensors.extend(Tensor::from_slice(device, &[16], &[1.0f32; 16])),
        8..10 => drop(take(r, &mut things.tensors)),
        10..13 => {
            // Of two devices: refused.
            let (x, y) = (pick(r, &things.tensors)?, pick(r, &things.tensors)?);
            let result = x.add(y);
            let _ = x.narrow(0, 3, 5).ok()?.add_(&y.narrow(0, 1, 5).ok()?, 1.0);
            things.tensors.extend(result);
        }
        13 => things.events.push(if r.below(2) == 0 { Event::new() } else { Event::with_timing() }),
        14 => _ = pick(r, &things.events)?.record(pick(r, &things.streams)?),
        15 => _ = pick(r, &things.streams)?.wait_event(pick(r, &things.events)?),
        16 => _ = pick(r, &things.streams)?.wait_stream(pick(r, &things.streams)?),
        17 => _ = pick(r, &things.events)?.elapsed_time(pick(r, &things.events)?),
        18 => drop(take(r, &mut things.events)),
        19 | 20 => future(r, device, things)?,
        21 => {
            if let Some(task) = take(r, &mut things.tasks) {
                match r.below(3) {
                    0 => drop(task),
                    1 => _ = pollster::block_on(task),
                    _ => _ = std::thread::spawn(move || pollster::block_on(task)).join(),
                }
            }
        }
        22 => match r.below(3) {
            0 => things.uploads.extend(device.pin_memory(&[2.0f32; 16])),
            1 => things.downloads.extend(device.pinned_download::<f32>(16)),
            _ => drop((take(r, &mut things.uploads), take(r, &mut things.downloads))),
        },
        23 => {
            let mut up = take(r, &mut things.uploads)?;
            let _ = pick(r, &things.tensors)?.copy_from_pinned_(&up);
            let _ = (r.below(2) == 0).then(|| up.write(3, &[1.0; 4]));
            things.uploads.extend((r.below(2) == 0).then_some(up));
        }
        24 => {
            let mut down = take(r, &mut things.downloads)?;
            match pick(r, &things.tensors)?.copy_to_pinned(&mut down) {
                Ok(read) if r.below(3) == 0 => _ = read.wait(),
                other => drop(other),
            }
            things.downloads.extend((r.below(2) == 0).then_some(down));
        }
        25 | 26 => encoder(r, device, things)?,
        27 => {
            let export = pick(r, &things.tensors)?.export_mut().ok()?;
            match r.below(2) {
                0 => export.submitted(),
                _ => drop(export),
            }
        }
        28 => match r.below(4) {
            0 => things.pools.push(MemPool::new(device, MemPoolOptions::default())),
            1 => drop(take(r, &mut things.pools)),
            2 => things.tensors.extend(pick(r, &things.pools)?.scope(|| Tensor::ones(device, &[100]))),
            _ => drop((device.empty_cache(), device.compact(1 << 20))),
        },
        29 => match r.below(4) {
            0 => device.set_sync_debug([SyncDebug::Off, SyncDebug::Warn, SyncDebug::Error][r.below(3)]),
            1 => device.record_order_edges([None, Some(3)][r.below(2)]),
            2 => drop((device.order_edges().to_dot(), device.host_waits(), device.memory_stats())),
            _ => device.refuse_driver_calls(r.below(3) as u64, r.below(2) as u64),
        },
        30 if r.below(8) == 0 => loader(r, device),
        30 => _ = pick(r, &things.streams)?.synchronize_timeout(Duration::from_micros(r.below(300) as u64)),
        _ => {
            // A panic inside scopes, and what is current afterwards.
            let (stream, before) = (pick(r, &things.streams)?, device.current_stream());
            let work = || stream.scope(|| before.scope(|| panic!("a scope that panics, on purpose")));
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            assert!(device.current_stream() == before);
        }
    }
    Some(())
}

#[test]
fn whatever_threads_do_nothing_hangs_and_no_memory_is_left() {
    // What panics here does so on purpose, thousands of times; anything else is shown.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let words = info.payload_as_str().unwrap_or_default();
        if !words.ends_with("on purpose") {
            hook(info);
        }
    }));
    let rounds = std::env::var("LINN_HOSTILE").ok().map_or(12, |text| text.parse().expect("a number"));
    for round in 0..rounds {
        watched(120, move || {
            let devices = [(), ()].map(|()| Device::noop(DeviceOptions::default()).unwrap());
            let threads: Vec<_> = (0..3u64)
                .map(|thread| {
                    let devices = devices.clone();
                    std::thread::spawn(move || {
                        let r = &mut Random::new(1 + round * 3 + thread);
                        let (mut things, mut guards) = (Things::default(), Vec::new());
                        things.streams.extend(devices.iter().map(Device::new_stream));
                        for _ in 0..600 {
                            let _ = step(r, &devices, &mut things, &mut guards);
                        }
                        // Some end while guards are alive, in any order.
                        drop((things, guards));
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            for device in &devices {
                device.refuse_driver_calls(0, 0);
                // The first may tell of what was refused.
                let _ = device.synchronize();
                let lost = device.synchronize().err();
                assert!(lost.is_none(), "round {round}: {}", lost.unwrap());
                device.validate_memory().unwrap();
                // Wakers and closures drop what they hold on the device's thread, perhaps a moment later; a leak never ends.
                while device.memory_allocated() > 0 || device.pinned_memory_stats().held.current > 0 {
                    std::thread::yield_now();
                }
                let x = Tensor::from_slice(device, &[2], &[1.0f32, 2.0]).unwrap();
                device.set_sync_debug(SyncDebug::Off);
                assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
            }
        });
    }
}
