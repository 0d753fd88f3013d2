//! Trains a character-level GPT on a text, by default on the sources of this crate.
//!
//!     cargo run --release --example train_gpt -- --text my.txt
//!
//! The next batch is uploaded on a second stream while the step runs; losses are read late, so the host never waits for one.
//! Ctrl-C saves a checkpoint, `--resume FILE` goes on with the same bits. `--help` lists every setting.
//!
//! Read `run.rs` first, then `trainer.rs` (a step) and `losses.rs` (losses read late); `settings.rs` has the flags,
//! `checkpoint.rs` saves and loads.

#[path = "train_gpt/checkpoint.rs"]
pub mod checkpoint;
#[path = "train_gpt/corpus.rs"]
pub mod corpus;
#[path = "train_gpt/losses.rs"]
pub mod losses;
#[path = "train_gpt/place.rs"]
pub mod place;
#[path = "train_gpt/progress.rs"]
pub mod progress;
#[path = "train_gpt/run.rs"]
pub mod run;
#[path = "train_gpt/sample.rs"]
pub mod sample;
#[path = "train_gpt/settings.rs"]
pub mod settings;
#[path = "train_gpt/size.rs"]
pub mod size;
#[path = "train_gpt/stop.rs"]
pub mod stop;
#[path = "train_gpt/summary.rs"]
pub mod summary;
#[path = "train_gpt/trainer.rs"]
pub mod trainer;
#[path = "shared/words.rs"]
pub mod words;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;

pub use settings::Args;
pub use summary::Summary;

#[allow(dead_code)] // The gpu tests include this file and call `program`.
fn main() -> ExitCode {
    ExitCode::from(program(std::env::args_os()))
}

/// The whole program; returns its exit code: 0, 1 after an error, 2 after one in the flags, 128 + the number of the signal that ended it early.
pub fn program(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    summary::process_started();
    let _ = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn,wgpu_hal=off,wgpu_core=error"))
        .try_init();
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(why) if why.use_stderr() => {
            tell(format!("error: {}", words::flags_in_words(&why)));
            return 2;
        }
        // What was asked for: --help or --version.
        Err(why) => return u8::from(why.print().is_err()),
    };
    if let Err(why) = args.check() {
        tell(format!("error: {}", words::in_words(&why)));
        return 2;
    }
    if let Err(why) = stop::watch() {
        log::warn!("signals will end the program without saving: {why}");
    }
    match run::run(args) {
        Ok(_) if LOST.load(Ordering::Relaxed) => 1,
        Ok(_) => stop::signal().map_or(0, |signal| 128 + signal),
        Err(why) => {
            tell(format!("error: {}", words::in_words(&why)));
            1
        }
    }
}

/// Something could not be printed to standard output though somebody wanted to have it.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints to standard output. A reader that has gone away (`| head -1`) is no reason to end a training, nor is a full disk, but
/// that one is said.
fn say(text: impl Display) {
    if stop::at_once() {
        return;
    }
    if let Err(why) = writeln!(std::io::stdout().lock(), "{text}")
        && why.kind() != std::io::ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        tell(format!("error: standard output cannot be written: {why}\nhelp: check where it goes to"));
    }
}

/// Prints to standard error, in the same way.
fn tell(text: impl Display) {
    if stop::at_once() {
        return;
    }
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
