//! Adagrad and RMSprop, PyTorch's forms.
//!
//! Adagrad: s += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). RMSprop: s = alpha s + (1 - alpha) g^2;
//! d = g / (sqrt(s) + eps), where `centered` with s less the square of the mean gradient; b = momentum b + d; p -= lr b (or lr d).

use super::group::ParamGroup;
use super::stepper::{STEP, Stepper, steps_by_rule};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::ops::optim::{Rule, in_range};

/// Options of [`Adagrad`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdagradOptions {
    /// How fast the learning rate falls.
    pub lr_decay: f64,
    /// What the sums of squares start with.
    pub initial_accumulator_value: f64,
    /// Added to the root of the sum.
    pub eps: f64,
}

impl Default for AdagradOptions {
    fn default() -> AdagradOptions {
        AdagradOptions { lr_decay: 0.0, initial_accumulator_value: 0.0, eps: 1e-10 }
    }
}

/// Adagrad: every element has a learning rate that falls with the squares of its gradients.
pub struct Adagrad {
    stepper: Stepper,
    options: AdagradOptions,
}

impl Adagrad {
    /// An optimizer for `groups`. PyTorch's default learning rate is 1e-2.
    pub fn new(groups: Vec<ParamGroup>, options: AdagradOptions) -> Adagrad {
        Adagrad { stepper: Stepper::new(groups, &[("sum", options.initial_accumulator_value)], None), options }
    }

    fn rule(&self) -> Result<Rule> {
        const OP: &str = "adagrad_";
        let AdagradOptions { lr_decay, initial_accumulator_value, eps } = self.options;
        let settings = [("lr_decay", lr_decay), ("initial_accumulator_value", initial_accumulator_value), ("eps", eps)];
        in_range(OP, &settings, f64::INFINITY)?;
        Ok(Rule {
            op: OP,
            kernel: Kernel::adagrad,
            slots: &[0],
            a: [lr_decay as f32, eps as f32, 0.0, 0.0],
            b: [0.0; 4],
            flag: false,
            momentum: (0.0, 0.0),
        })
    }
}

steps_by_rule!(Adagrad, &[STEP]);

/// Options of [`RmsProp`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsPropOptions {
    /// Decay of the mean square.
    pub alpha: f64,
    /// Added to the root of the mean square.
    pub eps: f64,
    /// Share of the last direction that is kept.
    pub momentum: f64,
    /// Divides by the standard deviation of the gradient instead.
    pub centered: bool,
}

impl Default for RmsPropOptions {
    fn default() -> RmsPropOptions {
        RmsPropOptions { alpha: 0.99, eps: 1e-8, momentum: 0.0, centered: false }
    }
}

/// RMSprop: divides by the root of the mean square of the gradients.
pub struct RmsProp {
    stepper: Stepper,
    options: RmsPropOptions,
}

impl RmsProp {
    /// An optimizer for `groups`. PyTorch's default learning rate is 1e-2.
    pub fn new(groups: Vec<ParamGroup>, options: RmsPropOptions) -> RmsProp {
        let mut parts = vec![("square_avg", 0.0)];
        parts.extend(options.centered.then_some(("grad_avg", 0.0)));
        parts.extend((options.momentum != 0.0).then_some(("momentum_buffer", 0.0)));
        RmsProp { stepper: Stepper::new(groups, &parts, None), options }
    }

    fn rule(&self) -> Result<Rule> {
        const OP: &str = "rmsprop_";
        let RmsPropOptions { alpha, eps, momentum, centered } = self.options;
        in_range(OP, &[("alpha", alpha), ("eps", eps), ("momentum", momentum)], f64::INFINITY)?;
        let (kernel, slots): (_, &[usize]) = match (centered, momentum != 0.0) {
            (false, false) => (Kernel::rmsprop, &[0]),
            (false, true) => (Kernel::rmsprop_momentum, &[0, 2]),
            (true, false) => (Kernel::rmsprop_centered, &[0, 1]),
            (true, true) => (Kernel::rmsprop_centered_momentum, &[0, 1, 2]),
        };
        let a = [alpha as f32, (1.0 - alpha) as f32, eps as f32, momentum as f32];
        Ok(Rule { op: OP, kernel, slots, a, b: [0.0; 4], flag: false, momentum: (0.0, 0.0) })
    }
}

steps_by_rule!(RmsProp, &[STEP]);
