//! The run: open, prepare or resume, train, validate, sample, report.

use anyhow::{Result, bail};
use linn::data::{Text, Vocabulary};
use linn::device::Device;
use linn::nn::Gpt;
use linn::tensor::Tensor;

use super::checkpoint::{self, Resumed, Saved};
use super::corpus::Corpus;
use super::place::{self, Place};
use super::sample::sample;
use super::settings::{Args, Settings};
use super::summary::{Summary, process_started};
use super::trainer::Trainer;
use super::{say, size, stop, tell};

/// Trains as `args` say.
pub fn run(args: Args) -> Result<Summary> {
    process_started();
    let prepared = Prepared::of(&args)?;
    run_on(&Device::open()?, &args, prepared)
}

/// What takes no device to find out, so that nobody waits for one in vain.
pub struct Prepared {
    /// The text that the flags name, or the default of a new run.
    corpus: Option<Corpus>,
    /// Its characters. A resumed run has the context of its checkpoint, so it is checked later.
    text: Option<Text>,
    saved: Option<Saved>,
}

impl Prepared {
    pub fn of(args: &Args) -> Result<Prepared> {
        place::check(args)?;
        let corpus = match &args.text {
            Some(path) => Some(Corpus::read(path)?),
            None => args.resume.is_none().then(Corpus::sources),
        };
        let saved = args.resume.as_deref().map(checkpoint::read).transpose()?;
        let context = Settings::default().with(&args.given).context;
        let new = corpus.as_ref().filter(|_| args.resume.is_none());
        let text = new.map(|corpus| Text::new(&corpus.name, &corpus.text, context)).transpose()?;
        Ok(Prepared { corpus, text, saved })
    }
}

/// [`run`] on a device.
pub fn run_on(device: &Device, args: &Args, prepared: Prepared) -> Result<Summary> {
    let resumed = prepared.saved.map(|saved| saved.upload(device)).transpose()?;
    let settings = match &resumed {
        Some(resumed) => resumed.settings.resumed(&args.given, resumed.step)?,
        None => Settings::default().with(&args.given),
    };
    settings.check()?;
    let corpus = match (prepared.corpus, &resumed) {
        // Training on another text than before is something to ask for.
        (None, Some(resumed)) => Some(Corpus::sources()).filter(|sources| sources.fingerprint == resumed.text),
        (corpus, _) => corpus,
    };
    device.manual_seed(settings.seed)?;
    match (corpus, resumed) {
        (Some(corpus), resumed) => {
            let text = match prepared.text {
                Some(text) => text,
                None => Text::new(&corpus.name, &corpus.text, settings.context)?,
            };
            train_on(device, args, settings, (corpus, text), resumed)
        }
        (None, Some(resumed)) => only_sample(device, args, &settings, resumed),
        (None, None) => bail!("there is no text\nhelp: pass one with --text"),
    }
}

fn train_on(
    device: &Device,
    args: &Args,
    settings: Settings,
    (corpus, text): (Corpus, Text),
    resumed: Option<Resumed>,
) -> Result<Summary> {
    let (name, fingerprint) = (corpus.name.as_str(), corpus.fingerprint.as_str());
    if let Some(resumed) = &resumed {
        if resumed.vocabulary != text.vocabulary {
            bail!(
                "{name} has other characters than the text of the checkpoint\nhelp: pass the text that it was trained on with \
                 --text, or leave --text out and sample with --sample"
            );
        }
        if resumed.text != fingerprint {
            log::warn!("{name} is not the text that the checkpoint was trained on; the run will not be the same");
        }
        for change in settings.changes(&resumed.settings) {
            log::warn!("{change}; the run will not be the same");
        }
    }
    // What cannot work should fail now, not after the training.
    let prompt = prompt(args, &text.vocabulary)?;
    size::check(&settings, text.vocabulary.len(), device)?;
    let mut trainer = Trainer::new(device, args, settings, (&text, name, fingerprint), resumed)?;
    if !args.quiet {
        say(describe(&trainer, &text));
    }
    let trained = if trainer.step < trainer.settings.steps { Some(train(&mut trainer, args)?) } else { None };
    if let (None, Some(_)) = (&trained, &args.save) {
        let place = Place::of(args)?;
        trainer.save(&place)?;
        if !args.quiet {
            say(format!("all steps were done before; saved to {place}"));
        }
    }
    let summary = match trained {
        Some(summary) if summary.interrupted => summary,
        trained => {
            let val_loss = trainer.validate()?;
            let len = args.sample.unwrap_or(if args.quiet { 0 } else { SAMPLE });
            let sample = sample(device, &trainer.model, &text.vocabulary, prompt, len, trainer.settings.seed)?;
            let summary = Summary { val_loss, sample, ..trained.unwrap_or_else(|| Summary::of_device(device)) };
            report(device, args, &summary);
            summary
        }
    };
    if let Some(path) = &args.json {
        summary.write_json(path)?;
    }
    Ok(summary)
}

/// Trains the steps that are left, and saves.
fn train(trainer: &mut Trainer, args: &Args) -> Result<Summary> {
    let place = Place::of(args)?;
    let first = trainer.step;
    let trained = trainer.train(args, &place).map_err(|why| trainer.rescue(why, first, &place))?;
    let Settings { batch, context, accum, steps, .. } = trainer.settings;
    let mut summary = Summary::of_training(&trainer.device, trained, batch * context * accum);
    summary.interrupted = trainer.step < steps;
    if trainer.step > first && trainer.saved != Some(trainer.step) {
        trainer.save(&place)?;
    }
    match (summary.interrupted, trainer.step > first) {
        (true, true) => say(format!("ended after step {}, saved to {place}\nhelp: go on with --resume {place}", trainer.step)),
        (true, false) => say("ended before the first step; nothing was saved"),
        (false, _) if args.quiet => {}
        (false, _) => say(format!("saved to {place}")),
    }
    Ok(summary)
}

/// A checkpoint whose text is not here: it can still speak.
fn only_sample(device: &Device, args: &Args, settings: &Settings, resumed: Resumed) -> Result<Summary> {
    let left = settings.steps - resumed.step;
    let asked = args.sample.is_some_and(|len| len > 0) || args.prompt.is_some();
    if left > 0 && !asked {
        bail!(
            "the checkpoint was trained on another text than the sources of this version of linn ({})\nhelp: pass it with --text \
             to train the remaining {left} steps, or pass --sample N to sample only",
            resumed.text
        );
    }
    if left > 0 && !args.quiet {
        tell(format!("only sampling; to train the remaining {left} steps, pass the text with --text"));
    }
    let vocabulary = resumed.vocabulary.clone();
    let prompt = prompt(args, &vocabulary)?;
    let model = Gpt::new(device, settings.model(vocabulary.len()))?;
    resumed.restore(&model, None)?;
    let text = sample(device, &model, &vocabulary, prompt, args.sample.unwrap_or(SAMPLE), settings.seed)?;
    if !text.is_empty() {
        say(&text);
    }
    let summary = Summary { sample: text, ..Summary::of_device(device) };
    if let Some(path) = &args.json {
        summary.write_json(path)?;
    }
    Ok(summary)
}

/// What samples go on from. A prompt that cannot be encoded is an error.
fn prompt<'a>(args: &'a Args, vocabulary: &Vocabulary) -> Result<&'a str> {
    let prompt = match &args.prompt {
        Some(prompt) => prompt,
        None if vocabulary.encode("\n").is_ok() => "\n",
        None => "",
    };
    vocabulary.encode(prompt)?;
    Ok(prompt)
}

fn describe(trainer: &Trainer, text: &Text) -> String {
    let parameters: usize = trainer.parameters.iter().map(Tensor::len).sum();
    let characters = text.train.len() + text.validation.len();
    let kinds = text.vocabulary.len();
    format!("{parameters} parameters, {characters} characters ({kinds} kinds), on {}", trainer.device.info())
}

fn report(device: &Device, args: &Args, summary: &Summary) {
    if args.quiet {
        // It was asked for.
        if args.sample.is_some_and(|len| len > 0) {
            say(&summary.sample);
        }
        return;
    }
    if let Some(loss) = summary.losses.last() {
        let speed = summary.median_step_ms.zip(summary.tokens_per_s);
        let speed = speed.map_or(String::new(), |(step, tokens)| format!(", median step {step:.0} ms, {tokens:.0} tokens/s"));
        say(format!("last loss {loss:.4}{speed}"));
    }
    match summary.val_loss {
        Some(loss) => say(format!("validation loss {loss:.4}")),
        None => say("the validation was ended"),
    }
    if !summary.sample.is_empty() {
        say(format!("--- sample\n{}\n---", summary.sample));
    }
    say(device.memory_summary(true));
    if stop::signal().is_some() {
        say("ended before the whole sample was there");
    }
}

/// Characters to sample where nothing else is asked for.
const SAMPLE: usize = 200;
