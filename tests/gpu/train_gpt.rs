//! The example trainer with small settings: same seed, same bits; resume; one stream or two; its errors and its summary.

use std::path::{Path, PathBuf};

use clap::Parser;

#[path = "../../examples/train_gpt.rs"]
mod example;

use example::{Args, Summary, run};

const SMALL: &str = "--n-layer 2 --n-head 2 --n-embd 16 --context 16 --batch 4 --warmup 3 --val-batches 2 --sample 8 --quiet";

fn args(folder: &Path, more: &str) -> Args {
    let text = folder.join("text.txt");
    if !text.exists() {
        std::fs::write(&text, "the quick brown fox jumps over the lazy dog\n".repeat(50)).unwrap();
    }
    let text = text.display().to_string();
    let words =
        ["train_gpt", "--text", &text].into_iter().chain(SMALL.split(' ')).chain(more.split(' ').filter(|word| !word.is_empty()));
    let mut args = Args::try_parse_from(words).unwrap();
    // Relative names are meant inside the folder.
    for path in [&mut args.save, &mut args.resume, &mut args.json].into_iter().flatten() {
        *path = folder.join(&*path);
    }
    args.save.get_or_insert_with(|| folder.join("default.safetensors"));
    args
}

fn train(folder: &Path, more: &str) -> Summary {
    run(args(folder, more)).unwrap_or_else(|why| panic!("{why:#}"))
}

fn error(folder: &Path, more: &str) -> String {
    format!("{:#}", run(args(folder, more)).expect_err("an error"))
}

fn bits(losses: &[f32]) -> Vec<u32> {
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
    assert_eq!((first.val_loss.to_bits(), &first.sample), (again.val_loss.to_bits(), &again.sample));
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
        let stopped = args(folder.path(), &format!("--steps 10{more} --save half.safetensors"));
        let half = interrupted_after(stopped, 4);
        assert_eq!(bits(&half.losses), bits(&whole.losses[..half.losses.len()]));
        let rest = train(folder.path(), "--resume half.safetensors --save rest.safetensors");
        assert_eq!(half.losses.len() + rest.losses.len(), 10);
        assert_eq!(bits(&rest.losses), bits(&whole.losses[half.losses.len()..]), "{more}");
        assert_eq!(rest.val_loss.to_bits(), whole.val_loss.to_bits());
    }
}

/// What Ctrl-C does, at a point that is known: the checkpoint of `--save-every` is copied away while the run goes on.
fn interrupted_after(mut args: Args, steps: u64) -> Summary {
    let place: PathBuf = args.save.clone().unwrap();
    args.stop_after = Some(steps);
    let summary = run(args).unwrap_or_else(|why| panic!("{why:#}"));
    assert!(summary.interrupted && place.exists());
    summary
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
    assert!(error(path, "--resume one.safetensors --n-layer 3").contains("another model"));
    assert!(error(path, "--prompt \u{1F980}").contains("not among"));
    assert!(error(path, "--save missing/one.safetensors").contains("is no folder"));
    std::fs::create_dir(path.join("folder.safetensors")).unwrap();
    assert!(error(path, "--save folder.safetensors").contains("is a folder"));
    assert!(error(path, "--json missing/summary.json").contains("no summary can be written"));
    std::fs::write(path.join("text.txt"), "other letters: XYZ ".repeat(100)).unwrap();
    train(path, "--steps 1 --save no-new-line.safetensors");
    assert!(error(path, "--resume one.safetensors").contains("other characters"));
    std::fs::write(path.join("text.txt"), "").unwrap();
    assert!(error(path, "").contains("is empty"));
    std::fs::write(path.join("text.txt"), "short").unwrap();
    assert!(error(path, "").contains("too short"));
    std::fs::write(path.join("text.txt"), b"\xff\xfe".repeat(1000)).unwrap();
    assert!(error(path, "").contains("not UTF-8"));
    assert!(args(path, "--n-head 3").check().unwrap_err().contains("does not divide"));
    assert!(args(path, "--batch 0").check().unwrap_err().contains("at least 1"));
    assert_eq!(std::fs::read(path.join("one.safetensors")).unwrap(), whole, "no error touched the checkpoint");
}

#[test]
fn train_writes_its_summary() {
    let folder = tempfile::tempdir().unwrap();
    let summary = train(folder.path(), "--steps 20 --json summary.json");
    let text = std::fs::read_to_string(folder.path().join("summary.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["losses"].as_array().unwrap().len(), 20);
    for key in ["val_loss", "first_loss_ms", "median_step_ms", "tokens_per_s", "allocated_peak", "reserved_peak"] {
        assert!(json[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert_eq!(json["driver_allocations_after_step_3"], 0, "steady memory");
    // Blocks settle within the first steps; over hundreds of steps the rate is above 0.99.
    assert!(json["bind_group_hit_rate"].as_f64().unwrap() >= 0.5, "{text}");
    assert!(json["host_syncs"].is_u64());
    for key in ["name", "backend", "driver"] {
        assert!(!json["adapter"][key].as_str().unwrap().is_empty(), "{key}");
    }
    assert!(summary.reserved_peak as f64 <= 1.5 * summary.allocated_peak.max(8 << 20) as f64);
}
