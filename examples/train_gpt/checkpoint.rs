//! Checkpoints: the model under its own names, the optimizer under `optimizer.`, settings and vocabulary as metadata.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use linn::data::Vocabulary;
use linn::device::Device;
use linn::nn::state::{self, CheckpointFile};
use linn::nn::{Gpt, Module};
use linn::optim::{GradScaler, Optimizer};
use linn::tensor::Tensor;

use super::settings::Settings;

const OPTIMIZER: &str = "optimizer.";
const SCALER: &str = "scaler.";

/// A checkpoint that was read; its tensors are not on a device yet.
pub struct Saved {
    file: CheckpointFile,
    settings: Settings,
    /// Steps that were trained.
    step: u64,
    vocabulary: Vocabulary,
    text: String,
}

/// A checkpoint to go on from.
pub struct Resumed {
    pub settings: Settings,
    /// Steps that were trained.
    pub step: u64,
    pub vocabulary: Vocabulary,
    /// The text it was trained on, by length and hash.
    pub text: String,
    tensors: BTreeMap<String, Tensor>,
    /// What comes next of the device's random numbers.
    rng: Option<String>,
}

/// What is saved beside tensors.
pub struct Facts<'a> {
    pub settings: &'a Settings,
    pub step: u64,
    pub vocabulary: &'a Vocabulary,
    pub text: &'a str,
}

/// Saves everything that a resumed run needs to go on with the same bits.
pub fn save(path: &Path, model: &Gpt, (optimizer, scaler): (&dyn Optimizer, Option<&GradScaler>), facts: &Facts) -> Result<()> {
    let mut metadata = facts.settings.to_lines();
    metadata.insert("format".into(), FORMAT.into());
    metadata.insert("step".into(), facts.step.to_string());
    metadata.insert("vocabulary".into(), facts.vocabulary.characters());
    metadata.insert("text".into(), facts.text.to_string());
    let mut tensors = model.named_parameters();
    if let Some((_, tensor)) = tensors.first() {
        metadata.insert("rng".into(), tensor.device().rng_state()?.to_string());
    }
    let scaler = scaler.map_or(Ok(Vec::new()), GradScaler::state)?;
    tensors.extend(scaler.into_iter().map(|(name, tensor)| (format!("{SCALER}{name}"), tensor)));
    tensors.extend(optimizer.state().into_iter().map(|(name, tensor)| (format!("{OPTIMIZER}{name}"), tensor)));
    Ok(state::save(path, &tensors, &metadata)?)
}

/// Reads a checkpoint.
pub fn read(path: &Path) -> Result<Saved> {
    let file = CheckpointFile::read(path)?;
    let name = path.display();
    let fact = |key: &str| {
        file.metadata.get(key).with_context(|| {
            format!("{name} holds no {key}\nhelp: resume from a checkpoint that this program saved, or train a new model")
        })
    };
    if fact("format")? != FORMAT {
        bail!(
            "{name} has format {:?}, this program reads {FORMAT:?}\nhelp: use the version of linn that saved it",
            fact("format")?
        );
    }
    let step = fact("step")?.parse().with_context(|| format!("{name} has no valid step\nhelp: the file is damaged"))?;
    let (vocabulary, text) = (Vocabulary::of(fact("vocabulary")?), fact("text")?.clone());
    let settings = Settings::from_lines(&file.metadata)?;
    // Before a model of so many layers is built.
    let last = format!("transformer.h.{}.ln_1.weight", settings.n_layer.saturating_sub(1));
    if !file.contains(&last) {
        bail!("{name} has no {last}, but settings with {} layers\nhelp: the file is damaged: use another one", settings.n_layer);
    }
    Ok(Saved { settings, step, vocabulary, text, file })
}

impl Saved {
    /// Puts the tensors on `device`.
    pub fn upload(self, device: &Device) -> Result<Resumed> {
        let Saved { file, settings, step, vocabulary, text } = self;
        let rng = file.metadata.get("rng").cloned();
        Ok(Resumed { settings, step, vocabulary, text, tensors: file.upload(device)?.tensors, rng })
    }
}

impl Resumed {
    /// Puts the saved values into a model and an optimizer of the same settings.
    pub fn restore(mut self, model: &Gpt, learners: Option<(&mut dyn Optimizer, Option<&mut GradScaler>)>) -> Result<()> {
        let (state, scale) = (self.take(OPTIMIZER), self.take(SCALER));
        let parameters = model.named_parameters();
        state::load_parameters(&parameters, &self.tensors, "")?;
        let Some((optimizer, scaler)) = learners else { return Ok(()) };
        optimizer.load_state(&state, OPTIMIZER)?;
        // A run that did not need one before begins with a new one.
        if let Some(scaler) = scaler.filter(|_| !scale.is_empty()) {
            scaler.load_state(&scale, SCALER)?;
        }
        if let (Some(rng), Some((_, parameter))) = (self.rng, parameters.first()) {
            parameter.device().set_rng_state(rng.parse().context("the checkpoint's rng is damaged\nhelp: use another one")?)?;
        }
        Ok(())
    }

    /// The tensors whose names begin so, taken out.
    fn take(&mut self, prefix: &str) -> BTreeMap<String, Tensor> {
        let (found, rest) = std::mem::take(&mut self.tensors).into_iter().partition(|(name, _)| name.starts_with(prefix));
        self.tensors = rest;
        found
    }
}

const FORMAT: &str = "linn train_gpt 1";
