//! Flags. A setting that is not given comes from the resumed checkpoint, else from its default.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use linn::DType;
use linn::nn::GptConfig;
use linn::optim::WarmupCosine;

use super::words::Takes;

/// One list for the settings, their defaults, what they may be, their flags and their lines in a checkpoint.
macro_rules! settings {
    ($(#[doc = $doc:literal] $name:ident $(($alias:literal))?: $type:ty = $default:expr, $range:expr;)*) => {
        /// Every setting that a run depends on.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings { $(#[doc = $doc] pub $name: $type,)* }

        /// The settings given as flags.
        #[derive(Clone, Debug, Default, clap::Args)]
        pub struct Given { $(
            #[arg(
                long,
                $(visible_alias = $alias,)?
                value_name = "VALUE",
                help = concat!($doc, " [default: ", stringify!($default), "]").trim_start(),
                value_parser = |text: &str| value(text, &($range)),
                allow_hyphen_values = true
            )]
            pub $name: Option<$type>,
        )* }

        impl Default for Settings {
            fn default() -> Settings {
                Settings { $($name: $default,)* }
            }
        }

        impl Settings {
            /// These settings, with the given ones changed.
            pub fn with(self, given: &Given) -> Settings {
                Settings { $($name: given.$name.unwrap_or(self.$name),)* }
            }

            /// As text, without loss: for a checkpoint.
            pub fn to_lines(&self) -> BTreeMap<String, String> {
                BTreeMap::from([$((stringify!($name).to_string(), self.$name.to_string()),)*])
            }

            /// From [`Settings::to_lines`].
            pub fn from_lines(lines: &BTreeMap<String, String>) -> Result<Settings> {
                let mut lines = lines.clone();
                let defaults = Settings::default().to_lines();
                defaults.into_iter().filter(|(name, _)| NEW.contains(&name.as_str())).for_each(|(name, value)| {
                    lines.entry(name).or_insert(value);
                });
                Ok(Settings { $($name: parsed(&lines, stringify!($name))?,)* })
            }

            /// What is wrong with these settings.
            pub fn check(&self) -> Result<()> {
                $(ensure!(
                    ($range).contains(&self.$name),
                    "--{} is {}\nhelp: pass {}",
                    stringify!($name).replace('_', "-"),
                    self.$name,
                    takes(&($range))
                );)*
                ensure!(
                    self.n_embd.is_multiple_of(self.n_head),
                    "--n-head {} does not divide --n-embd {}\nhelp: pass a width that is a multiple of the heads",
                    self.n_head,
                    self.n_embd
                );
                Ok(())
            }
        }
    };
}

settings! {
    /// Blocks of the model
    n_layer: usize = 4, 1..=MOST;
    /// Attention heads; must divide n-embd
    n_head: usize = 4, 1..=MOST;
    /// Width of the model
    n_embd: usize = 128, 1..=MOST;
    /// Characters that the model sees at once
    context: usize = 64, 1..=MOST;
    /// Biases in linear layers and layer norms
    bias: bool = false, false..=true;
    /// Output weights are the embedding's
    tied: bool = true, false..=true;
    /// Samples per batch
    batch: usize = 12, 1..=MOST;
    /// Batches whose gradients are added up for one step
    accum ("accumulate"): usize = 1, 1..=MOST;
    /// Type of matrix products: f32, or bf16 or f16 by autocast; f16 scales the loss
    dtype: Precision = f32, f32..=Precision::F16;
    /// Share of activations that is dropped at random in training
    dropout: f64 = 0.0, 0.0..=1.0;
    /// Training steps
    steps: u64 = 500, 0..=u64::MAX;
    /// Highest learning rate
    lr: f64 = 1e-3, 0.0..=1e3;
    /// Learning rate at the end, as a share of lr
    lr_floor: f64 = 0.1, 0.0..=1.0;
    /// Steps over which the learning rate rises
    warmup: u64 = 50, 0..=u64::MAX;
    /// AdamW's first decay rate
    beta1: f64 = 0.9, 0.0..=1.0 - 1e-12;
    /// AdamW's second decay rate
    beta2: f64 = 0.99, 0.0..=1.0 - 1e-12;
    /// AdamW's eps
    eps: f64 = 1e-8, 1e-30..=1.0;
    /// Weight decay of matrices
    weight_decay: f64 = 0.1, 0.0..=1e3;
    /// Largest norm of the gradients; 0 turns clipping off
    clip: f64 = 1.0, 0.0..=1e9;
    /// Seed of initial values, batches and samples
    seed: u64 = 1337, 0..=u64::MAX;
    /// Batches that the validation loss is the mean of
    val_batches: usize = 20, 1..=MOST;
}

/// Trains a character-level GPT on a text.
#[derive(Clone, Debug, Default, clap::Parser)]
#[command(
    name = "train_gpt",
    version,
    about = "Trains a character-level GPT on a text",
    args_override_self = true,
    after_help = "With --resume, settings that are not given are those of the checkpoint; it can only be sampled where its text is \
                  not here.\nAdapters: LINN_BACKEND and LINN_ADAPTER choose one; the best is taken otherwise.\nCtrl-C, SIGTERM \
                  and SIGHUP end the training after the work already enqueued (about a second, or two batches where they take \
                  longer), save the last whole step, and exit with 128 + the signal's number. A second Ctrl-C ends at once, \
                  without saving."
)]
pub struct Args {
    /// UTF-8 text to train on; the last tenth is for validation [default: the sources of this crate]
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Goes on with a checkpoint, with its settings; samples it where all steps are done
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Where the checkpoint goes, at the end and on Ctrl-C [default: the resumed file, else linn-gpt.safetensors, or
    /// linn-gpt-2.safetensors and so on where that exists]
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Saves every so many steps too
    #[arg(long, value_name = "STEPS", value_parser = |text: &str| value(text, &(1..=u64::MAX)), allow_hyphen_values = true)]
    pub save_every: Option<u64>,
    /// Characters to sample at the end [default: 200, with --quiet 0]
    #[arg(long, value_name = "N", value_parser = |text: &str| value(text, &(0..=usize::MAX)), allow_hyphen_values = true)]
    pub sample: Option<usize>,
    /// Text that the sample goes on from [default: a new line, where the text has any]
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// 2 uploads batches on a stream of their own, 1 does everything on one; the losses are the same
    #[arg(long, default_value_t = 2, value_parser = |text: &str| value(text, &(1u8..=2)), allow_hyphen_values = true)]
    pub streams: u8,
    /// Keeps only the inputs of the model's blocks and computes the rest of its activations again; the losses are the same
    #[arg(long)]
    pub checkpointing: bool,
    /// Keeps activations in host memory until the backward pass needs them; the losses are the same
    #[arg(long)]
    pub offload: bool,
    /// Writes a summary for scripts
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Ends after so many steps of this run, as Ctrl-C does
    #[arg(long, hide = true, value_parser = |text: &str| value(text, &(0..=u64::MAX)), allow_hyphen_values = true)]
    pub stop_after: Option<u64>,
    /// Prints no progress and no report, only what was asked for and what went wrong
    #[arg(long)]
    pub quiet: bool,
    #[command(flatten)]
    pub given: Given,
}

impl Args {
    /// What is wrong with the flags themselves. Those of a resumed run can only be checked with its checkpoint.
    pub fn check(&self) -> Result<()> {
        if self.resume.is_some() { Ok(()) } else { Settings::default().with(&self.given).check() }
    }
}

impl Settings {
    /// The model's sizes for a vocabulary of `vocab_size` characters.
    pub fn model(&self, vocab_size: usize) -> GptConfig {
        let Settings { n_layer, n_head, n_embd, context, bias, tied, .. } = *self;
        GptConfig { n_layer, n_head, n_embd, block_size: context, vocab_size, bias, tied }
    }

    /// The learning rates.
    pub fn schedule(&self) -> WarmupCosine {
        WarmupCosine { lr: self.lr, min_lr: self.lr * self.lr_floor, warmup: self.warmup, steps: self.steps }
    }

    /// These settings, of a checkpoint after `step` steps, with the given ones changed. The model keeps its sizes.
    pub fn resumed(&self, given: &Given, step: u64) -> Result<Settings> {
        let settings = self.clone().with(given);
        for (name, old, new) in self.differences(&settings) {
            ensure!(
                !SIZES.contains(&name.as_str()),
                "--{name} {new} contradicts the checkpoint, whose model has {name} {old}\nhelp: leave the flag out, the checkpoint \
                 has its value; or train a new model, without --resume"
            );
        }
        ensure!(
            step <= settings.steps,
            "--steps {} contradicts the checkpoint, which has {step} steps behind it\nhelp: --steps counts all steps; leave it out, \
             or pass more than {step} to train on",
            settings.steps
        );
        Ok(settings)
    }

    /// What the flags changed, in words.
    pub fn changes(&self, saved: &Settings) -> Vec<String> {
        let differences = saved.differences(self).into_iter();
        differences.map(|(name, old, new)| format!("--{name} is {new}, the checkpoint was trained with {old}")).collect()
    }

    /// Flag, value here, value there.
    fn differences(&self, other: &Settings) -> Vec<(String, String, String)> {
        let lines = self.to_lines().into_iter().zip(other.to_lines().into_values());
        let differing = lines.filter(|((_, here), there)| here != there);
        differing.map(|((name, here), there)| (name.replace('_', "-"), here, there)).collect()
    }
}

/// Flags that the tensors of a checkpoint depend on.
const SIZES: [&str; 6] = ["n-layer", "n-head", "n-embd", "context", "bias", "tied"];

/// Settings that older checkpoints do not have: they were trained with the defaults.
const NEW: [&str; 2] = ["dtype", "dropout"];

/// The types that matrix products can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Precision {
    F32,
    Bf16,
    F16,
}

/// The default, under the name that the help shows.
#[allow(non_upper_case_globals)]
const f32: Precision = Precision::F32;

impl Precision {
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }
}

impl Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.dtype())
    }
}

impl FromStr for Precision {
    type Err = NoPrecision;

    fn from_str(text: &str) -> std::result::Result<Precision, NoPrecision> {
        [Precision::F32, Precision::Bf16, Precision::F16]
            .into_iter()
            .find(|known| known.to_string().eq_ignore_ascii_case(text))
            .ok_or(NoPrecision)
    }
}

/// No type of matrix products.
#[derive(Debug)]
pub struct NoPrecision;

impl Display for NoPrecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Precision::NAME)
    }
}

impl std::error::Error for NoPrecision {}

/// The types of flags, and how their values are called.
trait Value: FromStr + PartialOrd + Display {
    const NAME: &'static str;
}

impl Value for usize {
    const NAME: &'static str = "a whole number";
}
impl Value for u64 {
    const NAME: &'static str = "a whole number";
}
impl Value for u8 {
    const NAME: &'static str = "a whole number";
}
impl Value for f64 {
    const NAME: &'static str = "a number";
}
impl Value for Precision {
    const NAME: &'static str = "f32, bf16 or f16";
}
impl Value for bool {
    const NAME: &'static str = "true or false";
}

/// What a flag takes, in words.
fn takes<T: Value>(range: &RangeInclusive<T>) -> Takes {
    let (least, most) = (range.start().to_string(), range.end().to_string());
    Takes(match (least.as_str(), most.as_str()) {
        ("false" | "f32", _) => T::NAME.into(),
        _ => format!("{} from {least} to {most}", T::NAME),
    })
}

/// The value of a flag. Flags take what starts with a hyphen, so that -1 is a wrong value and no unknown flag.
fn value<T: Value>(text: &str, range: &RangeInclusive<T>) -> std::result::Result<T, Takes> {
    text.parse().ok().filter(|value| range.contains(value)).ok_or_else(|| takes(range))
}

/// More than any machine can do; products of a few stay far from overflow.
const MOST: usize = 1_000_000_000;

fn parsed<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(lines: &BTreeMap<String, String>, name: &str) -> Result<T> {
    let line = lines
        .get(name)
        .with_context(|| format!("the checkpoint has no setting {name}\nhelp: it was not saved by this program"))?;
    line.parse().with_context(|| format!("the checkpoint's setting {name} is {line:?}\nhelp: the file is damaged"))
}
