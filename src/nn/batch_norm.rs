//! y = (x - mean) / sqrt(variance + eps) * w + b for each channel: `[N, C, ..]`.

use super::init;
use super::layer::Layer;
use super::module::{Module, Parts};
use crate::autograd::{NormOptions, no_grad};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::copy;
use crate::tensor::Tensor;

/// Settings of batch normalisation; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormOptions {
    /// Added to the variance.
    pub eps: f64,
    /// The part that a batch has in the running statistics; `None` makes them the means of all batches so far.
    pub momentum: Option<f64>,
    /// Whether there are factors and sums for the channels.
    pub affine: bool,
    /// Whether running statistics are kept. Without them a batch is always normalised by its own.
    pub track_running_stats: bool,
}

impl Default for BatchNormOptions {
    fn default() -> BatchNormOptions {
        BatchNormOptions { eps: 1e-5, momentum: Some(0.1), affine: true, track_running_stats: true }
    }
}

/// What the layers of this file have, with what they keep of their batches: buffers, so that they are saved.
struct BatchNorm {
    options: BatchNormOptions,
    affine: Option<[Tensor; 2]>,
    running: Option<Running>,
    layer: Layer,
}

struct Running {
    mean: Tensor,
    var: Tensor,
    /// 0-d, i32.
    num_batches_tracked: Tensor,
}

impl BatchNorm {
    fn new(device: &Device, channels: usize, options: BatchNormOptions) -> Result<BatchNorm> {
        let affine = match options.affine {
            true => Some([init::ones(device, &[channels])?, init::zeros(device, &[channels])?]),
            false => None,
        };
        let buffer = |value: f64| copy::full(device, &[channels], value, DType::F32);
        let running = match options.track_running_stats {
            true => {
                let num_batches_tracked = copy::full(device, &[], 0, DType::I32)?;
                Some(Running { mean: buffer(0.0)?, var: buffer(1.0)?, num_batches_tracked })
            }
            false => None,
        };
        Ok(BatchNorm { options, affine, running, layer: Layer::default() })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, ranks: &[usize]) -> Result<Tensor> {
        self.layer.forward(|| {
            if !ranks.contains(&x.rank()) {
                let fact = format!("an input of shape {:?}", x.shape());
                let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
                return Err(Error::shape(
                    "batch_norm",
                    fact,
                    format!("pass an input [N, C, ..] of {} dimensions", ranks.join(" or ")),
                ));
            }
            let [weight, bias] = self.affine.as_ref().map_or([None; 2], |[weight, bias]| [Some(weight), Some(bias)]);
            let options = NormOptions { weight, bias, eps: self.options.eps, ..NormOptions::default() };
            let Some(running) = &self.running else {
                return x.batch_norm(NormOptions { training: true, ..options });
            };
            let (mean, var) = (&running.mean, &running.var);
            match (self.layer.is_training(), self.options.momentum) {
                (false, _) => x.batch_norm(NormOptions { running_mean: Some(mean), running_var: Some(var), ..options }),
                (true, Some(momentum)) => {
                    let options =
                        NormOptions { running_mean: Some(mean), running_var: Some(var), training: true, momentum, ..options };
                    let y = x.batch_norm(options)?;
                    no_grad(|| running.num_batches_tracked.add_scalar_(1))?;
                    Ok(y)
                }
                (true, None) => {
                    let (seen_mean, seen_var) = (mean.zeros_like()?, var.zeros_like()?);
                    let seen =
                        NormOptions { running_mean: Some(&seen_mean), running_var: Some(&seen_var), momentum: 1.0, ..options };
                    let y = x.batch_norm(NormOptions { training: true, ..seen })?;
                    no_grad(|| running.average([&seen_mean, &seen_var]))?;
                    Ok(y)
                }
            }
        })
    }

    fn parts(&self) -> Parts<'_> {
        let mut parts = Parts::of(&self.layer);
        if let Some([weight, bias]) = &self.affine {
            parts = parts.parameter("weight", weight).parameter("bias", bias);
        }
        if let Some(Running { mean, var, num_batches_tracked }) = &self.running {
            parts =
                parts.buffer("running_mean", mean).buffer("running_var", var).buffer("num_batches_tracked", num_batches_tracked);
        }
        parts
    }
}

impl Running {
    /// Means of all that was seen, with the mean and variance of one more batch; their number stays on the device.
    #[track_caller]
    fn average(&self, seen: [&Tensor; 2]) -> Result<()> {
        self.num_batches_tracked.add_scalar_(1)?;
        let count = self.num_batches_tracked.to_dtype(DType::F32)?;
        [&self.mean, &self.var].into_iter().zip(seen).try_for_each(|(mean, seen)| mean.add_(&seen.sub(mean)?.div(&count)?, 1.0))
    }
}

macro_rules! batch_norms {
    ($($(#[$doc:meta])* $name:ident, $ranks:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// Parameters `weight` (ones at first) and `bias` (zeros), buffers `running_mean`, `running_var` and `num_batches_tracked`. In
        /// training a batch is normalised by its own mean and variance, which the running ones learn; in evaluation by the running ones.
        pub struct $name(BatchNorm);

        impl $name {
            /// For so many channels.
            pub fn new(device: &Device, channels: usize, options: BatchNormOptions) -> Result<$name> {
                BatchNorm::new(device, channels, options).map($name)
            }
        }

        impl Module for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.0.forward(x, &$ranks)
            }

            fn parts(&self) -> Parts<'_> {
                self.0.parts()
            }
        }
    )* };
}

batch_norms! {
    /// Batch normalisation of vectors and sequences: `[N, C]` or `[N, C, L]`.
    BatchNorm1d, [2, 3];
    /// Batch normalisation of pictures: `[N, C, H, W]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::nn::{BatchNorm2d, Module};
    /// let norm = BatchNorm2d::new(&device, 1, Default::default())?;
    /// let x = Tensor::new(&device, [[[[1.0f32, 3.0]]]])?;
    /// assert_eq!(format!("{:.3?}", norm.forward(&x)?.to_vec::<f32>()?), "[-1.000, 1.000]");
    /// assert_eq!(norm.named_buffers()[0].1.to_vec::<f32>()?, [0.2]); // a tenth of the mean
    /// norm.eval();
    /// assert_eq!(format!("{:.3?}", norm.forward(&x)?.to_vec::<f32>()?), "[0.763, 2.670]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    BatchNorm2d, [4];
    /// Batch normalisation of volumes: `[N, C, D, H, W]`.
    BatchNorm3d, [5];
}
