//! Every public operation has an example that runs: read from the sources, so that nothing has to be kept in step.
//!
//! An operation is a public function that returns a `Result` and stands in `impl Tensor` or `impl Device`, alone in its file, or as
//! a row of a table (a macro at the margin), in the files of [`PLACES`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where operations are. Views of memory for host applications, pinned memory and what a tensor is asked about are none.
const PLACES: [&str; 4] = ["src/autograd", "src/ops", "src/tensor/create.rs", "src/tensor/transfer.rs"];

/// Operations without an example. None may come, and a line goes when its operation has got one.
const WITHOUT: &[&str] = &["normal"];

/// An operation as the sources tell it.
#[derive(Debug, PartialEq)]
struct Operation {
    name: String,
    has_example: bool,
}

/// The operations of one source file.
fn operations(text: &str) -> Vec<Operation> {
    let mut found = Vec::new();
    let mut block = Block::Other;
    let mut lines = text.lines().peekable();
    let mut example = false;
    while let Some(line) = lines.next() {
        let start = line.trim_start();
        if let Some(opened) = Block::opened_by(line) {
            block = opened;
        } else if line == "}" || line == "} }" || line == "    )*};" {
            block = Block::Other;
        } else if start.starts_with("///") || start.starts_with("#[") {
            example |= start.contains("```") || start.contains("example!(");
            continue;
        } else if let Some(rest) = start.strip_prefix("pub fn ") {
            let indented = line.len() > start.len();
            let mut signature = rest.to_string();
            while !signature.contains('{') && lines.peek().is_some() {
                signature += lines.next().unwrap_or_default();
            }
            let here = if indented { block == Block::Methods } else { true };
            let returns = signature.split(" -> ").last().unwrap_or_default();
            if here && !rest.starts_with('$') && returns.contains("Result<") {
                found.push(Operation { name: name(rest), has_example: example });
            }
        } else if block == Block::Table && line.len() - start.len() == 4 && !start.starts_with(['$', '(', ')', '}']) {
            let mut row = line.to_string();
            while !row.contains(';') && lines.peek().is_some() {
                row += lines.next().unwrap_or_default();
            }
            let after_path = row.trim_start().rsplit_once("::").filter(|(path, _)| !path.contains(['(', ' ']));
            let of_row = name(after_path.map_or(row.trim_start(), |(_, name)| name));
            // Rows with capitals are traits: operators, whose methods have the examples.
            if of_row.starts_with(|c: char| c.is_ascii_lowercase()) {
                found.push(Operation { name: of_row, has_example: example || row.contains(" is \"") });
            }
        }
        example = false;
    }
    found
}

/// What stands around a line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Block {
    Methods,
    Table,
    Other,
}

impl Block {
    fn opened_by(line: &str) -> Option<Block> {
        if line.starts_with("impl Tensor {") || line.starts_with("impl Device {") {
            return Some(Block::Methods);
        }
        if line.starts_with("impl") || line.starts_with("macro_rules!") || line.starts_with("mod ") {
            return Some(Block::Other);
        }
        let (macro_name, rest) = line.split_once("! {")?;
        let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        (is_name(macro_name) && macro_name != "thread_local" && !rest.contains('}')).then_some(Block::Table)
    }
}

/// The name that `text` begins with.
fn name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// All operations by name, with whether one of that name has an example: `ops::relu` is `Tensor::relu` without recording.
fn all() -> BTreeMap<String, bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = BTreeMap::new();
    for place in PLACES {
        let place = root.join(place);
        let files = if place.is_dir() {
            std::fs::read_dir(&place).expect("a folder of sources").map(|entry| entry.expect("an entry").path()).collect()
        } else {
            vec![place]
        };
        for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
            let text = std::fs::read_to_string(file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            for Operation { name, has_example } in operations(&text) {
                *all.entry(name).or_insert(false) |= has_example;
            }
        }
    }
    all
}

#[test]
fn every_public_operation_has_an_example() {
    let all = all();
    // What a rule calls is explained by the operation whose gradient it is.
    let rule = |name: &str| name.ends_with("_backward");
    let missing: BTreeSet<&str> = all.iter().filter(|(name, has)| !**has && !rule(name)).map(|(name, _)| name.as_str()).collect();
    let known: BTreeSet<&str> = WITHOUT.iter().copied().collect();
    println!("{} of {} operations have an example, without: {missing:?}", all.len() - missing.len(), all.len());
    assert!(all.len() > 300, "{} operations are found: the scanner misses some", all.len());
    let new: Vec<_> = missing.difference(&known).collect();
    assert!(new.is_empty(), "no example in the docs of {new:?}\nhelp: four lines with numbers, as its neighbours have");
    let done: Vec<_> = known.difference(&missing).collect();
    assert!(done.is_empty(), "{done:?} have examples, or are gone\nhelp: take them out of WITHOUT, so that they stay so");
}

#[test]
fn the_scanner_sees_methods_functions_and_rows() {
    let text = r#"
/// Docs.
///
/// ```
/// ```
#[track_caller]
pub fn alone(x: &Tensor) -> Result<Tensor> {
}
/// Docs.
pub fn bare(
    x: &Tensor,
) -> Result<()> {
}
pub fn asked(x: &Tensor) -> usize {
}
macro_rules! table {
    ($($name:ident;)*) => { impl Tensor { $(
        pub fn $name(&self) -> Result<Tensor> {
        }
    )* } };
}
table! {
    /// Docs.
    #[doc = example!("exp()" for x = "[0.0f32]" is f32 "[1.0000]")]
    exp(output) => rules::exp;
    /// Docs.
    binary::sine(other);
    abs_() = abs, "" for x = "[1.0f32]" is "[1.0000]";
    long_(a: &Tensor) = long,
        "&a" for x = "[1.0f32]" is "[1.0000]";
}
impl Tensor {
    /// Docs.
    pub fn method(&self) -> Result<Tensor> {
    }
}
impl Other {
    /// Docs.
    pub fn not_ours(&self) -> Result<Tensor> {
    }
}
"#;
    let found: Vec<(String, bool)> = operations(text).into_iter().map(|found| (found.name, found.has_example)).collect();
    let found: Vec<(&str, bool)> = found.iter().map(|(name, has)| (name.as_str(), *has)).collect();
    let want =
        [("alone", true), ("bare", false), ("exp", true), ("sine", false), ("abs_", true), ("long_", true), ("method", false)];
    assert_eq!(found, want);
}
