//! y = x m / (1 - p), where each element of m is 0 with probability p and else 1; 0 where p is 1.

use std::sync::atomic::{AtomicBool, Ordering};

use super::module::{Mode, Module};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Dropout; draws from the device's generator while training, passes its input in evaluation.
pub struct Dropout {
    p: f64,
    training: AtomicBool,
}

impl Dropout {
    /// Drops with probability `p`, 0 <= p <= 1.
    pub fn new(p: f64) -> Result<Dropout> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument("Dropout::new", format!("p is {p}"), "use a probability from 0 to 1"));
        }
        Ok(Dropout { p, training: AtomicBool::new(true) })
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.p == 0.0 || !self.training.load(Ordering::Relaxed) {
            return Ok(x.clone());
        }
        x.dropout(self.p)
    }

    fn collect_parameters(&self, _path: &str, _into: &mut Vec<(String, Tensor)>) {}

    fn set_mode(&self, mode: Mode) {
        self.training.store(mode == Mode::Train, Ordering::Relaxed);
    }
}
