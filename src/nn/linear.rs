//! y = x W^T + b: x `[.., in]`, W `[out, in]`, b `[out]` -> y `[.., out]`.

use super::init;
use super::layer::Layer;
use super::module::{Module, Parts};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

/// A linear layer; parameters `weight` `[out, in]` and, where wanted, `bias` `[out]`.
pub struct Linear {
    /// `[out, in]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Option<Tensor>,
    layer: Layer,
}

/// Whether a layer adds a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It does.
    With,
    /// It does not.
    Without,
}

impl From<bool> for Bias {
    fn from(with: bool) -> Bias {
        if with { Bias::With } else { Bias::Without }
    }
}

impl Linear {
    /// PyTorch's initial values: uniform within 1 / sqrt(in).
    pub fn new(device: &Device, inputs: usize, outputs: usize, bias: Bias) -> Result<Linear> {
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let weight = init::uniform(device, &[outputs, inputs], -bound, bound)?;
        let bias = match bias {
            Bias::With => Some(init::uniform(device, &[outputs], -bound, bound)?),
            Bias::Without => None,
        };
        Ok(Linear { weight, bias, layer: Layer::default() })
    }

    /// Normal weights with standard deviation `std`, bias 0 (GPT-2's initial values).
    pub fn normal(device: &Device, inputs: usize, outputs: usize, bias: Bias, std: f64) -> Result<Linear> {
        let weight = init::normal(device, &[outputs, inputs], 0.0, std)?;
        let bias = match bias {
            Bias::With => Some(init::zeros(device, &[outputs])?),
            Bias::Without => None,
        };
        Ok(Linear { weight, bias, layer: Layer::default() })
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(|| x.linear(&self.weight, self.bias.as_ref()))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer).parameter("weight", &self.weight).parameter("bias", &self.bias)
    }
}
