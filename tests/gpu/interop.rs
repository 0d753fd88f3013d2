//! linn on a wgpu device of an application: kernels and commands of its own in one order, on a real driver.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use linn::device::Polling;
use linn::memory::MemPoolOptions;
use linn::optim::{Optimizer, ParamGroup, Sgd, SgdOptions};
use linn::stream::interop::Window;
use linn::wgpu;
use linn::{DType, Device, DeviceOptions, MemPool, Tensor};

/// The application: a device with what the adapter has, or with WebGPU's defaults only.
fn application(rich: bool) -> (wgpu::Device, wgpu::Queue) {
    let gl = std::env::var("LINN_BACKEND").is_ok_and(|name| name == "gl");
    let backends = if gl { wgpu::Backends::GL } else { wgpu::Backends::PRIMARY };
    let descriptor = wgpu::InstanceDescriptor { backends, ..wgpu::InstanceDescriptor::new_without_display_handle() };
    let instance = wgpu::Instance::new(descriptor);
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).unwrap();
    let mut descriptor = wgpu::DeviceDescriptor::default();
    if rich {
        descriptor.required_features = adapter.features() & (wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP);
        descriptor.required_limits = adapter.limits();
    }
    pollster::block_on(adapter.request_device(&descriptor)).unwrap()
}

fn open(rich: bool, polling: Polling) -> (wgpu::Device, wgpu::Queue, Device) {
    let (device, queue) = application(rich);
    let mut options = DeviceOptions::default();
    options.polling = polling;
    let linn = Device::from_wgpu(&device, &queue, options).unwrap();
    (device, queue, linn)
}

/// The pipeline of a kernel of the application's.
fn compute(device: &wgpu::Device, source: &str) -> wgpu::ComputePipeline {
    let module = device
        .create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source: wgpu::ShaderSource::Wgsl(source.into()) });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    })
}

/// What a buffer holds, by a submission of the application's.
fn read(device: &wgpu::Device, queue: &wgpu::Queue, buffer: &wgpu::Buffer) -> Vec<f32> {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: buffer.size(), usage, mapped_at_creation: false };
    let copy = device.create_buffer(&descriptor);
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &copy, 0, buffer.size());
    let index = queue.submit([encoder.finish()]);
    let (tell, told) = mpsc::channel();
    copy.map_async(wgpu::MapMode::Read, .., move |result| tell.send(result).unwrap());
    device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None }).unwrap();
    told.recv().unwrap().unwrap();
    bytemuck::pod_collect_to_vec(&copy.get_mapped_range(..).unwrap())
}

/// A kernel of the application's: doubles the elements of its only binding.
fn doubling(device: &wgpu::Device) -> wgpu::ComputePipeline {
    let source = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&x) { x[id.x] = x[id.x] * 2.0; }
        }";
    compute(device, source)
}

/// Records the kernel over a window.
fn double(device: &wgpu::Device, pipeline: &wgpu::ComputePipeline, encoder: &mut wgpu::CommandEncoder, window: &Window) {
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: window.binding() }],
    });
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups((window.size / 4).div_ceil(64) as u32, 1, 1);
}

/// A chain of kernels of both sides, on two streams, in place and out of place; large enough for copies in textures.
#[test]
fn kernels_of_both_sides_run_in_the_order_of_the_calls() {
    for (rich, polling) in [(true, Polling::WhenWaiting), (false, Polling::Always)] {
        let (device, _queue, linn) = open(rich, polling);
        let pipeline = doubling(&device);
        let len = 32 << 10;
        let x = Tensor::full(&linn, &[len], 1.0).unwrap();
        let side = linn.new_stream();
        let mut expected = 1.0f32;
        for round in 0..24 {
            // linn adds on one stream, the application doubles in place on another, and linn reads the result.
            let y = x.add_scalar(1.0).unwrap();
            let (gpu, pipeline) = (device.clone(), pipeline.clone());
            side.with_encoder(&[], &[&y], move |encoder, windows| double(&gpu, &pipeline, encoder, &windows[0])).unwrap();
            let z = y.add_scalar(-3.0).unwrap();
            x.mul_scalar_(0.5).unwrap();
            x.add_(&z, 0.5).unwrap();
            let doubled = (expected + 1.0) * 2.0;
            expected = expected * 0.5 + (doubled - 3.0) * 0.5;
            if round % 8 == 7 {
                assert_eq!(y.to_vec::<f32>().unwrap(), vec![doubled; len], "round {round}");
                assert_eq!(x.to_vec::<f32>().unwrap(), vec![expected; len], "round {round}");
            }
        }
        assert!(linn.stats().timeline.order_edges >= 24);
    }
}

/// What an application has written between `export_mut` and `submitted` is what linn's kernels see: also those that read copies.
#[test]
fn submissions_of_the_application_come_between_linns() {
    let (device, queue, linn) = open(true, Polling::WhenWaiting);
    let pipeline = doubling(&device);
    let (rows, columns) = (96, 512);
    let x = Tensor::full(&linn, &[rows, columns], 0.125).unwrap();
    let ones = Tensor::ones(&linn, &[columns, 64]).unwrap();
    let mut value = 0.125f32;
    for round in 0..12 {
        // Reads x through whatever way suits the driver, again and again, so that a copy would be kept.
        let before = x.matmul(&ones).unwrap();
        let export = x.export_mut().unwrap();
        let mut encoder = device.create_command_encoder(&Default::default());
        double(&device, &pipeline, &mut encoder, export.window());
        queue.submit([encoder.finish()]);
        export.submitted();
        let after = x.matmul(&ones).unwrap();
        let scale = if round % 2 == 0 { 0.25 } else { 1.0 };
        x.mul_scalar_(scale).unwrap();
        let sum = |value: f32| vec![value * columns as f32; rows * 64];
        assert_eq!(before.to_vec::<f32>().unwrap(), sum(value), "round {round}");
        assert_eq!(after.to_vec::<f32>().unwrap(), sum(2.0 * value), "round {round}");
        value *= 2.0 * scale as f32;
    }
}

/// Kernels over an application's buffer: sizes that are no multiple of anything, at an offset, with neighbours left alone.
#[test]
fn kernels_compute_in_an_applications_buffer() {
    use wgpu::BufferUsages as Usage;
    let (device, queue, linn) = open(true, Polling::WhenWaiting);
    let usage = Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST;
    for len in [1usize, 3, 5, 64, 1001, 40_001] {
        let size = (1024 + len.next_multiple_of(4) * 4 + 1024) as u64;
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let mine = device.create_buffer(&descriptor);
        queue.write_buffer(&mine, 0, bytemuck::cast_slice(&vec![1.0f32; size as usize / 4]));
        queue.submit([]);
        let x = Tensor::from_buffer(&linn, &mine, 1024, &[len], DType::F32).unwrap();
        let y = x.add_scalar(1.0).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), vec![2.0; len]);
        x.mul_scalar_(3.0).unwrap();
        x.add_(&y, 1.0).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), vec![5.0; len]);
        assert_eq!(x.sum_all().unwrap().item::<f32>().unwrap(), 5.0 * len as f32);
        // As a parameter, whatever its length: an optimizer binds parts of buffers.
        let param = x.detach().requires_grad_(true).unwrap();
        param.set_grad(Some(Tensor::ones(&linn, &[len]).unwrap())).unwrap();
        let mut sgd = Sgd::new(vec![ParamGroup::new(vec![("x".into(), param)], 2.0, 0.0)], SgdOptions::default());
        sgd.step().unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), vec![3.0; len]);
        x.add_scalar_(2.0).unwrap();
        let export = x.export().unwrap();
        let all = read(&device, &queue, &mine);
        export.submitted();
        assert!(all[..256].iter().chain(&all[256 + len..]).all(|value| *value == 1.0), "{len}: the neighbours");
        assert_eq!(all[256..256 + len], vec![5.0; len]);
    }
    assert_eq!(linn.stats().imported_bytes, 0);
}

/// Workgroups of an indirect dispatch, and a uniform, that linn computed. Each in a buffer of its own: in one dispatch a buffer is
/// either read only or written.
#[test]
fn what_linn_computed_is_dispatched_and_bound_as_a_uniform() {
    let (device, queue) = application(false);
    let mut options = DeviceOptions::default();
    (options.buffer_uses.indirect, options.buffer_uses.uniform) = (true, true);
    let linn = Device::from_wgpu(&device, &queue, options).unwrap();
    let source = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @group(0) @binding(1) var<uniform> by: vec4<f32>;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] = x[id.x] + by.y; }";
    let pipeline = compute(&device, source);
    let pool = MemPool::new(&linn, MemPoolOptions { no_split: true, ..MemPoolOptions::default() });
    for round in 1..=3 {
        let x = Tensor::zeros(&linn, &[32]).unwrap();
        let groups = Tensor::new(&linn, [4.0 * round as f32, 1.0, 1.0]).unwrap();
        let (groups, by) = pool.scope(|| {
            let by = Tensor::new(&linn, [0.0f32, 1.0, 2.0, 3.0]).unwrap().mul_scalar(round as f64 / 2.0).unwrap();
            (groups.to_dtype(DType::U32).unwrap(), by)
        });
        let (gpu, pipeline) = (device.clone(), pipeline.clone());
        let record = move |encoder: &mut wgpu::CommandEncoder, windows: &[Window]| {
            let [groups, by, x] = windows else { return };
            let group = gpu.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &pipeline.get_bind_group_layout(0),
                entries: &[
                    wgpu::BindGroupEntry { binding: 0, resource: x.binding() },
                    wgpu::BindGroupEntry { binding: 1, resource: by.binding() },
                ],
            });
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups_indirect(&groups.buffer, groups.offset);
        };
        linn.default_stream().with_encoder(&[&groups, &by], &[&x], record).unwrap();
        let expected: Vec<f32> = (0..32).map(|i| if i < 4 * round { round as f32 / 2.0 } else { 0.0 }).collect();
        assert_eq!(x.to_vec::<f32>().unwrap(), expected);
    }
}

/// The application submits from its own threads all the while.
#[test]
fn both_sides_submit_at_once() {
    for polling in [Polling::WhenWaiting, Polling::Always] {
        let (device, queue, linn) = open(true, polling);
        let pipeline = doubling(&device);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
                let size = 4096;
                let buffer =
                    device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
                let mut count = 0;
                // (No more than the device can do: linn's work stands in the same line.)
                let under_way = Arc::new(AtomicUsize::new(0));
                while !done.load(Ordering::Acquire) {
                    if under_way.load(Ordering::Acquire) > 4 {
                        device.poll(wgpu::PollType::Poll).unwrap();
                        std::thread::yield_now();
                        continue;
                    }
                    let mut encoder = device.create_command_encoder(&Default::default());
                    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                        label: None,
                        layout: &pipeline.get_bind_group_layout(0),
                        entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
                    });
                    {
                        let mut pass = encoder.begin_compute_pass(&Default::default());
                        pass.set_pipeline(&pipeline);
                        pass.set_bind_group(0, &group, &[]);
                        pass.dispatch_workgroups(16, 1, 1);
                    }
                    queue.submit([encoder.finish()]);
                    under_way.fetch_add(1, Ordering::AcqRel);
                    let under_way = under_way.clone();
                    queue.on_submitted_work_done(move || _ = under_way.fetch_sub(1, Ordering::AcqRel));
                    count += 1;
                    std::thread::sleep(Duration::from_micros(200));
                }
                count
            });
            let mut x = Tensor::zeros(&linn, &[1000]).unwrap();
            for round in 1..=400 {
                x = x.add_scalar(1.0).unwrap();
                if round % 40 == 0 {
                    assert_eq!(x.to_vec::<f32>().unwrap(), vec![round as f32; 1000]);
                }
            }
            linn.synchronize().unwrap();
            done.store(true, Ordering::Release);
            assert!(theirs.join().unwrap() > 0);
        });
    }
}

/// Real wgpu refuses what it should, and the error says where it was asked for.
#[test]
fn a_validation_error_of_the_application_names_its_line() {
    let device = crate::device::open(DeviceOptions::default());
    let x = Tensor::ones(&device, &[64]).unwrap();
    let line = line!() + 1;
    let asked = device.default_stream().with_encoder(&[&x], &[], |encoder, windows| {
        // Within one buffer, and past its end.
        encoder.copy_buffer_to_buffer(&windows[0].buffer, 0, &windows[0].buffer, 0, 1 << 40);
    });
    asked.unwrap();
    let text = x.add_scalar(1.0).unwrap().to_vec::<f32>().unwrap_err().to_string();
    assert!(text.starts_with(&format!("device: with_encoder at tests/gpu/interop.rs:{line}:")), "{text}");
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0; 64]);
    // An operation of linn's that the driver refuses is named too.
    device.synchronize().unwrap();
    device.refuse_driver_calls(0, 40);
    let _ = x.reshape(&[8, 8]).and_then(|x| x.softmax(1));
    let mut error = device.synchronize();
    device.refuse_driver_calls(0, 0);
    if error.is_ok() {
        error = device.synchronize();
    }
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with("device: softmax: ") && text.contains("was refused by a test"), "{text}");
    device.synchronize().unwrap();
    assert_eq!(x.sum_all().unwrap().item::<f32>().unwrap(), 64.0);
}

/// Visible on the device, as somebody sees it who does not call linn.
#[test]
fn what_is_enqueued_becomes_visible_though_nobody_calls_linn() {
    let (device, queue, linn) = open(true, Polling::default());
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: 256, usage, mapped_at_creation: false };
    let buffer = device.create_buffer(&descriptor);
    let x = Tensor::from_buffer(&linn, &buffer, 0, &[64], DType::F32).unwrap();
    for round in 1..=10 {
        x.fill_(f64::from(round)).unwrap();
        // A program that hangs here has waited for ever.
        while read(&device, &queue, &buffer) != [round as f32; 64] {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
