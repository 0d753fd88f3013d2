//! The text to train on.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Result;
use include_dir::{Dir, File, include_dir};
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

    /// What this example trains on by default: the crate itself.
    pub fn sources() -> Corpus {
        Corpus::new("the sources of linn".to_string(), sources())
    }
}

static SHADERS: Dir = include_dir!("$CARGO_MANIFEST_DIR/shaders");
static SOURCES: Dir = include_dir!("$CARGO_MANIFEST_DIR/src");

/// All shaders and Rust files of the crate in the order of their paths, so that the text is the same wherever it is built.
/// Shaders come first: the last tenth, for validation, is Rust, as most of the rest is.
fn sources() -> String {
    fn files(folder: &'static Dir<'static>) -> Vec<&'static File<'static>> {
        let mut files: Vec<_> = folder.dirs().flat_map(files).chain(folder.files()).collect();
        files.sort_by_key(|file| file.path());
        files
    }
    let code = |file: &&File| matches!(file.path().extension().and_then(OsStr::to_str), Some("rs" | "wgsl"));
    [&SHADERS, &SOURCES].into_iter().flat_map(files).filter(code).filter_map(File::contents_utf8).collect()
}
