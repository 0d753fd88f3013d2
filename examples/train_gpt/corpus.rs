//! The text to train on.

use std::path::Path;

use anyhow::Result;
use linn::data::Text;

/// A text.
pub struct Corpus {
    /// For messages.
    pub name: String,
    pub text: String,
    /// Length and FNV-1a hash: enough to notice another text.
    pub fingerprint: String,
}

impl Corpus {
    fn new(name: String, text: String) -> Corpus {
        let hash =
            text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        let fingerprint = format!("{} bytes, {hash:016x}", text.len());
        Corpus { name, text, fingerprint }
    }

    /// The text in a file.
    pub fn read(path: &Path) -> Result<Corpus> {
        Ok(Corpus::new(format!("text {}", path.display()), Text::read_file(path)?))
    }

    /// What this example trains on by default.
    pub fn sources() -> Corpus {
        Corpus::new("the sources of linn".to_string(), SOURCES.concat())
    }
}

macro_rules! sources {
    ($($path:literal)*) => { &[$(include_str!(concat!("../../src/", $path)),)*] };
}

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
