//! Convolutions: `[N, C, ..]` (or one sample) -> `[N, O, ..]`; what they compute stands with [`Tensor::conv2d`].

use super::init;
use super::layer::Layer;
use super::linear::Bias;
use super::module::{Module, Parts};
use crate::autograd::{ConvOptions, ConvTransposeOptions, Padding};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// [`ConvOptions`] that a layer keeps.
struct Settings {
    stride: Vec<isize>,
    padding: Side,
    dilation: Vec<isize>,
    groups: usize,
}

/// [`Padding`] that a layer keeps.
enum Side {
    Zeros(Vec<isize>),
    Same,
    Valid,
}

impl Settings {
    fn of(options: ConvOptions<'_>) -> Settings {
        let padding = match options.padding {
            Padding::Zeros(padding) => Side::Zeros(padding.to_vec()),
            Padding::Same => Side::Same,
            Padding::Valid => Side::Valid,
        };
        Settings { stride: options.stride.to_vec(), padding, dilation: options.dilation.to_vec(), groups: options.groups }
    }

    fn options(&self) -> ConvOptions<'_> {
        let padding = match &self.padding {
            Side::Zeros(padding) => Padding::Zeros(padding),
            Side::Same => Padding::Same,
            Side::Valid => Padding::Valid,
        };
        ConvOptions { stride: &self.stride, padding, dilation: &self.dilation, groups: self.groups }
    }
}

/// [`ConvTransposeOptions`] that a layer keeps.
struct TransposeSettings {
    stride: Vec<isize>,
    padding: Vec<isize>,
    output_padding: Vec<isize>,
    dilation: Vec<isize>,
    groups: usize,
}

impl TransposeSettings {
    fn of(options: ConvTransposeOptions<'_>) -> TransposeSettings {
        TransposeSettings {
            stride: options.stride.to_vec(),
            padding: options.padding.to_vec(),
            output_padding: options.output_padding.to_vec(),
            dilation: options.dilation.to_vec(),
            groups: options.groups,
        }
    }

    fn options(&self) -> ConvTransposeOptions<'_> {
        ConvTransposeOptions {
            stride: &self.stride,
            padding: &self.padding,
            output_padding: &self.output_padding,
            dilation: &self.dilation,
            groups: self.groups,
        }
    }
}

/// Weight `[first, second / groups, ..window]` and bias, uniform within 1 / sqrt(weights of a result) as PyTorch's.
fn parameters(
    op: &'static str,
    device: &Device,
    (first, second, groups): (usize, usize, usize),
    (window, outputs): (&[usize], usize),
    bias: Bias,
) -> Result<(Tensor, Option<Tensor>)> {
    if groups == 0 || !first.is_multiple_of(groups) || !second.is_multiple_of(groups) {
        let fact = format!("{groups} groups for {first} and {second} channels");
        return Err(Error::argument(op, fact, "pass a number of groups that divides both"));
    }
    let shape = [&[first, second / groups], window].concat();
    let bound = 1.0 / (shape[1..].iter().product::<usize>().max(1) as f64).sqrt();
    let weight = init::uniform(device, &shape, -bound, bound)?;
    let bias = match bias {
        Bias::With => Some(init::uniform(device, &[outputs], -bound, bound)?),
        Bias::Without => None,
    };
    Ok((weight, bias))
}

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident, $dims:literal, $method:ident, $settings:ident of $options:ident, $shape:literal,
        |$inputs:ident, $outputs:ident| ($first:ident, $second:ident);)*) => { $(
        $(#[$doc])*
        pub struct $name {
            #[doc = $shape]
            pub weight: Tensor,
            /// `[O]`.
            pub bias: Option<Tensor>,
            settings: $settings,
            layer: Layer,
        }

        impl $name {
            /// For so many channels of the input and of the result, with PyTorch's initial values: uniform within 1 / sqrt(weights
            /// that a window has).
            ///
            /// # Errors
            /// Where the groups do not divide the channels.
            pub fn new(
                device: &Device,
                $inputs: usize,
                $outputs: usize,
                kernel_size: [usize; $dims],
                bias: Bias,
                options: $options<'_>,
            ) -> Result<$name> {
                let channels = ($first, $second, options.groups);
                let (weight, bias) = parameters(stringify!($method), device, channels, (&kernel_size, $outputs), bias)?;
                Ok($name { weight, bias, settings: $settings::of(options), layer: Layer::default() })
            }
        }

        impl Module for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.layer.forward(|| x.$method(&self.weight, self.bias.as_ref(), self.settings.options()))
            }

            fn parts(&self) -> Parts<'_> {
                Parts::of(&self.layer).parameter("weight", &self.weight).parameter("bias", &self.bias)
            }
        }
    )* };
}

convolutions! {
    /// A convolution of sequences: [`Tensor::conv1d`].
    Conv1d, 1, conv1d, Settings of ConvOptions, "`[O, C / groups, K]`.", |inputs, outputs| (outputs, inputs);
    /// A convolution of pictures: [`Tensor::conv2d`].
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::{ConvOptions, Padding};
    /// use linn::nn::{Bias, Conv2d, Module};
    /// let options = ConvOptions { stride: &[2], padding: Padding::Zeros(&[1]), ..Default::default() };
    /// let conv = Conv2d::new(&device, 3, 8, [3, 3], Bias::With, options)?;
    /// assert_eq!(conv.forward(&Tensor::zeros(&device, &[1, 3, 8, 6])?)?.shape(), [1, 8, 4, 3]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    Conv2d, 2, conv2d, Settings of ConvOptions, "`[O, C / groups, h, w]`.", |inputs, outputs| (outputs, inputs);
    /// A convolution of volumes: [`Tensor::conv3d`].
    Conv3d, 3, conv3d, Settings of ConvOptions, "`[O, C / groups, d, h, w]`.", |inputs, outputs| (outputs, inputs);
    /// A transposed convolution of sequences: [`Tensor::conv_transpose1d`].
    ConvTranspose1d, 1, conv_transpose1d, TransposeSettings of ConvTransposeOptions, "`[C, O / groups, K]`.",
        |inputs, outputs| (inputs, outputs);
    /// A transposed convolution of pictures: [`Tensor::conv_transpose2d`].
    ConvTranspose2d, 2, conv_transpose2d, TransposeSettings of ConvTransposeOptions, "`[C, O / groups, h, w]`.",
        |inputs, outputs| (inputs, outputs);
}
