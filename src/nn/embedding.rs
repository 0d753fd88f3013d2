//! `y[..]` = `W[ids[..]]`: ids `[..]` (i32), W `[V, C]` -> y `[.., C]`.

use super::init;
use super::layer::Layer;
use super::module::{Module, Parts};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

/// A table of rows; parameter `weight` `[V, C]`.
pub struct Embedding {
    /// `[V, C]`.
    pub weight: Tensor,
    layer: Layer,
}

impl Embedding {
    /// Normal rows with standard deviation `std` (PyTorch's default is 1, GPT-2's 0.02).
    pub fn new(device: &Device, rows: usize, width: usize, std: f64) -> Result<Embedding> {
        Ok(Embedding { weight: init::normal(device, &[rows, width], 0.0, std)?, layer: Layer::default() })
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.layer.run(|| self.weight.embedding(ids))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer).parameter("weight", &self.weight)
    }
}
