//! `requires_grad_`, `grad`, hooks: what a user sees of leaves and slots.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::graph::{Hook, Interior, Leaf, Node, RegisteredHook, Used, interior_of, leaf_of, lock, next_number};
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::ops::{binary, copy};
use crate::tensor::Tensor;

impl Tensor {
    /// This tensor as a leaf that collects gradients (`true`), or one that does not (`false`). Clones made earlier are not
    /// touched. Errors for integer tensors, and for `false` on a result of a recorded operation (use [`Tensor::detach`]).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
    /// assert!(x.requires_grad());
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn requires_grad_(self, wanted: bool) -> Result<Tensor> {
        let is_result = interior_of(&self).is_some();
        match wanted {
            true if !self.dtype().is_float() => Err(Error::DType { op: "requires_grad_", got: self.dtype(), expected: "f32" }),
            true if self.grad_slot.is_some() => self.set_requires_grad(true).map(|()| self),
            true => Ok(Tensor { grad_slot: Some(Arc::new(Leaf::default())), ..self }),
            false if is_result => Err(Error::autograd(
                "requires_grad_(false) on a result of a recorded operation",
                "use detach() for a tensor that shares the memory but not the history",
            )),
            false => Ok(self.without_grad_slot()),
        }
    }

    /// Whether this leaf collects gradients from now on, for all its clones: an optimizer that has it leaves it alone while it does
    /// not. `false` drops the gradient; results that were recorded before still bring none. What is no leaf yet becomes one by
    /// [`Tensor::requires_grad_`].
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, 3.0f32)?.requires_grad_(true)?;
    /// x.set_requires_grad(false)?;
    /// assert!(!x.square()?.requires_grad());
    /// x.set_requires_grad(true)?;
    /// assert!(x.square()?.requires_grad());
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn set_requires_grad(&self, wanted: bool) -> Result<()> {
        match leaf_of(self) {
            Some(leaf) => {
                leaf.frozen.store(!wanted, Ordering::Relaxed);
                if !wanted {
                    self.zero_grad();
                }
                Ok(())
            }
            None if wanted == self.requires_grad() => Ok(()),
            None => Err(Error::autograd(
                format!("set_requires_grad({wanted}) on a tensor that is no leaf (shape {:?})", self.shape()),
                "call requires_grad_(true) where the tensor is made, and use detach() on results",
            )),
        }
    }

    /// True for leaves that collect gradients and for everything recorded from them.
    pub fn requires_grad(&self) -> bool {
        let collects = |leaf: &Leaf| !leaf.frozen.load(Ordering::Relaxed);
        self.grad_slot.as_ref().is_some_and(|slot| slot.downcast_ref().is_none_or(collects))
    }

    /// True when no recorded operation made this tensor.
    pub fn is_leaf(&self) -> bool {
        interior_of(self).is_none()
    }

    /// The gradient collected so far, of the tensor's own shape. `None` before the first backward pass, and for results of
    /// operations (use [`grad`](super::grad) or a hook for those).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, 3.0f32)?.requires_grad_(true)?;
    /// x.square()?.backward()?;
    /// assert_eq!(x.grad().map(|grad| grad.item::<f32>()).transpose()?, Some(6.0));
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn grad(&self) -> Option<Tensor> {
        leaf_of(self).and_then(|leaf| lock(&leaf.grad).clone())
    }

    /// Replaces the gradient of a leaf; it must have the tensor's shape.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, 3.0f32)?.requires_grad_(true)?;
    /// x.set_grad(Some(Tensor::new(&device, 1.0f32)?))?;
    /// assert!(x.grad().is_some());
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        let leaf = leaf_of(self).ok_or_else(|| {
            Error::autograd("set_grad on a tensor that collects no gradient", "call requires_grad_(true) on it first")
        })?;
        if let Some(grad) = &grad {
            if grad.shape() != self.shape() {
                return Err(Error::shape(
                    "set_grad",
                    format!("gradient of shape {:?} for a tensor of shape {:?}", grad.shape(), self.shape()),
                    "pass a gradient of the tensor's own shape",
                ));
            }
            grad.set_category(Category::Gradient);
        }
        *lock(&leaf.grad) = grad.map(|grad| grad.without_grad_slot());
        *lock(&leaf.used) = Used::Not;
        Ok(())
    }

    /// Drops the gradient (PyTorch's `set_to_none`); the next backward pass stores its own without adding.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, 3.0f32)?.requires_grad_(true)?;
    /// x.square()?.backward()?;
    /// x.zero_grad();
    /// assert!(x.grad().is_none());
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn zero_grad(&self) {
        if let Some(leaf) = leaf_of(self) {
            // Taken out first: the memory goes back when the lock is free again.
            let _old = lock(&leaf.grad).take();
            *lock(&leaf.used) = Used::Not;
        }
    }

    /// An optimizer uses the gradient; true where one did before, and a backward pass has added to it since.
    pub(crate) fn use_grad(&self) -> bool {
        leaf_of(self).is_some_and(|leaf| std::mem::replace(&mut *lock(&leaf.used), Used::Once) == Used::AddedTo)
    }

    /// Calls `hook` with every gradient of this tensor during backward passes, no lock held; an answer `Some(other)`
    /// replaces the gradient. Errors for tensors that want no gradient.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, 3.0f32)?.requires_grad_(true)?;
    /// let hook = x.register_hook(|grad| Ok(Some(grad.mul_scalar(10.0)?)))?;
    /// x.square()?.backward()?;
    /// assert_eq!(x.grad().map(|grad| grad.item::<f32>()).transpose()?, Some(60.0));
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn register_hook(&self, hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static) -> Result<HookHandle> {
        let hook = RegisteredHook { id: next_number(), call: Arc::new(hook) as Arc<Hook> };
        let id = hook.id;
        if let Some(leaf) = leaf_of(self) {
            lock(&leaf.hooks).push(hook);
            return Ok(HookHandle { id, place: Place::Leaf(Arc::downgrade(&leaf)) });
        }
        let slot: Arc<Interior> = interior_of(self).ok_or_else(|| {
            Error::autograd("register_hook on a tensor that wants no gradient", "call requires_grad_(true) on it first")
        })?;
        let history = slot.history("register_hook")?;
        lock(&history.node.hooks).push((history.output, hook));
        Ok(HookHandle { id, place: Place::Node(Arc::downgrade(&history.node)) })
    }
}

/// A registered hook; dropping the handle leaves the hook in place.
pub struct HookHandle {
    id: u64,
    place: Place,
}

enum Place {
    Leaf(Weak<Leaf>),
    Node(Weak<Node>),
}

impl HookHandle {
    /// The hook is not called any more.
    pub fn remove(self) {
        match self.place {
            Place::Leaf(leaf) => {
                if let Some(leaf) = leaf.upgrade() {
                    lock(&leaf.hooks).retain(|hook| hook.id != self.id);
                }
            }
            Place::Node(node) => {
                if let Some(node) = node.upgrade() {
                    lock(&node.hooks).retain(|(_, hook)| hook.id != self.id);
                }
            }
        }
    }
}

impl Leaf {
    /// Adds one backward pass's gradient. The first is kept as it is where nobody else holds its memory.
    pub(crate) fn accumulate(&self, grad: Tensor) -> Result<()> {
        if self.frozen.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut slot = lock(&self.grad);
        if let Some(sum) = &*slot {
            binary::add_(sum, &grad, 1.0)?;
            let mut used = lock(&self.used);
            if *used == Used::Once {
                *used = Used::AddedTo;
            }
            return Ok(());
        }
        *lock(&self.used) = Used::Not;
        let fills_storage = grad.is_contiguous() && (grad.len() * grad.dtype().size()) as u64 == grad.storage.size();
        let own = fills_storage && Arc::strong_count(&grad.storage) == 1;
        let grad = if own { grad } else { copy::copy(&grad)? };
        grad.set_category(Category::Gradient);
        *slot = Some(grad);
        Ok(())
    }
}
