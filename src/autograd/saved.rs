//! Tensors kept for the backward pass, and hooks which keep something else in their place.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use super::graph::leaf_of;
use super::mode::no_grad_guard;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::memory::Category;
use crate::tensor::{Storage, Tensor};

/// Gives a packed tensor back.
type Unpack = dyn Fn() -> Result<Tensor> + Send + Sync;

/// Both hooks in one: packs a tensor and says how it is unpacked.
type Hooks = dyn Fn(&Tensor) -> Result<Box<Unpack>>;

thread_local! {
    static HOOKS: RefCell<Option<Rc<Hooks>>> = const { RefCell::new(None) };
}

/// Runs `f`; every tensor that an operation saves for its backward pass meanwhile is given to `pack`, and its answer kept instead.
/// The backward pass calls `unpack` with it when the operation needs the tensor. PyTorch's
/// `torch.autograd.graph.saved_tensors_hooks`.
///
/// `pack` is called once for each tensor that is saved, parameters too, in the order of the calls, under [`no_grad`](super::no_grad);
/// what it saves itself passes no hooks. It sees results of operations without their history, and must not change them in place.
/// Keeping less (another type, a file, host memory) is the point: a tensor that nobody else holds is freed. `unpack` runs on the
/// stream of the operation, whenever a backward pass uses it, and answers with a tensor of the shape, type and device that `pack`
/// saw; values may differ. Scopes nest, and the innermost counts. They belong to their thread, and hold for operations that are
/// recorded: a backward pass need not be inside.
///
/// # Errors
/// `f`'s calls fail with the error of `pack`, and with [`Error::Autograd`] where it changes the tensor. The backward pass fails with
/// the error of `unpack`, and with [`Error::Autograd`] for an answer that does not fit, or that is the saved tensor, changed in place
/// since; what another answer holds is the hooks' affair.
///
/// ```
/// # use linn::{DType, Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::saved_tensors_hooks;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
/// // Kept in half of the memory.
/// let pack = |tensor: &Tensor| tensor.to_dtype(DType::F16);
/// let unpack = |packed: &Tensor| packed.to_dtype(DType::F32);
/// let y = saved_tensors_hooks(pack, unpack, || x.square()?.sum_all())?;
/// y.backward()?;
/// assert_eq!(x.grad().map(|grad| grad.to_vec::<f32>()).transpose()?, Some(vec![2.0, 4.0]));
/// # Ok::<(), linn::Error>(())
/// ```
pub fn saved_tensors_hooks<P: Send + Sync + 'static, T>(
    pack: impl Fn(&Tensor) -> Result<P> + 'static,
    unpack: impl Fn(&P) -> Result<Tensor> + Send + Sync + 'static,
    f: impl FnOnce() -> T,
) -> T {
    let _guard = saved_tensors_hooks_guard(pack, unpack);
    f()
}

/// [`saved_tensors_hooks`] in this thread until the guard is dropped; guards nest.
#[must_use = "the hooks are gone as soon as the guard is dropped"]
pub fn saved_tensors_hooks_guard<P: Send + Sync + 'static>(
    pack: impl Fn(&Tensor) -> Result<P> + 'static,
    unpack: impl Fn(&P) -> Result<Tensor> + Send + Sync + 'static,
) -> SavedTensorsHooksGuard {
    let unpack = Arc::new(unpack);
    let hooks = move |tensor: &Tensor| {
        let (packed, unpack) = (pack(tensor)?, unpack.clone());
        Ok(Box::new(move || unpack(&packed)) as Box<Unpack>)
    };
    SavedTensorsHooksGuard { _before: Before::switch(Some(Rc::new(hooks))) }
}

/// Keeps hooks on saved tensors while it lives; made by [`saved_tensors_hooks_guard`].
pub struct SavedTensorsHooksGuard {
    _before: Before,
}

/// The hooks to go back to. They belong to their thread, so this must not be sent.
struct Before {
    hooks: Option<Rc<Hooks>>,
    _stays_in_its_thread: PhantomData<*const ()>,
}

impl Before {
    fn switch(hooks: Option<Rc<Hooks>>) -> Before {
        // A thread that is ending has no hooks any more.
        let hooks = HOOKS.try_with(|place| place.replace(hooks)).ok().flatten();
        Before { hooks, _stays_in_its_thread: PhantomData }
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        let before = self.hooks.take();
        // What was there is user code, and is dropped when the place is free again.
        let _inner = HOOKS.try_with(|place| place.replace(before));
    }
}

/// A tensor kept for the backward pass, and its version at that time.
pub(crate) struct Saved {
    kept: Kept,
    version: u64,
}

enum Kept {
    Tensor(Tensor),
    Packed(Box<Packed>),
}

/// What hooks keep, and what they have to give back.
struct Packed {
    unpack: Box<Unpack>,
    layout: Layout,
    dtype: DType,
    /// Tells when they give the tensor itself back; holds no memory.
    storage: Weak<Storage>,
}

impl Saved {
    /// Keeps `tensor` for `op`, without its history (which would tie the node to itself where a result is saved).
    pub(crate) fn new(op: &'static str, tensor: &Tensor) -> Result<Saved> {
        let is_leaf = leaf_of(tensor).is_some();
        let version = tensor.version();
        // Leaves keep their category (mostly parameters); what an operation made is now an activation.
        let is_activation = !is_leaf && tensor.dtype().is_float();
        let Some(hooks) = HOOKS.try_with(|hooks| hooks.borrow().clone()).ok().flatten() else {
            if is_activation {
                tensor.set_category(Category::Activation);
            }
            return Ok(Saved { kept: Kept::Tensor(tensor.without_grad_slot()), version });
        };
        let (_no_grad, _no_hooks) = (no_grad_guard(), Before::switch(None));
        let seen = if is_leaf { tensor.clone() } else { tensor.without_grad_slot() };
        let holders = Arc::strong_count(&tensor.storage);
        let unpack = hooks(&seen)?;
        if tensor.version() != version {
            return Err(Error::autograd(
                format!("pack of saved_tensors_hooks changed a tensor saved for `{op}` in place (shape {:?})", tensor.shape()),
                "change a copy of it and keep that",
            ));
        }
        if is_activation && Arc::strong_count(&tensor.storage) > holders {
            tensor.set_category(Category::Activation);
        }
        let storage = Arc::downgrade(&tensor.storage);
        let packed = Packed { unpack, layout: tensor.layout, dtype: tensor.dtype, storage };
        Ok(Saved { kept: Kept::Packed(Box::new(packed)), version })
    }

    /// The tensor, without history; an error where it was changed in place since.
    pub(crate) fn unpack(&self, op: &'static str, device: &Device) -> Result<Tensor> {
        match &self.kept {
            Kept::Tensor(tensor) => self.check(op, tensor).map(|()| tensor.clone()),
            Kept::Packed(packed) => {
                let tensor = packed.unpack(op, device)?;
                if Weak::as_ptr(&packed.storage) == Arc::as_ptr(&tensor.storage) {
                    self.check(op, &tensor)?;
                }
                Ok(tensor)
            }
        }
    }

    fn check(&self, op: &'static str, tensor: &Tensor) -> Result<()> {
        if tensor.version() == self.version {
            return Ok(());
        }
        Err(Error::autograd(
            format!(
                "a tensor saved for `{op}` (shape {:?}) was changed in place: version {}, saved at {}",
                tensor.shape(),
                tensor.version(),
                self.version
            ),
            "change a copy of it, or change it after backward",
        ))
    }
}

impl Packed {
    fn unpack(&self, op: &'static str, device: &Device) -> Result<Tensor> {
        let (_no_grad, _no_hooks) = (no_grad_guard(), Before::switch(None));
        let tensor = (self.unpack)()?;
        if !tensor.device().same(device) {
            return Err(device.mismatch("saved_tensors_hooks", tensor.device()));
        }
        if tensor.shape() != self.layout.shape() || tensor.dtype != self.dtype {
            return Err(Error::autograd(
                format!(
                    "unpack of saved_tensors_hooks gave {} of shape {:?} for a tensor saved for `{op}`: {} of shape {:?}",
                    tensor.dtype,
                    tensor.shape(),
                    self.dtype,
                    self.layout.shape()
                ),
                "give back a tensor of the shape and type that pack was given",
            ));
        }
        Ok(tensor.without_grad_slot())
    }
}
