//! Pools: `[N, C, ..]` -> `[N, C, ..]`; what they compute stands with [`Tensor::max_pool2d`] and its neighbours.

use super::layer::Layer;
use super::module::{Module, Parts};
use crate::autograd::PoolOptions;
use crate::error::Result;
use crate::tensor::Tensor;

/// [`PoolOptions`] that a layer keeps.
struct Settings {
    kernel_size: Vec<isize>,
    stride: Vec<isize>,
    padding: Vec<isize>,
    dilation: Vec<isize>,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Option<i64>,
}

impl Settings {
    fn of(kernel_size: &[usize], options: PoolOptions<'_>) -> Settings {
        Settings {
            // No picture is as large as an isize.
            kernel_size: kernel_size.iter().map(|size| isize::try_from(*size).unwrap_or(isize::MAX)).collect(),
            stride: options.stride.to_vec(),
            padding: options.padding.to_vec(),
            dilation: options.dilation.to_vec(),
            ceil_mode: options.ceil_mode,
            count_include_pad: options.count_include_pad,
            divisor_override: options.divisor_override,
        }
    }

    fn options(&self) -> PoolOptions<'_> {
        PoolOptions {
            stride: &self.stride,
            padding: &self.padding,
            dilation: &self.dilation,
            ceil_mode: self.ceil_mode,
            count_include_pad: self.count_include_pad,
            divisor_override: self.divisor_override,
        }
    }
}

macro_rules! pools {
    ($($(#[$doc:meta])* $name:ident, $dims:literal, |$x:ident, $size:ident, $options:ident| $call:expr;)*) => { $(
        $(#[$doc])*
        pub struct $name {
            settings: Settings,
            layer: Layer,
        }

        impl $name {
            /// Over windows of `kernel_size` entries.
            pub fn new(kernel_size: [usize; $dims], options: PoolOptions<'_>) -> $name {
                $name { settings: Settings::of(&kernel_size, options), layer: Layer::default() }
            }
        }

        impl Module for $name {
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let ($size, $options) = (self.settings.kernel_size.as_slice(), self.settings.options());
                self.layer.forward(|| $call)
            }

            fn parts(&self) -> Parts<'_> {
                Parts::of(&self.layer)
            }
        }
    )* };
}

pools! {
    /// Largest entries of windows: [`Tensor::max_pool1d`].
    MaxPool1d, 1, |x, size, options| Ok(x.max_pool1d(size, options)?.0);
    /// Largest entries of windows: [`Tensor::max_pool2d`].
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::PoolOptions;
    /// use linn::nn::{MaxPool2d, Module};
    /// let pool = MaxPool2d::new([2, 2], PoolOptions::default());
    /// let x = Tensor::new(&device, [[[[1.0f32, 2.0, 0.0, 5.0], [3.0, 4.0, 6.0, 0.0]]]])?;
    /// assert_eq!(pool.forward(&x)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    MaxPool2d, 2, |x, size, options| Ok(x.max_pool2d(size, options)?.0);
    /// Means of windows: [`Tensor::avg_pool1d`].
    AvgPool1d, 1, |x, size, options| x.avg_pool1d(size, options);
    /// Means of windows: [`Tensor::avg_pool2d`].
    AvgPool2d, 2, |x, size, options| x.avg_pool2d(size, options);
}

macro_rules! adaptive_pools {
    ($($(#[$doc:meta])* $name:ident, $dims:literal, $method:ident;)*) => { $(
        $(#[$doc])*
        pub struct $name {
            output_size: [Option<isize>; $dims],
            layer: Layer,
        }

        impl $name {
            /// Results of this size; `None` keeps the input's.
            pub fn new(output_size: [Option<usize>; $dims]) -> $name {
                let signed = |len: usize| isize::try_from(len).unwrap_or(isize::MAX);
                $name { output_size: output_size.map(|len| len.map(signed)), layer: Layer::default() }
            }
        }

        impl Module for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.layer.forward(|| x.$method(&self.output_size))
            }

            fn parts(&self) -> Parts<'_> {
                Parts::of(&self.layer)
            }
        }
    )* };
}

adaptive_pools! {
    /// Means of so many parts: [`Tensor::adaptive_avg_pool1d`].
    AdaptiveAvgPool1d, 1, adaptive_avg_pool1d;
    /// Means of so many parts: [`Tensor::adaptive_avg_pool2d`].
    AdaptiveAvgPool2d, 2, adaptive_avg_pool2d;
}
