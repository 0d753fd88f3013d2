//! Launching a program's own kernels: what the gradients of tensors have to say to it.

use super::mode::is_grad_enabled;
use crate::dtype::Scalar;
use crate::error::{Error, Result};
use crate::kernel::Role;
use crate::memory::Category;
use crate::ops::wgsl::WgslKernel;
use crate::tensor::Tensor;

impl WgslKernel {
    /// Enqueues `grid` workgroups on the current stream. `tensors` are those of [`KernelSource::args`], `params` the numbers of
    /// [`KernelSource::params`], both in their order; a grid with a 0 launches nothing. See [`WgslKernel::grid`].
    ///
    /// - In the shader, `arrayLength` is the length of the tensor (of its words, for f16, bf16 and bool), whatever memory it
    ///   lies in: views are windows.
    /// - Inputs may be any views. Those that are not contiguous, that do not begin at a multiple of 256 bytes of their memory,
    ///   or that overlap another tensor of the call are copied first: the kernel sees their elements from before the launch.
    /// - What is written has to be contiguous and to begin at such a multiple. It counts as changed in place.
    ///
    /// A launch is not recorded, so tensors that want gradients are refused while recording is on. Wrap the kernel in a
    /// [`Function`](crate::autograd::Function), or launch it under [`no_grad`](crate::autograd::no_grad).
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of tensors or parameters, another element type, a number that its type cannot
    /// hold, two written tensors that overlap; [`Error::Shape`] for written views that do not fit, for tensors without elements,
    /// or with fewer than the shader's type has; [`Error::Limit`], [`Error::DeviceMismatch`], [`Error::Autograd`].
    ///
    /// [`KernelSource::args`]: crate::kernel::KernelSource::args
    /// [`KernelSource::params`]: crate::kernel::KernelSource::params
    #[track_caller]
    pub fn launch(&self, tensors: &[&Tensor], params: &[Scalar], grid: [u32; 3]) -> Result<()> {
        if let Some(at) = tensors.iter().position(|tensor| tensor.requires_grad()).filter(|_| is_grad_enabled()) {
            let name = self.args().get(at).map_or("a tensor", |arg| arg.name.as_str());
            return Err(Error::autograd(
                format!("`{}` is launched on a tensor that wants gradients (`{name}`), and would not be recorded", self.name()),
                "launch it in the forward of a Function, which has a backward, or under no_grad",
            ));
        }
        self.enqueue(tensors, params, grid)
    }

    /// [`WgslKernel::launch`] into new tensors: one for each output of the kernel, of these shapes. `tensors` are the others.
    ///
    /// ```
    /// # use linn::kernel::{KernelArg, KernelSource};
    /// # use linn::{DType, Device, Tensor, WgslKernel};
    /// # let device = Device::open()?;
    /// # let wgsl = "@group(0) @binding(0) var<storage, read> x: array<f32>; @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    /// #     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    /// #         if id.x < arrayLength(&y) { y[id.x] = x[id.x] * x[id.x]; } }";
    /// # let args = &[KernelArg::input("x", DType::F32), KernelArg::output("y", DType::F32)];
    /// let square = WgslKernel::new(&device, KernelSource { name: "square", wgsl, args, ..KernelSource::default() })?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let y = square.call(&[&x], &[&[3]], &[], [1, 1, 1])?.remove(0);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn call(&self, tensors: &[&Tensor], shapes: &[&[usize]], params: &[Scalar], grid: [u32; 3]) -> Result<Vec<Tensor>> {
        let outputs = || self.args().iter().filter(|arg| arg.role == Role::Out);
        if outputs().count() != shapes.len() || self.args().len() - shapes.len() != tensors.len() {
            let (out, others) = (outputs().count(), self.args().len() - outputs().count());
            let fact = format!(
                "gives {out} outputs and takes {others} tensors beside, was given {} shapes and {} tensors",
                shapes.len(),
                tensors.len()
            );
            return Err(Error::argument(self.name(), fact, "pass a shape for each output, and the other tensors in their order"));
        }
        let made = outputs().zip(shapes);
        let made = made.map(|(arg, shape)| Tensor::empty_as(self.name(), self.device(), shape, arg.dtype, Category::Temporary));
        let made = made.collect::<Result<Vec<Tensor>>>()?;
        let (mut given, mut new) = (tensors.iter().copied(), made.iter());
        let all: Vec<&Tensor> =
            self.args().iter().filter_map(|arg| if arg.role == Role::Out { new.next() } else { given.next() }).collect();
        self.launch(&all, params, grid)?;
        Ok(made)
    }
}
