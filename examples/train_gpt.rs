//! Trains a character-level GPT on a text, by default on the sources of this crate.
//!
//!     cargo run --release --example train_gpt -- --text my.txt
//!
//! The next batch is uploaded on a second stream while the step runs; losses are read late, so the host never waits for one.
//! Ctrl-C saves a checkpoint, `--resume FILE` goes on with the same bits. `--help` lists every setting.
//!
//! Read `run.rs` first; `settings.rs` has the flags, `losses.rs` reads losses late, `checkpoint.rs` saves and loads.

#[path = "train_gpt/checkpoint.rs"]
mod checkpoint;
#[path = "train_gpt/corpus.rs"]
mod corpus;
#[path = "train_gpt/losses.rs"]
mod losses;
#[path = "train_gpt/run.rs"]
mod run;
#[path = "train_gpt/sample.rs"]
mod sample;
#[path = "train_gpt/settings.rs"]
mod settings;
#[path = "train_gpt/summary.rs"]
mod summary;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{CommandFactory, Parser, error::ErrorKind};

pub use run::run;
pub use settings::Args;
pub use summary::Summary;

/// Set by Ctrl-C; the training loop looks at it between steps.
pub static STOP: AtomicBool = AtomicBool::new(false);

#[allow(dead_code)] // The gpu tests include this file and call `run`.
fn main() -> ExitCode {
    summary::process_started();
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn,wgpu_hal=off,wgpu_core=error")).init();
    let args = Args::parse();
    if let Err(fact) = args.check() {
        Args::command().error(ErrorKind::ValueValidation, fact).exit();
    }
    let second_time_ends = || {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("finishing the steps on their way, then saving; Ctrl-C again ends without saving");
    };
    if let Err(why) = ctrlc::set_handler(second_time_ends) {
        log::warn!("Ctrl-C will end the program without saving: {why}");
    }
    match run(args) {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}
