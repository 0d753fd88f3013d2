//! Random samples of a token sequence, as a pure function of (seed, step): a resumed run draws what it would have drawn.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// B samples of T ids and of the ids that follow each, row-major `[B, T]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBatch {
    /// The samples.
    pub inputs: Vec<i32>,
    /// The samples moved by one.
    pub targets: Vec<i32>,
}

/// Draws batches from a token sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    tokens: Vec<i32>,
    batch: usize,
    context: usize,
    seed: u64,
}

impl Sampler {
    /// Batches of `batch` samples of `context` ids; `None` where `tokens` holds no sample with its targets.
    pub fn new(tokens: Vec<i32>, batch: usize, context: usize, seed: u64) -> Option<Sampler> {
        (tokens.len() > context).then_some(Sampler { tokens, batch, context, seed })
    }

    /// `[B, T]`.
    pub fn shape(&self) -> [usize; 2] {
        [self.batch, self.context]
    }

    /// The batch of `step`.
    pub fn batch(&self, step: u64) -> HostBatch {
        let starts = (self.tokens.len() - self.context) as u64;
        let mut batch = HostBatch { inputs: Vec::new(), targets: Vec::new() };
        for row in 0..self.batch as u64 {
            let start = random_below(self.seed, step, row, starts) as usize;
            batch.inputs.extend(&self.tokens[start..start + self.context]);
            batch.targets.extend(&self.tokens[start + 1..start + 1 + self.context]);
        }
        batch
    }
}

/// A whole number in 0..`below` (0 where `below` is 0) that depends on (seed, a, b) only.
pub fn random_below(seed: u64, a: u64, b: u64, below: u64) -> u64 {
    ((u128::from(bits(seed, a, b)) * u128::from(below)) >> 64) as u64
}

/// A number in [0, 1) that depends on (seed, a, b) only.
pub fn random_unit(seed: u64, a: u64, b: u64) -> f64 {
    (bits(seed, a, b) >> 11) as f64 / (1u64 << 53) as f64
}

/// The first word of ChaCha8 keyed with the three numbers.
fn bits(seed: u64, a: u64, b: u64) -> u64 {
    let mut key = [0; 32];
    for (part, number) in key.chunks_exact_mut(8).zip([seed, a, b]) {
        part.copy_from_slice(&number.to_le_bytes());
    }
    ChaCha8Rng::from_seed(key).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_depend_on_seed_and_step_only() {
        let sampler = |seed| Sampler::new((0..1000).collect(), 4, 16, seed).unwrap();
        assert_eq!(sampler(1).batch(7), sampler(1).batch(7));
        assert_ne!(sampler(1).batch(7), sampler(1).batch(8));
        assert_ne!(sampler(1).batch(7), sampler(2).batch(7));
        let batch = sampler(3).batch(0);
        assert_eq!((batch.inputs.len(), batch.targets.len()), (64, 64));
        assert!(batch.inputs.iter().zip(&batch.targets).all(|(x, y)| x + 1 == *y));
    }

    #[test]
    fn every_start_is_drawn_and_none_reaches_beyond_the_end() {
        let sampler = Sampler::new((0..12).collect(), 64, 10, 5).unwrap();
        let starts: std::collections::BTreeSet<i32> =
            (0..4).flat_map(|step| sampler.batch(step).inputs.into_iter().step_by(10)).collect();
        assert_eq!(starts.into_iter().collect::<Vec<_>>(), [0, 1]);
        assert!(Sampler::new((0..10).collect(), 1, 10, 0).is_none());
    }

    #[test]
    fn draws_are_spread_evenly() {
        let mut counts = [0u32; 10];
        (0..10_000).for_each(|i| counts[random_below(1, i, 0, 10) as usize] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        let mean = (0..10_000).map(|i| random_unit(1, i, 1)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
