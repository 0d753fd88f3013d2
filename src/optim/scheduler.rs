//! Learning rates that follow a schedule, or that fall when a metric no longer gets better.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::group::Optimizer;
use super::schedule::Schedule;
use crate::error::{Error, Result};

/// Sets the learning rates of an optimizer's groups, step by step; each group follows the schedule from its own rate on.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::optim::{Optimizer, ParamGroup, Scheduler, Sgd, SgdOptions, StepLr};
/// let w = Tensor::new(&device, [1.0f32])?.requires_grad_(true)?;
/// let mut sgd = Sgd::new(vec![ParamGroup::new(vec![("w".into(), w)], 0.1, 0.0)], SgdOptions::default());
/// let mut scheduler = Scheduler::new(&mut sgd, StepLr { step_size: 2, gamma: 0.5 });
/// for _ in 0..4 {
///     sgd.step()?; // forward and backward come before it
///     scheduler.step(&mut sgd);
/// }
/// assert_eq!(scheduler.last_lr(), [0.025]);
/// # Ok::<(), linn::Error>(())
/// ```
pub struct Scheduler {
    schedules: Vec<Box<dyn Schedule>>,
    base_lrs: Vec<f64>,
    last_lr: Vec<f64>,
    last_epoch: u64,
}

impl Scheduler {
    /// A scheduler for the groups that the optimizer has, whose rates become those of step 0.
    pub fn new(optimizer: &mut dyn Optimizer, schedule: impl Schedule + 'static) -> Scheduler {
        Scheduler::with(optimizer, vec![Box::new(schedule)])
    }

    /// With a schedule for each group; the last one is for all groups behind it too.
    pub fn with(optimizer: &mut dyn Optimizer, schedules: Vec<Box<dyn Schedule>>) -> Scheduler {
        let base_lrs = optimizer.groups().iter().map(|group| group.lr).collect();
        let mut scheduler = Scheduler { schedules, base_lrs, last_lr: Vec::new(), last_epoch: 0 };
        scheduler.set(optimizer);
        scheduler
    }

    /// The rates of the next step; after each step of the optimizer.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.last_epoch += 1;
        self.set(optimizer);
    }

    /// The rates of the groups.
    pub fn last_lr(&self) -> &[f64] {
        &self.last_lr
    }

    /// How often it has stepped.
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    /// What has to be saved to go on, under PyTorch's names; fits the metadata of [`state::save`](crate::nn::state::save). The schedule
    /// is not in it.
    pub fn state(&self) -> BTreeMap<String, String> {
        [("last_epoch", self.last_epoch.to_string()), ("base_lrs", written(&self.base_lrs))]
            .map(|(name, text)| (name.into(), text))
            .into()
    }

    /// Takes the state of [`Scheduler::state`] back, and sets the optimizer's rates; names start with `prefix`.
    ///
    /// # Errors
    /// [`Error::File`] where something is missing or is not for as many groups; then nothing has changed.
    pub fn load_state(&mut self, optimizer: &mut dyn Optimizer, state: &BTreeMap<String, String>, prefix: &str) -> Result<()> {
        let base_lrs = numbers(state, prefix, "base_lrs", self.base_lrs.len())?;
        (self.last_epoch, self.base_lrs) = (number(state, prefix, "last_epoch")?, base_lrs);
        self.set(optimizer);
        Ok(())
    }

    fn set(&mut self, optimizer: &mut dyn Optimizer) {
        let schedule = |at: usize| self.schedules.get(at).or(self.schedules.last());
        let lr = |(at, base): (usize, &f64)| schedule(at).map_or(*base, |schedule| schedule.lr(self.last_epoch, *base));
        self.last_lr = self.base_lrs.iter().enumerate().map(lr).collect();
        optimizer.groups_mut().iter_mut().zip(&self.last_lr).for_each(|(group, lr)| group.lr = *lr);
    }
}

/// Which metrics are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Smaller ones: losses.
    Min,
    /// Larger ones: accuracies.
    Max,
}

/// By how much a metric has to be better than the best one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// By a share of the best one.
    Relative(f64),
    /// By a number.
    Absolute(f64),
}

/// Settings of [`ReduceLrOnPlateau`]; the defaults are PyTorch's.
#[derive(Clone, Debug, PartialEq)]
pub struct PlateauOptions {
    /// Which metrics are better.
    pub mode: Better,
    /// What the rates are multiplied by.
    pub factor: f64,
    /// How many metrics in a row may be no better.
    pub patience: u64,
    /// What counts as better.
    pub threshold: Threshold,
    /// How many metrics do not count after a change.
    pub cooldown: u64,
    /// The least rates: one for each group, or one for all.
    pub min_lr: Vec<f64>,
    /// Changes that are no larger are not made.
    pub eps: f64,
}

impl Default for PlateauOptions {
    fn default() -> PlateauOptions {
        PlateauOptions {
            mode: Better::Min,
            factor: 0.1,
            patience: 10,
            threshold: Threshold::Relative(1e-4),
            cooldown: 0,
            min_lr: vec![0.0],
            eps: 1e-8,
        }
    }
}

/// Multiplies learning rates by a factor when a metric has not got better for a while.
///
/// ```
/// # use linn::optim::{Optimizer, ParamGroup, Sgd, SgdOptions};
/// use linn::optim::{PlateauOptions, ReduceLrOnPlateau};
/// let mut sgd = Sgd::new(vec![ParamGroup::new(vec![], 0.1, 0.0)], SgdOptions::default());
/// let mut scheduler = ReduceLrOnPlateau::new(PlateauOptions { patience: 1, factor: 0.5, ..Default::default() });
/// for loss in [1.0, 0.9, 0.95, 0.92] {
///     scheduler.step(&mut sgd, loss);
/// }
/// assert_eq!(sgd.groups()[0].lr, 0.05);
/// ```
pub struct ReduceLrOnPlateau {
    options: PlateauOptions,
    best: f64,
    num_bad_epochs: u64,
    cooldown_counter: u64,
    last_epoch: u64,
    last_lr: Vec<f64>,
}

impl ReduceLrOnPlateau {
    /// A scheduler that has seen no metric.
    pub fn new(options: PlateauOptions) -> ReduceLrOnPlateau {
        let best = if options.mode == Better::Min { f64::INFINITY } else { f64::NEG_INFINITY };
        ReduceLrOnPlateau { options, best, num_bad_epochs: 0, cooldown_counter: 0, last_epoch: 0, last_lr: Vec::new() }
    }

    /// Looks at one more metric, a loss of the validation for instance. NaN is never better.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, metric: f64) {
        self.last_epoch += 1;
        if self.is_better(metric) {
            (self.best, self.num_bad_epochs) = (metric, 0);
        } else {
            self.num_bad_epochs += 1;
        }
        if self.cooldown_counter > 0 {
            (self.cooldown_counter, self.num_bad_epochs) = (self.cooldown_counter - 1, 0);
        }
        if self.num_bad_epochs > self.options.patience {
            (self.cooldown_counter, self.num_bad_epochs) = (self.options.cooldown, 0);
            for (at, group) in optimizer.groups_mut().iter_mut().enumerate() {
                let least = self.options.min_lr.get(at).or(self.options.min_lr.last()).copied().unwrap_or(0.0);
                let lr = (group.lr * self.options.factor).max(least);
                if group.lr - lr > self.options.eps {
                    group.lr = lr;
                }
            }
        }
        self.last_lr = optimizer.groups().iter().map(|group| group.lr).collect();
    }

    /// The rates of the groups, once it has stepped.
    pub fn last_lr(&self) -> &[f64] {
        &self.last_lr
    }

    /// The best metric so far.
    pub fn best(&self) -> f64 {
        self.best
    }

    /// What has to be saved to go on, under PyTorch's names; fits the metadata of [`state::save`](crate::nn::state::save).
    pub fn state(&self) -> BTreeMap<String, String> {
        let counts = [
            ("num_bad_epochs", self.num_bad_epochs),
            ("cooldown_counter", self.cooldown_counter),
            ("last_epoch", self.last_epoch),
        ];
        let counts = counts.map(|(name, count)| (name.to_string(), count.to_string()));
        let numbers = [("best", written(&[self.best])), ("_last_lr", written(&self.last_lr))];
        counts.into_iter().chain(numbers.map(|(name, text)| (name.to_string(), text))).collect()
    }

    /// Takes the state of [`ReduceLrOnPlateau::state`] back, and sets the optimizer's rates; names start with `prefix`.
    ///
    /// # Errors
    /// [`Error::File`] where something is missing or is not for as many groups; then nothing has changed.
    pub fn load_state(&mut self, optimizer: &mut dyn Optimizer, state: &BTreeMap<String, String>, prefix: &str) -> Result<()> {
        let last_epoch = number(state, prefix, "last_epoch")?;
        let groups = if last_epoch == 0 { 0 } else { optimizer.groups().len() };
        let last_lr = numbers(state, prefix, "_last_lr", groups)?;
        let counts: (u64, u64) = (number(state, prefix, "num_bad_epochs")?, number(state, prefix, "cooldown_counter")?);
        self.best = number(state, prefix, "best")?;
        (self.num_bad_epochs, self.cooldown_counter) = counts;
        optimizer.groups_mut().iter_mut().zip(&last_lr).for_each(|(group, lr)| group.lr = *lr);
        (self.last_epoch, self.last_lr) = (last_epoch, last_lr);
        Ok(())
    }

    fn is_better(&self, metric: f64) -> bool {
        match (self.options.mode, self.options.threshold) {
            (Better::Min, Threshold::Relative(share)) => metric < self.best * (1.0 - share),
            (Better::Min, Threshold::Absolute(gap)) => metric < self.best - gap,
            (Better::Max, Threshold::Relative(share)) => metric > self.best * (1.0 + share),
            (Better::Max, Threshold::Absolute(gap)) => metric > self.best + gap,
        }
    }
}

/// Numbers as text that reads as the same numbers.
fn written(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
}

fn number<T: FromStr>(state: &BTreeMap<String, String>, prefix: &str, name: &str) -> Result<T> {
    let key = format!("{prefix}{name}");
    state.get(&key).and_then(|text| text.parse().ok()).ok_or_else(|| unread(&key))
}

fn numbers(state: &BTreeMap<String, String>, prefix: &str, name: &str, count: usize) -> Result<Vec<f64>> {
    let key = format!("{prefix}{name}");
    let read =
        state.get(&key).and_then(|text| text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>());
    read.filter(|numbers| numbers.len() == count).ok_or_else(|| unread(&key))
}

fn unread(key: &str) -> Error {
    let help = "load the state of a scheduler of the same kind, for an optimizer with as many groups";
    Error::file(format!("the scheduler's state {key} is missing or does not fit"), help)
}
