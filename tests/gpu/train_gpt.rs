//! The example trainer with small settings: same seed, same bits; resume; one stream or two; its errors and its summary.

use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

#[path = "../../examples/train_gpt.rs"]
pub mod example;

use example::run::run;
use example::settings::Settings;
use example::words::{flags_in_words, in_words, parts};
use example::{Args, Summary};

pub const SMALL: &str = "--n-layer 2 --n-head 2 --n-embd 16 --context 16 --batch 4 --warmup 3 --val-batches 2 --sample 8 --quiet";

/// A text in `folder`, made at the first call.
pub fn text(folder: &Path) -> PathBuf {
    let text = folder.join("text.txt");
    if !text.exists() {
        std::fs::write(&text, "the quick brown fox jumps over the lazy dog\n".repeat(50)).unwrap();
    }
    text
}

/// Arguments as a user writes them; relative names are meant inside `folder`.
pub fn plain_args(folder: &Path, words: &str) -> Args {
    let words = words.split(' ').filter(|word| !word.is_empty());
    let mut args = Args::try_parse_from(["train_gpt"].into_iter().chain(words)).unwrap();
    for path in [&mut args.save, &mut args.resume, &mut args.json, &mut args.text].into_iter().flatten() {
        *path = folder.join(&*path);
    }
    args.save.get_or_insert_with(|| folder.join("default.safetensors"));
    args
}

/// Small settings and the text of `folder`. Sizes are left to the checkpoint where there is one.
pub fn args(folder: &Path, more: &str) -> Args {
    text(folder);
    let settings = if more.contains("--resume") { "--sample 8 --quiet" } else { SMALL };
    plain_args(folder, &format!("--text text.txt {settings} {more}"))
}

fn train(folder: &Path, more: &str) -> Summary {
    run(args(folder, more)).unwrap_or_else(|why| panic!("{why:#}"))
}

fn error(folder: &Path, more: &str) -> String {
    failure(args(folder, more))
}

/// What the program prints behind `error: `: facts, then one line of help.
pub fn failure(args: Args) -> String {
    let text = in_words(&run(args).expect_err("an error"));
    let (fact, help) = parts(&text);
    assert!(help.is_some_and(|help| !help.contains('\n')) && !fact.contains("help:"), "{text}");
    text
}

pub fn bits(losses: &[f32]) -> Vec<u32> {
    losses.iter().map(|loss| loss.to_bits()).collect()
}

#[test]
fn train_same_seed_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let first = train(folder.path(), "--steps 12");
    assert_eq!(first.losses.len(), 12);
    assert!(first.losses[11] < first.losses[0], "it learns: {:?}", first.losses);
    let again = train(folder.path(), "--steps 12");
    assert_eq!(bits(&first.losses), bits(&again.losses));
    assert_eq!((first.val_loss.unwrap().to_bits(), &first.sample), (again.val_loss.unwrap().to_bits(), &again.sample));
    let files = ["a.safetensors", "b.safetensors"].map(|name| {
        train(folder.path(), &format!("--steps 2 --save {name}"));
        std::fs::read(folder.path().join(name)).unwrap()
    });
    assert!(files[0] == files[1], "the same run saves the same file");
    let one_stream = train(folder.path(), "--steps 12 --streams 1");
    assert_eq!(bits(&first.losses), bits(&one_stream.losses));
    let other_seed = train(folder.path(), "--steps 12 --seed 2");
    assert_ne!(bits(&first.losses), bits(&other_seed.losses));
}

#[test]
fn train_resumes_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    for more in ["", " --accum 2 --bias true --tied false"] {
        let whole = train(folder.path(), &format!("--steps 10{more} --save-every 4 --save four.safetensors"));
        // The last save is of step 10; a run that stops after 4 of 10 steps is made by a smaller --steps with the same schedule.
        assert_eq!(whole.losses.len(), 10);
        let half = train(folder.path(), &format!("--steps 10{more} --save half.safetensors --stop-after 4"));
        assert!(half.interrupted && half.val_loss.is_none());
        assert_eq!(bits(&half.losses), bits(&whole.losses[..half.losses.len()]));
        let rest = train(folder.path(), "--resume half.safetensors --save rest.safetensors");
        assert_eq!(half.losses.len() + rest.losses.len(), 10);
        assert_eq!(bits(&rest.losses), bits(&whole.losses[half.losses.len()..]), "{more}");
        assert_eq!(rest.val_loss.unwrap().to_bits(), whole.val_loss.unwrap().to_bits());
    }
}

/// The kernels' forms depend on sizes, so the same is asked of the width and context that people train with.
#[test]
fn train_at_its_default_width_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    text(folder.path());
    let run = |words: &str| {
        // One layer and few rows: the software drivers of CI take a second for a step of the whole model.
        let sizes = " --n-layer 1 --batch 4";
        let args = plain_args(folder.path(), &format!("--text text.txt --quiet --val-batches 1 {words}{sizes}"));
        run(args).unwrap_or_else(|why| panic!("{}", in_words(&why)))
    };
    let whole = bits(&run("--steps 4").losses);
    assert_eq!(bits(&run("--steps 4 --streams 1").losses), whole);
    let half = run("--steps 4 --stop-after 2 --save half.safetensors");
    assert_eq!(bits(&half.losses), whole[..2]);
    assert_eq!(bits(&run("--resume half.safetensors").losses), whole[2..]);
}

#[test]
fn train_samples_a_checkpoint_without_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let whole = train(path, "--steps 6 --save whole.safetensors --prompt the");
    train(path, "--steps 6 --save half.safetensors --stop-after 3");
    let half = std::fs::read(path.join("half.safetensors")).unwrap();
    std::fs::remove_file(path.join("text.txt")).unwrap();
    let sample = |words: &str| run(plain_args(path, words)).unwrap_or_else(|why| panic!("{why:#}"));
    let summary = sample("--resume whole.safetensors --sample 8 --prompt the --quiet");
    assert_eq!((summary.sample.as_str(), summary.losses.len()), (whole.sample.as_str(), 0));
    assert!(summary.sample.starts_with("the") && summary.sample.len() == 11, "{:?}", summary.sample);
    // With steps left, sampling has to be asked for, and trains nothing.
    let why = failure(plain_args(path, "--resume half.safetensors"));
    assert!(why.contains("trained on another text") && why.contains("help: pass it with --text to train the remaining 3 steps"));
    let summary = sample("--resume half.safetensors --sample 5 --save half.safetensors");
    assert_eq!((summary.sample.len(), summary.losses.len()), (6, 0), "the new line that it goes on from, and 5");
    assert_eq!(std::fs::read(path.join("half.safetensors")).unwrap(), half);
    assert!(failure(plain_args(path, "--resume half.safetensors --sample 5 --prompt XYZ")).contains("'X' is not among"));
}

#[test]
fn train_goes_on_with_the_settings_of_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // 3 does not divide the default width of 128: the flag is compared with the checkpoint, not with defaults.
    train(path, "--n-head 3 --n-embd 24 --steps 2 --save odd.safetensors");
    let agreeing = args(path, "--resume odd.safetensors --n-head 3 --steps 4");
    agreeing.check().unwrap();
    assert_eq!(run(agreeing).unwrap().losses.len(), 2);
    let why = error(path, "--resume odd.safetensors --n-layer 4");
    assert!(why.contains("--n-layer 4 contradicts the checkpoint, whose model has n-layer 2\nhelp: leave the flag out"), "{why}");
    for flag in ["--n-head 4", "--n-embd 128", "--context 64", "--bias true", "--tied false"] {
        assert!(error(path, &format!("--resume odd.safetensors {flag}")).contains(&format!("{flag} contradicts")), "{flag}");
    }
    assert!(
        error(path, "--resume odd.safetensors --steps 1").contains("--steps 1 contradicts the checkpoint, which has 2 steps")
    );
    let saved = Settings { lr: 0.5, ..Settings::default() };
    let changes = Settings::default().changes(&saved);
    assert_eq!(changes, ["--lr is 0.001, the checkpoint was trained with 0.5"]);
}

#[test]
fn train_explains_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert!(error(path, "--resume missing.safetensors").contains("cannot read checkpoint"));
    std::fs::write(path.join("damaged.safetensors"), b"not a checkpoint").unwrap();
    assert!(error(path, "--resume damaged.safetensors").contains("damaged or not a safetensors file"));
    train(path, "--steps 1 --save one.safetensors");
    let whole = std::fs::read(path.join("one.safetensors")).unwrap();
    std::fs::write(path.join("cut.safetensors"), &whole[..whole.len() - 100]).unwrap();
    assert!(error(path, "--resume cut.safetensors").contains("damaged"));
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(path.join("flipped.safetensors"), &flipped).unwrap();
    assert!(error(path, "--resume flipped.safetensors").contains("its checksum is"));
    assert!(error(path, "--prompt \u{1F980}").contains("not among"));
    assert!(error(path, "--save missing/one.safetensors").contains("is no folder"));
    std::fs::create_dir(path.join("folder.safetensors")).unwrap();
    assert!(error(path, "--save folder.safetensors").contains("is a folder"));
    assert!(error(path, "--json missing/summary.json").contains("is no folder, so no summary"));
    assert!(error(path, "--json folder.safetensors").contains("is a folder, so no summary"));
    std::fs::write(path.join("text.txt"), "other letters: XYZ ".repeat(100)).unwrap();
    train(path, "--steps 1 --save no-new-line.safetensors");
    assert!(error(path, "--resume one.safetensors").contains("other characters"));
    std::fs::write(path.join("text.txt"), "").unwrap();
    assert!(error(path, "").contains("is empty"));
    std::fs::write(path.join("text.txt"), "short").unwrap();
    assert!(error(path, "").contains("too short"));
    std::fs::write(path.join("text.txt"), b"\xff\xfe".repeat(1000)).unwrap();
    assert!(error(path, "").contains("not UTF-8"));
    assert_eq!(std::fs::read(path.join("one.safetensors")).unwrap(), whole, "no error touched the checkpoint");
}

/// Every flag that is wrong: one line that names it, one that says what it takes.
#[test]
fn train_explains_its_flags() {
    let whole = "pass a whole number from 1 to 1000000000";
    let any = "pass a whole number from 0 to 18446744073709551615";
    let unknown = "--help lists every flag and what it takes";
    for (words, fact, help) in [
        ("--batch 0", "--batch is \"0\"", whole),
        ("--accum 18446744073709551615", "--accum is \"18446744073709551615\"", whole),
        ("--steps -1", "--steps is \"-1\"", any),
        ("--seed 1.5", "--seed is \"1.5\"", any),
        ("--save-every -1", "--save-every is \"-1\"", "pass a whole number from 1 to 18446744073709551615"),
        ("--sample -5", "--sample is \"-5\"", any),
        ("--lr -1e-3", "--lr is \"-1e-3\"", "pass a number from 0 to 1000"),
        ("--lr NaN", "--lr is \"NaN\"", "pass a number from 0 to 1000"),
        ("--clip -inf", "--clip is \"-inf\"", "pass a number from 0 to 1000000000"),
        ("--beta2 1", "--beta2 is \"1\"", "pass a number from 0 to 0.999999999999"),
        ("--bias yes", "--bias is \"yes\"", "pass true or false"),
        ("--streams 3", "--streams is \"3\"", "pass a whole number from 1 to 2"),
        ("--steps", "a value is required for '--steps <VALUE>' but none was supplied", unknown),
        ("--step 3", "unexpected argument '--step' found", "is --steps meant? --help lists every flag and what it takes"),
        ("text.txt", "unexpected argument 'text.txt' found", unknown),
    ] {
        let why = Args::try_parse_from(["train_gpt"].into_iter().chain(words.split(' '))).unwrap_err();
        assert_eq!(flags_in_words(&why), format!("{fact}\nhelp: {help}"), "{words}");
    }
    let args = Args::try_parse_from(["train_gpt", "--n-head", "3"]).unwrap();
    let text = "--n-head 3 does not divide --n-embd 128\nhelp: pass a width that is a multiple of the heads";
    assert_eq!(in_words(&args.check().unwrap_err()), text);
    // A checkpoint that somebody has edited.
    let mut lines = Settings::default().to_lines();
    lines.insert("lr".into(), "-1".into());
    let text = in_words(&Settings::from_lines(&lines).unwrap().check().unwrap_err());
    assert_eq!(text, "--lr is -1\nhelp: pass a number from 0 to 1000");
    assert_eq!(example::program(["train_gpt", "--steps", "-1"].map(Into::into)), 2);
}

/// Every Rust file and every shader is in the default text, once.
#[test]
fn train_reads_the_crates_own_sources_by_default() {
    fn len(folder: &Path, text: &str) -> usize {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: PathBuf| match path.extension().and_then(|kind| kind.to_str()) {
            Some("rs" | "wgsl") => {
                let file = std::fs::read_to_string(&path).unwrap();
                assert!(text.contains(&file), "{} is missing", path.display());
                file.len()
            }
            _ if path.is_dir() => len(&path, text),
            _ => 0,
        };
        entries.map(of).sum()
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = example::corpus::Corpus::sources().text;
    assert_eq!(len(&root.join("src"), &text) + len(&root.join("shaders"), &text), text.len());
}

#[test]
fn train_help_lists_every_setting_with_its_default() {
    let help = Args::command().render_long_help().to_string();
    assert!(help.starts_with("Trains a character-level GPT on a text\n"), "{help}");
    let lines = Settings::default().to_lines();
    assert_eq!(lines.len(), 21);
    for (name, default) in lines {
        let flag = format!("--{} <VALUE>", name.replace('_', "-"));
        let about = help.split_once(&flag).unwrap_or_else(|| panic!("no {flag} in {help}")).1;
        let about = about.split("      --").next().unwrap();
        // 1e-3 is printed as 0.001.
        let (_, shown) = about.rsplit_once("[default: ").unwrap_or_else(|| panic!("{flag} has no default: {about}"));
        let shown = shown.split(']').next().unwrap();
        let same = shown == default || shown.parse::<f64>().is_ok_and(|shown| shown == default.parse::<f64>().unwrap());
        assert!(same, "{flag}: {shown} instead of {default}");
    }
}

#[test]
fn train_writes_its_summary() {
    let folder = tempfile::tempdir().unwrap();
    let summary = train(folder.path(), "--steps 40 --json summary.json");
    let text = std::fs::read_to_string(folder.path().join("summary.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["losses"].as_array().unwrap().len(), 40);
    for key in ["val_loss", "first_loss_ms", "median_step_ms", "tokens_per_s", "allocated_peak", "reserved_peak"] {
        assert!(json[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert_eq!(json["driver_allocations_after_step_3"], 0, "steady memory");
    assert!(json["bind_group_hit_rate"].as_f64().unwrap() >= 0.99, "{text}");
    assert!(json["host_syncs"].as_u64() >= json["loss_waits"].as_u64() && json["loss_waits"].is_u64(), "{text}");
    for key in ["name", "backend", "driver"] {
        assert!(!json["adapter"][key].as_str().unwrap().is_empty(), "{key}");
    }
    assert!(summary.reserved_peak >= summary.allocated_peak);
    // Too short for a rate, and nothing was bought after a step that never was.
    let short = train(folder.path(), "--steps 2 --json summary.json");
    assert_eq!((short.bind_group_hit_rate, short.driver_allocations_after_step_3), (None, 0));
    // What does not exist is null, and what there is is said where nothing was trained.
    let none = || {
        let text = std::fs::read_to_string(folder.path().join("summary.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let keys = ["first_loss_ms", "median_step_ms", "tokens_per_s", "bind_group_hit_rate"];
        // The training itself may not have waited at all.
        let waited = if json["losses"] == serde_json::json!([]) { "host_syncs" } else { "allocated_peak" };
        for key in ["allocated_peak", "reserved_peak", waited] {
            assert!(json[key].as_u64() > Some(0), "{key} in {text}");
        }
        keys.into_iter().filter(|key| json[key].is_null()).collect::<Vec<_>>()
    };
    train(folder.path(), "--steps 1 --json summary.json");
    assert_eq!(none(), ["median_step_ms", "tokens_per_s", "bind_group_hit_rate"]);
    train(folder.path(), "--steps 0 --json summary.json");
    assert_eq!(none(), ["first_loss_ms", "median_step_ms", "tokens_per_s", "bind_group_hit_rate"]);
    train(folder.path(), "--resume default.safetensors --json summary.json");
    assert_eq!(none().len(), 4);
}
