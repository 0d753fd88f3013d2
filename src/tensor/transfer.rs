//! Reading tensors back: the calls that wait for the device.

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::stream::{self, Origin, ReadFuture};
use crate::tensor::Tensor;

/// Elements on their way to the host; see [`Tensor::to_vec_async`].
pub struct TensorRead<T> {
    bytes: Option<ReadFuture>,
    layout: crate::layout::Layout,
    _element: std::marker::PhantomData<fn() -> T>,
}

impl<T: Element> TensorRead<T> {
    /// The elements, if they are there; never waits.
    pub fn try_take(&mut self) -> Result<Option<Vec<T>>> {
        match &mut self.bytes {
            None => Ok(Some(Vec::new())),
            Some(read) => Ok(read.try_take()?.map(|bytes| pick(&self.layout, &bytes))),
        }
    }

    /// Blocks until the elements are there.
    #[track_caller]
    pub fn wait(self) -> Result<Vec<T>> {
        match self.bytes {
            None => Ok(Vec::new()),
            Some(read) => Ok(pick(&self.layout, &read.wait()?)),
        }
    }
}

impl<T: Element> Future for TensorRead<T> {
    type Output = Result<Vec<T>>;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        let this = self.get_mut();
        match &mut this.bytes {
            None => std::task::Poll::Ready(Ok(Vec::new())),
            Some(read) => std::pin::Pin::new(read).poll(context).map_ok(|bytes| pick(&this.layout, &bytes)),
        }
    }
}

/// The elements of `layout` from the words in which they lie, in row-major order.
fn pick<T: Element>(layout: &crate::layout::Layout, bytes: &[u8]) -> Vec<T> {
    let mut all: Vec<T> = match T::DTYPE {
        // What the host wrote may be true in other words than 1.
        DType::Bool => bytemuck::pod_collect_to_vec(&bytes.iter().map(|byte| u8::from(*byte != 0)).collect::<Vec<u8>>()),
        _ => bytemuck::pod_collect_to_vec(bytes),
    };
    let first = layout.offset();
    if layout.is_contiguous() {
        all.truncate(first + layout.len());
        all.drain(..first);
        return all;
    }
    let (shape, strides) = (layout.shape(), layout.strides());
    let mut index = vec![0usize; shape.len()];
    (0..layout.len())
        .map(|_| {
            let at = first + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
            for dim in (0..shape.len()).rev() {
                index[dim] += 1;
                if index[dim] < shape[dim] {
                    break;
                }
                index[dim] = 0;
            }
            all[at]
        })
        .collect()
}

impl Tensor {
    /// The elements in row-major order. Blocks until this tensor's own last command has been executed.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.transpose(0, 1)?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.device().hidden_wait("to_vec", "to_vec_async", Origin::line())?;
        self.to_vec_async()?.wait()
    }

    /// [`Tensor::to_vec`] as a future: the copy is enqueued now, on the current stream; the elements come later.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let read = x.to_vec_async::<f32>()?; // the host runs on
    /// assert_eq!(read.wait()?, [1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn to_vec_async<T: Element>(&self) -> Result<TensorRead<T>> {
        if self.dtype() != T::DTYPE {
            return Err(Error::DType { op: "to_vec", got: self.dtype(), expected: T::DTYPE.name() });
        }
        let layout = &self.layout;
        let (size, per_word) = (self.dtype.size(), self.dtype.per_word());
        // The words from the one with the first element to the one with the last.
        let skipped = layout.offset() % per_word;
        let first = layout.offset() - skipped;
        let span = (layout.end().saturating_sub(first) * size).next_multiple_of(4) as u64;
        let local = crate::layout::Layout::strided(layout_dims(layout.shape()), layout_dims(layout.strides()), skipped);
        let bytes = match self.storage.memory() {
            Some(memory) if !self.is_empty() => Some(stream::read(self.device(), memory, (first * size) as u64, span, "to_vec")?),
            _ => None,
        };
        Ok(TensorRead { bytes, layout: local, _element: std::marker::PhantomData })
    }

    /// The only element of a tensor that has one. Blocks until its own last command has been executed.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.sum_all()?.item::<f32>()?, 3.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        self.device().hidden_wait("item", "item_async", Origin::line())?;
        self.item_async()?.wait()?.first().copied().ok_or_else(|| self.not_one())
    }

    /// [`Tensor::item`] as a future of a vector with one element.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let read = x.sum_all()?.item_async::<f32>()?; // the host runs on
    /// assert_eq!(read.wait()?, [3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn item_async<T: Element>(&self) -> Result<TensorRead<T>> {
        if self.len() != 1 {
            return Err(self.not_one());
        }
        self.to_vec_async()
    }

    fn not_one(&self) -> Error {
        Error::shape(
            "item",
            format!("shape {:?} has {} elements", self.shape(), self.len()),
            "reduce it to one element, or use to_vec",
        )
    }
}

fn layout_dims(dims: &[usize]) -> crate::layout::Dims {
    crate::layout::Dims::from_slice(dims).unwrap_or_default()
}
