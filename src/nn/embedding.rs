//! `y[..]` = `W[ids[..]]`: ids `[..]` (i32), W `[V, C]` -> y `[.., C]`.

use super::init;
use super::module::{Module, join};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

/// A table of rows; parameter `weight` `[V, C]`.
pub struct Embedding {
    /// `[V, C]`.
    pub weight: Tensor,
}

impl Embedding {
    /// Normal rows with standard deviation `std` (PyTorch's default is 1, GPT-2's 0.02).
    pub fn new(device: &Device, rows: usize, width: usize, std: f64) -> Result<Embedding> {
        Ok(Embedding { weight: init::normal(device, &[rows, width], 0.0, std)? })
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.weight.embedding(ids)
    }

    fn collect_parameters(&self, path: &str, into: &mut Vec<(String, Tensor)>) {
        into.push((join(path, "weight"), self.weight.clone()));
    }
}
