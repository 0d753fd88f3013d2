//! Which adapter: the best by default, another by environment variable or option.

use std::env::VarError;
use std::fmt;

use super::choice::Wanted;
use crate::error::{Error, Result};

/// What to open and how.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Backend by name: `vulkan`, `metal`, `dx12`, `gl` or `webgpu`. `None`: `LINN_BACKEND`, else the best adapter of all but
    /// `gl`, and of that where the others have none.
    pub backend: Option<String>,
    /// Part of the adapter's name, driver or backend, in any case. `None`: `LINN_ADAPTER`, else the best.
    pub adapter: Option<String>,
    /// Most bytes of device memory to reserve. `None`: the limit of `alloc_conf` or `LINN_ALLOC_CONF`, else none but the
    /// driver's.
    pub memory_limit: Option<u64>,
    /// Settings of the memory pool, written as in `LINN_ALLOC_CONF` ([`memory::settings`](crate::memory::settings)), which
    /// is applied first: what stands here wins, as in PyTorch.
    pub alloc_conf: Option<String>,
    /// Keep freed memory for reuse (the default), or buy and give back one buffer per tensor (to compare).
    pub caching: crate::memory::Caching,
    /// How kernel parameters travel; for tests of both ways.
    pub params: ParamsVia,
    /// More uses of the buffers that tensors lie in, for an application that draws from them.
    pub buffer_uses: BufferUses,
    /// On a card with memory of its own: let kernels reach buffers in host memory, which
    /// [`SaveOnCpu`](crate::autograd::SaveOnCpu) needs. Costs nothing, but wgpu logs a warning when the device is opened
    /// (`MAPPABLE_PRIMARY_BUFFERS`); elsewhere buffers can lie there anyway.
    pub host_buffers: bool,
    /// Who polls an application's device (`Device::from_wgpu`); of no meaning for devices that linn opens.
    pub polling: Polling,
    /// Calls that the driver does, and how many it refuses then, from the opening on; for tests.
    #[doc(hidden)]
    pub refuse_driver_calls: (u64, u64),
    /// Open the adapter as one that cannot tell the time; for tests.
    #[doc(hidden)]
    pub without_timestamps: bool,
    /// Open the adapter as one that lets a kernel see so many bytes of a buffer at most; for tests.
    #[doc(hidden)]
    pub max_storage_buffer_binding_size: Option<u64>,
}

/// How kernel parameters travel to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParamsVia {
    /// In the command stream where the adapter can, else in a uniform buffer.
    #[default]
    Best,
    /// Always in a uniform buffer, as in browsers.
    Uniform,
}

/// Uses of tensors' buffers beyond what kernels and copies need (storage, copies from and to). Asked for when a device is
/// opened, because every segment of its pool has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferUses {
    /// Vertices are read from them.
    pub vertex: bool,
    /// Indices are read from them.
    pub index: bool,
    /// The arguments of indirect draws and dispatches are read from them.
    pub indirect: bool,
    /// They are bound as uniform buffers.
    pub uniform: bool,
}

impl BufferUses {
    pub(super) fn usages(self) -> wgpu::BufferUsages {
        use wgpu::BufferUsages as Usage;
        let all = [
            (self.vertex, Usage::VERTEX),
            (self.index, Usage::INDEX),
            (self.indirect, Usage::INDIRECT),
            (self.uniform, Usage::UNIFORM),
        ];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, usage)| usage).collect()
    }
}

/// When linn's thread polls a wgpu device that belongs to an application. wgpu runs the callbacks of everybody on the thread
/// that polls or submits. linn looks (`PollType::Poll`) some thousand times a second and never waits inside wgpu, where a wait
/// with a timeout beside a submission of another thread would panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Only while somebody waits: in a call, by a future or a read that is not there yet, or work that has to wait for other
    /// work. What is done beside that is noticed when the application polls, or when linn submits.
    #[default]
    WhenWaiting,
    /// Whenever work of linn is under way: the application need not poll for linn's sake.
    Always,
}

/// What kind of hardware an adapter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdapterKind {
    /// A card of its own.
    Discrete,
    /// Part of the processor.
    Integrated,
    /// A GPU lent to a virtual machine.
    Virtual,
    /// The driver does not say (browsers and GL, for instance).
    Other,
    /// A driver that runs on the CPU.
    Software,
}

/// Names and kind of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterInfo {
    /// Name of the adapter.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`, `gl`, `webgpu` or `noop`.
    pub backend: String,
    /// Name and version of the driver.
    pub driver: String,
    /// What kind of hardware it is.
    pub kind: AdapterKind,
}

impl fmt::Display for AdapterInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {:?}, {})", self.name, self.backend, self.kind, self.driver)
    }
}

/// The adapter's limits that linn depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest segment, in bytes.
    pub max_buffer_size: u64,
    /// Largest tensor a kernel can be given, in bytes.
    pub max_storage_buffer_binding_size: u64,
    /// Storage buffers that one kernel can use.
    pub max_storage_buffers: u32,
    /// Bytes of parameters that travel in the command stream; 0 where there are none.
    pub max_immediate_size: u32,
    /// Alignment of blocks, in bytes.
    pub storage_alignment: u32,
    /// Invocations per workgroup.
    pub max_invocations: u32,
    /// Size of a workgroup in each dimension.
    pub max_workgroup_size: [u32; 3],
    /// Workgroups per dimension.
    pub max_workgroups: u32,
    /// Bytes of workgroup memory.
    pub max_workgroup_memory: u32,
    /// Size of subgroups where it is fixed and usable, else 0.
    pub subgroup_size: u32,
}

/// An opened wgpu device with what we know about it.
pub(crate) struct Opened {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) info: AdapterInfo,
    pub(crate) limits: Limits,
    /// It belongs to an application, and this is who polls it.
    pub(crate) foreign: Option<Polling>,
}

pub(crate) async fn open(options: &DeviceOptions) -> Result<Opened> {
    let help = "write it as plain text, or unset it for the best adapter";
    let wanted = Wanted::new(options, |name| variable(name, std::env::var(name), help))?;
    let (mut found, mut unable) = (Vec::new(), Vec::new());
    for backends in rounds(wanted.backend) {
        let (able, others): (Vec<_>, Vec<_>) =
            adapters(backends).await.into_iter().partition(|(_, adapter)| has_compute(adapter));
        let infos: Vec<AdapterInfo> = able.iter().map(|(info, _)| info.clone()).collect();
        if let Some((info, adapter)) = wanted.best(&infos).and_then(|best| able.into_iter().nth(best)) {
            if let Some(warning) = wanted.warning(&info) {
                log::warn!("{warning}");
            }
            return open_adapter(adapter, info, options).await;
        }
        found.extend(infos);
        unable.extend(others.into_iter().map(|(info, _)| info));
    }
    Err(wanted.error(&found, &unable))
}

/// The value of an environment variable. One that is not UTF-8 was meant to say something; `help` says how to write it.
pub(super) fn variable(name: &str, value: std::result::Result<String, VarError>, help: &str) -> Result<Option<String>> {
    match value {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(value)) => {
            Err(Error::argument("open", format!("{name} is {value:?}, which is not UTF-8"), help))
        }
    }
}

/// The backends to look at, one round after the other until an adapter fits. Probing GL prints noise on headless machines and
/// takes time, so without a wish it comes last. Where the backend of a wish has nothing, the others are looked at for the error.
fn rounds(backend: Option<&str>) -> Vec<wgpu::Backends> {
    let first = match backend {
        None => wgpu::Backends::PRIMARY,
        Some("vulkan") => wgpu::Backends::VULKAN,
        Some("metal") => wgpu::Backends::METAL,
        Some("dx12") => wgpu::Backends::DX12,
        Some("gl") => wgpu::Backends::GL,
        Some(_) => wgpu::Backends::BROWSER_WEBGPU,
    };
    [first, wgpu::Backends::PRIMARY - first, wgpu::Backends::GL - first].into_iter().filter(|round| !round.is_empty()).collect()
}

async fn adapters(backends: wgpu::Backends) -> Vec<(AdapterInfo, wgpu::Adapter)> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        // Validation layers are a tool for debugging drivers; they slow every call.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let adapters: Vec<wgpu::Adapter> = if cfg!(target_arch = "wasm32") {
        instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await.into_iter().collect()
    } else {
        instance.enumerate_adapters(backends).await
    };
    adapters.into_iter().map(|adapter| (describe(&adapter.get_info()), adapter)).collect()
}

fn describe(info: &wgpu::AdapterInfo) -> AdapterInfo {
    let backend = match info.backend {
        wgpu::Backend::Vulkan => "vulkan",
        wgpu::Backend::Metal => "metal",
        wgpu::Backend::Dx12 => "dx12",
        wgpu::Backend::Gl => "gl",
        wgpu::Backend::BrowserWebGpu => "webgpu",
        wgpu::Backend::Noop => "noop",
    };
    let software = ["llvmpipe", "swiftshader", "lavapipe", "softpipe", "basic render"];
    let looks_like_software = software.iter().any(|name| info.name.to_lowercase().contains(name));
    let kind = match info.device_type {
        wgpu::DeviceType::Cpu => AdapterKind::Software,
        _ if looks_like_software => AdapterKind::Software,
        wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
        wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
        wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
        wgpu::DeviceType::Other => AdapterKind::Other,
    };
    let driver = format!("{} {}", info.driver, info.driver_info).trim().to_owned();
    AdapterInfo { name: info.name.clone(), backend: backend.to_owned(), driver, kind }
}

fn has_compute(adapter: &wgpu::Adapter) -> bool {
    adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
}

/// Features that are used where they exist: by kernels, by timed events, and for buffers in host memory.
fn features(options: &DeviceOptions, kind: wgpu::DeviceType) -> wgpu::Features {
    let time = if options.without_timestamps { wgpu::Features::empty() } else { wgpu::Features::TIMESTAMP_QUERY };
    let wants_host = options.host_buffers || kind != wgpu::DeviceType::DiscreteGpu;
    let host = if wants_host { wgpu::Features::MAPPABLE_PRIMARY_BUFFERS } else { wgpu::Features::empty() };
    wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP | time | host
}

/// Driver blocks of a few MiB, so that what we reserve is what the driver holds.
fn memory_hints() -> wgpu::MemoryHints {
    wgpu::MemoryHints::Manual { suballocated_device_memory_block_size: (4 << 20)..(8 << 20) }
}

async fn open_adapter(adapter: wgpu::Adapter, info: AdapterInfo, options: &DeviceOptions) -> Result<Opened> {
    let features = adapter.features() & features(options, adapter.get_info().device_type);
    let mut required = adapter.limits();
    lower_binding(&mut required, options);
    if !features.contains(wgpu::Features::IMMEDIATES) {
        required.max_immediate_size = 0;
    }
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("linn"),
        required_features: features,
        required_limits: required.clone(),
        experimental_features: wgpu::ExperimentalFeatures::disabled(),
        memory_hints: memory_hints(),
        trace: wgpu::Trace::Off,
    };
    let wgpu_info = adapter.get_info();
    let (device, queue) = adapter.request_device(&descriptor).await.map_err(|error| Error::NoAdapter {
        fact: format!("{info} could not be opened: {error}"),
        help: "update the driver, or choose another adapter with LINN_ADAPTER".into(),
    })?;
    let limits = plain_limits(&required, subgroup_size(&wgpu_info, features));
    Ok(Opened { device, queue, info, limits, foreign: None })
}

fn lower_binding(limits: &mut wgpu::Limits, options: &DeviceOptions) {
    let known = limits.max_storage_buffer_binding_size;
    limits.max_storage_buffer_binding_size = options.max_storage_buffer_binding_size.map_or(known, |most| most.min(known));
}

/// The size of subgroups where it is fixed and they can be used, else 0.
fn subgroup_size(info: &wgpu::AdapterInfo, features: wgpu::Features) -> u32 {
    let fixed = info.subgroup_min_size == info.subgroup_max_size && features.contains(wgpu::Features::SUBGROUP);
    if fixed { info.subgroup_min_size } else { 0 }
}

/// An application's device, where it can do what kernels need. WebGPU's default limits are enough; what the application's
/// features and limits have beyond them is used.
pub(crate) fn adopt(device: &wgpu::Device, queue: &wgpu::Queue, polling: Polling) -> Result<Opened> {
    let (wgpu_info, features, mut limits) = (device.adapter_info(), device.features(), device.limits());
    let info = describe(&wgpu_info);
    let least = wgpu::Limits::default();
    let needs = [
        ("max_storage_buffers_per_shader_stage", limits.max_storage_buffers_per_shader_stage, 8),
        ("max_compute_invocations_per_workgroup", limits.max_compute_invocations_per_workgroup, 256),
        ("max_compute_workgroup_size_x", limits.max_compute_workgroup_size_x, 256),
        ("max_compute_workgroup_storage_size", limits.max_compute_workgroup_storage_size, 16 << 10),
        ("max_compute_workgroups_per_dimension", limits.max_compute_workgroups_per_dimension, 65_535),
        ("max_bind_groups", limits.max_bind_groups, 2),
        ("max_dynamic_uniform_buffers_per_pipeline_layout", limits.max_dynamic_uniform_buffers_per_pipeline_layout, 1),
    ];
    let lacking = needs.iter().filter(|(_, has, needs)| has < needs);
    let lacking: Vec<String> = lacking.map(|(name, has, needs)| format!("{name} is {has}, kernels need {needs}")).collect();
    if !lacking.is_empty() {
        return Err(Error::Limit {
            op: "from_wgpu",
            fact: format!("the application's device of {info} was opened with too little: {}", lacking.join("; ")),
            help: "request it with required_limits: wgpu::Limits::default(), or with the adapter's limits".into(),
        });
    }
    if !features.contains(wgpu::Features::IMMEDIATES) {
        limits.max_immediate_size = 0;
    }
    // Kernels for subgroups of a CPU driver may read all of their inputs from textures.
    let textures = limits.max_storage_textures_per_shader_stage as usize >= MOST_TEXTURES
        && limits.max_texture_dimension_2d >= least.max_texture_dimension_2d;
    let subgroup_size = if textures { subgroup_size(&wgpu_info, features) } else { 0 };
    let limits = plain_limits(&limits, subgroup_size);
    Ok(Opened { device: device.clone(), queue: queue.clone(), info, limits, foreign: Some(polling) })
}

/// The most inputs of a kernel that can be textures: all but the result.
const MOST_TEXTURES: usize = 8;

fn plain_limits(limits: &wgpu::Limits, subgroup_size: u32) -> Limits {
    Limits {
        max_buffer_size: limits.max_buffer_size,
        max_storage_buffer_binding_size: limits.max_storage_buffer_binding_size,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_immediate_size: limits.max_immediate_size,
        storage_alignment: limits.min_storage_buffer_offset_alignment,
        max_invocations: limits.max_compute_invocations_per_workgroup,
        max_workgroup_size: [
            limits.max_compute_workgroup_size_x,
            limits.max_compute_workgroup_size_y,
            limits.max_compute_workgroup_size_z,
        ],
        max_workgroups: limits.max_compute_workgroups_per_dimension,
        max_workgroup_memory: limits.max_compute_workgroup_storage_size,
        subgroup_size,
    }
}

/// A device without a driver: everything is recorded, tracked and copied, but kernels do nothing.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn open_noop(options: &DeviceOptions) -> Opened {
    let mut required = wgpu::Limits { max_immediate_size: 128, ..wgpu::Limits::default() };
    lower_binding(&mut required, options);
    let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor {
        label: Some("linn noop"),
        required_features: features(options, wgpu::DeviceType::Cpu) - wgpu::Features::SUBGROUP,
        required_limits: required.clone(),
        experimental_features: wgpu::ExperimentalFeatures::disabled(),
        memory_hints: memory_hints(),
        trace: wgpu::Trace::Off,
    });
    let info = AdapterInfo { name: "noop".into(), backend: "noop".into(), driver: String::new(), kind: AdapterKind::Software };
    Opened { device, queue, info, limits: plain_limits(&required, 0), foreign: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_utf_8_is_an_error() {
        let wrong = <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(b"llvm\xff".to_vec());
        let help = "write it as plain text";
        let error = variable("LINN_ADAPTER", Err(VarError::NotUnicode(wrong)), help).unwrap_err().to_string();
        assert!(error.contains("LINN_ADAPTER is \"llvm\\xFF\", which is not UTF-8\nhelp: write it as plain text"), "{error}");
        assert_eq!(variable("LINN_ADAPTER", Err(VarError::NotPresent), help).unwrap(), None);
        assert_eq!(variable("LINN_ADAPTER", Ok("llvm".into()), help).unwrap().as_deref(), Some("llvm"));
    }
}
