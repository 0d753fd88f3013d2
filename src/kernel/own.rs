//! The kernels of a program's own that a device knows: checked once, compiled once, dropped when nobody has them any more.
//!
//! Who holds one: handles, commands until they are encoded, and the cache, so that a program that makes its kernel anew in each
//! step compiles it once. What is dropped leaves its number behind, by which the queue drops the compiled pipeline.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::device::command::PipelineId;
use crate::dtype::DType;
use crate::kernel::catalog::Role;
use crate::kernel::pipeline::Recipe;
use crate::kernel::source::ParamPath;
use crate::kernel::wgsl::{Checked, KernelSource};

/// Kernels that nobody holds and the cache keeps: a few programs' worth. A pipeline takes tens to hundreds of KiB of the driver's.
const MOST_IDLE: usize = 64;

/// A checked kernel and the number of its pipeline.
pub(crate) struct OwnKernel {
    pub(crate) checked: Checked,
    pub(crate) id: PipelineId,
    unused: Unused,
}

/// Numbers of pipelines that no command names any more.
#[derive(Clone, Default)]
pub(crate) struct Unused(Arc<Mutex<Vec<PipelineId>>>);

impl Unused {
    pub(crate) fn take(&self) -> Vec<PipelineId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for OwnKernel {
    fn drop(&mut self) {
        self.unused.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

impl OwnKernel {
    pub(crate) fn new(checked: Checked, id: PipelineId, unused: Unused) -> OwnKernel {
        OwnKernel { checked, id, unused }
    }

    /// What its pipeline is made from.
    pub(crate) fn recipe(&self) -> Recipe {
        let Checked { name, entry_point, wgsl, args, params, .. } = &self.checked;
        Recipe {
            label: (*name).to_owned(),
            wgsl: wgsl.clone(),
            entry_point: entry_point.clone(),
            bindings: args.len(),
            textures: 0,
            // The shader says uniform, which is there on every device.
            path: ParamPath::Uniform,
            params_size: params.len() * 4,
            clears_workgroup_memory: true,
        }
    }
}

/// All that makes two kernels the same.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct OwnKey {
    name: &'static str,
    wgsl: String,
    entry_point: String,
    args: Vec<(String, Role, DType)>,
    params: Vec<(String, DType)>,
}

impl OwnKey {
    pub(crate) fn of(source: &KernelSource<'_>) -> OwnKey {
        OwnKey {
            name: source.name,
            wgsl: source.wgsl.to_owned(),
            entry_point: source.entry_point.to_owned(),
            args: source.args.iter().map(|arg| (arg.name.to_owned(), arg.role, arg.dtype)).collect(),
            params: source.params.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect(),
        }
    }
}

/// The kernels by their source.
#[derive(Default)]
pub(crate) struct OwnKernels(FxHashMap<OwnKey, Arc<OwnKernel>>);

impl OwnKernels {
    /// The kernel of a source, where it is known.
    pub(crate) fn find(&self, key: &OwnKey) -> Option<Arc<OwnKernel>> {
        self.0.get(key).cloned()
    }

    /// Keeps a kernel. Idle ones that are more than the cache keeps are for the caller to drop.
    pub(crate) fn keep(&mut self, key: OwnKey, kernel: Arc<OwnKernel>) -> Vec<Arc<OwnKernel>> {
        let idle = |kernel: &Arc<OwnKernel>| Arc::strong_count(kernel) == 1;
        let dropped = match self.0.values().filter(|kernel| idle(kernel)).count() {
            0..MOST_IDLE => Vec::new(),
            _ => self.0.extract_if(|_, kernel| idle(kernel)).map(|(_, kernel)| kernel).collect(),
        };
        self.0.insert(key, kernel);
        dropped
    }
}
