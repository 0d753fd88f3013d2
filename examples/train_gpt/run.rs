//! The run: open, prepare or resume, train, validate, sample, report.

use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linn::autograd::no_grad;
use linn::data::{Loader, Sampler, Text, Upload};
use linn::device::Device;
use linn::nn::{Gpt, Module};
use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup, clip_scale, grad_norm};
use linn::tensor::{Tensor, TensorRead};

use super::checkpoint::{self, Facts};
use super::losses::{Loss, Losses};
use super::sample::sample;
use super::settings::{Args, Settings};
use super::summary::{Counters, Summary, mib, process_started};
use super::{STOP, corpus};

/// Everything that a training step touches.
struct Trainer {
    device: Device,
    settings: Settings,
    model: Gpt,
    parameters: Vec<Tensor>,
    optimizer: Adam,
    loader: Loader,
    /// Steps done, here and before a resume.
    step: u64,
}

/// Trains as `args` say.
pub fn run(args: Args) -> Result<Summary> {
    process_started();
    let save_to = checkpoint::place(&args)?;
    if let Some(path) = &args.json {
        checkpoint::can_be_made(path, "summary", "--json")?;
    }
    let (name, raw) = corpus::read(&args)?;
    let device = Device::open()?;
    let resumed = args.resume.as_ref().map(|path| checkpoint::load(&device, path)).transpose()?;
    let settings = match &resumed {
        Some(resumed) => {
            let settings = resumed.settings.clone().with(&args.given);
            settings.check_resumed(&resumed.settings)?;
            settings
        }
        None => Settings::default().with(&args.given),
    };
    settings.check().map_err(anyhow::Error::msg)?;
    let text = Text::new(&name, &raw, settings.context)?;
    let fingerprint = checkpoint::fingerprint(&raw);
    if let Some(resumed) = &resumed {
        if resumed.vocabulary != text.vocabulary {
            bail!("{name} has other characters than the checkpoint\nhelp: pass the text that it was trained on with --text");
        }
        if resumed.text != fingerprint {
            log::warn!("{name} is not the text that the checkpoint was trained on; the run will not be the same");
        }
    }
    // A prompt that cannot be encoded should fail now, not after the training.
    let prompt = match &args.prompt {
        Some(prompt) => prompt,
        None if text.vocabulary.encode("\n").is_ok() => "\n",
        None => "",
    };
    text.vocabulary.encode(prompt)?;

    linn::ops::random::manual_seed(&device, settings.seed)?;
    let model = Gpt::new(&device, settings.model(text.vocabulary.len()))?;
    let groups = ParamGroup::by_rank(model.named_parameters(), settings.lr, settings.weight_decay);
    let options = AdamOptions { betas: (settings.beta1, settings.beta2), eps: settings.eps, amsgrad: false };
    let mut optimizer = Adam::adamw(groups, options);
    let step = resumed.as_ref().map_or(0, |resumed| resumed.step);
    if let Some(resumed) = resumed {
        resumed.restore(&model, &mut optimizer)?;
    }
    let sampler = |tokens: &[i32], seed: u64| {
        // The text was checked to be long enough.
        Sampler::new(tokens.to_vec(), settings.batch, settings.context, seed)
            .ok_or_else(|| anyhow::anyhow!("{name} is too short"))
    };
    let upload = if args.streams == 2 { Upload::OwnStream } else { Upload::CurrentStream };
    let loader = Loader::new(&device, sampler(&text.train, settings.seed)?, upload)?;
    let validation = Loader::new(&device, sampler(&text.validation, settings.seed)?, Upload::CurrentStream)?;
    let parameters = model.parameters();
    let mut trainer = Trainer { device: device.clone(), settings, model, parameters, optimizer, loader, step };
    let save = |trainer: &Trainer| {
        let facts = Facts { settings: &trainer.settings, step: trainer.step, vocabulary: &text.vocabulary, text: &fingerprint };
        checkpoint::save(&save_to, &trainer.model, &trainer.optimizer, &facts)
    };

    if !args.quiet {
        println!("{} on {}", describe(&trainer, &text), device.info());
    }
    let first_step = trainer.step;
    let (losses, loss_waits, early) = trainer.train(&args, &save)?;
    let tokens_per_step = trainer.settings.batch * trainer.settings.context * trainer.settings.accum;
    let mut summary = Summary::of_training(&device, &losses, tokens_per_step, early);
    summary.loss_waits = loss_waits;
    summary.interrupted = trainer.step < trainer.settings.steps;
    let trained = trainer.step > first_step;
    if trained {
        save(&trainer)?;
    }
    if summary.interrupted && trained {
        println!("stopped after step {}, saved to {}", trainer.step, save_to.display());
        println!("help: go on with --resume {}", save_to.display());
    } else if summary.interrupted {
        println!("stopped before the first step; nothing was saved");
    } else {
        summary.val_loss = trainer.validate(validation)?;
        let Settings { seed, .. } = trainer.settings;
        summary.sample = sample(&device, &trainer.model, &text.vocabulary, prompt, args.sample, seed)?;
        if !args.quiet {
            report(&device, &summary);
            if trained {
                println!("saved to {}", save_to.display());
            }
        }
    }
    if let Some(path) = &args.json {
        summary.write_json(path)?;
    }
    Ok(summary)
}

impl Trainer {
    /// Steps until the last one or Ctrl-C. Returns the losses, how often the host waited for one, and the counters after the
    /// third step.
    fn train(&mut self, args: &Args, save: &dyn Fn(&Trainer) -> Result<()>) -> Result<(Vec<Loss>, u64, Counters)> {
        let bar = progress_bar(args, &self.settings, self.step);
        let losses = Losses::new(reporter(&bar, self));
        let first = self.step;
        let mut early = Counters::of(&self.device);
        let stops = |step: u64| STOP.load(Ordering::Relaxed) || args.stop_after.is_some_and(|count| step - first >= count);
        while self.step < self.settings.steps && !stops(self.step) {
            let loss = self.step()?;
            if !losses.push(loss) {
                break;
            }
            if self.step == first + 3 {
                early = Counters::of(&self.device);
            }
            if args.save_every.is_some_and(|every| self.step.is_multiple_of(every)) {
                save(self)?;
            }
        }
        let (losses, waits) = losses.finish()?;
        bar.finish_and_clear();
        Ok((losses, waits, early))
    }

    /// Enqueues one step; returns its loss, on its way to the host: the copy is enqueued before the last backward pass.
    fn step(&mut self) -> Result<TensorRead<f32>> {
        let Settings { accum, clip, .. } = self.settings;
        self.optimizer.zero_grad();
        self.optimizer.set_lr(self.settings.schedule().at(self.step));
        let mut total: Option<Tensor> = None;
        let mut read = None;
        for micro in 0..accum as u64 {
            let at = self.step * accum as u64 + micro;
            let batch = self.loader.batch(at)?;
            let loss = self.model.loss(&batch.inputs, &batch.targets)?;
            let loss = if accum == 1 { loss } else { (&loss * (1.0 / accum as f64))? };
            // On its way while this step runs.
            self.loader.prefetch(at + 1)?;
            let sum = match &total {
                Some(total) => (total + &loss.detach())?,
                None => loss.detach(),
            };
            if micro + 1 == accum as u64 {
                read = Some(sum.item_async()?);
            }
            total = Some(sum);
            loss.backward()?;
        }
        if clip > 0.0 {
            let scale = clip_scale(&grad_norm(&self.parameters)?, clip)?;
            self.optimizer.step_scaled(Some(&scale))?;
        } else {
            self.optimizer.step()?;
        }
        self.step += 1;
        read.ok_or_else(|| anyhow::anyhow!("accum is 0"))
    }

    /// Mean loss over the validation batches.
    fn validate(&self, mut loader: Loader) -> Result<f32> {
        let count = self.settings.val_batches;
        no_grad(|| {
            let losses = (0..count as u64)
                .map(|i| {
                    let batch = loader.batch(i)?;
                    Ok(self.model.loss(&batch.inputs, &batch.targets)?.item_async::<f32>()?)
                })
                .collect::<Result<Vec<_>>>()?;
            let mut sum = 0.0;
            for loss in losses {
                sum += loss.wait()?.iter().sum::<f32>();
            }
            Ok(sum / count as f32)
        })
    }
}

fn describe(trainer: &Trainer, text: &Text) -> String {
    let parameters: usize = trainer.parameters.iter().map(Tensor::len).sum();
    let characters = text.train.len() + text.validation.len();
    format!("{parameters} parameters, {characters} characters ({} kinds),", text.vocabulary.len())
}

fn progress_bar(args: &Args, settings: &Settings, done: u64) -> ProgressBar {
    let target = if args.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(settings.steps), target).with_position(done);
    match ProgressStyle::with_template("step {pos}/{len} {bar:24} {msg} eta {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// What the collecting thread does with every loss: show it, with the speed so far and the memory now.
fn reporter(bar: &ProgressBar, trainer: &Trainer) -> impl Fn(usize, f32) + Send + use<> {
    let (bar, device, first) = (bar.clone(), trainer.device.clone(), trainer.step);
    let tokens = trainer.settings.batch * trainer.settings.context * trainer.settings.accum;
    let start = Instant::now();
    move |count, loss| {
        bar.set_position(first + count as u64);
        let speed = (count * tokens) as f64 / start.elapsed().as_secs_f64();
        let (allocated, reserved) = (mib(device.memory_allocated()), mib(device.memory_reserved()));
        bar.set_message(format!("loss {loss:.4}, {speed:.0} tokens/s, {allocated} allocated of {reserved}"));
    }
}

fn report(device: &Device, summary: &Summary) {
    if let Some(loss) = summary.losses.last() {
        println!("last loss {loss:.4}, median step {:.0} ms, {:.0} tokens/s", summary.median_step_ms, summary.tokens_per_s);
    }
    println!("validation loss {:.4}", summary.val_loss);
    println!("--- sample\n{}\n---", summary.sample);
    println!("{}", device.memory_summary(true));
}
