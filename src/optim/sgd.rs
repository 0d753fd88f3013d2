//! Stochastic gradient descent with momentum, PyTorch's form.
//!
//! g += weight_decay p; b = momentum b + (1 - dampening) g (the first time b = g); g = nesterov ? g + momentum b : b; p -= lr g.

use super::group::ParamGroup;
use super::stepper::{Stepper, steps_by_rule};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::ops::optim::{Rule, in_range};

/// Options of [`Sgd`]; PyTorch's defaults are all 0 and `false`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SgdOptions {
    /// Share of the last direction that is kept.
    pub momentum: f64,
    /// Share of the gradient that momentum leaves out.
    pub dampening: f64,
    /// Nesterov's form: look ahead along the momentum.
    pub nesterov: bool,
}

/// SGD.
pub struct Sgd {
    stepper: Stepper,
    options: SgdOptions,
}

impl Sgd {
    /// An optimizer for `groups`.
    pub fn new(groups: Vec<ParamGroup>, options: SgdOptions) -> Sgd {
        let parts: &[_] = if options.momentum == 0.0 { &[] } else { &[("momentum_buffer", 0.0)] };
        Sgd { stepper: Stepper::new(groups, parts, None), options }
    }

    fn rule(&self) -> Result<Rule> {
        const OP: &str = "sgd_";
        let SgdOptions { momentum, dampening, nesterov } = self.options;
        in_range(OP, &[("momentum", momentum)], f64::INFINITY)?;
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            let fact = format!("nesterov with momentum {momentum} and dampening {dampening}");
            return Err(Error::argument(OP, fact, "pass a momentum above 0 and a dampening of 0, or no nesterov"));
        }
        let plain = momentum == 0.0;
        Ok(Rule {
            op: OP,
            kernel: if plain { Kernel::sgd } else { Kernel::sgd_momentum },
            slots: if plain { &[] } else { &[0] },
            a: [momentum as f32, (1.0 - dampening) as f32, 0.0, 0.0],
            b: [0.0; 4],
            flag: nesterov,
            momentum: (0.0, 0.0),
        })
    }
}

steps_by_rule!(Sgd, &[]);
