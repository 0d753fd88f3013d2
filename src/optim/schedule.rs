//! Learning rates as functions of the step, counted from 0, and of the rate that a group of parameters starts with: pure, so that
//! a resumed run needs nothing but its step. A [`Scheduler`](super::Scheduler) sets an optimizer's by them.
//!
//! Names and defaults are PyTorch's; its schedulers multiply the last rate, these compute each anew, which rounds differently.
//!
//! ```
//! use linn::optim::{Schedule, StepLr};
//! let schedule = StepLr { step_size: 30, gamma: 0.5 };
//! assert_eq!([0, 29, 30, 60].map(|step| schedule.lr(step, 0.1)), [0.1, 0.1, 0.05, 0.025]);
//! ```

use std::f64::consts::PI;

/// A learning rate for each step. Functions of (step, rate at the start) are schedules too.
pub trait Schedule: Send + Sync {
    /// The rate of step `step`, counted from 0, of a group that starts with `base`.
    fn lr(&self, step: u64, base: f64) -> f64;
}

impl<F: Fn(u64, f64) -> f64 + Send + Sync> Schedule for F {
    fn lr(&self, step: u64, base: f64) -> f64 {
        self(step, base)
    }
}

/// Multiplied by `gamma` after every `step_size` steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLr {
    /// Steps between two changes; 0 counts as 1.
    pub step_size: u64,
    /// The factor of a change; PyTorch's default is 0.1.
    pub gamma: f64,
}

impl Schedule for StepLr {
    fn lr(&self, step: u64, base: f64) -> f64 {
        base * self.gamma.powf((step / self.step_size.max(1)) as f64)
    }
}

/// Multiplied by `gamma` at each milestone.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiStepLr {
    /// Steps, in any order; one that is there twice counts twice.
    pub milestones: Vec<u64>,
    /// The factor of a change; PyTorch's default is 0.1.
    pub gamma: f64,
}

impl Schedule for MultiStepLr {
    fn lr(&self, step: u64, base: f64) -> f64 {
        base * self.gamma.powf(self.milestones.iter().filter(|milestone| **milestone <= step).count() as f64)
    }
}

/// Multiplied by `factor` for the first steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstantLr {
    /// The factor; PyTorch's default is 1 / 3.
    pub factor: f64,
    /// How many steps; PyTorch's default is 5.
    pub total_iters: u64,
}

impl Schedule for ConstantLr {
    fn lr(&self, step: u64, base: f64) -> f64 {
        if step < self.total_iters { base * self.factor } else { base }
    }
}

/// A factor that goes along a line: a warm-up, by its defaults from a third to the whole in 5 steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearLr {
    /// The first factor.
    pub start_factor: f64,
    /// The last one.
    pub end_factor: f64,
    /// The step at which it is reached.
    pub total_iters: u64,
}

impl Default for LinearLr {
    fn default() -> LinearLr {
        LinearLr { start_factor: 1.0 / 3.0, end_factor: 1.0, total_iters: 5 }
    }
}

impl Schedule for LinearLr {
    fn lr(&self, step: u64, base: f64) -> f64 {
        base * between(self.start_factor, self.end_factor, share(step, self.total_iters))
    }
}

/// Multiplied by `gamma` after every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExponentialLr {
    /// The factor.
    pub gamma: f64,
}

impl Schedule for ExponentialLr {
    fn lr(&self, step: u64, base: f64) -> f64 {
        base * self.gamma.powf(step as f64)
    }
}

/// (1 - step / total_iters)^power, 0 at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolynomialLr {
    /// The step at which it is 0; PyTorch's default is 5.
    pub total_iters: u64,
    /// 1 is a line.
    pub power: f64,
}

impl Schedule for PolynomialLr {
    fn lr(&self, step: u64, base: f64) -> f64 {
        base * (1.0 - share(step, self.total_iters)).powf(self.power)
    }
}

/// Half a cosine down to `eta_min` in `t_max` steps, and up again in as many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineAnnealingLr {
    /// Steps to the least rate; 0 counts as 1.
    pub t_max: u64,
    /// The least rate; PyTorch's default is 0.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingLr {
    fn lr(&self, step: u64, base: f64) -> f64 {
        let period = self.t_max.max(1);
        cosine(base, self.eta_min, (step % (2 * period)) as f64 / period as f64)
    }
}

/// Half a cosine down to `eta_min`, again and again, each `t_mult` times as long as the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineAnnealingWarmRestarts {
    /// Steps of the first; 0 counts as 1.
    pub t_0: u64,
    /// How much longer the next is; 0 counts as 1, PyTorch's default.
    pub t_mult: u64,
    /// The least rate; PyTorch's default is 0.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn lr(&self, step: u64, base: f64) -> f64 {
        let (mut at, mut period) = (step, self.t_0.max(1));
        if self.t_mult <= 1 {
            at %= period;
        } else {
            while at >= period {
                at -= period;
                period = period.saturating_mul(self.t_mult);
            }
        }
        cosine(base, self.eta_min, at as f64 / period as f64)
    }
}

/// Multiplied by a function of the step.
#[derive(Clone, Copy, Debug)]
pub struct LambdaLr<F>(
    /// The factor of each step.
    pub F,
);

impl<F: Fn(u64) -> f64 + Send + Sync> Schedule for LambdaLr<F> {
    fn lr(&self, step: u64, base: f64) -> f64 {
        base * (self.0)(step)
    }
}

/// How one rate becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anneal {
    /// Along half a cosine.
    Cosine,
    /// Along a line.
    Linear,
}

/// Up to `max_lr` and down below where it began (Smith, Topin 2017). The rate of the group does not count; momenta stay as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneCycleLr {
    /// The highest rate.
    pub max_lr: f64,
    /// Steps of the cycle.
    pub total_steps: u64,
    /// The share of the steps that the rate rises in.
    pub pct_start: f64,
    /// How it rises and falls.
    pub anneal: Anneal,
    /// The highest rate divided by the first.
    pub div_factor: f64,
    /// The first rate divided by the last.
    pub final_div_factor: f64,
    /// Whether it falls to the first rate as it rose, and then to the last.
    pub three_phase: bool,
}

impl OneCycleLr {
    /// PyTorch's defaults: a cosine that rises for 30% of the steps from a 25th, and falls to a 250,000th.
    pub fn new(max_lr: f64, total_steps: u64) -> OneCycleLr {
        let (pct_start, anneal, three_phase) = (0.3, Anneal::Cosine, false);
        OneCycleLr { max_lr, total_steps, pct_start, anneal, div_factor: 25.0, final_div_factor: 1e4, three_phase }
    }
}

impl Schedule for OneCycleLr {
    fn lr(&self, step: u64, _base: f64) -> f64 {
        let first = self.max_lr / self.div_factor;
        let (last, end) = (first / self.final_div_factor, self.total_steps as f64 - 1.0);
        let top = self.pct_start * self.total_steps as f64 - 1.0;
        let phases = match self.three_phase {
            true => vec![(top, first, self.max_lr), (2.0 * top, self.max_lr, first), (end, first, last)],
            false => vec![(top, first, self.max_lr), (end, self.max_lr, last)],
        };
        let (mut start, step) = (0.0, step as f64);
        for (until, from, to) in phases {
            if step <= until {
                let share = (step - start) / (until - start).max(f64::MIN_POSITIVE);
                return match self.anneal {
                    Anneal::Cosine => cosine(from, to, share),
                    Anneal::Linear => between(from, to, share),
                };
            }
            start = until;
        }
        last
    }
}

/// One schedule after the other, each counting its own steps: a warm-up and what follows it.
///
/// ```
/// use linn::optim::{CosineAnnealingLr, LinearLr, Schedule, SequentialLr};
/// let warmup = LinearLr { start_factor: 0.25, end_factor: 1.0, total_iters: 3 };
/// let schedule = SequentialLr::new(warmup).then(3, CosineAnnealingLr { t_max: 100, eta_min: 0.0 });
/// assert_eq!([0, 1, 3, 103].map(|step| schedule.lr(step, 0.1)), [0.025, 0.05, 0.1, 0.0]);
/// ```
pub struct SequentialLr {
    /// Each with the step that it begins at.
    parts: Vec<(u64, Box<dyn Schedule>)>,
}

impl SequentialLr {
    /// `first` from step 0 on.
    pub fn new(first: impl Schedule + 'static) -> SequentialLr {
        SequentialLr { parts: vec![(0, Box::new(first))] }
    }

    /// And `schedule` from the step `milestone` on, which it counts as its first.
    pub fn then(mut self, milestone: u64, schedule: impl Schedule + 'static) -> SequentialLr {
        self.parts.push((milestone, Box::new(schedule)));
        self
    }
}

impl Schedule for SequentialLr {
    fn lr(&self, step: u64, base: f64) -> f64 {
        let part = self.parts.iter().rev().find(|(milestone, _)| *milestone <= step);
        part.map_or(base, |(milestone, schedule)| schedule.lr(step - milestone, base))
    }
}

/// Rises linearly for `warmup` steps, then falls along half a cosine from `lr` to `min_lr` at step `steps`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmupCosine {
    /// The highest learning rate.
    pub lr: f64,
    /// The learning rate at the end and after it.
    pub min_lr: f64,
    /// Steps of the rise.
    pub warmup: u64,
    /// Steps in all.
    pub steps: u64,
}

impl WarmupCosine {
    /// The learning rate of step `step`, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.lr * (step + 1) as f64 / self.warmup as f64;
        }
        if step >= self.steps {
            return self.min_lr;
        }
        cosine(self.lr, self.min_lr, (step - self.warmup) as f64 / (self.steps - self.warmup) as f64)
    }
}

/// How much of `total` steps is behind, at most all.
fn share(step: u64, total: u64) -> f64 {
    if step >= total { 1.0 } else { step as f64 / total as f64 }
}

fn between(from: f64, to: f64, share: f64) -> f64 {
    from + (to - from) * share
}

/// From `from` to `to` along half a cosine, and back beyond a share of 1.
fn cosine(from: f64, to: f64, share: f64) -> f64 {
    to + 0.5 * (1.0 + (PI * share).cos()) * (from - to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_and_falls_as_pytorchs_script_does() {
        let schedule = WarmupCosine { lr: 1e-3, min_lr: 1e-4, warmup: 5, steps: 40 };
        for step in 0..40 {
            // The formula of the golden runs (training.py).
            let want = if step < 5 {
                1e-3 * f64::min(1.0, (step + 1) as f64 / 5.0)
            } else {
                1e-4 + 0.5 * (1.0 + (PI * (step - 5) as f64 / 35.0).cos()) * (1e-3 - 1e-4)
            };
            assert!((schedule.at(step) - want).abs() < 1e-15, "step {step}");
        }
        assert_eq!(schedule.at(4), 1e-3);
        assert_eq!(schedule.at(40), 1e-4);
        assert_eq!(schedule.at(1000), 1e-4);
    }

    #[test]
    fn steps_down_as_pytorchs_step_lr_does() {
        let schedule = StepLr { step_size: 3, gamma: 0.1 };
        let mut lr = 0.05; // StepLR's own form: a product that grows by one factor at every step_size
        for step in 0..20 {
            if step > 0 && step % 3 == 0 {
                lr *= 0.1;
            }
            assert!(
                (schedule.lr(step, 0.05) - lr).abs() <= 1e-12 * lr,
                "step {step}: {} instead of {lr}",
                schedule.lr(step, 0.05)
            );
        }
        assert_eq!(StepLr { step_size: 0, gamma: 0.5 }.lr(2, 1.0), 0.25);
        assert_eq!(StepLr { step_size: 1, gamma: 0.5 }.lr(u64::MAX, 1.0), 0.0);
    }

    #[test]
    fn no_warmup_and_no_steps_are_defined() {
        let schedule = WarmupCosine { lr: 1.0, min_lr: 0.1, warmup: 0, steps: 0 };
        assert_eq!(schedule.at(0), 0.1);
        let schedule = WarmupCosine { lr: 1.0, min_lr: 0.1, warmup: 10, steps: 10 };
        assert_eq!(schedule.at(9), 1.0);
        assert_eq!(schedule.at(10), 0.1);
    }
}
