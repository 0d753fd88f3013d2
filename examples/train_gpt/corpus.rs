//! The text to train on.

use anyhow::Result;
use linn::data::Text;

use super::settings::Args;

/// The text's name for messages, and the text.
pub fn read(args: &Args) -> Result<(String, String)> {
    match &args.text {
        Some(path) => Ok((format!("text {}", path.display()), Text::read_file(path)?)),
        None => Ok(("the sources of linn".to_string(), SOURCES.concat())),
    }
}

macro_rules! sources {
    ($($path:literal)*) => { &[$(include_str!(concat!("../../src/", $path)),)*] };
}

/// What this example trains on by default.
const SOURCES: &[&str] = sources! {
    "error.rs" "dtype.rs" "ids.rs" "layout.rs"
    "autograd/mod.rs" "autograd/backward.rs" "autograd/graph.rs" "autograd/leaf.rs" "autograd/methods.rs"
    "autograd/mode.rs" "autograd/record.rs" "autograd/views.rs" "autograd/in_place.rs" "autograd/operators.rs"
    "autograd/checkpoint.rs" "autograd/gradcheck.rs" "autograd/rules/binary.rs" "autograd/rules/matmul.rs"
    "autograd/rules/unary.rs" "autograd/rules/reduce.rs" "autograd/rules/copy.rs"
    "nn/mod.rs" "nn/gpt.rs" "nn/init.rs" "nn/linear.rs" "nn/module.rs" "nn/norm.rs" "nn/state.rs" "nn/loss.rs"
    "optim/mod.rs" "optim/adam.rs" "optim/sgd.rs" "optim/group.rs" "optim/clip.rs" "optim/schedule.rs"
    "data/mod.rs" "data/text.rs" "data/sampler.rs" "data/loader.rs"
};
