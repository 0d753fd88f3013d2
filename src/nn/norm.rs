//! y = (x - mean) / sqrt(variance + eps) * w + b over the last dimension.

use super::init;
use super::layer::Layer;
use super::linear::Bias;
use super::module::{Module, Parts};
use crate::device::Device;
use crate::error::Result;
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
        let bias = match bias {
            Bias::With => Some(init::zeros(device, &[width])?),
            Bias::Without => None,
        };
        Ok(LayerNorm { weight: init::ones(device, &[width])?, bias, eps: 1e-5, layer: Layer::default() })
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.run(|| x.layer_norm(Some(&self.weight), self.bias.as_ref(), self.eps))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer).parameter("weight", &self.weight).parameter("bias", &self.bias)
    }
}
