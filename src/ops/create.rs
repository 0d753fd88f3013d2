//! Tensors made by a kernel: constants and ranges. All f32 and contiguous unless they say otherwise.

use crate::device::Device;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::ops;
use crate::tensor::Tensor;

impl Tensor {
    /// f32 zeros.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// assert_eq!(Tensor::zeros(&device, &[2, 2])?.to_vec::<f32>()?, [0.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros(device: &Device, shape: &[usize]) -> Result<Tensor> {
        ops::copy::full(device, shape, 0.0, DType::F32)
    }

    /// f32 ones.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// assert_eq!(Tensor::ones(&device, &[3])?.to_vec::<f32>()?, [1.0, 1.0, 1.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn ones(device: &Device, shape: &[usize]) -> Result<Tensor> {
        ops::copy::full(device, shape, 1.0, DType::F32)
    }

    /// f32, every element `value`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// assert_eq!(Tensor::full(&device, &[2], 7.5)?.to_vec::<f32>()?, [7.5, 7.5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn full(device: &Device, shape: &[usize], value: impl Into<Scalar>) -> Result<Tensor> {
        ops::copy::full(device, shape, value, DType::F32)
    }

    /// Zeros with the shape and element type of this tensor, contiguous.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1i32, 2])?;
    /// assert_eq!(x.zeros_like()?.to_vec::<i32>()?, [0, 0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.full_like(0.0)
    }

    /// Ones with the shape and element type of this tensor, contiguous.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1i32, 2])?;
    /// assert_eq!(x.ones_like()?.to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        self.full_like(1.0)
    }

    /// Every element `value`, with the shape and element type of this tensor, contiguous.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.full_like(7.5)?.to_vec::<f32>()?, [7.5, 7.5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        ops::copy::full(self.device(), self.shape(), value, self.dtype())
    }

    /// 0, 1, .. `len` - 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::DType;
    /// assert_eq!(Tensor::arange(&device, 3, DType::I32)?.to_vec::<i32>()?, [0, 1, 2]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn arange(device: &Device, len: usize, dtype: DType) -> Result<Tensor> {
        ops::copy::arange(device, len, dtype)
    }

    /// start, start + step, .. before `end` (PyTorch's `arange(start, end, step)`); words.
    ///
    /// # Errors
    /// Where `step` leads away from `end`, or is 0.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::DType;
    /// assert_eq!(Tensor::arange_between(&device, 1.0, 2.0, 0.25, DType::F32)?.to_vec::<f32>()?, [1.0, 1.25, 1.5, 1.75]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn arange_between(
        device: &Device,
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
    ) -> Result<Tensor> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let len = ((end.value() - start.value()) / step.value()).ceil();
        if step.value() == 0.0 || !len.is_finite() || len < 0.0 {
            return Err(Error::argument(
                "arange",
                format!("from {start} to {end} by {step}"),
                "pass a step that leads from the start to the end",
            ));
        }
        ops::copy::arange_from(device, start, step, len as usize, dtype)
    }
}
