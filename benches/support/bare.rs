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
    operands: wgpu::BindGroupLayout,
    pub groups: [wgpu::BindGroup; 2],
    pub buffers: [wgpu::Buffer; 2],
    pub read: wgpu::Buffer,
}

const STORAGE: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

fn create(device: &wgpu::Device, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
}

fn group(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    from: wgpu::BufferBinding<'_>,
    to: wgpu::BufferBinding<'_>,
) -> wgpu::BindGroup {
    let entry = |binding, range| wgpu::BindGroupEntry { binding, resource: wgpu::BindingResource::Buffer(range) };
    device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &[entry(0, from), entry(1, to)] })
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
        let size = 4 * len as u64;
        let buffers = [0, 1].map(|_| create(&device, size, STORAGE));
        let read = create(&device, size, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let [a, b] = buffers.each_ref().map(wgpu::Buffer::as_entire_buffer_binding);
        let groups = [group(&device, &operands, a.clone(), b.clone()), group(&device, &operands, b, a)];
        Bare { device, queue, pipeline, operands, groups, buffers, read }
    }

    /// A buffer for operands.
    pub fn buffer(&self, size: u64) -> wgpu::Buffer {
        create(&self.device, size, STORAGE)
    }

    /// The bind group of an operation.
    pub fn group(&self, from: wgpu::BufferBinding<'_>, to: wgpu::BufferBinding<'_>) -> wgpu::BindGroup {
        group(&self.device, &self.operands, from, to)
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
