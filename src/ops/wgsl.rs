//! A program's own kernels: what is launched on tensors, and how tensors are made to fit.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::Device;
use crate::dtype::Scalar;
use crate::error::{Error, Result};
use crate::kernel::grid::Work;
use crate::kernel::own::OwnKernel;
use crate::kernel::wgsl::CheckedArg;
use crate::kernel::{KernelSource, Role};
use crate::ops;
use crate::ops::elementwise::scalar_bits;
use crate::stream::interop::Part;
use crate::stream::own;
use crate::tensor::Tensor;

/// Where a tensor has to begin in its memory to be bound as it is, in bytes. Adapters ask for 32 to 256; one number for all, so that
/// a program that runs on one runs on all.
const ALIGNMENT: u64 = 256;

/// A kernel of a program's own: WGSL that is given at run time. Cheap to clone; a device checks and compiles one source once.
///
/// Launched on tensors, it is an operation like linn's own: enqueued on the current stream, ordered after what it reads and
/// before what reads its results, its memory kept until it has run, its late errors told by the next call that synchronises,
/// under its name. Accesses outside a tensor are caught by the driver's checks (loads give some element or 0, stores go nowhere
/// or to some element of the same tensor). What cannot be caught is a loop without end: the driver ends it, and the device is lost.
///
/// ```
/// use linn::kernel::{KernelArg, KernelSource};
/// use linn::{DType, Device, Tensor, WgslKernel};
///
/// let device = Device::open()?;
/// let scale = WgslKernel::new(&device, KernelSource {
///     name: "scale",
///     wgsl: "
///         struct Params { factor: f32 }
///         @group(0) @binding(0) var<storage, read> x: array<f32>;
///         @group(0) @binding(1) var<storage, read_write> y: array<f32>;
///         @group(1) @binding(0) var<uniform> p: Params;
///         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///             if id.x < arrayLength(&y) { y[id.x] = p.factor * x[id.x]; }
///         }",
///     args: &[KernelArg::input("x", DType::F32), KernelArg::output("y", DType::F32)],
///     params: &[("factor", DType::F32)],
///     ..KernelSource::default()
/// })?;
/// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
/// let y = Tensor::empty(&device, &[3], DType::F32)?;
/// scale.launch(&[&x, &y], &[10.0.into()], scale.grid([3, 1, 1])?)?;
/// assert_eq!(y.to_vec::<f32>()?, [10.0, 20.0, 30.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[derive(Clone)]
pub struct WgslKernel {
    device: Device,
    kernel: Arc<OwnKernel>,
}

impl WgslKernel {
    /// Checks `source` on `device`: that the WGSL is valid, that its entry point is there, that the tensors and parameters that
    /// it uses are those declared (bindings, names, element types, access; no input is stored to), and that the adapter's limits
    /// allow it. It is compiled with the first launch.
    ///
    /// # Errors
    /// [`Error::Argument`] says what does not fit, for WGSL in the compiler's words and with the line; [`Error::Limit`].
    pub fn new(device: &Device, source: KernelSource<'_>) -> Result<WgslKernel> {
        Ok(WgslKernel { device: device.clone(), kernel: own::kernel(device, &source)? })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.kernel.checked.name
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Invocations of a workgroup: the shader's `@workgroup_size`.
    pub fn workgroup_size(&self) -> [u32; 3] {
        self.kernel.checked.workgroup_size
    }

    /// The grid, in workgroups, for at least so many invocations in each dimension. Those that are too many have to find out
    /// (`if id.x < arrayLength(&y)`).
    ///
    /// # Errors
    /// [`Error::Limit`] for more workgroups than a dimension can have, 65,535 on most adapters.
    pub fn grid(&self, invocations: [usize; 3]) -> Result<[u32; 3]> {
        let mut grid = [0; 3];
        for ((groups, n), size) in grid.iter_mut().zip(invocations).zip(self.workgroup_size()) {
            let needed = n.div_ceil(size as usize);
            *groups = u32::try_from(needed).unwrap_or(u32::MAX);
            self.fits_grid(needed as u64)?;
        }
        Ok(grid)
    }

    fn fits_grid(&self, groups: u64) -> Result<()> {
        let most = self.device.limits().max_workgroups;
        if groups <= u64::from(most) {
            return Ok(());
        }
        Err(Error::Limit {
            op: self.name(),
            fact: format!("{groups} workgroups in one dimension; the adapter has {most} at most (max_compute_workgroups_per_dimension)"),
            help: "let each invocation do several elements, or use a second dimension: id.x + id.y * num_workgroups.x * the workgroup's size"
                .into(),
        })
    }

    /// What every launch demands of its tensors, whatever is recorded. True where there is something to run.
    fn check(&self, tensors: &[&Tensor], params: &[Scalar], grid: [u32; 3]) -> Result<bool> {
        let checked = &self.kernel.checked;
        if tensors.len() != checked.args.len() {
            let names: Vec<&str> = checked.args.iter().map(|arg| arg.name.as_str()).collect();
            let fact = format!("takes {} tensors ({}), was given {}", names.len(), names.join(", "), tensors.len());
            return Err(Error::argument(self.name(), fact, "pass one for each of the args of its KernelSource, in their order"));
        }
        if params.len() != checked.params.len() {
            let names: Vec<&str> = checked.params.iter().map(|(name, _)| name.as_str()).collect();
            let fact = format!("takes {} parameters ({}), was given {}", names.len(), names.join(", "), params.len());
            return Err(Error::argument(
                self.name(),
                fact,
                "pass one for each of the params of its KernelSource, in their order",
            ));
        }
        for (tensor, arg) in tensors.iter().zip(&checked.args) {
            if !tensor.device().same(&self.device) {
                return Err(self.device.mismatch(self.name(), tensor.device()));
            }
            if tensor.dtype() != arg.dtype {
                return Err(Error::argument(
                    self.name(),
                    format!("`{}` is declared {}, and the tensor is {}", arg.name, arg.dtype, tensor.dtype()),
                    format!("convert it with to_dtype(DType::{:?}), or make a kernel for {}", arg.dtype, tensor.dtype()),
                ));
            }
        }
        grid.iter().try_for_each(|groups| self.fits_grid(u64::from(*groups)))?;
        if grid.contains(&0) {
            return Ok(false);
        }
        match tensors.iter().zip(&checked.args).find(|(tensor, _)| tensor.is_empty()) {
            None => Ok(true),
            Some((tensor, arg)) => Err(Error::shape(
                self.name(),
                format!("`{}` has no elements (shape {:?}), and the grid is {grid:?}", arg.name, tensor.shape()),
                "nothing cannot be bound: pass a grid with a 0 (nothing is launched then), or leave the call out",
            )),
        }
    }

    /// Enqueues a launch of `grid` workgroups on the current stream, without gradients.
    #[track_caller]
    pub(crate) fn enqueue(&self, tensors: &[&Tensor], params: &[Scalar], grid: [u32; 3]) -> Result<()> {
        let checked = &self.kernel.checked;
        if !self.check(tensors, params, grid)? {
            return Ok(());
        }
        let mut bytes = SmallVec::<[u8; 32]>::new();
        for (value, (name, dtype)) in params.iter().zip(&checked.params) {
            let bits = scalar_bits(self.name(), *value, *dtype).map_err(|_| {
                let fact = format!("parameter `{name}` is {value}, which is no {dtype}");
                Error::argument(self.name(), fact, format!("pass a whole number in the range of {dtype}"))
            })?;
            bytes.extend_from_slice(&bits.to_ne_bytes());
        }
        // Written tensors first: an input that overlaps one is copied, with the elements from before.
        let written: SmallVec<[&Tensor; 8]> =
            tensors.iter().zip(&checked.args).filter(|(_, arg)| arg.role != Role::In).map(|(tensor, _)| *tensor).collect();
        for (i, (tensor, arg)) in tensors.iter().zip(&checked.args).enumerate().filter(|(_, (_, arg))| arg.role != Role::In) {
            self.writes(tensor, arg)?;
            let earlier = tensors[..i].iter().zip(&checked.args).filter(|(_, arg)| arg.role != Role::In);
            if let Some((_, other)) = earlier.into_iter().find(|(other, _)| share_words(other, tensor)) {
                return Err(Error::argument(
                    self.name(),
                    format!("`{}` and `{}` are both written, and have memory in common", other.name, arg.name),
                    "pass tensors of their own: which of the two results would stay is anybody's guess",
                ));
            }
        }
        let mut bound: SmallVec<[Tensor; 8]> = SmallVec::new();
        for (i, (tensor, arg)) in tensors.iter().zip(&checked.args).enumerate() {
            let clashes = || {
                written.iter().any(|out| share_words(out, tensor)) || bound[..i].iter().any(|other| share_words(other, tensor))
            };
            let as_it_is = arg.role != Role::In || (is_bindable(tensor) && !clashes());
            bound.push(if as_it_is { (*tensor).clone() } else { ops::copy::copy(tensor)? });
        }
        let parts: SmallVec<[Part<'_>; 8]> = bound.iter().map(|tensor| tensor.part(self.name())).collect::<Result<_>>()?;
        for (part, arg) in parts.iter().zip(&checked.args) {
            self.fits_binding(part.size, arg)?;
        }
        let work = Work::from(grid).with_elements(bound.iter().map(Tensor::len).sum());
        own::dispatch(&self.device, &self.kernel, &parts, &bytes, work)
    }

    /// Refuses tensors that cannot be written as they lie.
    fn writes(&self, tensor: &Tensor, arg: &CheckedArg) -> Result<()> {
        let why = if !tensor.is_contiguous() {
            format!("is not contiguous (shape {:?}, strides {:?})", tensor.shape(), tensor.layout().strides())
        } else if !is_bindable(tensor) {
            format!("begins at byte {} of its memory, which is no multiple of {ALIGNMENT}", first_byte(tensor))
        } else if !tensor.owns_last_word() {
            format!("ends in a word that holds elements of others too ({} elements of {})", tensor.len(), tensor.dtype())
        } else {
            return Ok(());
        };
        Err(Error::shape(
            self.name(),
            format!("`{}` is written, and {why}", arg.name),
            "pass a new tensor (empty_like, contiguous), and copy_ the result to where it is wanted",
        ))
    }

    fn fits_binding(&self, size: u64, arg: &CheckedArg) -> Result<()> {
        let most = self.device.limits().max_storage_buffer_binding_size;
        if size > most {
            return Err(Error::Limit {
                op: self.name(),
                fact: format!(
                    "`{}` has {size} bytes; the adapter lets a kernel see {most} (max_storage_buffer_binding_size)",
                    arg.name
                ),
                help: "split the tensor along its first dimension".into(),
            });
        }
        if size < arg.min_size {
            return Err(Error::shape(
                self.name(),
                format!("`{}` has {size} bytes, and the shader's type has {} at least", arg.name, arg.min_size),
                "pass a larger tensor, or use a smaller type: array<f32> can have one element",
            ));
        }
        Ok(())
    }

    /// The element types and names of the tensors that are only written.
    pub(crate) fn args(&self) -> &[CheckedArg] {
        &self.kernel.checked.args
    }
}

impl std::fmt::Debug for WgslKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let args: Vec<&str> = self.args().iter().map(|arg| arg.name.as_str()).collect();
        write!(f, "WgslKernel({}({}) of {})", self.name(), args.join(", "), self.device.name())
    }
}

fn first_byte(tensor: &Tensor) -> u64 {
    (tensor.layout().offset() * tensor.dtype().size()) as u64
}

/// True where the elements of a tensor can be bound as they lie.
fn is_bindable(tensor: &Tensor) -> bool {
    tensor.is_contiguous() && first_byte(tensor).is_multiple_of(ALIGNMENT)
}

/// True where two tensors may have elements, or words of packed elements, in common.
fn share_words(a: &Tensor, b: &Tensor) -> bool {
    let words = |tensor: &Tensor| {
        let end = (tensor.layout().end() * tensor.dtype().size()) as u64;
        (first_byte(tensor) / 4, end.div_ceil(4))
    };
    let ((a_first, a_end), (b_first, b_end)) = (words(a), words(b));
    a.shares_storage(b) && a_first < b_end && b_first < a_end
}
