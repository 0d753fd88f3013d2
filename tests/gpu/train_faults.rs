//! The trainer where something goes wrong or runs long: memory that ends, sizes that cannot fit, losses that come late.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use linn::data::Text;
use linn::{DType, Device, DeviceOptions, Tensor};

use crate::device::{device, open};
use crate::train_gpt::example::corpus::Corpus;
use crate::train_gpt::example::losses::Losses;
use crate::train_gpt::example::place::Place;
use crate::train_gpt::example::run::{Prepared, run, run_on};
use crate::train_gpt::example::settings::{Args, Settings};
use crate::train_gpt::example::size;
use crate::train_gpt::example::trainer::Trainer;
use crate::train_gpt::example::words::in_words;
use crate::train_gpt::{args, bits, failure};

fn with_limit(bytes: u64) -> Device {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(bytes);
    open(options)
}

fn trainer(device: &Device, args: &Args) -> Trainer {
    let settings = Settings::default().with(&args.given);
    let corpus = Corpus::read(args.text.as_deref().unwrap()).unwrap();
    let text = Text::new(&corpus.name, &corpus.text, settings.context).unwrap();
    device.manual_seed(settings.seed).unwrap();
    Trainer::new(device, args, settings, (&text, &corpus.name, &corpus.fingerprint), None).unwrap()
}

/// One step, whose loss has come.
fn step(trainer: &mut Trainer) -> anyhow::Result<()> {
    let losses = Losses::new(trainer.settings.accum as u64, Arc::default(), |_, _| {});
    assert!(trainer.step(&losses, &|_| false)?);
    losses.finish().map(drop)
}

#[test]
fn train_saves_what_it_has_when_memory_ends() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(args(folder.path(), "--steps 8")).unwrap();
    let device = open(DeviceOptions::default());
    let args = args(folder.path(), "--steps 8 --save rescued.safetensors");
    let mut trainer = trainer(&device, &args);
    (0..3).for_each(|_| step(&mut trainer).unwrap());
    // From now on nothing is bought, and everything that lies free is taken.
    device.empty_cache().unwrap();
    device.set_memory_limit(device.memory_reserved());
    let (mut held, mut len) = (Vec::new(), 1 << 22);
    while len > 0 {
        match Tensor::empty(&device, &[len], DType::F32) {
            Ok(tensor) => held.push(tensor),
            Err(_) => len /= 2,
        }
    }
    let place = Place::of(&args).unwrap();
    let why = trainer.train(&args, &place).err().expect("no memory is left");
    let text = trainer.rescue(why, 0, &place).to_string();
    assert!(text.starts_with("out of memory") && text.contains("\nstep 3 is saved; go on from there with --resume "), "{text}");
    drop((held, trainer));
    let rest = run(crate::train_gpt::args(folder.path(), "--resume rescued.safetensors")).unwrap();
    assert_eq!(bits(&rest.losses), bits(&whole.losses[3..]));
}

#[test]
fn train_saves_nothing_that_may_be_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(folder.path(), "--steps 8 --save kept.safetensors");
    let mut trainer = trainer(&device(), &args);
    let place = Place::of(&args).unwrap();
    let lost = || anyhow::Error::from(linn::Error::DeviceLost { fact: "unplugged".into() });
    let text = trainer.rescue(lost(), 0, &place).to_string();
    assert!(text.contains("unplugged\nno step was trained, so nothing was saved\nhelp: open a new device"), "{text}");
    step(&mut trainer).unwrap();
    let text = trainer.rescue(lost(), 0, &place).to_string();
    assert!(text.contains("\nnothing was saved: ") && !place.path().unwrap().exists(), "{text}");
    trainer.save(&place).unwrap();
    let kept = std::fs::read(place.path().unwrap()).unwrap();
    step(&mut trainer).unwrap();
    let text = trainer.rescue(lost(), 0, &place).to_string();
    assert!(text.contains("\nstep 1 is saved; go on from there"), "{text}");
    assert_eq!(std::fs::read(place.path().unwrap()).unwrap(), kept);
    // Memory that ends before the first step.
    let device = with_limit(1 << 20);
    let tight = crate::train_gpt::args(folder.path(), "--steps 8 --save none.safetensors --batch 64");
    let text = format!("{:#}", run_on(&device, &tight, Prepared::of(&tight).unwrap()).unwrap_err());
    assert!(text.contains("memory") && !folder.path().join("none.safetensors").exists(), "{text}");
}

/// Whoever was told of the failure: what was enqueued after it is not saved.
#[test]
fn train_saves_no_step_after_one_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(folder.path(), "--steps 8 --save kept.safetensors");
    let device = open(DeviceOptions::default());
    let mut trainer = trainer(&device, &args);
    let place = Place::of(&args).unwrap();
    (0..3).for_each(|_| step(&mut trainer).unwrap());
    trainer.save(&place).unwrap();
    let kept = std::fs::read(place.path().unwrap()).unwrap();
    device.refuse_driver_calls(0, 4);
    let told = step(&mut trainer);
    let synchronized = device.synchronize();
    device.refuse_driver_calls(0, 0);
    assert!(told.is_err() || synchronized.is_err(), "somebody was told");
    assert!(device.stats().queue.failures > 0);
    let why = trainer.save(&place).unwrap_err().to_string();
    assert!(why.starts_with("an earlier step failed on the device"), "{why}");
    let memory = device.memory_reserved();
    device.set_memory_limit(memory);
    let why = Tensor::empty(&device, &[1 << 28], DType::F32).unwrap_err();
    let text = trainer.rescue(why.into(), 0, &place).to_string();
    assert!(
        text.contains("failed too: an earlier step failed") && text.contains("\nstep 3 is saved; go on from there with --resume"),
        "{text}"
    );
    assert_eq!(std::fs::read(place.path().unwrap()).unwrap(), kept);
}

/// What is written is never what is read, and what cannot be written is said at once.
#[test]
fn train_replaces_nothing_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let error = |words: &str| failure(args(folder.path(), words));
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let text = args(folder.path(), "").text.unwrap();
    let before = std::fs::read(&text).unwrap();
    for (flags, what) in [
        (format!("--save {}", text.display()), "is the file of --text, which would be lost"),
        (format!("--json {}", text.display()), "is the file of --text, which would be lost"),
        (String::from("--save a.safetensors --json out/../a.safetensors"), "is the file of --save, which would be lost"),
        (String::from("--save out/"), "folder"),
        (String::from("--save none/"), "names a folder, not a file"),
        // The cause is a fact too, and stands before the help.
        (format!("--save {}", "n".repeat(251)), "n: File name too long (os error 36)\nhelp: pass another name with --save, "),
    ] {
        let why = error(&format!("--steps 2 {flags}"));
        assert!(why.contains(what) && why.contains("\nhelp: "), "{flags}: {why}");
    }
    assert_eq!(std::fs::read(&text).unwrap(), before);
    #[cfg(unix)]
    {
        // A link stays a link, and what it leads to is replaced as a whole.
        let (link, file) = (folder.path().join("link.safetensors"), folder.path().join("file.safetensors"));
        std::fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        run(args(folder.path(), "--steps 2 --save link.safetensors")).unwrap();
        assert!(link.is_symlink() && std::fs::metadata(&file).unwrap().len() > 1000);
        assert!(error("--steps 2 --save /dev/null").contains("is no regular file"));
        std::fs::remove_file(&file).unwrap();
        assert!(error("--steps 2 --save link.safetensors").contains("is a link to a file that does not exist"));
        linn::nn::state::save(&link, &[], &Default::default()).unwrap();
        assert!(link.is_symlink() && file.is_file(), "the library makes the file that a link leads to");
    }
}

/// Nobody waits for a device, or trains, to hear that a file is wrong.
#[test]
fn train_looks_at_its_files_before_it_opens_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let error = |args: &Args| in_words(&Prepared::of(args).err().expect("an error"));
    std::fs::write(folder.path().join("short.txt"), "short").unwrap();
    std::fs::write(folder.path().join("latin.txt"), b"caf\xe9").unwrap();
    let mut claims = Settings { n_layer: 100_000, ..Settings::default() }.to_lines();
    let facts = [("format", "linn train_gpt 1"), ("step", "3"), ("vocabulary", "ab"), ("text", "2 characters")];
    claims.extend(facts.map(|(key, fact)| (key.to_string(), fact.to_string())));
    linn::nn::state::save(&folder.path().join("large.safetensors"), &[], &claims).unwrap();
    for (words, what) in [
        ("--resume large.safetensors", "has no transformer.h.99999.ln_1.weight, but settings with 100000 layers\nhelp: "),
        ("--json none/summary.json", "none is no folder, so no summary can be saved there\nhelp: "),
        ("--save none/a.safetensors", "none is no folder, so no checkpoint can be saved there\nhelp: "),
        ("--text none.txt", "cannot read text "),
        ("--text short.txt", "is too short: 5 characters"),
        ("--text latin.txt", "is not UTF-8"),
        ("--resume none.safetensors", "cannot read checkpoint "),
        ("--resume short.txt", "short.txt is damaged or not a safetensors file"),
    ] {
        let why = error(&args(folder.path(), words));
        assert!(why.contains(what), "{words}: {why}");
    }
    if cfg!(target_os = "linux") {
        let why = error(&args(folder.path(), "--json /dev/full"));
        assert!(why.contains("no summary can be written to /dev/full: No space left on device"), "{why}");
    }
    let json = folder.path().join("kept.json");
    std::fs::write(&json, "older figures").unwrap();
    Prepared::of(&args(folder.path(), "--json kept.json --save a.safetensors")).unwrap();
    Prepared::of(&args(folder.path(), "--json new.json --save a.safetensors")).unwrap();
    assert_eq!(std::fs::read(&json).unwrap(), b"older figures");
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["kept.json", "large.safetensors", "latin.txt", "short.txt", "text.txt"], "trials leave nothing");
}

#[test]
fn train_refuses_sizes_that_cannot_fit() {
    let folder = tempfile::tempdir().unwrap();
    let error = |words: &str| failure(args(folder.path(), words));
    for (words, what) in [
        ("--n-embd 1000000", "the weights of a layer would take 14.6 TiB, "),
        ("--batch 1000000000", "the batch would take 59.6 GiB, "),
        ("--batch 1000000000 --n-embd 1000000000 --n-head 1 --n-layer 1000000000", "\nhelp: pass a smaller "),
    ] {
        let why = error(words);
        assert!(why.contains(what) && why.contains("\nhelp: pass a smaller "), "{words}: {why}");
    }
    assert!(error("--context 1000000000").contains("too short"));
    let device = with_limit(64 << 20);
    let many = args(folder.path(), "--n-layer 100000");
    let why = format!("{:#}", run_on(&device, &many, Prepared::of(&many).unwrap()).unwrap_err());
    assert!(why.contains("needs 11.1 GiB or more, the memory limit is 64.0 MiB\nhelp: pass smaller settings"), "{why}");
    assert_eq!(device.memory_reserved(), 0, "nothing was built");
}

/// The estimate refuses nothing that would fit, and is not far below; memory that is bought is used.
#[test]
fn train_needs_about_what_was_estimated() {
    let folder = tempfile::tempdir().unwrap();
    let more = "--n-layer 2 --n-head 4 --n-embd 128 --context 64 --batch 12 --steps 4 --val-batches 1";
    let args = args(folder.path(), more);
    let device = open(DeviceOptions::default());
    let summary = run_on(&device, &args, Prepared::of(&args).unwrap()).unwrap();
    let needed = size::needed(&Settings::default().with(&args.given), 28);
    let peak = summary.allocated_peak as f64;
    assert!(needed <= peak && peak <= 2.0 * needed, "estimated {needed}, peak {peak}");
    assert!(peak > 16e6, "large enough for the rule to mean something: {peak}");
    assert!(summary.reserved_peak as f64 <= 1.5 * peak, "reserved {} for {peak}", summary.reserved_peak);
}

#[test]
fn train_stays_steady() {
    let folder = tempfile::tempdir().unwrap();
    let device = open(DeviceOptions::default());
    let mut trainer = trainer(&device, &args(folder.path(), "--steps 200"));
    let (seen, watched) = (Arc::new(OnceLock::new()), device.clone());
    let early = seen.clone();
    let losses = Losses::new(1, Arc::default(), move |count, _| {
        if count == 4 {
            let _ = early.set(watched.stats());
        }
    });
    let mut after_three = None;
    while trainer.step < 200 {
        assert!(trainer.step(&losses, &|_| false).unwrap());
        if trainer.step >= 3 {
            let stats = device.stats();
            let now = (device.memory_reserved(), stats.memory.num_device_alloc);
            assert_eq!(*after_three.get_or_insert(now), now, "reserved and driver allocations at step {}", trainer.step);
        }
    }
    let collected = losses.finish().unwrap();
    assert_eq!(collected.losses.len(), 200);
    let (early, now) = (seen.get().unwrap().queue, device.stats().queue);
    let (hits, misses) = (now.bind_group_hits - early.bind_group_hits, now.bind_group_misses - early.bind_group_misses);
    assert!(misses * 100 <= hits + misses, "{misses} misses, {hits} hits");
    // Every miss makes an entry: with so few of them, what is kept is what a few steps use.
    assert!(now.bind_groups <= early.bind_groups + misses && now.bind_groups < 10_000, "{} entries", now.bind_groups);
}

#[test]
fn train_is_a_second_of_work_ahead_and_at_most_eight_batches() {
    let one = Tensor::ones(&device(), &[]).unwrap();
    let enqueue = |losses: &Losses| {
        assert!(losses.wait_for_room());
        losses.push(one.item_async().unwrap());
    };
    // Steps of no time, one of which the collector holds back until the host waits for room.
    let (waits, before) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (waited, waited_before) = (waits.clone(), before.clone());
    let losses = Losses::new(1, waits.clone(), move |count, _| {
        if count == 10 {
            while waited.load(Ordering::Acquire) == waited_before.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
    });
    (0..9).for_each(|_| enqueue(&losses));
    before.store(waits.load(Ordering::Acquire), Ordering::Release);
    (0..20).for_each(|_| enqueue(&losses));
    let collected = losses.finish().unwrap();
    assert_eq!((collected.losses.len(), collected.most_behind), (29, 8));
    assert!(collected.waits >= 1);

    // 0.4 s each: two are within a second.
    let losses = |batches, time| Losses::new(batches, Arc::default(), move |_, _| std::thread::sleep(time));
    let slow = losses(1, Duration::from_millis(400));
    (0..6).for_each(|_| enqueue(&slow));
    assert_eq!(slow.finish().unwrap().most_behind, 2);
    // What is ahead is counted in batches: eight are two steps of three batches and a part.
    let several = losses(3, Duration::from_millis(50));
    (0..30).for_each(|_| enqueue(&several));
    let collected = several.finish().unwrap();
    assert!(collected.losses.len() == 10 && (1..=3).contains(&collected.most_behind), "{collected:?}");
}

/// What is left of a step between two of its batches is nothing: a resumed run has the bits of one that was not ended.
#[test]
fn train_ends_between_the_batches_of_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(args(folder.path(), "--steps 6 --accum 4")).unwrap();
    let args = args(folder.path(), "--steps 6 --accum 4 --save ended.safetensors");
    let mut trainer = trainer(&device(), &args);
    let place = Place::of(&args).unwrap();
    (0..2).for_each(|_| step(&mut trainer).unwrap());
    let asked = Cell::new(0);
    let losses = Losses::new(4, Arc::default(), |_, _| {});
    let ends = |_| asked.replace(asked.get() + 1) == 2;
    assert!(!trainer.step(&losses, &ends).unwrap(), "two of four batches, then the end");
    assert_eq!((asked.get(), trainer.step, losses.finish().unwrap().losses.len()), (3, 2, 0));
    assert!(trainer.parameters.iter().all(|parameter| parameter.grad().is_none()));
    trainer.save(&place).unwrap();
    let rest = run(crate::train_gpt::args(folder.path(), "--resume ended.safetensors --save rest.safetensors")).unwrap();
    assert_eq!(bits(&rest.losses), bits(&whole.losses[2..]));
    // The same run goes on with the same bits, too.
    let place = Place::of(&crate::train_gpt::args(folder.path(), "--save on.safetensors")).unwrap();
    (0..4).for_each(|_| step(&mut trainer).unwrap());
    trainer.save(&place).unwrap();
    let [rest, on] = ["rest", "on"].map(|name| std::fs::read(folder.path().join(name).with_extension("safetensors")).unwrap());
    assert!(rest == on, "equal checkpoints are equal files");
}
