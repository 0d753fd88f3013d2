//! The run: open, prepare or resume, train, validate, sample, report.

use anyhow::{Result, bail};
use linn::data::{Text, Vocabulary};
use linn::device::Device;
use linn::nn::Gpt;
use linn::tensor::Tensor;

use super::checkpoint::{self, Resumed};
use super::corpus::Corpus;
use super::place::{Place, are_apart, can_be_made};
use super::sample::sample;
use super::settings::{Args, Settings};
use super::summary::{Summary, process_started};
use super::trainer::Trainer;
use super::{say, size, stop, tell};

/// Trains as `args` say.
pub fn run(args: Args) -> Result<Summary> {
    process_started();
    are_apart(&args, None)?;
    let corpus = args.text.as_deref().map(Corpus::read).transpose()?;
    run_on(&Device::open()?, &args, corpus)
}

/// [`run`] on a device, with the text that the flags name.
pub fn run_on(device: &Device, args: &Args, given: Option<Corpus>) -> Result<Summary> {
    let resumed = args.resume.as_ref().map(|path| checkpoint::load(device, path)).transpose()?;
    let settings = match &resumed {
        Some(resumed) => resumed.settings.resumed(&args.given, resumed.step)?,
        None => Settings::default().with(&args.given),
    };
    settings.check()?;
    let corpus = match (given, &resumed) {
        (Some(given), _) => Some(given),
        (None, None) => Some(Corpus::sources()),
        // Training on another text than before is something to ask for.
        (None, Some(resumed)) => Some(Corpus::sources()).filter(|sources| sources.fingerprint == resumed.text),
    };
    linn::ops::random::manual_seed(device, settings.seed)?;
    match (corpus, resumed) {
        (Some(corpus), resumed) => train_on(device, args, settings, &corpus, resumed),
        (None, Some(resumed)) => only_sample(device, args, &settings, resumed),
        (None, None) => bail!("there is no text\nhelp: pass one with --text"),
    }
}

fn train_on(device: &Device, args: &Args, settings: Settings, corpus: &Corpus, resumed: Option<Resumed>) -> Result<Summary> {
    let (name, fingerprint) = (corpus.name.as_str(), corpus.fingerprint.as_str());
    let text = Text::new(name, &corpus.text, settings.context)?;
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
    // (Standard output, for instance, can be written as it is.)
    if let Some(path) = args.json.as_ref().filter(|path| !path.exists() || path.is_file() || path.is_dir()) {
        can_be_made(path, "summary", "--json")?;
    }
    size::check(&settings, text.vocabulary.len(), device)?;
    let mut trainer = Trainer::new(device, args, settings, (&text, name, fingerprint), resumed)?;
    if !args.quiet {
        say(describe(&trainer, &text));
    }
    let mut summary = match trainer.step < trainer.settings.steps {
        true => train(&mut trainer, args)?,
        false => {
            if args.save.is_some() {
                let place = Place::of(args)?;
                trainer.save(&place)?;
                say(format!("all steps were done before; saved to {}", place.path().display()));
            }
            Summary::of_adapter(device)
        }
    };
    if !summary.interrupted {
        summary.val_loss = trainer.validate()?;
        let len = args.sample.unwrap_or(if args.quiet { 0 } else { SAMPLE });
        summary.sample = sample(device, &trainer.model, &text.vocabulary, prompt, len, trainer.settings.seed)?;
        report(device, args, &summary);
    }
    if let Some(path) = &args.json {
        summary.write_json(path)?;
    }
    Ok(summary)
}

/// Trains the steps that are left, and saves.
fn train(trainer: &mut Trainer, args: &Args) -> Result<Summary> {
    let place = Place::of(args)?;
    are_apart(args, Some(place.path()))?;
    let first = trainer.step;
    let trained = trainer.train(args, &place).map_err(|why| trainer.rescue(why, first, &place))?;
    let Settings { batch, context, accum, steps, .. } = trainer.settings;
    let mut summary = Summary::of_training(&trainer.device, trained, batch * context * accum);
    summary.interrupted = trainer.step < steps;
    if trainer.step > first && trainer.saved != Some(trainer.step) {
        trainer.save(&place)?;
    }
    let path = place.path().display();
    match (summary.interrupted, trainer.step > first) {
        (true, true) => say(format!("ended after step {}, saved to {path}\nhelp: go on with --resume {path}", trainer.step)),
        (true, false) => say("ended before the first step; nothing was saved"),
        (false, _) if args.quiet => {}
        (false, _) => say(format!("saved to {path}")),
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
    let summary = Summary { sample: text, ..Summary::of_adapter(device) };
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
        say(format!("last loss {loss:.4}, median step {:.0} ms, {:.0} tokens/s", summary.median_step_ms, summary.tokens_per_s));
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
