//! `y[..]` = `W[ids[..]]`: ids `[..]` (i32), W `[V, C]` -> y `[.., C]`.

use super::init;
use super::layer::Layer;
use super::module::{Module, Parts};
use crate::autograd::no_grad;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A table of rows; parameter `weight` `[V, C]`.
pub struct Embedding {
    /// `[V, C]`.
    pub weight: Tensor,
    padding_idx: Option<usize>,
    layer: Layer,
}

impl Embedding {
    /// Normal rows with standard deviation `std` (PyTorch's default is 1, GPT-2's 0.02).
    pub fn new(device: &Device, rows: usize, width: usize, std: f64) -> Result<Embedding> {
        Ok(Embedding { weight: init::normal(device, &[rows, width], 0.0, std)?, padding_idx: None, layer: Layer::default() })
    }

    /// With a row of zeros that stands for nothing and does not learn.
    ///
    /// # Errors
    /// Where there is no such row.
    pub fn padding_idx(self, row: usize) -> Result<Embedding> {
        let rows = self.weight.size(0)?;
        if row >= rows {
            return Err(Error::argument(
                "Embedding",
                format!("padding_idx is {row}, there are {rows} rows"),
                "pass one of the rows",
            ));
        }
        no_grad(|| self.weight.narrow(0, row as isize, 1)?.zero_())?;
        Ok(Embedding { padding_idx: Some(row), ..self })
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.layer.forward(|| self.weight.embedding_with(ids, self.padding_idx))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer).parameter("weight", &self.weight)
    }
}
