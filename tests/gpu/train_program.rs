//! The trainer as a program of its own: signals, output, file names. The program is this test binary, run again.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::device::device;
use crate::train_gpt::example::place::Place;
use crate::train_gpt::example::{program, run::run};
use crate::train_gpt::{SMALL, args, bits, text};

/// Does something only when a test below runs it.
#[test]
fn the_program() {
    let Ok(arguments) = std::env::var("LINN_TRAIN") else { return };
    let words = arguments.split(' ').filter(|word| !word.is_empty());
    std::process::exit(program(["train_gpt"].into_iter().chain(words).map(Into::into)).into());
}

/// The trainer with small settings in `folder`; `before` is what runs it.
fn start(folder: &Path, before: &[&str], arguments: &str) -> Child {
    text(folder);
    let program = std::env::current_exe().unwrap();
    let mut words = before.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
    Command::new(words.next().unwrap())
        .args(words)
        .args(["--exact", "train_program::the_program", "--nocapture", "--test-threads=1"])
        .env("LINN_TRAIN", format!("--text text.txt {} {arguments}", SMALL.replace("--quiet", "").replace("--sample 8", "")))
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> (Output, String, String) {
    let output = child.wait_with_output().unwrap();
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (words(&output.stdout), words(&output.stderr));
    (output, out, err)
}

/// Reads lines until one has `words` in it.
fn wait_for(words: &str, from: &mut impl BufRead) {
    let mut line = String::new();
    while from.read_line(&mut line).unwrap() > 0 {
        if line.contains(words) {
            return;
        }
    }
    panic!("{words} did not come: {line}");
}

#[cfg(unix)]
fn send(signal: &str, child: &Child) {
    // The shell's own `kill`: not every machine has the program.
    assert!(Command::new("sh").args(["-c", &format!("kill -s {signal} {}", child.id())]).status().unwrap().success());
}

#[cfg(unix)]
#[test]
fn train_saves_when_a_signal_ends_it() {
    let mut signals: Vec<(&[&str], &[&str], i32)> = vec![(&[], &["INT"], 130), (&[], &["TERM"], 143)];
    if cfg!(target_os = "linux") {
        // Whoever runs the tests may have been started by nohup, so the hang-up is switched on and off by hand.
        signals.push((&["env", "--default-signal=HUP"], &["HUP"], 129));
        signals.push((&["env", "--ignore-signal=HUP"], &["HUP", "TERM"], 143));
    }
    for (before, names, code) in signals {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mut child = start(path, before, "--steps 1000000 --save ended.safetensors --json ended.json");
        let mut words = BufReader::new(child.stderr.take().unwrap());
        wait_for("step 1/1000000", &mut words);
        names.iter().for_each(|name| send(name, &child));
        let mut rest = String::new();
        words.read_to_string(&mut rest).unwrap();
        let (output, out, _) = finish(child);
        assert_eq!(output.status.code(), Some(code), "{names:?}: {out}{rest}");
        assert!(out.contains("saved to ended.safetensors\nhelp: go on with --resume ended.safetensors"), "{names:?}: {out}");

        let json = std::fs::read_to_string(path.join("ended.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let ended: Vec<f32> = json["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap() as f32).collect();
        let resumed = run(args(path, "--resume ended.safetensors --stop-after 2")).unwrap();
        if names == ["TERM"] {
            let steps = ended.len() + 2;
            let whole = run(args(path, &format!("--steps 1000000 --stop-after {steps}"))).unwrap();
            assert_eq!(bits(&[ended, resumed.losses].concat()), bits(&whole.losses), "the same bits as without the signal");
        }
    }
}

/// The second Ctrl-C comes while the first one's work runs; the device must not go away under the main thread.
#[cfg(unix)]
#[test]
fn train_ends_at_once_at_the_second_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    // A software driver takes seconds for a batch.
    let large = "--n-embd 256 --context 128 --batch 128 --steps 1000 --accum 1000 --save ended.safetensors";
    let mut child = start(folder.path(), &[], large);
    let mut words = BufReader::new(child.stdout.take().unwrap());
    wait_for("parameters, ", &mut words);
    // The first batch is on its way by then.
    std::thread::sleep(Duration::from_millis(1500));
    send("INT", &child);
    let mut err = BufReader::new(child.stderr.take().unwrap());
    wait_for("Ctrl-C again ends at once", &mut err);
    std::thread::sleep(Duration::from_millis(700));
    let ended_by_itself = child.try_wait().unwrap().is_some();
    send("INT", &child);
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(ended_by_itself || rest == "ended at once; nothing more was saved\n", "{rest}");
    assert!(!rest.contains("error"), "{rest}");
}

#[test]
fn train_prints_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (output, out, err) = finish(start(folder.path(), &[], "--steps 40 --save a.safetensors"));
    assert!(output.status.success(), "{err}");
    for words in ["parameters", "validation loss", "--- sample", "saved to a.safetensors"] {
        assert!(out.contains(words), "{words} is missing in {out}");
    }
    // No terminal, so lines instead of a bar: the first step, the last, and some between.
    let lines: Vec<&str> = err.lines().filter(|line| line.starts_with("step ")).collect();
    assert!(lines.len() >= 10 && lines[0].starts_with("step 1/40, loss "), "{err}");
    assert!(lines.last().unwrap().starts_with("step 40/40, loss "), "{err}");
    assert!(
        lines.iter().all(|line| line.contains(" tokens/s, ") && line.contains(" allocated, ") && line.ends_with(" reserved"))
    );

    let (output, out, err) = finish(start(folder.path(), &[], "--steps 2 --save a.safetensors --quiet --sample 3 --prompt lazy"));
    assert!(output.status.success(), "{err}");
    assert!(out.contains("lazy") && !out.contains("parameters") && !out.contains("validation"), "{out}");
    assert!(!err.contains("step "), "{err}");
    let (output, out, err) = finish(start(folder.path(), &[], "--steps 0 --save b.safetensors --quiet --sample 3 --prompt lazy"));
    assert!(output.status.success() && folder.path().join("b.safetensors").exists(), "{err}");
    assert!(out.contains("lazy") && !out.contains("saved"), "quiet: {out}");
}

#[test]
fn train_goes_on_when_its_reader_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &[], "--steps 5 --save a.safetensors");
    // What the test harness prints before it runs the program has to be read, or the harness fails.
    let printed = std::io::BufReader::new(child.stdout.take().unwrap()).bytes().map_while(Result::ok);
    let mut last = [0; 4];
    for byte in printed {
        last = [last[1], last[2], last[3], byte];
        if last == *b"... " {
            break;
        }
    }
    drop(child.stderr.take());
    let (output, ..) = finish(child);
    assert_eq!(output.status.code(), Some(0));
    assert!(folder.path().join("a.safetensors").exists());
}

#[test]
fn train_says_what_it_will_replace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let said = "; the first save replaces it";
    std::fs::write(path.join("old.safetensors"), "an older checkpoint").unwrap();
    // A limit that ends the training before its first save: the older file is still there.
    let (output, _, err) =
        finish(start(path, &["env", "LINN_ALLOC_CONF=limit_mb:1"], "--steps 2 --save old.safetensors --batch 64"));
    assert!(!output.status.success(), "{err}");
    assert_eq!(std::fs::read(path.join("old.safetensors")).unwrap(), b"an older checkpoint", "{err}");
    let (output, _, err) = finish(start(path, &[], "--steps 2 --save old.safetensors --sample 0"));
    assert!(output.status.success(), "{err}");
    let told: Vec<&str> = err.lines().filter(|line| line.contains(said)).collect();
    assert!(told.len() == 1 && told[0].contains("old.safetensors exists; the first save replaces it"), "{err}");
    assert!(err.find(told[0]) < err.find("step 1/2"), "before the training: {err}");
    let (output, _, err) = finish(start(path, &[], "--resume old.safetensors --save old.safetensors --steps 3 --sample 0"));
    assert!(output.status.success() && !err.contains(said), "{err}");
}

#[test]
fn train_gives_every_run_a_name_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let left = || std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let (first, second) = (Place::free(path).unwrap(), Place::free(path).unwrap());
    assert!(left().is_empty(), "what is killed before it saves leaves nothing");
    let fails = first.save(|_| anyhow::bail!("the disk is full"));
    assert!(fails.is_err() && left().is_empty(), "nor does what cannot be saved");
    for place in [&first, &second] {
        place.save(|path| Ok(std::fs::write(path, "a checkpoint")?)).unwrap();
    }
    assert_eq!(first.path().unwrap(), path.join("linn-gpt.safetensors"));
    assert_eq!(second.path().unwrap(), path.join("linn-gpt-2.safetensors"));
    std::fs::remove_file(first.path().unwrap()).unwrap();

    let runs = [0, 1].map(|_| start(path, &[], "--steps 3"));
    for child in runs {
        let (output, out, err) = finish(child);
        assert!(output.status.success(), "{out}{err}");
    }
    let weights = |name: &str| {
        let loaded = linn::nn::state::load(&device(), &path.join(name)).unwrap();
        loaded.tensors["transformer.wte.weight"].to_vec::<f32>().unwrap()
    };
    assert!(weights("linn-gpt.safetensors") == weights("linn-gpt-3.safetensors"), "both runs saved, and saved the same");
    assert_eq!(std::fs::read(path.join("linn-gpt-2.safetensors")).unwrap(), b"a checkpoint");

    // A name that the summary will have is not free.
    let (output, _, err) = finish(start(path, &[], "--steps 3 --json linn-gpt-4.safetensors --sample 0"));
    assert!(output.status.success(), "{err}");
    assert!(
        std::fs::read(path.join("linn-gpt-4.safetensors")).unwrap().starts_with(b"{")
            && weights("linn-gpt-5.safetensors").len() > 1
    );
}
