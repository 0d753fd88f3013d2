//! The text of every error: lines of fact, then one line of help; and what callers may count on.

use linn::memory::sim::SimDevice;
use linn::memory::{Category, Config, Tag};
use linn::{DType, Error};

fn report() -> Box<linn::error::OomReport> {
    let mut device = SimDevice::new(1 << 20, Config { limit: 1 << 20, ..Config::default() });
    device.alloc(linn::ids::StreamId(3), 2 << 20, Tag::here(Category::Input, "from_slice")).unwrap_err()
}

/// Every variant with its name and its whole text.
fn all() -> Vec<(&'static str, Error, String)> {
    let report = report();
    let oom = report.to_string();
    let case = |name, error, text: &str| (name, error, text.to_owned());
    vec![
        case(
            "NoAdapter",
            Error::NoAdapter { fact: "asked for any adapter; none was found".into(), help: "install a GPU driver".into() },
            "no adapter: asked for any adapter; none was found\nhelp: install a GPU driver",
        ),
        case(
            "DeviceLost",
            Error::DeviceLost { fact: "Unknown: reset".into() },
            "device lost: Unknown: reset\nhelp: open a new device and load your last checkpoint; tensors of this device are gone",
        ),
        case("OutOfMemory", Error::OutOfMemory(report), &oom),
        case(
            "Shape",
            Error::shape(
                "matmul",
                "shapes [2, 3] and [4, 5] do not fit",
                "the last of the first must equal the first of the second",
            ),
            "matmul: shapes [2, 3] and [4, 5] do not fit\nhelp: the last of the first must equal the first of the second",
        ),
        case(
            "DType",
            Error::DType { op: "embedding", got: DType::F32, expected: "i32" },
            "embedding: takes i32, was given f32\nhelp: convert the tensor with to_dtype before the call",
        ),
        case(
            "Argument",
            Error::argument("dropout", "p is 1.5", "use a probability from 0 to 1"),
            "dropout: p is 1.5\nhelp: use a probability from 0 to 1",
        ),
        case(
            "DeviceMismatch",
            Error::DeviceMismatch { op: "add", fact: "llvmpipe and noop".into() },
            "add: operands live on two devices: llvmpipe and noop\nhelp: bring one of them to the other's device with to(&device)",
        ),
        case(
            "Limit",
            Error::Limit {
                op: "cat",
                fact: "needs 9 storage buffers, the adapter has 8".into(),
                help: "use another adapter".into(),
            },
            "cat: needs 9 storage buffers, the adapter has 8\nhelp: use another adapter",
        ),
        case(
            "Autograd",
            Error::autograd("backward ran twice over one graph", "pass retain_graph"),
            "autograd: backward ran twice over one graph\nhelp: pass retain_graph",
        ),
        case(
            "Device",
            Error::Device { fact: "gather: index 7 at position 0 is out of range for 5 entries".into(), help: "check it".into() },
            "device: gather: index 7 at position 0 is out of range for 5 entries\nhelp: check it",
        ),
        case(
            "Data",
            Error::Data { fact: "item 7 could not be prepared: no such file".into(), help: "see the producer's error".into() },
            "data loader: item 7 could not be prepared: no such file\nhelp: see the producer's error",
        ),
        case(
            "File",
            Error::file("model.safetensors: not found", "check the path"),
            "model.safetensors: not found\nhelp: check the path",
        ),
    ]
}

/// The names of the variants, from the source: the enum is `non_exhaustive`, so no match out here can be complete.
fn names_in_source() -> Vec<String> {
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/error.rs")).unwrap();
    let body = source.split_once("pub enum Error {").unwrap().1.split_once("\n}").unwrap().0;
    let variant = |line: &str| {
        let name: String = line.strip_prefix("    ")?.chars().take_while(|c| c.is_alphanumeric()).collect();
        name.starts_with(char::is_uppercase).then_some(name)
    };
    body.lines().filter_map(variant).collect()
}

#[test]
fn every_variant_is_here() {
    let names: Vec<&str> = all().iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, names_in_source());
    for (name, error, _) in all() {
        assert!(format!("{error:?}").starts_with(name), "{error:?}");
    }
}

#[test]
fn every_text_is_as_written() {
    for (name, error, text) in all() {
        assert_eq!(error.to_string(), text, "{name}");
    }
}

#[test]
fn help_is_one_line_and_the_last() {
    for (name, error, _) in all() {
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.last().unwrap().starts_with("help: "), "{name}: {text}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("help:")).count(), 1, "{name}: {text}");
        assert!(lines.iter().all(|line| !line.trim().is_empty() && line.trim_end() == *line), "{name}: {text}");
        // Only running out of memory needs a table between fact and help.
        assert!(lines.len() == 2 || name == "OutOfMemory", "{name}: {text}");
        assert!(!text.ends_with(['\n', '.']), "{name}: {text}");
    }
}

#[test]
fn the_first_line_of_out_of_memory_is_the_fact() {
    let text = Error::OutOfMemory(report()).to_string();
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("out of memory: asked 2.0 MiB on stream 3 for from_slice at "), "{first}");
    assert!(first.ends_with("; largest free block 0 B, reserved 0 B of 1.0 MiB"), "{first}");
    assert_eq!(text.lines().last().unwrap(), "help: this request alone exceeds the limit; raise the limit to 2 MiB or more");
}

#[test]
fn errors_travel_between_threads_and_into_anyhow() {
    fn is_error<E: std::error::Error + Send + Sync + Clone + 'static>() {}
    is_error::<Error>();
    fn fails() -> linn::Result<()> {
        Err(Error::argument("arange", "step is 0", "use another step"))
    }
    fn user() -> anyhow::Result<()> {
        fails()?;
        Ok(())
    }
    let error = user().unwrap_err();
    assert_eq!(error.to_string(), "arange: step is 0\nhelp: use another step");
    assert!(matches!(error.downcast_ref::<Error>(), Some(Error::Argument { op: "arange", .. })));
    let boxed: Box<dyn std::error::Error + Send + Sync> = fails().unwrap_err().into();
    assert_eq!(std::thread::spawn(move || boxed.to_string()).join().unwrap(), error.to_string());
}
