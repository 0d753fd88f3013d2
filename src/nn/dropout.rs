//! y = x m / (1 - p), where each element of m is 0 with probability p and else 1; 0 where p is 1.

use super::layer::Layer;
use super::module::{Module, Parts};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Dropout; draws from the device's generator while training, passes its input in evaluation.
pub struct Dropout {
    p: f64,
    layer: Layer,
}

impl Dropout {
    /// Drops with probability `p`, 0 <= p <= 1.
    pub fn new(p: f64) -> Result<Dropout> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument("Dropout::new", format!("p is {p}"), "use a probability from 0 to 1"));
        }
        Ok(Dropout { p, layer: Layer::default() })
    }

    /// The share that is dropped now: 0 in evaluation.
    pub(super) fn rate(&self) -> f64 {
        if self.layer.is_training() { self.p } else { 0.0 }
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.rate() == 0.0 {
            return Ok(x.clone());
        }
        self.layer.forward(|| x.dropout(self.p))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::of(&self.layer)
    }
}
