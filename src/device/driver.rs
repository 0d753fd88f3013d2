//! Calls that a driver can refuse: error scopes become typed answers. On GL the queue thread creates the buffers.

use futures_channel::oneshot;

use crate::device::Shared;
use crate::device::adapter::AdapterKind;
use crate::device::core::BufferOrder;
use crate::device::failures::Failures;

/// The wgpu device and queue.
pub(crate) struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) failures: Failures,
    /// Of segments, beyond what kernels and copies need.
    pub(crate) segment_usages: wgpu::BufferUsages,
}

/// The label of segments.
pub(crate) const SEGMENT: &str = "linn.segment";
/// The name of submissions.
pub(crate) const SUBMIT: &str = "linn.submit";

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferKind {
    /// A segment of the pool.
    Segment,
    /// Memory of the host that kernels reach, as far as the driver has such.
    Host,
    /// Upload staging, created mapped.
    Upload,
    /// Download staging.
    Download,
    /// Parameters of one submission.
    Uniform,
    /// Bytes on their way from one place of a segment to another.
    Bounce,
    /// The words that index kernels report to.
    Status,
    /// Times that the driver writes, before they are copied to where the host can read.
    Times,
}

impl BufferKind {
    fn usage(self) -> wgpu::BufferUsages {
        use wgpu::BufferUsages as Usage;
        match self {
            BufferKind::Segment | BufferKind::Status | BufferKind::Host => Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
            BufferKind::Upload => Usage::MAP_WRITE | Usage::COPY_SRC,
            BufferKind::Download => Usage::MAP_READ | Usage::COPY_DST,
            BufferKind::Bounce => Usage::COPY_SRC | Usage::COPY_DST,
            BufferKind::Uniform => Usage::UNIFORM | Usage::COPY_DST,
            BufferKind::Times => Usage::QUERY_RESOLVE | Usage::COPY_SRC,
        }
    }

    fn label(self) -> &'static str {
        match self {
            BufferKind::Segment => SEGMENT,
            BufferKind::Host => "linn.host",
            BufferKind::Upload => "linn.upload",
            BufferKind::Download => "linn.download",
            BufferKind::Uniform => "linn.uniform",
            BufferKind::Bounce => "linn.bounce",
            BufferKind::Status => "linn.status",
            BufferKind::Times => "linn.times",
        }
    }
}

/// Creates a buffer on this thread.
pub(crate) fn create(gpu: &Gpu, size: u64, kind: BufferKind) -> Result<wgpu::Buffer, String> {
    let more = match kind {
        BufferKind::Segment => gpu.segment_usages,
        // Never mapped: it is what makes wgpu choose memory of the host.
        BufferKind::Host if gpu.device.features().contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS) => {
            wgpu::BufferUsages::MAP_READ
        }
        _ => wgpu::BufferUsages::empty(),
    };
    gpu.attempt(kind.label(), || {
        gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(kind.label()),
            size,
            usage: kind.usage() | more,
            mapped_at_creation: kind == BufferKind::Upload,
        })
    })
}

/// Creates a set of `count` times on this thread.
pub(crate) fn create_query_set(gpu: &Gpu, count: u32) -> Result<wgpu::QuerySet, String> {
    let label = "linn.query_set";
    gpu.attempt(label, || {
        let ty = wgpu::QueryType::Timestamp;
        gpu.device.create_query_set(&wgpu::QuerySetDescriptor { label: Some(label), ty, count })
    })
}

/// Creates a texture of four f32 per texel on this thread, to copy into and to read from.
pub(crate) fn create_texture(gpu: &Gpu, width: u32, height: u32) -> Result<wgpu::Texture, String> {
    gpu.attempt("linn.stage", || {
        gpu.device.create_texture(&wgpu::TextureDescriptor {
            label: Some("linn.stage"),
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba32Float,
            usage: wgpu::TextureUsages::COPY_DST | wgpu::TextureUsages::STORAGE_BINDING,
            view_formats: &[],
        })
    })
}

impl Gpu {
    /// One call that the driver can refuse: buffers, textures, pipelines, bind groups, command buffers, submissions. `Err`
    /// holds the driver's words.
    pub(crate) fn attempt<T>(&self, label: &str, call: impl FnOnce() -> T) -> Result<T, String> {
        self.failures.check(label)?;
        scoped(&self.device, call)
    }
}

/// Push scopes, create, pop, with nothing between.
fn scoped<T>(device: &wgpu::Device, create: impl FnOnce() -> T) -> Result<T, String> {
    if cfg!(target_arch = "wasm32") {
        // In browsers a scope answers later; without one the error is kept for whoever synchronises (`Shared::new`).
        return Ok(create());
    }
    let out_of_memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let made = create();
    let (validation, out_of_memory) = (validation.pop(), out_of_memory.pop());
    let error = pollster::block_on(async { (validation.await, out_of_memory.await) });
    match error {
        (None, None) => Ok(made),
        (Some(error), _) | (_, Some(error)) => Err(error.to_string()),
    }
}

/// One empty dispatch, run to its end: the driver's compiler builds its globals, and registers what destroys them at the end
/// of the process. What `at_exit` registers afterwards runs before that.
#[cfg(unix)]
pub(crate) fn warm_up(gpu: &Gpu, bound: Option<std::time::Duration>) {
    // A device that fails here fails at its first real command, with an error.
    let _ = scoped(&gpu.device, || dispatch_nothing(&gpu.device, &gpu.queue, bound));
}

#[cfg(unix)]
fn dispatch_nothing(device: &wgpu::Device, queue: &wgpu::Queue, bound: Option<std::time::Duration>) {
    let source = wgpu::ShaderSource::Wgsl("@compute @workgroup_size(1) fn main() {}".into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("linn.warm_up"), source });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("linn.warm_up"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("linn.warm_up") });
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.dispatch_workgroups(1, 1, 1);
    }
    let index = queue.submit([encoder.finish()]);
    let _ = device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: bound });
}

impl Shared {
    /// True where [`BufferKind::Host`] is memory of the host. Where the processor is the device, or shares its memory, all is.
    pub(crate) fn reaches_host_memory(&self) -> bool {
        matches!(self.info.kind, AdapterKind::Software | AdapterKind::Integrated)
            || self.gpu.device.features().contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS)
    }

    /// Creates a buffer; `Err` holds the driver's words.
    pub(crate) fn create_buffer(&self, size: u64, kind: BufferKind) -> Result<wgpu::Buffer, String> {
        if !self.on_queue_thread_only || self.lock().is_queue_thread() {
            return create(&self.gpu, size, kind);
        }
        // GL: a call beside a long submit of another thread would panic inside wgpu.
        let (answer, receive) = oneshot::channel();
        let mut core = self.lock();
        if let Some(fact) = &core.lost {
            return Err(fact.clone());
        }
        core.orders.push(BufferOrder { size, kind, answer });
        self.wake(core);
        pollster::block_on(receive).unwrap_or_else(|_| Err("the device is closed".into()))
    }
}
