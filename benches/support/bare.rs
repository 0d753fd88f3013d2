//! One kernel of linn's on bare wgpu, the way a careful user writes it: one pipeline, two buffers with cached bind groups.

use linn::DType;
use linn::kernel::params::Contiguous;
use linn::kernel::source::compose;
use linn::kernel::{CONTIGUOUS, Kernel, ParamPath, Sharing};

/// The device, and two buffers that x + 1 goes to and fro between.
pub struct Bare {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub pipeline: wgpu::ComputePipeline,
    pub groups: [wgpu::BindGroup; 2],
    pub buffers: [wgpu::Buffer; 2],
    pub read: wgpu::Buffer,
}

impl Bare {
    /// Buffers of `len` elements.
    pub fn new(len: usize) -> Bare {
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
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 4 * len as u64, usage, mapped_at_creation: false })
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

    /// x + 1 on the `len` elements of buffer `from`, into the other one.
    pub fn dispatch(&self, pass: &mut wgpu::ComputePass<'_>, from: usize, len: usize) {
        let mut params: Contiguous = bytemuck::Zeroable::zeroed();
        (params.len, params.rounds, params.s) = (len as u32, 1, 1.0f32.to_bits());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.groups[from % 2], &[]);
        pass.set_immediates(0, bytemuck::bytes_of(&params));
        pass.dispatch_workgroups(4, 1, 1);
    }

    /// Until everything submitted is done.
    pub fn wait(&self) {
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device answers");
    }
}
