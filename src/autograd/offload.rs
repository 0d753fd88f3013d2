//! Saved tensors in host memory: what an operation keeps for the backward pass leaves the device, and comes back before it is needed.
//!
//! Nothing waits: the ways there and back are commands of the stream, like any others. Host memory is buffers of the driver that both
//! the host and the device reach, so a copy is one kernel, and order edges keep what is written from what is still read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::graph::{leaf_of, lock};
use super::saved::{SavedTensorsHooksGuard, saved_tensors_hooks_guard};
use crate::device::Device;
use crate::device::driver::BufferKind;
use crate::device::staging::size_class;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::memory::Category;
use crate::ops::copy;
use crate::tensor::{Storage, Tensor};

/// So many saved tensors are fetched before the backward pass asks for them: the copies of one operation's go beside the work of the
/// one before.
const PREFETCH: usize = 2;
/// Smaller tensors stay: the two copies cost more than they save.
const SMALLEST: u64 = 4 << 10;

/// Keeps saved tensors in host memory. PyTorch's `torch.autograd.graph.save_on_cpu(pin_memory=True)`.
///
/// What operations inside of [`scope`](SaveOnCpu::scope) save is copied to host memory, its device memory is free as soon as nobody
/// else holds it, and the backward pass copies it back, two tensors ahead of the operation that needs them. The copies are enqueued;
/// nothing waits. Values are the same to the bit. Leaves (parameters) stay on the device, and so do tensors of less than 4 KiB, and
/// expanded ones. A tensor that several operations save is copied once.
///
/// Host memory is kept for the next pass while this lives: make one and use it in every step.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::SaveOnCpu;
/// let host = SaveOnCpu::new(&device)?;
/// let x = Tensor::ones(&device, &[64, 64])?.requires_grad_(true)?;
/// let loss = host.scope(|| x.mul_scalar(2.0)?.square()?.mean_all())?; // square keeps 2x: 16 KiB
/// assert_eq!(host.memory_allocated(), 16 << 10);
/// loss.backward()?;
/// assert_eq!(x.grad().map(|grad| grad.sum_all()?.item::<f32>()).transpose()?, Some(8.0));
/// # Ok::<(), linn::Error>(())
/// ```
#[derive(Clone)]
pub struct SaveOnCpu(Arc<Host>);

impl SaveOnCpu {
    /// Without memory yet.
    ///
    /// # Errors
    /// [`Error::Argument`] where the device has memory of its own and its buffers cannot lie in the host's: on OpenGL, in browsers,
    /// and on a card that was opened without [`host_buffers`](crate::DeviceOptions::host_buffers).
    pub fn new(device: &Device) -> Result<SaveOnCpu> {
        if !device.shared().reaches_host_memory() {
            return Err(Error::argument(
                "SaveOnCpu",
                format!("kernels of {} reach no host memory", device.name()),
                "open the device with DeviceOptions { host_buffers: true, .. }; on OpenGL and in browsers use checkpoint instead",
            ));
        }
        Ok(SaveOnCpu(Arc::new(Host { device: device.clone(), free: Mutex::default(), held: Mutex::default() })))
    }

    /// Runs `f`; what its operations save lies in host memory.
    pub fn scope<T>(&self, f: impl FnOnce() -> T) -> T {
        let _guard = self.enter();
        f()
    }

    /// [`SaveOnCpu::scope`] in this thread until the guard is dropped.
    #[must_use = "tensors are saved on the device again as soon as the guard is dropped"]
    pub fn enter(&self) -> SavedTensorsHooksGuard {
        let trip = Arc::new(Trip { host: self.0.clone(), way: Mutex::default(), known: Mutex::default() });
        saved_tensors_hooks_guard(move |tensor| trip.pack(tensor), Kept::unpack)
    }

    /// Bytes of host memory that hold saved tensors (up to a sixteenth more than these have).
    pub fn memory_allocated(&self) -> u64 {
        *lock(&self.0.held)
    }

    /// Bytes of host memory in all: in use, and kept for the next tensors.
    pub fn memory_reserved(&self) -> u64 {
        self.memory_allocated() + lock(&self.0.free).iter().map(|buffer| buffer.storage.size()).sum::<u64>()
    }

    /// Gives back the host memory that no saved tensor lies in.
    pub fn empty_cache(&self) {
        let free = std::mem::take(&mut *lock(&self.0.free));
        drop(free);
    }
}

/// Buffers in host memory.
struct Host {
    device: Device,
    /// Whole buffers as words. A tensor that commands still use may be written: that comes after them.
    free: Mutex<Vec<Tensor>>,
    /// Bytes of those that are not free.
    held: Mutex<u64>,
}

impl Host {
    /// A buffer for `size` bytes: the last one of its class that came free, or one that is bought.
    fn take(&self, size: u64) -> Result<Tensor> {
        let size = size_class(size);
        let known = {
            let mut free = lock(&self.free);
            let at = free.iter().rposition(|buffer| buffer.storage.size() == size);
            at.map(|at| free.swap_remove(at))
        };
        let buffer = match known {
            Some(buffer) => buffer,
            None => {
                let buffer = self.device.shared().create_buffer(size, BufferKind::Host).map_err(|fact| Error::Device {
                    fact: format!("SaveOnCpu: no host memory of {size} bytes: {fact}"),
                    help: "free host memory, or save less of the model on the host; the device stays usable".into(),
                })?;
                Tensor::from_buffer(&self.device, &buffer, 0, &[(size / 4) as usize], DType::U32)?
            }
        };
        *lock(&self.held) += size;
        Ok(buffer)
    }
}

/// A saved tensor in host memory.
struct Parked {
    host: Arc<Host>,
    /// The buffer as words, and as the elements of the tensor.
    buffer: Tensor,
    elements: Tensor,
    /// On the device again, before it is asked for.
    fetched: Mutex<Option<Tensor>>,
}

impl Parked {
    fn fetch(&self) -> Result<Tensor> {
        let tensor = copy::copy(&self.elements)?;
        tensor.set_category(Category::Activation);
        Ok(tensor)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        *lock(&self.host.held) -= self.buffer.storage.size();
        lock(&self.host.free).push(self.buffer.clone());
    }
}

/// A tensor as it was when it was saved; the first number is the address of its storage.
type Known = (usize, u64, Layout, DType);

/// What one scope saves, in its order, which the backward pass goes back.
struct Trip {
    host: Arc<Host>,
    way: Mutex<Vec<Weak<Parked>>>,
    /// The storages are held weakly, so that no other gets the address of one that is gone.
    known: Mutex<HashMap<Known, (Weak<Storage>, usize)>>,
}

impl Trip {
    fn pack(self: &Arc<Trip>, tensor: &Tensor) -> Result<Kept> {
        let size = (tensor.len() * tensor.dtype().size()) as u64;
        let stays = leaf_of(tensor).is_some()
            || size < SMALLEST
            || size > tensor.storage.size()
            || size_class(size) > self.host.device.limits().max_storage_buffer_binding_size
            || !tensor.device().same(&self.host.device);
        if stays {
            return Ok(Kept::Here(tensor.clone()));
        }
        let known = (Arc::as_ptr(&tensor.storage).addr(), tensor.version(), tensor.layout, tensor.dtype);
        if let Some((_, index)) = lock(&self.known).get(&known)
            && let Some(parked) = lock(&self.way)[*index].upgrade()
        {
            return Ok(Kept::Away { trip: self.clone(), index: *index, parked });
        }
        let buffer = self.host.take(size)?;
        let parked = Arc::new(Parked {
            host: self.host.clone(),
            elements: Tensor {
                storage: buffer.storage.clone(),
                layout: Layout::contiguous("SaveOnCpu", tensor.shape())?,
                dtype: tensor.dtype,
                grad_slot: None,
            },
            buffer,
            fetched: Mutex::default(),
        });
        copy::copy_(&parked.elements, tensor)?;
        let mut way = lock(&self.way);
        way.push(Arc::downgrade(&parked));
        let index = way.len() - 1;
        lock(&self.known).insert(known, (Arc::downgrade(&tensor.storage), index));
        Ok(Kept::Away { trip: self.clone(), index, parked })
    }
}

enum Kept {
    Here(Tensor),
    Away { trip: Arc<Trip>, index: usize, parked: Arc<Parked> },
}

impl Kept {
    fn unpack(&self) -> Result<Tensor> {
        let (trip, index, parked) = match self {
            Kept::Here(tensor) => return Ok(tensor.clone()),
            Kept::Away { trip, index, parked } => (trip, index, parked),
        };
        let tensor = {
            let mut fetched = lock(&parked.fetched);
            match fetched.take() {
                Some(tensor) => tensor,
                None => parked.fetch()?,
            }
        };
        // Another operation saved it, too, and asks for it later.
        if Arc::strong_count(parked) > 1 {
            *lock(&parked.fetched) = Some(tensor.clone());
        }
        let next: Vec<_> =
            lock(&trip.way)[index.saturating_sub(PREFETCH)..*index].iter().rev().filter_map(Weak::upgrade).collect();
        for parked in next {
            let mut fetched = lock(&parked.fetched);
            if fetched.is_none() {
                *fetched = Some(parked.fetch()?);
            }
        }
        Ok(tensor)
    }
}
