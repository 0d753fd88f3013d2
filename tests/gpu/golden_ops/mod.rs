//! Every operator of PyTorch's operator database against linn: values, gradients, special values, refusals
//! (tests/support/golden/ops; `LINN_GOLDEN=DIR` for another folder of the same form, `LINN_GOLDEN_OPS=add,sum` for some operators).
//!
//! `manifest.rs` reads the folder, `table.rs` says how linn does each operator, `run.rs` runs and judges one. A case passes when
//! all its runs do: contiguous, in other layouts, in place.

mod autocast;
mod call;
mod compare;
mod gradcheck;
mod halves;
mod layouts;
mod manifest;
mod run;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linn::DeviceOptions;

use crate::device::open;
use manifest::{Entry, Manifest};
use run::{Failure, Kind, Operator};

/// Failing cases that are printed for one operator, each with the first of its runs that fails.
const SHOWN: usize = 8;

/// How many passed of how many, of every kind.
#[derive(Clone, Copy, Default)]
struct Tally([(usize, usize); 4]);

impl Tally {
    /// What an operator with these failures adds; `None` where it was not run at all.
    fn of(entry: &Entry, failures: Option<&[Failure]>) -> Tally {
        let failed = |kind: Kind| {
            let failed = |failures: &[Failure]| {
                failures.iter().filter(|failure| failure.kind == kind).map(|failure| failure.index).collect::<BTreeSet<_>>().len()
            };
            failures.map(failed)
        };
        let gradients = entry.cases.iter().filter(|case| case.grads.is_some()).count();
        let all = [entry.cases.len(), gradients, entry.special.len(), entry.errors.len()];
        let kinds = [Kind::Case, Kind::Gradient, Kind::Special, Kind::Refusal];
        Tally(std::array::from_fn(|i| (all[i] - failed(kinds[i]).unwrap_or(all[i]), all[i])))
    }

    fn add(&mut self, other: Tally) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, part)| *sum = (sum.0 + part.0, sum.1 + part.1));
    }

    fn complete(&self) -> bool {
        self.0.iter().all(|(passed, of)| passed == of)
    }

    fn passed(&self) -> [usize; 4] {
        self.0.map(|(passed, _)| passed)
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [cases, gradients, special, refusals] = self.0.map(|(passed, of)| format!("{passed} of {of}"));
        write!(f, "cases passed {cases}, gradients {gradients}, special {special}, refusals {refusals}")
    }
}

#[test]
fn golden_ops() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/golden/ops");
    let other: Option<PathBuf> = std::env::var_os("LINN_GOLDEN").map(PathBuf::from);
    let folder = other.as_ref().unwrap_or(&own);
    let some: Option<Vec<String>> =
        std::env::var("LINN_GOLDEN_OPS").ok().map(|names| names.split(',').map(str::to_string).collect());
    let manifest = manifest::manifest(folder);
    check_table(&manifest, other.is_none());

    // A device of its own: its counter of waits is read.
    let device = open(DeviceOptions::default());
    let flushes = run::flushes(&device);
    let (mut total, mut families) = (Tally::default(), BTreeMap::<&str, Tally>::new());
    for (name, entry) in &manifest.ops {
        if some.as_ref().is_some_and(|some| !some.contains(name)) {
            continue;
        }
        let failures = table::find(name).map(|row| {
            let tensors = manifest::tensors(folder, name, &entry.dtypes);
            Operator::new(&device, name, row, tensors, flushes).judge(entry)
        });
        let tally = Tally::of(entry, failures.as_deref());
        total.add(tally);
        families.entry(table::family(name)).or_default().add(tally);
        print_operator(name, tally, failures.as_deref());
    }
    for row in table::FAMILIES.iter().flat_map(|(_, rows)| *rows) {
        if let Some(why) = row.looser {
            println!("{}: within {:?}, {why}", row.name, row.tolerance);
        }
    }
    for (family, tally) in families {
        println!("family {family}: {tally}");
    }
    if some.is_none() && other.is_none() {
        ask_for_higher_floors(total);
    }
    println!("{total}");
    match other {
        Some(folder) => assert!(total.complete(), "{} has cases that fail", folder.display()),
        None if some.is_none() => check_floors(total),
        None => {}
    }
}

/// Nothing of an operator that is complete, the first failures of one that is not.
fn print_operator(name: &str, tally: Tally, failures: Option<&[Failure]>) {
    if tally.complete() {
        return;
    }
    let Some(failures) = failures else { return println!("{name}: no row; {tally}") };
    println!("{name}: {tally}");
    let mut seen = BTreeSet::new();
    let first: Vec<&Failure> = failures.iter().filter(|failure| seen.insert((failure.kind, failure.index))).collect();
    for Failure { kind, index, run, why } in first.iter().take(SHOWN) {
        println!("  {kind:?} {index}, {run}: {}", why.lines().next().unwrap_or_default());
    }
    if first.len() > SHOWN {
        println!("  and {} more", first.len() - SHOWN);
    }
}

/// No row stands twice, and each is one of the manifest's operators, where the manifest is ours.
fn check_table(manifest: &Manifest, ours: bool) {
    let mut seen = BTreeSet::new();
    for row in table::FAMILIES.iter().flat_map(|(_, rows)| *rows) {
        assert!(seen.insert(row.name), "two rows for {}", row.name);
        assert!(!ours || manifest.ops.contains_key(row.name), "the manifest has no operator {}", row.name);
    }
}

/// What has passed once passes.
fn check_floors(total: Tally) {
    let (passed, floors) = (total.passed(), floors());
    let below = passed.iter().zip(&floors).any(|(passed, floor)| passed < floor);
    assert!(!below, "{passed:?} pass, fewer than the {floors:?} of .ci/golden-ops");
}

fn ask_for_higher_floors(total: Tally) {
    let passed = total.passed();
    if passed.iter().zip(floors()).any(|(passed, floor)| *passed > floor) {
        println!(
            "help: raise .ci/golden-ops to \"{}\", so that none of them can get lost",
            passed.map(|n| n.to_string()).join(" ")
        );
    }
}

/// How many of each kind have to pass.
fn floors() -> [usize; 4] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/golden-ops");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let numbers: Option<Vec<usize>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).unwrap_or_else(|| panic!("{}: four numbers, not {text}", path.display()))
}
