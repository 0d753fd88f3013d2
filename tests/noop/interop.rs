//! An application's wgpu device, its commands and its buffers; without a driver, where copies are real and kernels do nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use linn::device::Polling;
use linn::memory::MemPoolOptions;
use linn::stream::interop::Window;
use linn::wgpu::{self, BufferUsages};
use linn::{DType, Device, DeviceOptions, Error, MemPool, Tensor};

const PLAIN: BufferUsages = BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST);

fn wgpu_with(limits: wgpu::Limits) -> (wgpu::Device, wgpu::Queue) {
    wgpu::Device::noop(&wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() })
}

/// Buffers of another instance cannot be told apart, by nobody: wgpu names them by numbers of the instance.
fn two_of_one_instance() -> [(wgpu::Device, wgpu::Queue); 2] {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::NOOP;
    descriptor.backend_options.noop.enable = true;
    let instance = wgpu::Instance::new(descriptor);
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).unwrap();
    [(), ()].map(|()| pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap())
}

fn polling(polling: Polling) -> DeviceOptions {
    let mut options = DeviceOptions::default();
    options.polling = polling;
    options
}

fn buffer(device: &wgpu::Device, size: u64, usage: BufferUsages) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor { label: Some("of the application"), size, usage, mapped_at_creation: false })
}

/// A tensor with a buffer of its own: wgpu copies between different buffers only.
fn alone(device: &Device, values: &[f32]) -> Tensor {
    let pool = MemPool::new(device, MemPoolOptions { no_split: true, ..MemPoolOptions::default() });
    pool.scope(|| Tensor::from_slice(device, &[values.len()], values)).unwrap()
}

fn copy(encoder: &mut wgpu::CommandEncoder, windows: &[Window]) {
    let [from, to] = windows else { panic!("two windows were asked for") };
    encoder.copy_buffer_to_buffer(&from.buffer, from.offset, &to.buffer, to.offset, from.size);
}

#[test]
fn linn_runs_on_an_applications_device_whoever_polls() {
    for options in [polling(Polling::WhenWaiting), polling(Polling::Always)] {
        let (device, queue) = wgpu_with(wgpu::Limits::default());
        let linn = Device::from_wgpu(&device, &queue, options).unwrap();
        assert_eq!((linn.info().backend.as_str(), linn.limits().max_immediate_size), ("noop", 0));
        let x = Tensor::from_slice(&linn, &[3], &[1.0f32, 2.0, 3.0]).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
        linn.synchronize().unwrap();
        // Many more submissions than may be under way, while nobody waits and nobody polls.
        for i in 0..5000 {
            x.copy_from_slice_(&[i as f32; 3]).unwrap();
        }
        let event = linn.default_stream().record_event();
        while !event.query() {
            std::thread::yield_now();
        }
        let mut read = x.to_vec_async::<f32>().unwrap();
        let values = loop {
            match read.try_take().unwrap() {
                Some(values) => break values,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(values, [4999.0; 3]);
        // The application goes on to use its device, and linn's end is not the device's.
        drop((x, event, read, linn));
        let mine = buffer(&device, 16, PLAIN);
        queue.write_buffer(&mine, 0, &[7; 16]);
        let index = queue.submit([]);
        device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None }).unwrap();
    }
}

#[test]
fn what_was_enqueued_on_an_applications_device_is_submitted_before_linn_ends() {
    let (device, queue) = wgpu_with(wgpu::Limits::default());
    let linn = Device::from_wgpu(&device, &queue, DeviceOptions::default()).unwrap();
    let counted = Arc::new(AtomicUsize::new(0));
    let x = Tensor::zeros(&linn, &[4]).unwrap();
    for _ in 0..50 {
        let counted = counted.clone();
        let count = move |_: &mut wgpu::CommandEncoder, _: &[Window]| _ = counted.fetch_add(1, Ordering::Relaxed);
        linn.default_stream().with_encoder(&[], &[&x], count).unwrap();
    }
    drop((x, linn));
    assert_eq!(counted.load(Ordering::Relaxed), 50);
}

#[test]
fn a_device_without_what_kernels_need_is_refused_by_name() {
    let small = wgpu::Limits {
        max_storage_buffers_per_shader_stage: 4,
        max_compute_invocations_per_workgroup: 128,
        max_compute_workgroup_size_x: 128,
        ..wgpu::Limits::default()
    };
    let (device, queue) = wgpu_with(small);
    let text = Device::from_wgpu(&device, &queue, DeviceOptions::default()).unwrap_err().to_string();
    for word in [
        "from_wgpu",
        "max_storage_buffers_per_shader_stage is 4, kernels need 8",
        "max_compute_invocations_per_workgroup is 128, kernels need 256",
        "\nhelp: request it with required_limits",
    ] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn commands_of_an_application_have_their_place_in_the_order() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let (from, to) = (alone(&device, &[0.0; 64]), alone(&device, &[-1.0; 64]));
    let side = device.new_stream();
    for round in 0..200 {
        // Written on one stream, copied by the application on another, read on the first: the order is that of the calls.
        from.copy_from_slice_(&[round as f32; 64]).unwrap();
        let version = to.version();
        side.with_encoder(&[&from], &[&to], copy).unwrap();
        from.copy_from_slice_(&[-7.0f32; 64]).unwrap();
        assert_eq!((to.version(), from.version()), (version + 1, from.version()));
        assert_eq!(to.to_vec::<f32>().unwrap(), [round as f32; 64]);
    }
    assert!(device.stats().timeline.order_edges > 0);
    // Views are windows of their bytes.
    let (head, tail) = (from.narrow(0, 0, 8).unwrap(), to.narrow(0, 60, 4).unwrap());
    let (tell, told) = mpsc::channel();
    let stream = device.default_stream();
    stream
        .with_encoder(&[&head, &from], &[&tail], move |_, windows| {
            tell.send(windows.iter().map(|window| (window.offset, window.size)).collect::<Vec<_>>()).unwrap();
        })
        .unwrap();
    stream.synchronize().unwrap();
    let windows = told.recv().unwrap();
    assert_eq!(windows.iter().map(|window| window.1).collect::<Vec<_>>(), [32, 256, 16]);
    assert_eq!((windows[0].0, windows[1].0 % 256, windows[2].0 % 256), (windows[1].0, 0, 240));
    let error = stream.with_encoder(&[&Tensor::zeros(&device, &[0]).unwrap()], &[], |_, _| {}).unwrap_err();
    assert!(matches!(error, Error::Argument { op: "with_encoder", .. }), "{error}");
}

#[test]
fn what_goes_wrong_in_an_applications_commands_is_told_with_their_line_and_costs_nobody_else() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let stream = device.default_stream();
    let (x, y) = (alone(&device, &[1.0, 2.0]), alone(&device, &[0.0, 0.0]));
    for round in 0..3 {
        let value = round as f32;
        x.copy_from_slice_(&[value, value]).unwrap();
        let line = line!() + 1;
        stream.with_encoder(&[&x], &[], |_, _| panic!("it was {}", "me")).unwrap();
        y.copy_from_slice_(&[value + 0.5, 0.0]).unwrap();
        let text = stream.synchronize().unwrap_err().to_string();
        let place = format!("device: with_encoder at tests/noop/interop.rs:{line}:");
        assert!(text.starts_with(&place) && text.contains("the closure panicked: it was me\nhelp: "), "{text}");
        stream.synchronize().unwrap();

        // wgpu refuses a copy past a buffer's end when the encoder is finished, and a bad group when it is made.
        let line = line!() + 1;
        let beyond = stream.with_encoder(&[&x], &[&y], |encoder, windows| {
            let [x, y] = windows else { return };
            encoder.copy_buffer_to_buffer(&x.buffer, x.offset, &y.buffer, 0, x.buffer.size() + 4);
        });
        beyond.unwrap();
        let text = y.to_vec::<f32>().unwrap_err().to_string();
        assert!(text.starts_with(&format!("device: with_encoder at tests/noop/interop.rs:{line}:")), "{text}");
        // Nothing of it was done, and all that was enqueued beside it was.
        assert_eq!(x.to_vec::<f32>().unwrap(), [value, value]);
        assert_eq!(y.to_vec::<f32>().unwrap(), [value + 0.5, 0.0]);
    }
    assert_eq!(device.stats().queue.failures, 6);
}

#[test]
fn a_closure_can_not_wait_for_the_thread_it_runs_on() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let x = Tensor::from_slice(&device, &[2], &[1.0f32, 2.0]).unwrap();
    let (tell, told) = mpsc::channel();
    let held = (device.clone(), x.clone());
    device
        .default_stream()
        .with_encoder(&[], &[], move |_, _| {
            let (device, x) = &held;
            let errors = [
                x.to_vec::<f32>().map(drop),
                device.synchronize(),
                x.export().map(drop),
                device.empty_cache(),
                // What does not wait is fine.
                Tensor::from_slice(device, &[1], &[1.0f32]).map(drop),
            ];
            tell.send(errors).unwrap();
        })
        .unwrap();
    device.synchronize().unwrap();
    let [read, synchronize, export, empty, upload] = told.recv().unwrap();
    for error in [read, synchronize, export] {
        let text = error.unwrap_err().to_string();
        assert!(text.contains("a device's own thread") && text.contains("help: wait on another thread"), "{text}");
    }
    drop(empty);
    upload.unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn closures_that_never_run_are_dropped_with_what_they_hold() {
    // Some are recorded when the device is lost, some when it closes; each holds a tensor and the device.
    for lose in [true, false] {
        let device = Device::noop(DeviceOptions::default()).unwrap();
        let held = Arc::new(());
        let (hold, go) = mpsc::channel::<()>();
        let x = Tensor::zeros(&device, &[4]).unwrap();
        let stream = device.default_stream();
        stream.with_encoder(&[], &[], move |_, _| _ = go.recv()).unwrap();
        for _ in 0..20 {
            let held = (held.clone(), device.clone(), x.clone());
            stream.with_encoder(&[&x], &[], move |_, _| drop(held)).unwrap();
        }
        if lose {
            device.mark_lost("a test says so");
        }
        drop(hold);
        drop((x, stream));
        if lose {
            assert!(matches!(device.synchronize(), Err(Error::DeviceLost { .. })));
        }
        drop(device);
        let start = std::time::Instant::now();
        while Arc::strong_count(&held) > 1 && start.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&held), 1, "lost: {lose}");
    }
}

#[test]
fn an_exported_tensor_stays_where_it_is_and_is_not_written() {
    let device = Device::noop(DeviceOptions::default()).unwrap();
    let mib = |value: f32| Tensor::from_slice(&device, &[1 << 18], &vec![value; 1 << 18]).unwrap();
    let others = [mib(1.0), mib(2.0)];
    let x = mib(3.0);
    let part = x.narrow(0, 1024, 64).unwrap();
    drop(others);
    let export = part.export().unwrap();
    assert_eq!((export.window().size, export.window().offset % 256), (256, 0));
    // Not moved, though that would empty a segment.
    let (place, moves) = (export.window().offset, device.stats().memory.moves);
    device.compact(u64::MAX).unwrap();
    assert_eq!(device.stats().memory.moves, moves);
    // Read, but not written; a second export may read too.
    assert_eq!(part.to_vec::<f32>().unwrap(), [3.0; 64]);
    let second = x.export().unwrap();
    assert_eq!(second.window().offset + 4096, place);
    let version = x.version();
    for error in [x.copy_from_slice_(&vec![0.0f32; 1 << 18]).unwrap_err(), x.add_(&x, 1.0).unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("a tensor is exported") && text.contains("help: call Export::submitted"), "{text}");
    }
    assert!(x.export_mut().is_err());
    device.default_stream().with_encoder(&[&x], &[], |_, _| {}).unwrap();
    assert!(device.default_stream().with_encoder(&[], &[&x], |_, _| {}).is_err());
    assert_eq!(x.version(), version, "what was refused is no change");
    export.submitted();
    assert!(x.copy_from_slice_(&vec![0.0f32; 1 << 18]).is_err(), "the second one is still there");
    second.submitted();
    x.copy_from_slice_(&vec![5.0f32; 1 << 18]).unwrap();
    // An application that writes has it to itself.
    let export = x.export_mut().unwrap();
    assert_eq!(x.version(), version + 2);
    for error in [x.to_vec::<f32>().map(drop), part.export().map(drop), x.add(&x).map(drop)] {
        assert!(error.unwrap_err().to_string().contains("a tensor is exported"));
    }
    drop(export);
    assert_eq!(part.to_vec::<f32>().unwrap(), [5.0; 64]);
    // Now it may move.
    device.compact(u64::MAX).unwrap();
    assert_eq!(part.to_vec::<f32>().unwrap(), [5.0; 64]);
    drop((x, part));
    device.validate_memory().unwrap();
    assert_eq!(device.memory_allocated(), 0);
}

#[test]
fn an_export_comes_after_what_was_enqueued_and_before_what_comes_later() {
    let (device, queue) = wgpu_with(wgpu::Limits::default());
    let linn = Device::from_wgpu(&device, &queue, DeviceOptions::default()).unwrap();
    let x = alone(&linn, &[0.0; 64]);
    let mine = buffer(&device, 256, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
    for round in 0..100 {
        let value = round as f32;
        x.copy_from_slice_(&[value; 64]).unwrap();
        let export = if round % 2 == 0 { x.export().unwrap() } else { pollster::block_on(x.export_async()).unwrap() };
        let window = export.window();
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&window.buffer, window.offset, &mine, 0, window.size);
        let index = queue.submit([encoder.finish()]);
        export.submitted();
        x.copy_from_slice_(&[-value; 64]).unwrap();
        let (tell, told) = mpsc::channel();
        mine.map_async(wgpu::MapMode::Read, .., move |result| tell.send(result).unwrap());
        device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None }).unwrap();
        told.recv().unwrap().unwrap();
        let seen = mine.get_mapped_range(..).unwrap().to_vec();
        mine.unmap();
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&seen), [value; 64], "round {round}");
        assert_eq!(x.to_vec::<f32>().unwrap(), [-value; 64]);
    }
    assert!(Tensor::zeros(&linn, &[0]).unwrap().export().is_err(), "there is nothing to export");
}

#[test]
fn an_applications_buffer_is_a_tensor() {
    let (device, queue) = wgpu_with(wgpu::Limits::default());
    let linn = Device::from_wgpu(&device, &queue, DeviceOptions::default()).unwrap();
    let mine = buffer(&device, 4096, PLAIN);
    let numbers: Vec<f32> = (0..1024).map(|i| i as f32).collect();
    queue.write_buffer(&mine, 0, bytemuck::cast_slice(&numbers));
    queue.submit([]);
    let before = linn.stats();
    let x = Tensor::from_buffer(&linn, &mine, 256, &[10, 10], DType::F32).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), numbers[64..164]);
    // Not bought by us: in no statistics, reports or snapshots, and apart.
    let stats = linn.stats();
    assert_eq!((&stats.memory.all, stats.breakdown), (&before.memory.all, before.breakdown));
    assert_eq!(stats.imported_bytes, 400);
    assert_eq!((linn.memory_allocated(), linn.memory_reserved()), (0, 0));
    // Views, in place, commands of the application, exports: as any other.
    x.narrow(0, 0, 1).unwrap().copy_from_slice_(&[-1.0f32; 10]).unwrap();
    let rest = Tensor::from_buffer(&linn, &mine, 2048, &[512], DType::F32).unwrap();
    rest.copy_from_slice_(&[9.0f32; 512]).unwrap();
    let export = x.export_mut().unwrap();
    assert_eq!((export.window().buffer == mine, export.window().offset, export.window().size), (true, 256, 400));
    queue.write_buffer(&mine, 256, bytemuck::cast_slice(&[8.0f32; 2]));
    queue.submit([]);
    export.submitted();
    let values = x.to_vec::<f32>().unwrap();
    assert_eq!((&values[..3], &values[10..]), (&[8.0, 8.0, -1.0][..], &numbers[74..164]));
    linn.compact(u64::MAX).unwrap();
    linn.empty_cache().unwrap();
    assert_eq!(rest.to_vec::<f32>().unwrap(), [9.0; 512]);
    linn.validate_memory().unwrap();
    // The numbers of dropped ones are used again; what is recorded still finds its buffer.
    for round in 0..300 {
        let y = Tensor::from_buffer(&linn, &mine, 1024, &[16], DType::I32).unwrap();
        y.copy_from_slice_(&[round; 16]).unwrap();
        drop(y);
        let y = Tensor::from_buffer(&linn, &mine, 1024, &[16], DType::I32).unwrap();
        assert_eq!(linn.new_stream().scope(|| y.to_vec::<i32>()).unwrap(), [round; 16]);
    }
    drop((x, rest));
    linn.synchronize().unwrap();
    assert_eq!(linn.stats().imported_bytes, 0);
    // linn's end is not the buffer's.
    drop(linn);
    queue.write_buffer(&mine, 0, &[1; 16]);
    queue.submit([]);
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
}

#[test]
fn buffers_that_do_not_fit_are_refused_with_help() {
    let [(device, queue), (other, _)] = two_of_one_instance();
    let linn = Device::from_wgpu(&device, &queue, DeviceOptions::default()).unwrap();
    let import = |buffer: &wgpu::Buffer, offset, len| {
        let made = Tensor::from_buffer(&linn, buffer, offset, &[len], DType::F32);
        made.map(drop).map_err(|error| error.to_string())
    };
    let bad = buffer(&device, 1024, BufferUsages::STORAGE | BufferUsages::COPY_DST);
    assert!(import(&bad, 0, 4).unwrap_err().contains("lacks the usages BufferUsages(COPY_SRC)"));
    let fine = buffer(&device, 1024, PLAIN);
    assert!(import(&fine, 0, 257).unwrap_err().contains("1040 bytes from 0 on do not lie in a buffer of 1024 bytes"));
    assert!(import(&fine, u64::MAX - 3, 4).unwrap_err().contains("do not lie in"));
    assert!(import(&fine, 100, 4).unwrap_err().contains("no multiple of 256"));
    let odd = buffer(&device, 1020, PLAIN);
    assert!(import(&odd, 0, 255).unwrap_err().contains("rounded up to 16 bytes"));
    let held = Tensor::from_buffer(&linn, &fine, 256, &[64], DType::F32).unwrap();
    assert!(import(&fine, 0, 65).unwrap_err().contains("a tensor already"));
    import(&fine, 0, 64).unwrap();
    drop(held);
    import(&fine, 0, 256).unwrap();
    // Of another device, or linn's own.
    let stranger = buffer(&other, 1024, PLAIN);
    assert!(import(&stranger, 0, 4).unwrap_err().contains("pass a buffer of the device that linn runs on"));
    let own = Tensor::zeros(&linn, &[4]).unwrap();
    let export = own.export().unwrap();
    assert!(import(&export.window().buffer, 0, 4).unwrap_err().contains("one of linn's own"));
    assert_eq!(linn.stats().imported_bytes, 0);
    assert!(Tensor::from_buffer(&linn, &fine, 0, &[0, 3], DType::F32).unwrap().to_vec::<f32>().unwrap().is_empty());
    linn.synchronize().unwrap();
}

#[test]
fn more_uses_of_tensors_buffers_are_there_on_request() {
    let uses = |options| Tensor::zeros(&Device::noop(options).unwrap(), &[4]).unwrap().export().unwrap().window().buffer.usage();
    assert_eq!(uses(DeviceOptions::default()), PLAIN);
    let mut options = DeviceOptions::default();
    options.buffer_uses.vertex = true;
    options.buffer_uses.indirect = true;
    assert_eq!(uses(options.clone()), PLAIN | BufferUsages::VERTEX | BufferUsages::INDIRECT);
    options.buffer_uses.index = true;
    options.buffer_uses.uniform = true;
    let all = BufferUsages::VERTEX | BufferUsages::INDIRECT | BufferUsages::INDEX | BufferUsages::UNIFORM;
    assert_eq!(uses(options), PLAIN | all);
}
