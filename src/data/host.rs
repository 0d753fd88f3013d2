//! Arrays on the host, and the tensors that they take turns in on the device.

use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::memory::Category;
use crate::stream::{PinnedUpload, upload_from};
use crate::tensor::Tensor;
use std::sync::Arc;

/// An array on the host: a shape and as many elements, row-major.
pub struct HostTensor {
    shape: Vec<usize>,
    dtype: DType,
    elements: Box<dyn Elements>,
}

/// Elements of any type, as the words that the device takes.
trait Elements: Send + Sync {
    fn words(&self) -> &[u32];
}

/// Elements that are words.
impl<T: Element> Elements for Vec<T> {
    fn words(&self) -> &[u32] {
        bytemuck::cast_slice(self)
    }
}

impl HostTensor {
    /// An array of `shape`.
    ///
    /// # Errors
    /// [`Error::Shape`] where `elements` has another length than the product of `shape`.
    pub fn new<T: Element>(shape: &[usize], elements: Vec<T>) -> Result<HostTensor> {
        let layout = Layout::contiguous("HostTensor", shape)?;
        if layout.len() != elements.len() {
            return Err(Error::shape(
                "HostTensor",
                format!("shape {shape:?} has {} elements, the vector has {}", layout.len(), elements.len()),
                "pass a shape whose product is the length of the vector",
            ));
        }
        let words: Box<dyn Elements> = match T::DTYPE.per_word() {
            1 => Box::new(elements),
            // Smaller elements may begin inside a word, and end inside one: what is left of that is nobody's.
            _ => {
                let bytes: &[u8] = bytemuck::cast_slice(&elements);
                let rest = bytes.len().next_multiple_of(4) - bytes.len();
                Box::new(bytemuck::pod_collect_to_vec::<u8, u32>(&[bytes, &[0; 4][..rest]].concat()))
            }
        };
        Ok(HostTensor { shape: shape.to_vec(), dtype: T::DTYPE, elements: words })
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn words(&self) -> &[u32] {
        self.elements.words()
    }
}

/// Elements of an item on their way to a tensor.
pub(super) trait Source {
    /// Shape and type.
    fn like(&self) -> (&[usize], DType);
    /// Enqueues the copy.
    fn upload(&self, tensor: &Tensor) -> Result<()>;
}

impl Source for HostTensor {
    fn like(&self) -> (&[usize], DType) {
        (&self.shape, self.dtype)
    }

    fn upload(&self, tensor: &Tensor) -> Result<()> {
        match tensor.storage.memory() {
            Some(memory) => crate::stream::upload(tensor.device(), memory, 0, bytemuck::cast_slice(self.words()), "data"),
            None => Ok(()),
        }
    }
}

/// A [`HostTensor`] in pinned memory.
pub(super) struct PinnedTensor {
    pub(super) shape: Vec<usize>,
    pub(super) dtype: DType,
    pub(super) words: PinnedUpload<u32>,
}

impl Source for PinnedTensor {
    fn like(&self) -> (&[usize], DType) {
        (&self.shape, self.dtype)
    }

    fn upload(&self, tensor: &Tensor) -> Result<()> {
        match tensor.storage.memory() {
            Some(memory) => upload_from(tensor.device(), memory, 0, &self.words, "data"),
            None => Ok(()),
        }
    }
}

/// Items alive at a time: the one that is used, one uploaded ahead, and one that the host may still hold.
const SLOTS: usize = 3;

/// The tensors of a few items, used in turn.
///
/// They live as long as their loader: memory that two streams pass to and fro would otherwise come from the pool in an order
/// that depends on how far the device has come. Tensors that somebody else still holds are left alone.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Vec<Tensor>>,
    next: usize,
}

impl Slots {
    /// The item on the device; the copies are enqueued on the current stream.
    pub(super) fn upload<S: Source>(&mut self, device: &Device, item: &[S]) -> Result<Vec<Tensor>> {
        let fits = |slot: &[Tensor]| {
            slot.len() == item.len()
                && slot.iter().zip(item).all(|(tensor, part)| (tensor.shape(), tensor.dtype()) == part.like())
        };
        let free = |slot: &[Tensor]| slot.iter().all(|tensor| Arc::strong_count(&tensor.storage) == 1);
        let turn = (0..self.slots.len()).map(|i| (self.next + i) % self.slots.len()).find(|i| free(&self.slots[*i]));
        let tensors = match turn {
            Some(turn) if fits(&self.slots[turn]) && self.slots.len() == SLOTS => {
                self.next = turn + 1;
                self.slots[turn].clone()
            }
            _ => {
                let empty = |part: &S| Tensor::empty_as("data", device, part.like().0, part.like().1, Category::Input);
                let tensors: Vec<Tensor> = item.iter().map(empty).collect::<Result<_>>()?;
                match turn {
                    _ if self.slots.len() < SLOTS => self.slots.push(tensors.clone()),
                    Some(turn) => {
                        self.next = turn + 1;
                        self.slots[turn] = tensors.clone();
                    }
                    None => {}
                }
                tensors
            }
        };
        for (part, tensor) in item.iter().zip(&tensors) {
            part.upload(tensor)?;
        }
        Ok(tensors)
    }
}
