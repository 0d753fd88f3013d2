//! Private pools of device memory: PyTorch's `MemPool` and `use_mem_pool`.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::device::Device;
use crate::device::entered::{self, Entered};
use crate::ids::MemPoolId;
use crate::memory::MemPoolOptions;

/// A private pool: while it is entered, this thread's tensors get their memory from segments that nobody else uses.
///
/// Tensors may outlive it. When the last handle and scope are gone its segments serve everybody: what lives in them stays,
/// the rest is cached memory like any other, for other requests and for [`Device::empty_cache`].
///
/// ```
/// use linn::memory::MemPoolOptions;
/// # use linn::{Device, DeviceOptions, MemPool, Tensor};
/// # let device = Device::noop(DeviceOptions::default())?;
/// let pool = MemPool::new(&device, MemPoolOptions::default());
/// let inside = pool.scope(|| Tensor::zeros(&device, &[1 << 20]))?;
/// let outside = Tensor::zeros(&device, &[1 << 20])?;
/// assert_eq!(pool.memory_allocated(), 4 << 20);
/// # Ok::<(), linn::Error>(())
/// ```
#[derive(Clone)]
pub struct MemPool(Arc<Handle>);

struct Handle {
    device: Device,
    id: MemPoolId,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.device.shared().lock().pool.drop_mem_pool(self.id);
    }
}

thread_local! {
    static ENTERED: RefCell<Entered<MemPool>> = RefCell::default();
}

/// Requests of its thread go to a pool until it is dropped. Guards nest; the innermost one that is alive counts.
pub struct MemPoolGuard {
    depth: usize,
    /// A guard belongs to the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl Drop for MemPoolGuard {
    fn drop(&mut self) {
        // Dropping a pool's last handle takes a lock: do it after the borrow ends.
        drop(entered::leave(&ENTERED, self.depth));
    }
}

impl MemPool {
    /// A new pool without memory.
    pub fn new(device: &Device, options: MemPoolOptions) -> MemPool {
        let id = device.shared().lock().pool.new_mem_pool(options);
        MemPool(Arc::new(Handle { device: device.clone(), id }))
    }

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// PyTorch's pair of numbers: 0, and how many pools of its device were made up to this one.
    pub fn id(&self) -> (u32, u32) {
        (0, self.0.id.0)
    }

    /// Handles and scopes that keep it: 1 for a pool that was just made, one more inside a scope.
    pub fn use_count(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Bytes of live tensors in its segments (rounded to blocks).
    pub fn memory_allocated(&self) -> u64 {
        self.device().shared().lock().pool.mem_pool_bytes(self.0.id).1
    }

    /// Bytes of its segments.
    pub fn memory_reserved(&self) -> u64 {
        self.device().shared().lock().pool.mem_pool_reserved(self.0.id)
    }

    /// This thread's tensors on the pool's device are made here until the guard is dropped. Other threads, and other devices,
    /// are not concerned.
    #[must_use = "the pool is used only while the guard lives"]
    pub fn enter(&self) -> MemPoolGuard {
        let depth = entered::enter(&ENTERED, self.device().shared().id, self.clone());
        MemPoolGuard { depth, _not_send: PhantomData }
    }

    /// Runs `work` with this pool.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.enter();
        work()
    }
}

impl std::fmt::Debug for MemPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemPool({:?} of {})", self.id(), self.device().name())
    }
}

/// The pool that this thread's requests go to.
pub(crate) fn entered(device: &Device) -> MemPoolId {
    entered::innermost(&ENTERED, device.shared().id, |pool| pool.0.id).unwrap_or_default()
}
