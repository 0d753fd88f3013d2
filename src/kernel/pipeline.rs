//! Pipelines and bind groups: looked up when a launch is recorded, made when it is first encoded, cached.
//!
//! A pipeline is a shader of the catalogue for one element type and one way of sharing blocks. Recording only needs its
//! number; the WGSL is composed then, so that what cannot be composed is an error of the call. Compiling waits for the queue.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::device::command::PipelineId;
use crate::device::{Device, Gpu, ParamsVia};
use crate::dtype::DType;
use crate::error::Result;
use crate::ids::SegmentId;
use crate::kernel::own::{OwnKernel, OwnKernels, OwnKey, Unused};
use crate::kernel::sharing::Textures;
use crate::kernel::source::{self, ENTRY_POINT, ParamPath};
use crate::kernel::wgsl::{Allowed, KernelSource, check};
use crate::kernel::{Class, KernelId, Sharing};

/// What a pipeline is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PipelineKey {
    kernel: KernelId,
    dtype: DType,
    sharing: Sharing,
}

/// A shader, ready to compile.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub(crate) label: String,
    pub(crate) wgsl: String,
    pub(crate) entry_point: String,
    pub(crate) bindings: usize,
    /// The bindings that are textures.
    pub(crate) textures: Textures,
    pub(crate) path: ParamPath,
    pub(crate) params_size: usize,
    /// Workgroup memory is 0 at first, as WGSL promises. No kernel of the catalogue reads it before writing it.
    pub(crate) clears_workgroup_memory: bool,
}

/// All pipelines that a device's launches have named.
#[derive(Default)]
pub(crate) struct Registry {
    inner: Mutex<RegistryInner>,
}

#[derive(Default)]
struct RegistryInner {
    ids: FxHashMap<PipelineKey, PipelineId>,
    own: OwnKernels,
    /// By number. Numbers are not given again: what the queue has measured is kept by them, and one costs less than 100 bytes.
    recipes: Vec<Shader>,
    unused: Unused,
}

/// Where a pipeline's recipe stands.
enum Shader {
    Catalogue(Recipe),
    Own(Weak<OwnKernel>),
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, RegistryInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the pipeline; composes its shader at first use.
    pub(crate) fn pipeline(&self, device: &Device, kernel: KernelId, dtype: DType, sharing: Sharing) -> Result<PipelineId> {
        let key = PipelineKey { kernel, dtype, sharing };
        let mut inner = self.lock();
        if let Some(id) = inner.ids.get(&key) {
            return Ok(*id);
        }
        let params_size = kernel.form().params.map_or(0, |params| params.size);
        let path = ParamPath::of(params_size, device.immediates());
        let wgsl = source::compose(kernel, dtype, &sharing, path)?;
        let label = format!("linn.{}", kernel.name());
        let id = PipelineId(inner.recipes.len() as u32);
        inner.recipes.push(Shader::Catalogue(Recipe {
            label,
            wgsl,
            entry_point: ENTRY_POINT.to_owned(),
            bindings: sharing.bound().count(),
            textures: sharing.texture_bindings(),
            path,
            params_size,
            clears_workgroup_memory: false,
        }));
        inner.ids.insert(key, id);
        Ok(id)
    }

    /// A program's own kernel; checks its WGSL at first use.
    pub(crate) fn own(&self, source: &KernelSource<'_>, allowed: &Allowed<'_>) -> Result<Arc<OwnKernel>> {
        let key = OwnKey::of(source);
        if let Some(known) = self.lock().own.find(&key) {
            return Ok(known);
        }
        // Without the lock: it takes a millisecond or more, and every launch looks up a pipeline.
        let checked = check(source, allowed)?;
        let mut inner = self.lock();
        if let Some(known) = inner.own.find(&key) {
            return Ok(known);
        }
        let kernel = Arc::new(OwnKernel::new(checked, PipelineId(inner.recipes.len() as u32), inner.unused.clone()));
        inner.recipes.push(Shader::Own(Arc::downgrade(&kernel)));
        let idle = inner.own.keep(key, kernel.clone());
        drop(inner);
        drop(idle);
        Ok(kernel)
    }

    fn recipe(&self, id: PipelineId) -> Option<Recipe> {
        match self.lock().recipes.get(id.0 as usize)? {
            Shader::Catalogue(recipe) => Some(recipe.clone()),
            Shader::Own(kernel) => kernel.upgrade().map(|kernel| kernel.recipe()),
        }
    }

    /// Pipelines that no command names any more, since the last call.
    fn take_unused(&self) -> Vec<PipelineId> {
        let unused = self.lock().unused.clone();
        unused.take()
    }
}

impl Device {
    /// Bytes of parameters that go through the command stream.
    fn immediates(&self) -> u32 {
        match self.shared().options.params {
            ParamsVia::Best => self.limits().max_immediate_size,
            ParamsVia::Uniform => 0,
        }
    }

    /// Which kernel forms suit the device.
    pub(crate) fn class(&self) -> Class {
        Class::of(self.info().kind == crate::device::AdapterKind::Software, self.limits().subgroup_size)
    }
}

/// A compiled pipeline.
pub(crate) struct Compiled {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) path: ParamPath,
    /// The bindings that are textures.
    pub(crate) textures: Textures,
}

/// The compiled pipelines, owned by the queue.
pub(crate) struct Pipelines {
    compiled: Vec<Option<Compiled>>,
    /// Group 0 by number of bindings and the textures among them.
    layouts: FxHashMap<(usize, Textures), wgpu::BindGroupLayout>,
    /// Group 1: the parameters of one dispatch in a uniform buffer.
    uniform: wgpu::BindGroupLayout,
    pub(crate) compilations: u64,
    /// Those that are kept.
    pub(crate) live: u64,
}

/// Bytes of a uniform binding; parameters are never larger.
pub(crate) const UNIFORM_SIZE: u64 = crate::device::command::MAX_PARAMS as u64;

/// How kernels bind memory of tensors.
pub(crate) const STORAGE: wgpu::BindingType = wgpu::BindingType::Buffer {
    ty: wgpu::BufferBindingType::Storage { read_only: false },
    has_dynamic_offset: false,
    min_binding_size: None,
};

impl Pipelines {
    pub(crate) fn new(device: &wgpu::Device) -> Pipelines {
        let entry = wgpu::BindGroupLayoutEntry {
            binding: 0,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Uniform,
                has_dynamic_offset: true,
                min_binding_size: None,
            },
            count: None,
        };
        let uniform =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some("linn.params"), entries: &[entry] });
        Pipelines { compiled: Vec::new(), layouts: FxHashMap::default(), uniform, compilations: 0, live: 0 }
    }

    /// True when it need not be compiled any more.
    pub(crate) fn has(&self, id: PipelineId) -> bool {
        self.compiled.get(id.0 as usize).is_some_and(Option::is_some)
    }

    /// The compiled pipeline; compiles it at first use. `Err` holds the driver's words; the next call tries again.
    pub(crate) fn get(&mut self, gpu: &Gpu, registry: &Registry, id: PipelineId) -> Result<&Compiled, String> {
        let index = id.0 as usize;
        if self.compiled.get(index).is_none_or(Option::is_none) {
            let recipe = registry.recipe(id).ok_or("a kernel is gone")?;
            let compiled = gpu.attempt(&recipe.label, || self.compile(&gpu.device, &recipe))?;
            self.compilations += 1;
            self.live += 1;
            self.compiled.resize_with(self.compiled.len().max(index + 1), || None);
            self.compiled[index] = Some(compiled);
        }
        self.compiled[index].as_ref().ok_or_else(|| "a pipeline is missing".to_owned())
    }

    /// Drops the pipelines of kernels that nobody has any more.
    pub(crate) fn drop_unused(&mut self, registry: &Registry) {
        for id in registry.take_unused() {
            let dropped = self.compiled.get_mut(id.0 as usize).and_then(Option::take);
            self.live -= u64::from(dropped.is_some());
        }
    }

    fn compile(&mut self, device: &wgpu::Device, recipe: &Recipe) -> Compiled {
        let label = Some(recipe.label.as_str());
        let source = wgpu::ShaderSource::Wgsl(recipe.wgsl.as_str().into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let group0 = self.layout(device, recipe.bindings, recipe.textures).clone();
        let groups = [Some(&group0), Some(&self.uniform)];
        let used = if recipe.path == ParamPath::Uniform && recipe.params_size > 0 { 2 } else { 1 };
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &groups[..used],
            immediate_size: if recipe.path == ParamPath::Immediates { recipe.params_size as u32 } else { 0 },
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&layout),
            module: &module,
            entry_point: Some(&recipe.entry_point),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: recipe.clears_workgroup_memory,
                ..Default::default()
            },
            cache: None,
        });
        Compiled { pipeline, path: recipe.path, textures: recipe.textures }
    }

    /// Makes the layouts anew when they are wanted: one may have been refused.
    pub(crate) fn forget_layouts(&mut self) {
        self.layouts.clear();
    }

    /// Layout of group 0: so many bindings, `textures` of them textures, the others storage buffers.
    pub(crate) fn layout(&mut self, device: &wgpu::Device, bindings: usize, textures: Textures) -> &wgpu::BindGroupLayout {
        self.layouts.entry((bindings, textures)).or_insert_with(|| {
            let texture = wgpu::BindingType::StorageTexture {
                access: wgpu::StorageTextureAccess::ReadOnly,
                format: wgpu::TextureFormat::Rgba32Float,
                view_dimension: wgpu::TextureViewDimension::D2,
            };
            let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..bindings)
                .map(|binding| wgpu::BindGroupLayoutEntry {
                    binding: binding as u32,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: if textures >> binding & 1 == 1 { texture } else { STORAGE },
                    count: None,
                })
                .collect();
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some("linn.operands"), entries: &entries })
        })
    }

    pub(crate) fn uniform_layout(&self) -> &wgpu::BindGroupLayout {
        &self.uniform
    }
}

/// One bound range: `None` is the status words.
pub(crate) type Range = Option<(SegmentId, u64, u64)>;

/// Bind groups by the ranges they bind; bounded. A cached group keeps its buffers alive, so groups of a released segment go.
pub(crate) struct BindGroups {
    groups: FxHashMap<SmallVec<[Range; 6]>, (wgpu::BindGroup, u64)>,
    clock: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// Most bind groups kept. A GPT step of 4 layers uses about 500; each costs a few hundred bytes.
pub(crate) const MOST_BIND_GROUPS: usize = 8192;

impl BindGroups {
    pub(crate) fn new() -> BindGroups {
        BindGroups { groups: FxHashMap::default(), clock: 0, hits: 0, misses: 0 }
    }

    /// The group that binds `ranges`, made by `make` where it is not there.
    pub(crate) fn get<E>(
        &mut self,
        ranges: &SmallVec<[Range; 6]>,
        make: impl FnOnce() -> Result<wgpu::BindGroup, E>,
    ) -> Result<&wgpu::BindGroup, E> {
        self.clock += 1;
        let clock = self.clock;
        if self.groups.contains_key(ranges) {
            self.hits += 1;
        } else {
            self.misses += 1;
            if self.groups.len() >= MOST_BIND_GROUPS {
                self.forget_older_half();
            }
        }
        let entry = match self.groups.entry(ranges.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((make()?, clock)),
        };
        entry.1 = clock;
        Ok(&entry.0)
    }

    fn forget_older_half(&mut self) {
        let mut ages: Vec<u64> = self.groups.values().map(|(_, used)| *used).collect();
        let middle = ages.len() / 2;
        let (_, median, _) = ages.select_nth_unstable(middle);
        let median = *median;
        self.groups.retain(|_, (_, used)| *used > median);
    }

    /// Forgets every group that binds the segment.
    pub(crate) fn forget_segment(&mut self, segment: SegmentId) {
        self.groups.retain(|ranges, _| ranges.iter().flatten().all(|(bound, _, _)| *bound != segment));
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn clear(&mut self) {
        self.groups.clear();
    }
}

impl Class {
    /// Forms for a CPU driver, for subgroups of a size the kernels know, or for any device.
    pub(crate) fn of(software: bool, subgroup_size: u32) -> Class {
        match (software, subgroup_size) {
            (true, 8) => Class::Subgroup,
            (true, _) => Class::Cpu,
            (false, _) => Class::Any,
        }
    }
}
