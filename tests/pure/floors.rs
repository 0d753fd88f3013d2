//! The floors of the house: a module uses lower floors only (the table of ARCHITECTURE.md, checked as text).
//!
//! Looked at is code, not comments: a comment that mentions an upper floor builds nothing on it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Every module with its floor.
const FLOORS: &[(&str, u32)] = &[
    ("error", 0),
    ("dtype", 0),
    ("layout", 0),
    ("ids", 0),
    ("trace", 0),
    ("memory", 1),
    ("timeline", 1),
    ("device", 2),
    ("files", 2),
    ("kernel", 3),
    ("stream", 4),
    ("tensor", 5),
    ("ops", 6),
    ("autograd", 7),
    ("nn", 8),
    ("optim", 8),
    ("data", 8),
    ("profile", 9),
];

/// The one path that points upwards: an error carries the pool's report.
const EXCEPTION: (&str, &[&str]) = ("error", &["crate", "memory", "OomReport"]);

/// Where wgpu may be named: whole folders end in a slash.
const WGPU: &[&str] = &[
    "device/",
    "kernel/pipeline.rs",
    "stream/encode.rs",
    "stream/stage.rs",
    "stream/batch.rs",
    "stream/mail.rs",
    "stream/queue.rs",
    "stream/timestamps.rs",
    "stream/interop.rs",
];

/// What the pure floors never touch: threads, locks, clocks, environment, files, sockets, processes.
const IMPURE: &[&str] = &["thread", "sync", "time", "env", "fs", "net", "io", "process"];

/// A file above this holds two subjects.
const MOST_LINES: usize = 1000;

/// A path in the code with the line where its root stands: `use crate::{ids::Fence, memory}` gives two.
#[derive(Debug, PartialEq)]
struct CodePath {
    line: usize,
    parts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Ident(String),
    Join,
    Open,
    Close,
    Comma,
    Other,
}

/// Words and path punctuation; comments, strings and characters are skipped.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let (mut out, mut line, mut i) = (Vec::new(), 1, 0);
    while i < chars.len() {
        let start = i;
        let c = at(i);
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            loop {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (depth, i) = (depth + 1, i + 2),
                    ('*', '/') => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 || i >= chars.len() {
                    break;
                }
            }
        } else if c == 'r' && (at(i + 1) == '"' || (at(i + 1) == '#' && (at(i + 2) == '"' || at(i + 2) == '#'))) {
            let hashes = (1..).take_while(|n| at(i + n) == '#').count();
            i += hashes + 2;
            while i < chars.len() && !(at(i) == '"' && (1..=hashes).all(|n| at(i + n) == '#')) {
                i += 1;
            }
            i += hashes + 1;
            out.push((line, Token::Other));
        } else if c == '"' {
            i += 1;
            while i < chars.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
            out.push((line, Token::Other));
        } else if c == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            i += if at(i + 1) == '\\' { 3 } else { 2 };
            while i < chars.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
        } else if c.is_alphabetic() || c == '_' {
            while at(i).is_alphanumeric() || at(i) == '_' {
                i += 1;
            }
            out.push((line, Token::Ident(chars[start..i].iter().collect())));
        } else if c == ':' && at(i + 1) == ':' {
            i += 2;
            out.push((line, Token::Join));
        } else {
            i += 1;
            match c {
                '{' => out.push((line, Token::Open)),
                '}' => out.push((line, Token::Close)),
                ',' => out.push((line, Token::Comma)),
                c if c.is_whitespace() => {}
                _ => out.push((line, Token::Other)),
            }
        }
        line += chars[start..i.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    out
}

/// Every path whose root is one of `roots`, with `use` groups taken apart.
fn paths(text: &str, roots: &[&str]) -> Vec<CodePath> {
    let tokens = tokens(text);
    let mut out = Vec::new();
    for (i, (line, token)) in tokens.iter().enumerate() {
        let Token::Ident(root) = token else { continue };
        let continues = i > 0 && tokens[i - 1].1 == Token::Join;
        if roots.contains(&root.as_str()) && !continues && tokens.get(i + 1).is_some_and(|(_, next)| *next == Token::Join) {
            let mut found = Vec::new();
            tree(&tokens, i, &mut Vec::new(), &mut found);
            out.extend(found.into_iter().map(|parts| CodePath { line: *line, parts }));
        }
    }
    out
}

/// One branch of a `use` tree that starts at token `i`; returns the token behind it.
fn tree(tokens: &[(usize, Token)], mut i: usize, before: &mut Vec<String>, out: &mut Vec<Vec<String>>) -> usize {
    let depth = before.len();
    loop {
        match tokens.get(i).map(|(_, token)| token) {
            Some(Token::Ident(name)) => {
                before.push(name.clone());
                i += 1;
                if tokens.get(i).map(|(_, token)| token) != Some(&Token::Join) {
                    out.push(before.clone());
                    break;
                }
                i += 1;
            }
            Some(Token::Open) => {
                i += 1;
                while let Some((_, token)) = tokens.get(i) {
                    match token {
                        Token::Close => {
                            i += 1;
                            break;
                        }
                        Token::Comma | Token::Other => i += 1,
                        // `name as other`: the new name is no path.
                        _ => {
                            i = tree(tokens, i, before, out);
                            while !matches!(tokens.get(i), None | Some((_, Token::Comma | Token::Close))) {
                                i += 1;
                            }
                        }
                    }
                }
                break;
            }
            // A glob, a turbofish: what stands before it is the path.
            _ => {
                out.push(before.clone());
                break;
            }
        }
    }
    before.truncate(depth);
    i
}

/// What the crate root exports from its modules: `crate::Tensor` means `tensor`.
fn root_names(lib: &str) -> BTreeMap<String, String> {
    let modules: Vec<&str> = FLOORS.iter().map(|(name, _)| *name).collect();
    let mut names = BTreeMap::new();
    for path in paths(lib, &modules) {
        if let [module, .., name] = path.parts.as_slice() {
            names.insert(name.clone(), module.clone());
        }
    }
    names
}

/// Checks one file, named relative to `src` with slashes; one line per violation.
fn violations(file: &str, text: &str, roots: &BTreeMap<String, String>, is_file: &dyn Fn(&str) -> bool) -> Vec<String> {
    let floor_of = |module: &str| FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor);
    let mut out = Vec::new();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        out.push(format!("src/{file}:{lines}: more than {MOST_LINES} lines"));
    }
    if file == "lib.rs" {
        return out;
    }
    let own = file.split(['/', '.']).next().unwrap_or_default();
    let Some(floor) = floor_of(own) else {
        out.push(format!("src/{file}:1: `{own}` has no floor"));
        return out;
    };
    for path in paths(text, &["crate", "super", "std", "core", "wgpu"]) {
        let mut say = |what: String| out.push(format!("src/{file}:{}: {what}", path.line));
        let parts: Vec<&str> = path.parts.iter().map(String::as_str).collect();
        let target = match parts.as_slice() {
            ["wgpu", ..] => {
                if !WGPU.iter().any(|place| file == *place || (place.ends_with('/') && file.starts_with(place))) {
                    say("names wgpu".into());
                }
                continue;
            }
            ["std" | "core", module, ..] => {
                if floor == 1 && IMPURE.contains(module) {
                    say(format!("floor 1 uses std::{module}"));
                }
                continue;
            }
            ["crate", name, ..] => roots.get(*name).map_or(*name, String::as_str),
            // `super::super::device` gets out of a module without naming the root, unless a sibling has that name.
            ["super", ..] => match parts.iter().find(|part| **part != "super") {
                Some(name) if floor_of(name).is_some() => {
                    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let sibling = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
                    if !folder.is_empty() && sibling.iter().any(|path| is_file(path)) {
                        continue;
                    }
                    name
                }
                _ => continue,
            },
            _ => continue,
        };
        if target == own || (own == EXCEPTION.0 && parts.starts_with(EXCEPTION.1)) {
            continue;
        }
        match floor_of(target) {
            None => say(format!("`{}` is in no module of the floor table", parts.join("::"))),
            Some(other) if other > floor => say(format!("floor {floor} uses `{}` of floor {other}", parts.join("::"))),
            Some(8) if floor == 8 => say(format!("`{own}` uses `{target}`, its neighbour on floor 8")),
            Some(_) => {}
        }
    }
    out
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

#[test]
fn modules_use_lower_floors_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 30, "the sources were not found");
    let roots = root_names(&std::fs::read_to_string(src.join("lib.rs")).unwrap());
    assert_eq!(roots.get("Error").map(String::as_str), Some("error"), "lib.rs is read");
    let is_file = |path: &str| src.join(path).is_file();
    let mut report = String::new();
    for path in &files {
        let name = path.strip_prefix(&src).unwrap().to_string_lossy().replace('\\', "/");
        for violation in violations(&name, &std::fs::read_to_string(path).unwrap(), &roots, &is_file) {
            writeln!(report, "{violation}").unwrap();
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn the_only_upward_path_is_the_report_of_an_error() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/error.rs")).unwrap();
    let upward: Vec<_> = paths(&text, &["crate"]).into_iter().filter(|path| path.parts[1] != "dtype").collect();
    assert!(!upward.is_empty() && upward.iter().all(|path| path.parts == EXCEPTION.1), "{upward:?}");
}

fn check(file: &str, text: &str) -> Vec<String> {
    let roots = root_names("pub use error::{Error, Result};\npub use tensor::Tensor;");
    violations(file, text, &roots, &|path| path == "device/memory.rs")
}

#[test]
fn violations_are_found_and_located() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "memory/pool.rs",
            "\nuse crate::device::Device;\n",
            &["src/memory/pool.rs:2: floor 1 uses `crate::device::Device` of floor 2"],
        ),
        (
            "ops/unary.rs",
            "use crate::{\n    dtype::DType, error::{Error, Result},\n    nn::{Linear, Module as M},\n};\n",
            &[
                "src/ops/unary.rs:1: floor 6 uses `crate::nn::Linear` of floor 8",
                "src/ops/unary.rs:1: floor 6 uses `crate::nn::Module` of floor 8",
            ],
        ),
        ("stream/mod.rs", "fn f(x: &crate::Tensor) {}", &["src/stream/mod.rs:1: floor 4 uses `crate::Tensor` of floor 5"]),
        (
            "nn/linear.rs",
            "let s = crate::optim::Sgd::new();",
            &["src/nn/linear.rs:1: `nn` uses `optim`, its neighbour on floor 8"],
        ),
        ("optim/sgd.rs", "use super::super::data::*;", &["src/optim/sgd.rs:1: `optim` uses `data`, its neighbour on floor 8"]),
        ("ids.rs", "use super::memory::Pool;", &["src/ids.rs:1: floor 0 uses `super::memory::Pool` of floor 1"]),
        ("stream/policy.rs", "fn f(d: &wgpu::Device) {}", &["src/stream/policy.rs:1: names wgpu"]),
        ("memory/pool.rs", "use std::{fmt, sync::Mutex};", &["src/memory/pool.rs:1: floor 1 uses std::sync"]),
        ("timeline/order.rs", "let now = std::time::Instant::now();", &["src/timeline/order.rs:1: floor 1 uses std::time"]),
        ("error.rs", "use crate::memory::Pool;", &["src/error.rs:1: floor 0 uses `crate::memory::Pool` of floor 1"]),
        ("misc.rs", "", &["src/misc.rs:1: `misc` has no floor"]),
        ("ops/a.rs", "use crate::misc::x;", &["src/ops/a.rs:1: `crate::misc::x` is in no module of the floor table"]),
    ];
    for (file, text, expected) in cases {
        assert_eq!(check(file, text), *expected, "{file}: {text}");
    }
    let long = "\n".repeat(MOST_LINES + 1);
    assert_eq!(check("ids.rs", &long), ["src/ids.rs:1001: more than 1000 lines"]);
}

#[test]
fn what_is_allowed_is_not_reported() {
    let fine = [
        ("error.rs", "pub use crate::memory::OomReport;\nuse crate::dtype::DType;"),
        ("device/driver.rs", "use crate::device::core::Core; use wgpu::Buffer; use super::memory::Memory; use std::sync::Arc;"),
        (
            "memory/pool.rs",
            "// crate::device\n/* crate::nn /* wgpu:: */ std::sync */ let s = \"crate::stream::x\"; let r = r#\"a\" wgpu::B\"#;",
        ),
        ("memory/pool.rs", "let c = '\"'; let l: &'a str = x; use crate::ids::{Fence, FenceSet}; use std::fmt;"),
        ("tensor/mod.rs", "fn f() -> crate::Result<()> { $crate::dtype::size() }"),
        ("stream/queue.rs", "use wgpu::naga; use super::policy; use crate::stream::policy as p;"),
    ];
    for (file, text) in fine {
        assert_eq!(check(file, text), Vec::<String>::new(), "{file}: {text}");
    }
}

#[test]
fn groups_are_taken_apart() {
    let found = paths("use crate::{a, b::{c as d, e::*}, f::{self, g}};\nx = crate::h::i::<u8>();", &["crate"]);
    let texts: Vec<String> = found.iter().map(|path| format!("{} {}", path.line, path.parts.join("::"))).collect();
    let expected = ["1 crate::a", "1 crate::b::c", "1 crate::b::e", "1 crate::f::self", "1 crate::f::g", "2 crate::h::i"];
    assert_eq!(texts, expected);
}
