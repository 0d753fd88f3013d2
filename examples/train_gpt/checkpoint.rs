//! Checkpoints: the model under its own names, the optimizer under `optimizer.`, settings and vocabulary as metadata.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use linn::data::Vocabulary;
use linn::device::Device;
use linn::nn::{Gpt, Module, state};
use linn::optim::Optimizer;
use linn::tensor::Tensor;

use super::settings::{Args, Settings};

const OPTIMIZER: &str = "optimizer.";

/// A checkpoint that was read.
pub struct Resumed {
    pub settings: Settings,
    /// Steps that were trained.
    pub step: u64,
    pub vocabulary: Vocabulary,
    /// The text it was trained on, by length and hash.
    pub text: String,
    tensors: BTreeMap<String, Tensor>,
}

/// What is saved beside tensors.
pub struct Facts<'a> {
    pub settings: &'a Settings,
    pub step: u64,
    pub vocabulary: &'a Vocabulary,
    pub text: &'a str,
}

/// Saves everything that a resumed run needs to go on with the same bits.
pub fn save(path: &Path, model: &Gpt, optimizer: &dyn Optimizer, facts: &Facts) -> Result<()> {
    let mut metadata = facts.settings.to_lines();
    metadata.insert("format".into(), FORMAT.into());
    metadata.insert("step".into(), facts.step.to_string());
    metadata.insert("vocabulary".into(), facts.vocabulary.characters());
    metadata.insert("text".into(), facts.text.to_string());
    let mut tensors = model.named_parameters();
    tensors.extend(optimizer.state().into_iter().map(|(name, tensor)| (format!("{OPTIMIZER}{name}"), tensor)));
    Ok(state::save(path, &tensors, &metadata)?)
}

/// Reads a checkpoint.
pub fn load(device: &Device, path: &Path) -> Result<Resumed> {
    let loaded = state::load(device, path)?;
    let name = path.display();
    let fact = |key: &str| {
        loaded.metadata.get(key).with_context(|| {
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
    Ok(Resumed {
        settings: Settings::from_lines(&loaded.metadata)?,
        step,
        vocabulary: Vocabulary::of(fact("vocabulary")?),
        text: fact("text")?.clone(),
        tensors: loaded.tensors,
    })
}

impl Resumed {
    /// Puts the saved values into a model and an optimizer of the same settings.
    pub fn restore(mut self, model: &Gpt, optimizer: &mut dyn Optimizer) -> Result<()> {
        let first = OPTIMIZER.to_string();
        let after = format!("{}/", OPTIMIZER.trim_end_matches('.'));
        let state: BTreeMap<String, Tensor> = self.tensors.range(first..after).map(|(k, v)| (k.clone(), v.clone())).collect();
        self.tensors.retain(|name, _| !state.contains_key(name));
        state::load_parameters(&model.named_parameters(), &self.tensors, "")?;
        Ok(optimizer.load_state(&state, OPTIMIZER)?)
    }
}

/// Where the checkpoint of this run goes: where the flags say, or a name that overwrites nothing of another run.
pub fn place(args: &Args) -> Result<PathBuf> {
    let path = match (&args.save, &args.resume) {
        (Some(path), _) | (None, Some(path)) => path.clone(),
        (None, None) => {
            let numbered = (2..).map(|n| PathBuf::from(format!("linn-gpt-{n}.safetensors")));
            let mut names = std::iter::once(PathBuf::from("linn-gpt.safetensors")).chain(numbered);
            names.find(|path| !path.exists()).unwrap_or_default()
        }
    };
    let folder = folder_of(&path);
    if !folder.is_dir() {
        bail!("{} is no folder, so no checkpoint can be saved there\nhelp: make it, or pass another --save", folder.display());
    }
    if path.is_dir() {
        bail!(
            "{} is a folder, so no checkpoint can be saved under that name\nhelp: pass a file's name with --save",
            path.display()
        );
    }
    can_be_made(&path, "checkpoint", "--save")?;
    Ok(path)
}

/// Nobody should train for hours and find out then that nothing can be written.
pub fn can_be_made(path: &Path, what: &str, flag: &str) -> Result<()> {
    let folder = folder_of(path);
    let trial = folder.join(format!(".linn-{}.partial", std::process::id()));
    std::fs::write(&trial, b"").and_then(|()| std::fs::remove_file(&trial)).with_context(|| {
        format!("no {what} can be written to {}\nhelp: check its permissions, or pass another {flag}", folder.display())
    })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A text by length and FNV-1a hash: enough to notice another one.
pub fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{} bytes, {hash:016x}", text.len())
}

const FORMAT: &str = "linn train_gpt 1";
