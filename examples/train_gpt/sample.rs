//! Sampling: one character after the other from the model's distribution.

use anyhow::Result;
use linn::autograd::no_grad;
use linn::data::{Vocabulary, random_unit};
use linn::device::Device;
use linn::nn::{Gpt, Module};
use linn::tensor::Tensor;

use super::stop;

/// `prompt` and `len` characters after it, fewer where a signal asks to end. The same seed gives the same text.
pub fn sample(device: &Device, model: &Gpt, vocabulary: &Vocabulary, prompt: &str, len: usize, seed: u64) -> Result<String> {
    if len == 0 {
        return Ok(String::new());
    }
    model.eval();
    let mut ids = vocabulary.encode(prompt)?;
    if ids.is_empty() {
        ids.push(0);
    }
    for i in 0..len as u64 {
        if stop::signal().is_some() {
            break;
        }
        let seen = &ids[ids.len().saturating_sub(model.config().block_size)..];
        let logits = no_grad(|| {
            let input = Tensor::from_slice(device, &[1, seen.len()], seen)?;
            model.next_logits(&input)?.to_vec::<f32>()
        })?;
        ids.push(draw(&logits, random_unit(seed, SAMPLES, i)));
    }
    Ok(vocabulary.decode(&ids))
}

/// The id whose share of the distribution covers `u` in [0, 1).
fn draw(logits: &[f32], u: f64) -> i32 {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|logit| f64::from(logit - top).exp()).collect();
    let mut left = u * weights.iter().sum::<f64>();
    let covering = |weight: &f64| {
        left -= weight;
        left < 0.0
    };
    weights.iter().position(covering).unwrap_or(weights.len().saturating_sub(1)) as i32
}

/// Keeps the random numbers of samples apart from those of batches.
const SAMPLES: u64 = u64::MAX;
