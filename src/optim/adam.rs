//! Adam, AMSGrad, AdamW and NAdam, PyTorch's forms.
//!
//! t += 1; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps).
//! AMSGrad divides by the largest v so far. Adam adds weight_decay p to g; AdamW multiplies p by 1 - lr weight_decay instead.
//! NAdam looks ahead along the momentum: mu(t) = b1 (1 - 0.96^(t momentum_decay) / 2), and p -= (lr (1 - mu(t)) / (1 - prod mu) g
//! + lr mu(t + 1) / (1 - mu(t + 1) prod mu) m) / (sqrt(v / (1 - b2^t)) + eps).

use super::group::ParamGroup;
use super::stepper::{MU_PRODUCT, STEP, Stepper, steps_by_rule};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::ops::optim::{Rule, in_range};

/// Weight decay added to the gradient (Adam) or applied to the parameter (AdamW).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// g = g + weight_decay * param
    Coupled,
    /// param = param * (1 - lr * weight_decay)
    Decoupled,
}

/// Options of [`Adam`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// Decay rates of both moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Divides by the largest second moment so far.
    pub amsgrad: bool,
}

impl Default for AdamOptions {
    fn default() -> AdamOptions {
        AdamOptions { betas: (0.9, 0.999), eps: 1e-8, amsgrad: false }
    }
}

/// Adam and AdamW.
pub struct Adam {
    stepper: Stepper,
    options: AdamOptions,
    decay: Decay,
}

impl Adam {
    /// Adam: weight decay is added to the gradient.
    pub fn new(groups: Vec<ParamGroup>, options: AdamOptions) -> Adam {
        Adam::with_decay(groups, options, Decay::Coupled, None)
    }

    /// AdamW: weight decay shrinks the parameter.
    pub fn adamw(groups: Vec<ParamGroup>, options: AdamOptions) -> Adam {
        Adam::with_decay(groups, options, Decay::Decoupled, None)
    }

    /// The same optimizer with its state in bf16, before its first step: half the memory, moments rounded to 8 binary digits at each
    /// step. The step itself is computed in f32.
    ///
    /// A second moment whose decay is near 1 changes by less than such a number can hold: with the usual beta2 of 0.999 it stops
    /// falling. Choose 0.95 or less.
    ///
    /// # Errors
    /// After a step.
    pub fn bf16_state(self) -> Result<Adam> {
        if !self.stepper.state(&[STEP]).is_empty() {
            let fact = "bf16_state after a step or a load";
            return Err(Error::argument("adam", fact, "call it on the new optimizer"));
        }
        Ok(Adam::with_decay(self.stepper.groups, self.options, self.decay, Some(DType::BF16)))
    }

    fn with_decay(groups: Vec<ParamGroup>, options: AdamOptions, decay: Decay, state: Option<DType>) -> Adam {
        let parts = [("exp_avg", 0.0), ("exp_avg_sq", 0.0), ("max_exp_avg_sq", 0.0)];
        let parts = &parts[..if options.amsgrad { 3 } else { 2 }];
        Adam { stepper: Stepper::new(groups, parts, state), options, decay }
    }

    fn rule(&self) -> Result<Rule> {
        const OP: &str = "adam_";
        let AdamOptions { betas: (beta1, beta2), eps, amsgrad } = self.options;
        check_betas(OP, (beta1, beta2), eps)?;
        Ok(Rule {
            op: OP,
            kernel: if amsgrad { Kernel::adam_amsgrad } else { Kernel::adam },
            slots: &[0, 1, 2],
            a: [(1.0 - beta1) as f32, beta2 as f32, (1.0 - beta2) as f32, eps as f32],
            b: [beta1.ln() as f32, beta2.ln() as f32, 0.0, 0.0],
            flag: self.decay == Decay::Decoupled,
            momentum: (0.0, 0.0),
        })
    }
}

steps_by_rule!(Adam, &[STEP]);

/// Options of [`NAdam`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NAdamOptions {
    /// Decay rates of both moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// How fast the momentum reaches beta1.
    pub momentum_decay: f64,
    /// Weight decay added to the gradient (PyTorch's default) or applied to the parameter.
    pub decay: Decay,
}

impl Default for NAdamOptions {
    fn default() -> NAdamOptions {
        NAdamOptions { betas: (0.9, 0.999), eps: 1e-8, momentum_decay: 4e-3, decay: Decay::Coupled }
    }
}

/// NAdam: Adam with Nesterov's momentum.
pub struct NAdam {
    stepper: Stepper,
    options: NAdamOptions,
}

impl NAdam {
    /// An optimizer for `groups`. PyTorch's default learning rate is 2e-3.
    pub fn new(groups: Vec<ParamGroup>, options: NAdamOptions) -> NAdam {
        NAdam { stepper: Stepper::new(groups, &[("exp_avg", 0.0), ("exp_avg_sq", 0.0)], None), options }
    }

    fn rule(&self) -> Result<Rule> {
        const OP: &str = "nadam_";
        let NAdamOptions { betas: (beta1, beta2), eps, momentum_decay, decay } = self.options;
        check_betas(OP, (beta1, beta2), eps)?;
        in_range(OP, &[("momentum_decay", momentum_decay)], f64::INFINITY)?;
        Ok(Rule {
            op: OP,
            kernel: Kernel::nadam,
            slots: &[0, 1],
            a: [(1.0 - beta1) as f32, beta2 as f32, (1.0 - beta2) as f32, eps as f32],
            b: [beta1 as f32, beta2.ln() as f32, (momentum_decay * 0.96f64.ln()) as f32, 0.0],
            flag: decay == Decay::Decoupled,
            momentum: (beta1, momentum_decay),
        })
    }
}

steps_by_rule!(NAdam, &[STEP, MU_PRODUCT]);

fn check_betas(op: &'static str, (beta1, beta2): (f64, f64), eps: f64) -> Result<()> {
    in_range(op, &[("eps", eps)], f64::INFINITY)?;
    in_range(op, &[("beta1", beta1), ("beta2", beta2)], 1.0)
}
