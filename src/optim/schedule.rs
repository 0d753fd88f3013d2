//! Learning rates as functions of the step, counted from 0: pure, so a resumed run needs nothing but its step.
//!
//! ```
//! use linn::optim::StepLr;
//! let schedule = StepLr { lr: 0.1, step_size: 30, gamma: 0.5 };
//! assert_eq!([schedule.at(0), schedule.at(29), schedule.at(30), schedule.at(60)], [0.1, 0.1, 0.05, 0.025]);
//! ```

use std::f64::consts::PI;

/// Multiplied by `gamma` after every `step_size` steps: PyTorch's `StepLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLr {
    /// The learning rate of the first steps.
    pub lr: f64,
    /// Steps between two changes; 0 counts as 1.
    pub step_size: u64,
    /// The factor of a change.
    pub gamma: f64,
}

impl StepLr {
    /// The learning rate of step `step`, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        self.lr * self.gamma.powf((step / self.step_size.max(1)) as f64)
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
        let progress = (step - self.warmup) as f64 / (self.steps - self.warmup) as f64;
        self.min_lr + 0.5 * (1.0 + (PI * progress).cos()) * (self.lr - self.min_lr)
    }
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
        let schedule = StepLr { lr: 0.05, step_size: 3, gamma: 0.1 };
        let mut lr = 0.05; // StepLR's own form: a product that grows by one factor at every step_size
        for step in 0..20 {
            if step > 0 && step % 3 == 0 {
                lr *= 0.1;
            }
            assert!((schedule.at(step) - lr).abs() <= 1e-12 * lr, "step {step}: {} instead of {lr}", schedule.at(step));
        }
        assert_eq!(StepLr { lr: 1.0, step_size: 0, gamma: 0.5 }.at(2), 0.25);
        assert_eq!(StepLr { lr: 1.0, step_size: 1, gamma: 0.5 }.at(u64::MAX), 0.0);
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
