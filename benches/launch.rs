//! What one tiny operation costs: 10,000 x (x + 1) on 1,024 elements, chained and with every result kept.
//!
//! Measured: CPU time of the enqueueing thread per operation, everything included that happens on it; back-pressure waits
//! (apart); wall time until the last result is there, beside the same dispatches on bare wgpu. Results are checked first.

use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use linn::kernel::params::Contiguous;
use linn::kernel::source::compose;
use linn::kernel::{CONTIGUOUS, Kernel, ParamPath, Sharing};
use linn::{DType, Device, Tensor};

const OPS: usize = 10_000;
const LEN: usize = 1_024;

/// One run of all operations.
#[derive(Clone, Copy)]
struct Run {
    cpu: Duration,
    wall: Duration,
    back_pressure: Duration,
}

fn linn_run(device: &Device, keep: bool) -> linn::Result<Run> {
    let mut x = Tensor::from_slice(device, &[LEN], &[0.0f32; LEN])?;
    x.to_vec::<f32>()?;
    let mut kept = Vec::with_capacity(OPS);
    let before = device.stats().queue.back_pressure_nanos;
    let (cpu, wall) = (ThreadTime::now(), Instant::now());
    for _ in 0..OPS {
        let next = linn::ops::unary::add_scalar(&x, 1.0)?;
        if keep {
            kept.push(std::mem::replace(&mut x, next));
        } else {
            x = next;
        }
    }
    let cpu = cpu.elapsed();
    device.synchronize()?;
    let wall = wall.elapsed();
    let back_pressure = Duration::from_nanos(device.stats().queue.back_pressure_nanos - before);
    assert_eq!(x.to_vec::<f32>()?, vec![OPS as f32; LEN], "the last result");
    if let Some(middle) = kept.get(OPS / 2) {
        assert_eq!(middle.to_vec::<f32>()?, vec![(OPS / 2) as f32; LEN], "a kept result");
    }
    Ok(Run { cpu, wall, back_pressure })
}

/// The same dispatches on bare wgpu, the way a careful user writes them: the same shader, one pipeline, cached bind groups, one pass and one
/// submission per 256 dispatches, ping-pong between two buffers.
struct Bare {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    groups: [wgpu::BindGroup; 2],
    buffers: [wgpu::Buffer; 2],
    read: wgpu::Buffer,
}

impl Bare {
    fn new() -> Bare {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: if std::env::var("LINN_BACKEND").is_ok_and(|name| name == "gl") {
                wgpu::Backends::GL
            } else {
                wgpu::Backends::PRIMARY
            },
            flags: wgpu::InstanceFlags::empty(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapter = pollster::block_on(instance.request_adapter(&Default::default())).expect("an adapter");
        let descriptor = wgpu::DeviceDescriptor {
            required_features: wgpu::Features::IMMEDIATES,
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).expect("a device");
        // The very shader that linn runs.
        let kernel = Kernel::add_scalar.form(CONTIGUOUS);
        let source = compose(kernel, DType::F32, &Sharing::distinct(2), ParamPath::Immediates).expect("a shader");
        let module = device
            .create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source: wgpu::ShaderSource::Wgsl(source.into()) });
        let entry = |binding| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: false },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let operands =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &[entry(0), entry(1)] });
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&operands)],
            immediate_size: size_of::<Contiguous>() as u32,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 4 * LEN as u64, usage, mapped_at_creation: false })
        };
        use wgpu::BufferUsages as Usage;
        let buffers = [0, 1].map(|_| buffer(Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST));
        let read = buffer(Usage::MAP_READ | Usage::COPY_DST);
        let group = |from: &wgpu::Buffer, to: &wgpu::Buffer| {
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &operands,
                entries: &[
                    wgpu::BindGroupEntry { binding: 0, resource: from.as_entire_binding() },
                    wgpu::BindGroupEntry { binding: 1, resource: to.as_entire_binding() },
                ],
            })
        };
        let groups = [group(&buffers[0], &buffers[1]), group(&buffers[1], &buffers[0])];
        Bare { device, queue, pipeline, groups, buffers, read }
    }

    fn run(&self) -> Duration {
        let mut clear = self.device.create_command_encoder(&Default::default());
        clear.clear_buffer(&self.buffers[0], 0, None);
        self.queue.submit([clear.finish()]);
        self.wait();
        let wall = Instant::now();
        for batch in 0..OPS.div_ceil(256) {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            let mut params: Contiguous = bytemuck::Zeroable::zeroed();
            (params.len, params.rounds, params.s) = (LEN as u32, 1, 1.0f32.to_bits());
            for op in batch * 256..((batch + 1) * 256).min(OPS) {
                pass.set_bind_group(0, &self.groups[op % 2], &[]);
                pass.set_immediates(0, bytemuck::bytes_of(&params));
                pass.dispatch_workgroups(4, 1, 1);
            }
            drop(pass);
            self.queue.submit([encoder.finish()]);
        }
        self.wait();
        let wall = wall.elapsed();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&self.buffers[OPS % 2], 0, &self.read, 0, 4 * LEN as u64);
        self.queue.submit([encoder.finish()]);
        self.read.map_async(wgpu::MapMode::Read, .., |result| result.expect("mapped"));
        self.wait();
        let result: Vec<f32> = bytemuck::pod_collect_to_vec(&self.read.get_mapped_range(..).expect("mapped")[..]);
        assert_eq!(result, vec![OPS as f32; LEN], "the bare result");
        self.read.unmap();
        wall
    }

    fn wait(&self) {
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device answers");
    }
}

fn launch(criterion: &mut Criterion) {
    let device = Device::open().expect("an adapter");
    let bare = Bare::new();
    eprintln!("{} | {OPS} x (x + 1) on {LEN} elements", device.info());
    // One table with everything from the same minutes, so that its rows can be compared.
    let median = |mut values: Vec<Duration>| {
        values.sort();
        values[values.len() / 2]
    };
    let per_op = |duration: Duration| duration.as_secs_f64() * 1e6 / OPS as f64;
    let rounds: Vec<(Run, Run, Duration)> = (0..5)
        .map(|_| (linn_run(&device, false).expect("chained"), linn_run(&device, true).expect("kept"), bare.run()))
        .collect();
    let bare_wall = median(rounds.iter().map(|round| round.2).collect());
    eprintln!(
        "median of 5, us per operation: CPU of the enqueueing thread | its back-pressure waits | wall to completion | x bare wgpu"
    );
    for (name, pick) in [("chained", 0), ("kept", 1)] {
        let runs: Vec<Run> = rounds.iter().map(|round| if pick == 0 { round.0 } else { round.1 }).collect();
        let of = |part: fn(&Run) -> Duration| median(runs.iter().map(part).collect());
        let wall = of(|run| run.wall);
        eprintln!(
            "{name:8} {:.2} | {:.2} | {:.2} | {:.2}",
            per_op(of(|run| run.cpu)),
            per_op(of(|run| run.back_pressure)),
            per_op(wall),
            wall.as_secs_f64() / bare_wall.as_secs_f64()
        );
    }
    eprintln!("bare     - | - | {:.2} | 1", per_op(bare_wall));

    let mut group = criterion.benchmark_group("launch");
    group.sample_size(10).throughput(Throughput::Elements(OPS as u64));
    for (name, keep) in [("chained_cpu", false), ("kept_cpu", true)] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| (0..times).map(|_| linn_run(&device, keep).expect("a run").cpu).sum());
        });
    }
    group.bench_function("chained_wall", |bencher| {
        bencher.iter_custom(|times| (0..times).map(|_| linn_run(&device, false).expect("a run").wall).sum());
    });
    group.bench_function("bare_wall", |bencher| bencher.iter_custom(|times| (0..times).map(|_| bare.run()).sum()));
    group.finish();
}

criterion_group!(benches, launch);
criterion_main!(benches);
