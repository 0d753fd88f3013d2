//! The training: a step, the loop over steps, the validation.

use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use linn::autograd::{SaveOnCpu, autocast, no_grad};
use linn::data::{Batch, Loader, Sampler, Text, Upload, Vocabulary};
use linn::device::Device;
use linn::nn::{Gpt, Module};
use linn::optim::{
    Adam, AdamOptions, GradScaler, GradScalerOptions, Optimizer, ParamGroup, Scaling, clip_grad_norm_, clip_scale, grad_norm,
};
use linn::tensor::{Tensor, TensorRead};

use super::checkpoint::{self, Facts, Resumed};
use super::losses::{Collected, Losses, MOST_BEHIND};
use super::place::Place;
use super::progress::Progress;
use super::settings::{Args, Precision, Settings};
use super::stop;
use super::summary::{Early, groups_bound};
use super::words::{in_words, parts};

/// Everything that a training step touches, and what a checkpoint keeps.
pub struct Trainer {
    pub device: Device,
    pub settings: Settings,
    pub model: Gpt,
    pub parameters: Vec<Tensor>,
    pub vocabulary: Vocabulary,
    /// Steps done, here and before a resume.
    pub step: u64,
    /// The step of the last save of this run.
    pub saved: Option<u64>,
    optimizer: Adam,
    /// For products in f16.
    scaler: Option<GradScaler>,
    /// Where activations go.
    host: Option<SaveOnCpu>,
    loader: Loader,
    validation: Loader,
    fingerprint: String,
    /// Failures of the device before the first step.
    failures: u64,
    /// False while an optimizer step is being enqueued: some parameters are of the next step then.
    whole: bool,
}

/// What a training brought.
pub struct Trained {
    pub collected: Collected,
    pub early: Early,
}

impl Trainer {
    /// A new model, or the resumed one. `name` and `fingerprint` are those of the text.
    pub fn new(
        device: &Device,
        args: &Args,
        settings: Settings,
        (text, name, fingerprint): (&Text, &str, &str),
        resumed: Option<Resumed>,
    ) -> Result<Trainer> {
        let model = Gpt::with_dropout(device, settings.model(text.vocabulary.len()), settings.dropout)?;
        model.set_checkpointing(args.checkpointing);
        let groups = ParamGroup::by_rank(model.named_parameters(), settings.lr, settings.weight_decay);
        let options = AdamOptions { betas: (settings.beta1, settings.beta2), eps: settings.eps, amsgrad: false };
        let mut optimizer = Adam::adamw(groups, options);
        let step = resumed.as_ref().map_or(0, |resumed| resumed.step);
        let mut scaler = match settings.dtype {
            Precision::F16 => Some(GradScaler::new(device, GradScalerOptions::default())?),
            _ => None,
        };
        if let Some(resumed) = resumed {
            resumed.restore(&model, Some((&mut optimizer, scaler.as_mut())))?;
        }
        let loader = |tokens: &[i32], upload| -> Result<Loader> {
            // The text was checked to be long enough.
            let sampler = Sampler::new(tokens.to_vec(), settings.batch, settings.context, settings.seed)
                .ok_or_else(|| anyhow::anyhow!("{name} is too short"))?;
            Ok(Loader::new(device, sampler, upload)?)
        };
        let upload = if args.streams == 2 { Upload::OwnStream } else { Upload::CurrentStream };
        Ok(Trainer {
            device: device.clone(),
            parameters: model.parameters(),
            vocabulary: text.vocabulary.clone(),
            loader: loader(&text.train, upload)?,
            validation: loader(&text.validation, Upload::CurrentStream)?,
            fingerprint: fingerprint.to_string(),
            failures: device.stats().queue.failures,
            settings,
            model,
            optimizer,
            scaler,
            host: args.offload.then(|| SaveOnCpu::new(device)).transpose()?,
            step,
            saved: None,
            whole: true,
        })
    }

    /// Steps until the last one, or until a signal asks to end.
    pub fn train(&mut self, args: &Args, place: &Place) -> Result<Trained> {
        let first = self.step;
        let mut progress = Progress::new(args, self);
        let bound_early = Arc::new(OnceLock::new());
        let (device, early) = (self.device.clone(), bound_early.clone());
        let losses = Losses::new(self.settings.accum as u64, Arc::default(), move |count, loss| {
            if count == 4 {
                // The loss of step 4 has come, so all commands of step 3 have been encoded.
                let _ = early.set(groups_bound(&device));
            }
            progress.report(count as u64, loss);
        });
        let mut driver_allocations = None;
        let ends = |step: u64| stop::signal().is_some() || args.stop_after.is_some_and(|count| step - first >= count);
        while self.step < self.settings.steps && self.step(&losses, &ends)? {
            if self.step == first + 3 {
                driver_allocations = Some(self.device.stats().memory.num_device_alloc);
            }
            if args.save_every.is_some_and(|every| self.step.is_multiple_of(every))
                && let Err(why) = self.save(place)
            {
                // A disk that is full now may have room at the end. Any other error is the training's.
                if !matches!(why.downcast_ref(), Some(linn::Error::File { .. })) {
                    return Err(why);
                }
                log::warn!("step {} was not saved: {}", self.step, in_words(&why));
            }
        }
        let collected = losses.finish()?;
        Ok(Trained { collected, early: Early { driver_allocations, groups_bound: bound_early.get().copied() } })
    }

    /// Enqueues one step and has its loss collected: the copy to the host is enqueued before the last backward pass. False: before
    /// one of its batches `ends` said so, with the steps done, or the collector had stopped; everything is as after the step before.
    pub fn step(&mut self, losses: &Losses, ends: &dyn Fn(u64) -> bool) -> Result<bool> {
        let Settings { accum, clip, .. } = self.settings;
        self.optimizer.zero_grad();
        self.optimizer.set_lr(self.settings.schedule().at(self.step));
        let mut total: Option<Tensor> = None;
        for micro in 0..accum as u64 {
            if !losses.wait_for_room() || ends(self.step) {
                self.optimizer.zero_grad();
                return Ok(false);
            }
            let at = self.step * accum as u64 + micro;
            let batch = self.loader.batch(at)?;
            let loss = self.forward(&batch)?;
            let loss = if accum == 1 { loss } else { (&loss * (1.0 / accum as f64))? };
            // On its way while this step runs.
            self.loader.prefetch(at + 1)?;
            let sum = match &total {
                Some(total) => (total + &loss.detach())?,
                None => loss.detach(),
            };
            let read = sum.item_async()?;
            total = Some(sum);
            match &self.scaler {
                Some(scaler) => scaler.scale(&loss)?.backward()?,
                None => loss.backward()?,
            }
            if micro + 1 == accum as u64 {
                self.update(clip)?;
            }
            losses.push(read);
        }
        Ok(true)
    }

    /// The loss of a batch.
    fn forward(&self, batch: &Batch) -> linn::Result<Tensor> {
        let loss = || autocast(self.settings.dtype.dtype(), || self.model.loss(&batch.inputs, &batch.targets));
        match &self.host {
            Some(host) => host.scope(loss),
            None => loss(),
        }
    }

    /// Changes the parameters by their gradients.
    fn update(&mut self, clip: f64) -> Result<()> {
        match &mut self.scaler {
            None => {
                let scale = if clip > 0.0 { Some(clip_scale(&grad_norm(&self.parameters)?, clip)?) } else { None };
                self.whole = false;
                self.optimizer.step_with(Scaling { grad_scale: scale.as_ref(), ..Scaling::default() })?;
            }
            Some(scaler) => {
                scaler.unscale_(&self.optimizer)?;
                if clip > 0.0 {
                    clip_grad_norm_(&self.parameters, clip)?;
                }
                self.whole = false;
                scaler.step(&mut self.optimizer)?;
                scaler.update()?;
            }
        }
        self.whole = true;
        self.step += 1;
        Ok(())
    }

    /// Saves everything that a resumed run needs to go on with the same bits, unless something that was enqueued since the
    /// start has failed: whoever was told, what came after it may be wrong.
    pub fn save(&mut self, place: &Place) -> Result<()> {
        self.device.synchronize()?;
        if self.device.stats().queue.failures != self.failures {
            bail!(
                "an earlier step failed on the device, so what came after it is not saved\nhelp: go on from the last checkpoint with \
                 --resume"
            );
        }
        let facts = Facts { settings: &self.settings, step: self.step, vocabulary: &self.vocabulary, text: &self.fingerprint };
        place.save(|path| checkpoint::save(path, &self.model, (&self.optimizer, self.scaler.as_ref()), &facts))?;
        self.saved = Some(self.step);
        Ok(())
    }

    /// The training failed: saves what is known to be right, and adds to the error where it is.
    pub fn rescue(&mut self, why: anyhow::Error, first: u64, place: &Place) -> anyhow::Error {
        // Only this error says that nothing that was enqueued went wrong.
        let memory = why.chain().any(|cause| matches!(cause.downcast_ref(), Some(linn::Error::OutOfMemory(_))));
        let rescued = memory && self.whole && self.step > first && self.saved != Some(self.step);
        let failed = if rescued { self.save(place).err() } else { None };
        let text = in_words(&why);
        let (fact, help) = parts(&text);
        let mut lines = fact.to_string();
        if let Some(failed) = failed.map(|failed| in_words(&failed)) {
            lines += &format!("\nsaving step {} failed too: {}", self.step, parts(&failed).0);
        }
        lines += &match self.saved {
            Some(step) => format!("\nstep {step} is saved; go on from there with --resume {place}"),
            None if self.step == first => String::from("\nno step was trained, so nothing was saved"),
            None => String::from(
                "\nnothing was saved: what was trained is lost or may be wrong; --save-every STEPS saves along the way",
            ),
        };
        lines += &help.map_or(String::new(), |help| format!("\nhelp: {help}"));
        anyhow::Error::msg(lines)
    }

    /// Mean loss over the validation batches; `None` where a signal asked to end meanwhile.
    pub fn validate(&mut self) -> Result<Option<f32>> {
        self.model.eval();
        let loss = self.validation_loss();
        self.model.train();
        loss
    }

    fn validation_loss(&mut self) -> Result<Option<f32>> {
        let count = self.settings.val_batches;
        let mut pending = std::collections::VecDeque::new();
        let mut sum = 0.0;
        for i in 0..count as u64 {
            if stop::signal().is_some() {
                return Ok(None);
            }
            if pending.len() as u64 == MOST_BEHIND {
                sum += first_of(pending.pop_front())?;
            }
            let batch = self.validation.batch(i)?;
            pending.push_back(no_grad(|| self.forward(&batch)?.item_async::<f32>())?);
        }
        while !pending.is_empty() {
            sum += first_of(pending.pop_front())?;
        }
        Ok(Some(sum / count as f32))
    }
}

fn first_of(read: Option<TensorRead<f32>>) -> Result<f32> {
    Ok(read.map(TensorRead::wait).transpose()?.and_then(|values| values.first().copied()).unwrap_or(f32::NAN))
}
