//! Making tensors: from slices and nested arrays, and empty ones.

use std::sync::Arc;

use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::layout::Layout;
use crate::memory::Category;
use crate::stream;
use crate::tensor::{Storage, Tensor};

impl Tensor {
    /// A tensor whose elements hold whatever the memory held before.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::DType;
    /// let x = Tensor::empty(&device, &[2, 3], DType::F32)?;
    /// assert_eq!(x.shape(), [2, 3]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn empty(device: &Device, shape: &[usize], dtype: DType) -> Result<Tensor> {
        Tensor::empty_as("empty", device, shape, dtype, Category::Temporary)
    }

    /// [`Tensor::empty`] for the operation `label`, booked under `category`.
    #[track_caller]
    pub(crate) fn empty_as(
        label: &'static str,
        device: &Device,
        shape: &[usize],
        dtype: DType,
        category: Category,
    ) -> Result<Tensor> {
        let layout = Layout::contiguous(label, shape)?;
        let size = bytes_of(layout.len(), dtype);
        let storage = match size {
            0 => Storage::empty(device.clone()),
            _ => Storage::new(stream::allocate(device, size, label, category)?, (layout.len() * dtype.size()) as u64),
        };
        Ok(Tensor { storage: Arc::new(storage), layout, dtype, grad_slot: None })
    }

    /// A tensor with the elements of `data` in row-major order; the copy is enqueued on the current stream.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.select(0, 1)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn from_slice<T: Element>(device: &Device, shape: &[usize], data: &[T]) -> Result<Tensor> {
        let layout = Layout::contiguous("from_slice", shape)?;
        if layout.len() != data.len() {
            return Err(crate::Error::shape(
                "from_slice",
                format!("shape {shape:?} has {} elements, the slice has {}", layout.len(), data.len()),
                "pass a shape whose product is the length of the slice",
            ));
        }
        let tensor = Tensor::empty_as("from_slice", device, shape, T::DTYPE, Category::Input)?;
        if let Some(memory) = tensor.storage.memory() {
            let bytes: &[u8] = bytemuck::cast_slice(data);
            match bytes.len() % 4 {
                0 => stream::upload(device, memory, 0, bytes, "from_slice")?,
                // Memory is copied in words; the rest of the last one is nobody's.
                over => stream::upload(device, memory, 0, &[bytes, &[0; 4][over..]].concat(), "from_slice")?,
            }
        }
        Ok(tensor)
    }

    /// Overwrites a contiguous tensor with the elements of `data`, in place; the copy is enqueued on the current stream and
    /// comes after whatever still reads the old elements.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// x.copy_from_slice_(&[3.0f32, 4.0])?;
    /// assert_eq!(x.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn copy_from_slice_<T: Element>(&self, data: &[T]) -> Result<()> {
        const OP: &str = "copy_from_slice_";
        if self.dtype() != T::DTYPE {
            return Err(crate::Error::DType { op: OP, got: self.dtype(), expected: T::DTYPE.name() });
        }
        if !self.is_contiguous() || self.len() != data.len() {
            return Err(crate::Error::shape(
                OP,
                format!(
                    "{} elements do not fit a tensor of shape {:?} and strides {:?}",
                    data.len(),
                    self.shape(),
                    self.layout.strides()
                ),
                "pass as many elements as the tensor has; the tensor must be contiguous",
            ));
        }
        match self.storage.memory() {
            Some(memory) => stream::upload(self.device(), memory, self.whole_words(OP)?, bytemuck::cast_slice(data), OP),
            None => Ok(()),
        }
    }

    /// Where a contiguous tensor begins in its storage, in bytes; an error where its first or last word holds elements of others too.
    pub(crate) fn whole_words(&self, op: &'static str) -> Result<u64> {
        let (offset, len, per_word) = (self.layout.offset(), self.len(), self.dtype.per_word());
        if offset.is_multiple_of(per_word) && len.is_multiple_of(per_word) {
            return Ok((offset * self.dtype.size()) as u64);
        }
        Err(crate::Error::shape(
            op,
            format!("{len} elements of {} from element {offset} on do not fill whole words of 4 bytes", self.dtype),
            "make a new tensor with from_slice, and copy_ it to where it is wanted",
        ))
    }

    /// A tensor from a scalar or a nested array: `Tensor::new(&device, [[1.0, 2.0], [3.0, 4.0f32]])`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.shape(), [2, 2]);
    /// assert_eq!(Tensor::new(&device, 5i32)?.item::<i32>()?, 5);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn new<A: NestedArray>(device: &Device, array: A) -> Result<Tensor> {
        let mut shape = Vec::new();
        let mut data = Vec::new();
        A::shape(&mut shape);
        array.flatten(&mut data);
        Tensor::from_slice(device, &shape, &data)
    }
}

/// Bytes of the memory of `len` elements: whole words.
pub(super) fn bytes_of(len: usize, dtype: DType) -> u64 {
    (len * dtype.size()).next_multiple_of(4) as u64
}

/// Scalars and nested arrays that a tensor can be made from.
pub trait NestedArray {
    /// The element type.
    type Elem: Element;
    /// Appends the lengths of the dimensions, outermost first.
    fn shape(shape: &mut Vec<usize>);
    /// Appends the elements in row-major order.
    fn flatten(&self, data: &mut Vec<Self::Elem>);
}

macro_rules! scalars {
    ($($scalar:ty),*) => { $(
        impl NestedArray for $scalar {
            type Elem = $scalar;
            fn shape(_shape: &mut Vec<usize>) {}
            fn flatten(&self, data: &mut Vec<$scalar>) {
                data.push(*self);
            }
        }
    )* };
}
scalars!(f32, half::f16, half::bf16, i32, u32, u8);

impl<A: NestedArray, const N: usize> NestedArray for [A; N] {
    type Elem = A::Elem;
    fn shape(shape: &mut Vec<usize>) {
        shape.push(N);
        A::shape(shape);
    }
    fn flatten(&self, data: &mut Vec<A::Elem>) {
        self.iter().for_each(|inner| inner.flatten(data));
    }
}
