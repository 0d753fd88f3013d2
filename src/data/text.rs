//! Character-level texts: vocabulary, tokens, and the split into training and validation.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};

/// The characters of a text in code-point order; a character's id is its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    chars: Vec<char>,
}

/// A text as token ids: the first nine tenths for training, the last tenth for validation.
#[derive(Clone, Debug)]
pub struct Text {
    /// The characters.
    pub vocabulary: Vocabulary,
    /// Ids for training.
    pub train: Vec<i32>,
    /// Ids for validation.
    pub validation: Vec<i32>,
}

impl Vocabulary {
    /// All characters of `text`.
    pub fn of(text: &str) -> Vocabulary {
        Vocabulary { chars: text.chars().collect::<BTreeSet<_>>().into_iter().collect() }
    }

    /// Number of characters.
    pub fn len(&self) -> usize {
        self.chars.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.chars.is_empty()
    }

    /// The ids of `text`; a character that is not in the vocabulary is an error.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        let id = |c: char| {
            self.chars.binary_search(&c).map(|id| id as i32).map_err(|_| {
                Error::argument(
                    "encode",
                    format!("character {c:?} is not among the {} of the vocabulary", self.len()),
                    "use only characters of the text that the model was trained on",
                )
            })
        };
        text.chars().map(id).collect()
    }

    /// The text of `ids`; an id out of range becomes U+FFFD.
    pub fn decode(&self, ids: &[i32]) -> String {
        let char_of = |id: &i32| usize::try_from(*id).ok().and_then(|id| self.chars.get(id)).copied();
        ids.iter().map(|id| char_of(id).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    /// All characters in the order of their ids; [`Vocabulary::of`] of it is this vocabulary.
    pub fn characters(&self) -> String {
        self.chars.iter().collect()
    }
}

/// Bytes of a text at most: ids take four times as much.
const LARGEST_TEXT: u64 = 1 << 30;

impl Text {
    /// Splits `text`, whose parts must each hold more than `context` characters (one sample and its targets). `name` is used
    /// in errors.
    pub fn new(name: &str, text: &str, context: usize) -> Result<Text> {
        let vocabulary = Vocabulary::of(text);
        let mut train = vocabulary.encode(text)?;
        if train.is_empty() {
            return Err(Error::file(format!("{name} is empty"), "pass a text of a few thousand characters or more"));
        }
        let len = train.len();
        let validation = train.split_off(len - len / 10);
        if validation.len() <= context || train.len() <= context {
            return Err(Error::file(
                format!(
                    "{name} is too short: {len} characters, of which {} are for validation; a context of {context} needs {}",
                    validation.len(),
                    context + 1
                ),
                format!("pass a text of at least {} characters, or a smaller context", (context + 1) * 10),
            ));
        }
        Ok(Text { vocabulary, train, validation })
    }

    /// The UTF-8 text in the file at `path`, of 1 GiB at most.
    pub fn read_file(path: &Path) -> Result<String> {
        Text::read_at_most(path, LARGEST_TEXT)
    }

    fn read_at_most(path: &Path, most: u64) -> Result<String> {
        let name = path.display();
        let mut bytes = Vec::new();
        // (A device that never ends is a file too.)
        std::fs::File::open(path)
            .and_then(|file| file.take(most + 1).read_to_end(&mut bytes))
            .map_err(|why| Error::file(format!("cannot read text {name}: {why}"), "check the path and its permissions"))?;
        if bytes.len() as u64 > most {
            let fact = format!("text {name} is larger than {} MiB", most >> 20);
            return Err(Error::file(fact, "pass a part of it, for instance the first lines by head"));
        }
        String::from_utf8(bytes).map_err(|why| {
            let at = why.utf8_error().valid_up_to();
            Error::file(
                format!("text {name} is not UTF-8: the first wrong byte is at {at}"),
                "convert the file, for instance with iconv -t UTF-8",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_and_decodes() {
        let vocabulary = Vocabulary::of("hëllo wörld");
        let ids = vocabulary.encode("wörld").unwrap();
        assert_eq!(vocabulary.decode(&ids), "wörld");
        assert_eq!(Vocabulary::of(&vocabulary.characters()), vocabulary);
        assert!(vocabulary.encode("x").unwrap_err().to_string().contains("'x'"));
        assert_eq!(vocabulary.decode(&[-1, 1000]), "\u{FFFD}\u{FFFD}");
    }

    #[test]
    fn the_last_tenth_is_for_validation() {
        let text = Text::new("t", &"abcdefghij".repeat(10), 8).unwrap();
        assert_eq!((text.train.len(), text.validation.len()), (90, 10));
        assert_eq!(text.vocabulary.decode(&text.validation), "abcdefghij");
    }

    #[test]
    fn bad_texts_say_what_to_do() {
        let error = |text: &str| Text::new("t", text, 8).unwrap_err().to_string();
        assert!(error("").starts_with("t is empty\nhelp: "));
        assert!(error(&"ab".repeat(40)).contains("too short: 80 characters"));
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.txt");
        assert!(Text::read_file(&missing).unwrap_err().to_string().contains("cannot read text"));
        let long = folder.path().join("long.txt");
        std::fs::write(&long, "x".repeat((1 << 20) + 1)).unwrap();
        assert!(Text::read_at_most(&long, 1 << 20).unwrap_err().to_string().contains("is larger than 1 MiB\nhelp: "));
        assert_eq!(Text::read_at_most(&long, (1 << 20) + 1).unwrap().len(), (1 << 20) + 1);
        let latin = folder.path().join("latin.txt");
        std::fs::write(&latin, b"caf\xe9").unwrap();
        assert!(Text::read_file(&latin).unwrap_err().to_string().contains("not UTF-8: the first wrong byte is at 3"));
    }
}
