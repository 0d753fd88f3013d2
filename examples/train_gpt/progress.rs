//! What a person sees while the training runs: a bar on a terminal, else a line now and then.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linn::device::Device;

use super::settings::Args;
use super::summary::mib;
use super::tell;
use super::trainer::Trainer;

/// Shows every loss with its step, the speed so far and the memory now.
pub struct Progress {
    shown: Shown,
    device: Device,
    /// Steps before this run, and all steps.
    first: u64,
    steps: u64,
    tokens_per_step: usize,
    start: Instant,
    finite: bool,
}

enum Shown {
    Nothing,
    Bar(ProgressBar),
    /// The step of the last line, and when it was.
    Lines(Option<(u64, Instant)>),
}

impl Progress {
    pub fn new(args: &Args, trainer: &Trainer) -> Progress {
        let steps = trainer.settings.steps;
        let shown = match (args.quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, true) => Shown::Bar(bar(steps, trainer.step)),
            (false, false) => Shown::Lines(None),
        };
        Progress {
            shown,
            device: trainer.device.clone(),
            first: trainer.step,
            steps,
            tokens_per_step: trainer.settings.batch * trainer.settings.context * trainer.settings.accum,
            start: Instant::now(),
            finite: true,
        }
    }

    /// The `count`-th loss of this run has come.
    pub fn report(&mut self, count: u64, loss: f32) {
        let step = self.first + count;
        if self.finite && !loss.is_finite() {
            self.finite = false;
            log::warn!("the loss of step {step} is {loss}; a smaller --lr or a longer --warmup may help");
        }
        let status = || {
            let speed = (count as usize * self.tokens_per_step) as f64 / self.start.elapsed().as_secs_f64();
            let (allocated, reserved) = (mib(self.device.memory_allocated()), mib(self.device.memory_reserved()));
            format!("loss {loss:.4}, {speed:.0} tokens/s, {allocated} allocated, {reserved} reserved")
        };
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => {
                bar.set_position(step);
                bar.set_message(status());
            }
            Shown::Lines(last) => {
                let due = last.is_none_or(|(line, at)| step - line >= self.steps.div_ceil(LINES) || at.elapsed() >= PAUSE);
                if due || step == self.steps {
                    tell(format!("step {step}/{}, {}", self.steps, status()));
                    *last = Some((step, Instant::now()));
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

fn bar(steps: u64, done: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr()).with_position(done);
    match ProgressStyle::with_template("step {pos}/{len} {bar:24} {msg} eta {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Lines of a short run.
const LINES: u64 = 20;
/// The longest time without a line.
const PAUSE: Duration = Duration::from_secs(10);
