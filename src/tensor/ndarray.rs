//! Tensors from and to arrays of the crate `ndarray` (feature `ndarray`).

use ::ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

use crate::device::Device;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// A tensor with the elements of `array`, in whatever order they lie there; the copy is enqueued.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let array = ndarray::array![[1.0f32, 2.0], [3.0, 4.0]];
    /// let x = Tensor::from_ndarray(&device, &array.t())?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn from_ndarray<T, S, D>(device: &Device, array: &ArrayBase<S, D>) -> Result<Tensor>
    where
        T: Element,
        S: Data<Elem = T>,
        D: Dimension,
    {
        match array.as_slice() {
            Some(elements) => Tensor::from_slice(device, array.shape(), elements),
            None => Tensor::from_slice(device, array.shape(), &array.iter().copied().collect::<Vec<T>>()),
        }
    }

    /// The elements as an array in row-major order. Blocks until this tensor's own last command has been executed.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.t()?.to_ndarray::<f32>()?[[0, 1]], 3.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DType`] where the tensor has another element type.
    #[track_caller]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        ArrayD::from_shape_vec(IxDyn(self.shape()), self.to_vec::<T>()?)
            .map_err(|why| Error::shape("to_ndarray", format!("shape {:?}: {why}", self.shape()), "report this as a bug of linn"))
    }
}
