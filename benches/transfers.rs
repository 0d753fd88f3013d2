//! What transfers cost: small and large uploads, small reads, beside the memory's own speed and bare wgpu; and how much of the
//! preparation of data a [`DataLoader`] hides behind the device.
//!
//! Contents are checked before anything is timed. `cargo bench --bench transfers -- small|large|read|busy|overlap` prints one
//! table.

use std::time::{Duration, Instant};

use linn::data::{DataLoader, DataLoaderOptions, HostTensor};
use linn::{Device, Tensor};

#[allow(dead_code)] // the benches that share it use parts of it
#[path = "support/bare.rs"]
mod bare;
use bare::Bare;

const MIB: usize = 1 << 20;
/// Elements of the operand of a small op.
const LEN: usize = 1024;

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn quantile(times: &mut [Duration], at: f64) -> Duration {
    times.sort();
    times[((times.len() - 1) as f64 * at).round() as usize]
}

/// Resident bytes of this process, where the system tells.
fn resident() -> Option<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    pages.split_whitespace().nth(1)?.parse::<usize>().ok().map(|pages| pages * 4096)
}

/// 1,000 uploads of 4 KiB with no compute between.
fn small(device: &Device) -> linn::Result<()> {
    const COUNT: usize = 1000;
    let contents: Vec<Vec<f32>> = (0..COUNT).map(|i| (0..LEN).map(|k| (i * 7 + k) as f32).collect()).collect();
    eprintln!("\n{COUNT} uploads of 4 KiB: ms to enqueue | us each | ms from the last call until visible | submissions | waits");
    for round in 0..6 {
        let (before, submissions) = (device.stats().queue, device.stats().timeline.submissions);
        let start = Instant::now();
        let tensors: Vec<Tensor> =
            contents.iter().map(|contents| Tensor::from_slice(device, &[LEN], contents)).collect::<Result<_, _>>()?;
        let enqueued = start.elapsed();
        let done = device.default_stream().record_event();
        let start = Instant::now();
        // No call that would hurry anything.
        while !done.query() {
            std::thread::sleep(Duration::from_micros(50));
        }
        let visible = start.elapsed();
        let (after, submissions) = (device.stats().queue, device.stats().timeline.submissions - submissions);
        let waits = after.host_syncs - before.host_syncs + after.back_pressure_waits - before.back_pressure_waits;
        for (tensor, contents) in tensors.iter().zip(&contents).filter(|_| round == 0) {
            assert_eq!(&tensor.to_vec::<f32>()?, contents);
        }
        if round > 0 {
            let each = enqueued.as_secs_f64() * 1e6 / COUNT as f64;
            eprintln!("{:.2} | {each:.2} | {:.2} | {submissions} | {waits}", ms(enqueued), ms(visible));
        }
    }
    Ok(())
}

/// 10,000 uploads of 1 MiB, beside the same bytes copied into mapped memory and left there.
fn large(device: &Device) -> linn::Result<()> {
    const COUNT: usize = 10_000;
    let sources: Vec<Vec<f32>> = (0..8).map(|s| (0..MIB / 4).map(|k| (s * 3 + k % 1000) as f32).collect()).collect();
    let check = |tensor: &Tensor, source: &[f32]| {
        assert!(tensor.to_vec::<f32>().is_ok_and(|elements| elements == source), "the contents of an upload");
    };
    for source in &sources {
        check(&Tensor::from_slice(device, &[source.len()], source)?, source);
    }
    let memcpy = memcpy(&sources, COUNT);
    eprintln!(
        "\n{COUNT} uploads of 1 MiB: GiB/s | of memcpy into mapped memory | MiB resident before, after | staging MiB | waits"
    );
    eprintln!("memcpy {memcpy:.2}");
    for (name, how) in [("from_slice", 0), ("copy_from_slice_", 1), ("pinned", 2)] {
        let target = Tensor::from_slice(device, &[MIB / 4], &sources[0])?;
        let mut pinned: Vec<_> = (0..8).map(|_| device.pinned_upload::<f32>(MIB / 4)).collect::<Result<_, _>>()?;
        let run = |count: usize, pinned: &mut [linn::stream::PinnedUpload<f32>]| -> linn::Result<Tensor> {
            let mut last = target.clone();
            for i in 0..count {
                let source = &sources[i % sources.len()];
                match how {
                    0 => last = Tensor::from_slice(device, &[source.len()], source)?,
                    1 => target.copy_from_slice_(source)?,
                    _ => {
                        let pinned = &mut pinned[i % 8];
                        pinned.copy_from_slice(source)?;
                        target.copy_from_pinned_(pinned)?;
                    }
                }
            }
            device.synchronize()?;
            Ok(last)
        };
        check(&run(2000, &mut pinned)?, &sources[1999 % sources.len()]);
        let (before, waits) = (resident(), device.stats().queue);
        let start = Instant::now();
        let last = run(COUNT, &mut pinned)?;
        let speed = COUNT as f64 / 1024.0 / start.elapsed().as_secs_f64();
        let (after, stats) = (resident(), device.stats());
        check(&last, &sources[(COUNT - 1) % sources.len()]);
        let waited = stats.queue.host_syncs - waits.host_syncs + stats.queue.back_pressure_waits - waits.back_pressure_waits;
        let mib = |bytes: Option<usize>| bytes.map_or(0, |bytes| bytes / MIB);
        eprintln!(
            "{name} {speed:.2} | {:.2} | {}, {} | {} | {waited}",
            speed / memcpy,
            mib(before),
            mib(after),
            (stats.staging_upload_bytes + stats.pinned.reserved_bytes.current) / MIB as u64,
        );
    }
    Ok(())
}

/// GiB/s of copies into 64 mapped buffers of 1 MiB in turn: the memory that uploads are staged in.
fn memcpy(sources: &[Vec<f32>], count: usize) -> f64 {
    let bare = Bare::new(LEN);
    let descriptor = wgpu::BufferDescriptor {
        label: None,
        size: MIB as u64,
        usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: true,
    };
    let buffers: Vec<wgpu::Buffer> = (0..64).map(|_| bare.device.create_buffer(&descriptor)).collect();
    let mut views: Vec<_> = buffers.iter().map(|buffer| buffer.get_mapped_range_mut(..).expect("mapped")).collect();
    let mut copy = |count: usize| {
        let start = Instant::now();
        for i in 0..count {
            views[i % 64].copy_from_slice(bytemuck::cast_slice(&sources[i % sources.len()]));
        }
        start.elapsed()
    };
    copy(64);
    count as f64 / 1024.0 / copy(count).as_secs_f64()
}

/// Four bytes after one small op, beside the same on bare wgpu: one submission, a map, a wait.
fn read(device: &Device) -> linn::Result<()> {
    let bare = Bare::new(LEN);
    let x = Tensor::from_slice(device, &[LEN], &[41.0f32; LEN])?;
    let linn_read = || -> linn::Result<f32> { linn::ops::unary::add_scalar(&x, 1.0)?.narrow(0, 0, 1)?.item::<f32>() };
    let mut clear = bare.device.create_command_encoder(&Default::default());
    clear.clear_buffer(&bare.buffers[0], 0, None);
    bare.queue.submit([clear.finish()]);
    let bare_read = || -> f32 {
        let mut encoder = bare.device.create_command_encoder(&Default::default());
        bare.dispatch(&mut encoder.begin_compute_pass(&Default::default()), 0, LEN);
        encoder.copy_buffer_to_buffer(&bare.buffers[1], 0, &bare.read, 0, 4);
        bare.queue.submit([encoder.finish()]);
        bare.read.map_async(wgpu::MapMode::Read, ..4, |result| result.expect("mapped"));
        bare.wait();
        let value = f32::from_le_bytes(bare.read.get_mapped_range(..4).expect("mapped")[..4].try_into().expect("4 bytes"));
        bare.read.unmap();
        value
    };
    assert_eq!((linn_read()?, bare_read()), (42.0, 1.0));
    let timed = |call: &dyn Fn()| {
        let start = Instant::now();
        call();
        start.elapsed()
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let submissions = device.stats().timeline.submissions;
    for _ in 0..2000 {
        ours.push(timed(&|| drop(linn_read())));
        theirs.push(timed(&|| {
            bare_read();
        }));
    }
    let each = (device.stats().timeline.submissions - submissions) as f64 / 2000.0;
    eprintln!("\n4 bytes after one small op ({each:.2} submissions a read), us: median | p90 | x bare");
    let base = quantile(&mut theirs, 0.5).as_secs_f64();
    for (name, times) in [("linn", &mut ours), ("bare", &mut theirs)] {
        let [median, p90] = [0.5, 0.9].map(|at| quantile(times, at).as_secs_f64() * 1e6);
        eprintln!("{name} {median:.1} | {p90:.1} | {:.2}", median / 1e6 / base);
    }
    Ok(())
}

/// Four bytes on an idle stream while another one has about a second of work queued.
fn busy(device: &Device) -> linn::Result<()> {
    let x = Tensor::from_slice(device, &[512, 512], &vec![0.001f32; 512 * 512])?;
    let product = |count: usize| -> linn::Result<()> {
        let mut y = x.clone();
        for _ in 0..count {
            y = y.matmul(&x)?;
        }
        device.default_stream().flush();
        Ok(())
    };
    product(4)?;
    device.synchronize()?;
    let start = Instant::now();
    product(20)?;
    device.synchronize()?;
    let one = start.elapsed() / 20;
    let count = (1.0 / one.as_secs_f64()).ceil() as usize;
    let idle = device.new_stream();
    let small = idle.scope(|| Tensor::from_slice(device, &[1], &[42.0f32]))?;
    assert_eq!(idle.scope(|| small.item::<f32>())?, 42.0);
    let mut times = Vec::new();
    for _ in 0..3 {
        product(count)?;
        let queued = device.default_stream().record_event();
        while !queued.query() {
            let start = Instant::now();
            assert_eq!(idle.scope(|| small.item::<f32>())?, 42.0);
            times.push(start.elapsed());
        }
    }
    let reads = times.len();
    let [median, p99, most] = [0.5, 0.99, 1.0].map(|at| ms(quantile(&mut times, at)));
    eprintln!("\n4 bytes on an idle stream beside {count} products of 512 x 512 ({:.1} ms each) on another: ms", ms(one));
    eprintln!("median {median:.1} | p99 {p99:.1} | most {most:.1} ({reads} reads)");
    Ok(())
}

/// How much of the preparation a loader hides: (preparation + device time - wall time) / preparation.
fn overlap(device: &Device) -> linn::Result<()> {
    const ITEMS: u64 = 200;
    let w = Tensor::from_slice(device, &[256, 256], &vec![0.01f32; 256 * 256])?;
    let work = |x: &Tensor| -> linn::Result<Tensor> {
        let mut y = x.clone();
        for _ in 0..2 {
            y = y.matmul(&w)?;
        }
        y.sum_all()
    };
    // The preparation as computation, and as waiting for a disk or a network.
    let numbers = |i: u64| (0..256 * 256).map(|k| ((i + k) % 16) as f32).collect::<Vec<f32>>();
    let computed = move |i: u64| {
        let start = Instant::now();
        let mut values = numbers(i);
        while start.elapsed() < Duration::from_millis(4) {
            values = std::hint::black_box(numbers(i));
        }
        HostTensor::new(&[256, 256], values).map(|x| vec![x])
    };
    let waited = move |i: u64| {
        std::thread::sleep(Duration::from_millis(4));
        HostTensor::new(&[256, 256], numbers(i)).map(|x| vec![x])
    };
    let run = |workers: usize, waits: bool| -> linn::Result<(Duration, Vec<f32>)> {
        let mut options = DataLoaderOptions::default();
        options.num_workers = workers;
        let produce = move |i| if waits { waited(i) } else { computed(i) };
        let start = Instant::now();
        let loader = DataLoader::new(device, 0..ITEMS, options, produce)?;
        // Each result is looked at, as a training loop looks at its loss: the host does not run ahead.
        let sums = loader.map(|item| work(&item?[0])?.item::<f32>()).collect::<Result<_, _>>()?;
        Ok((start.elapsed(), sums))
    };
    // The device alone, on data that is there.
    let inputs: Vec<Tensor> =
        (0..ITEMS).map(|i| Tensor::from_slice(device, &[256, 256], &numbers(i))).collect::<Result<_, _>>()?;
    let alone = || -> linn::Result<(Duration, Vec<f32>)> {
        device.synchronize()?;
        let start = Instant::now();
        let sums = inputs.iter().map(|x| work(x)?.item::<f32>()).collect::<Result<_, _>>()?;
        Ok((start.elapsed(), sums))
    };
    let expected = alone()?.1;
    eprintln!("\n{ITEMS} items: preparation ms | device alone ms | wall ms without workers | with one | preparation hidden");
    for (name, waits) in [("computed", false), ("waited", true)] {
        assert_eq!(run(1, waits)?.1, expected, "the sums of prefetched items");
        let device_time = alone()?.0;
        let start = Instant::now();
        (0..ITEMS).for_each(|i| drop(if waits { waited(i) } else { computed(i) }));
        let preparation = start.elapsed();
        let ((inline, _), (wall, _)) = (run(0, waits)?, run(1, waits)?);
        let hidden = (preparation + device_time).as_secs_f64() - wall.as_secs_f64();
        eprintln!(
            "{name} {:.0} | {:.0} | {:.0} | {:.0} | {:.2}",
            ms(preparation),
            ms(device_time),
            ms(inline),
            ms(wall),
            hidden / preparation.as_secs_f64()
        );
    }
    Ok(())
}

type Table = fn(&Device) -> linn::Result<()>;

fn main() -> linn::Result<()> {
    let device = Device::open()?;
    eprintln!("{}", device.info());
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let tables: [(&str, Table); 5] = [("small", small), ("large", large), ("read", read), ("busy", busy), ("overlap", overlap)];
    for (name, table) in tables {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            table(&device)?;
        }
    }
    Ok(())
}
