//! Normalisation within a sample: y = (x - mean) / sqrt(variance + eps) * w + b over the last dimension or over groups of channels.

use super::init;
use super::layer::Layer;
use super::linear::Bias;
use super::module::{Module, Parts};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Layer normalisation; parameters `weight` `[C]` (ones at first) and, where wanted, `bias` `[C]` (zeros).
pub struct LayerNorm {
    /// `[C]`.
    pub weight: Tensor,
    /// `[C]`.
    pub bias: Option<Tensor>,
    /// Added to the variance; PyTorch's default is 1e-5.
    pub eps: f64,
    layer: Layer,
}

impl LayerNorm {
    /// Over a last dimension of length `width`, eps 1e-5.
    pub fn new(device: &Device, width: usize, bias: Bias) -> Result<LayerNorm> {
        LayerNorm::over(device, &[width], bias)
    }

    /// Over the last dimensions, whose lengths are `normalized_shape`; weight and bias have that shape.
    pub fn over(device: &Device, normalized_shape: &[usize], bias: Bias) -> Result<LayerNorm> {
        let bias = match bias {
            Bias::With => Some(init::zeros(device, normalized_shape)?),
            Bias::Without => None,
        };
        Ok(LayerNorm { weight: init::ones(device, normalized_shape)?, bias, eps: 1e-5, layer: Layer::default() })
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (Some(&self.weight), self.bias.as_ref());
        self.layer.forward(|| match self.weight.shape() {
            [_] => x.layer_norm(weight, bias, self.eps),
            shape => x.layer_norm_over(shape, weight, bias, self.eps),
        })
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer).parameter("weight", &self.weight).parameter("bias", &self.bias)
    }
}

/// x / sqrt(mean(x^2) + eps) * w over the last dimensions; parameter `weight` (ones at first).
pub struct RmsNorm {
    /// Of the shape that is normalised.
    pub weight: Tensor,
    /// Added to the mean; PyTorch's default, `None`, is that of the type (2^-23 for f32).
    pub eps: Option<f64>,
    layer: Layer,
}

impl RmsNorm {
    /// Over the last dimensions, whose lengths are `normalized_shape`.
    pub fn new(device: &Device, normalized_shape: &[usize], eps: Option<f64>) -> Result<RmsNorm> {
        Ok(RmsNorm { weight: init::ones(device, normalized_shape)?, eps, layer: Layer::default() })
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(|| x.rms_norm(self.weight.shape(), Some(&self.weight), self.eps))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer).parameter("weight", &self.weight)
    }
}

/// Normalisation over groups of channels: `[N, C, ..]`; parameters `weight` `[C]` (ones at first) and `bias` `[C]` (zeros).
pub struct GroupNorm {
    /// `[C]`.
    pub weight: Tensor,
    /// `[C]`.
    pub bias: Tensor,
    /// Added to the variance; PyTorch's default is 1e-5.
    pub eps: f64,
    groups: usize,
    layer: Layer,
}

impl GroupNorm {
    /// `groups` groups of `channels` channels, eps 1e-5.
    ///
    /// # Errors
    /// Where the groups do not divide the channels.
    pub fn new(device: &Device, groups: usize, channels: usize) -> Result<GroupNorm> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            let fact = format!("{groups} groups for {channels} channels");
            return Err(Error::argument("GroupNorm::new", fact, "pass a number of groups that divides the channels"));
        }
        let (weight, bias) = (init::ones(device, &[channels])?, init::zeros(device, &[channels])?);
        Ok(GroupNorm { weight, bias, eps: 1e-5, groups, layer: Layer::default() })
    }
}

impl Module for GroupNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(|| x.group_norm(self.groups, Some(&self.weight), Some(&self.bias), self.eps))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer).parameter("weight", &self.weight).parameter("bias", &self.bias)
    }
}
