//! Every operator inside a scope of autocast: its result has the type that PyTorch's has there (tests/support/golden/autocast.json),
//! and the values that it has without the scope on operands of that type. Gradients come in the types of their tensors.

use std::collections::BTreeMap;
use std::path::Path;

use linn::autograd::autocast_guard;
use linn::{DType, Tensor};

use super::call::Fault;
use super::halves::run;
use super::manifest::{self, Case, Data, Host};
use super::run::said;
use super::table::{self, Row};

/// Types of floating results of an operator in a scope of bf16, from f32 and from f16; `None` where PyTorch refuses.
type Types = [Option<Vec<String>>; 2];

/// Operators whose rows hand linn something else than PyTorch is given.
const SKIPPED: &[(&str, &str)] = &[
    ("item", "the row reads an f32"),
    ("linspace.tensor_overload", "the result is f32 whatever the ends are"),
    ("logspace.tensor_overload", "the result is f32 whatever the ends are"),
];

fn dtype(name: &str) -> DType {
    match name {
        "f32" => DType::F32,
        "f16" => DType::F16,
        _ => DType::BF16,
    }
}

/// What is wrong with one case whose floats are given as `given`.
fn check(
    row: &Row,
    case: &Case,
    hosts: &BTreeMap<String, Host>,
    given: DType,
    want: Option<DType>,
) -> Result<Option<String>, Fault> {
    // Numbers that all three types have, so that what a conversion rounds is not compared.
    let inside = {
        let _scope = autocast_guard(DType::BF16)?;
        run(row, case, hosts, DType::BF16, given)
    };
    let Some(want) = want else {
        let refused = inside.is_err_and(|fault| said(&fault).contains("autocast"));
        return Ok((!refused).then(|| "PyTorch refuses it".into()));
    };
    let inside = inside?;
    let floats: Vec<&Tensor> = inside.outputs.iter().filter(|out| out.dtype().is_float()).collect();
    if let Some(out) = floats.iter().find(|out| out.dtype() != want) {
        return Ok(Some(format!("from {given}: {} instead of {want}", out.dtype())));
    }
    for (name, grad) in &inside.grads {
        if grad.as_ref().is_some_and(|grad| grad.dtype() != given) {
            return Ok(Some(format!("from {given}: the gradient of {name} is not of that type")));
        }
    }
    let plain = run(row, case, hosts, DType::BF16, want)?;
    for (out, plain) in inside.outputs.iter().zip(&plain.outputs) {
        let same =
            out.dtype() != plain.dtype() || out.isclose(plain, 0.0, 0.0, true)?.to_vec::<u8>()?.iter().all(|same| *same == 1);
        if !same || out.shape() != plain.shape() {
            return Ok(Some(format!("from {given}: other values than from {want} without autocast")));
        }
    }
    Ok(None)
}

#[test]
fn golden_ops_in_autocast() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/golden");
    let text = std::fs::read_to_string(golden.join("autocast.json")).unwrap();
    let types: BTreeMap<String, Types> = serde_json::from_str(&text).unwrap();
    let folder = golden.join("ops");
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for (name, entry) in &manifest::manifest(&folder).ops {
        let Some([from_f32, from_f16]) = types.get(name) else {
            wrong.push(format!("{name} is not in autocast.json"));
            continue;
        };
        let hosts = manifest::tensors(&folder, name, &entry.dtypes);
        let floats = |case: &&Case| {
            let mut all = case.tensors().into_iter().map(|name| &hosts[name]);
            all.any(|host| matches!(host.data, Data::F32(_)) && !host.shape.is_empty() && !host.shape.contains(&0))
        };
        let (Some(row), Some(case)) = (table::find(name), entry.cases.iter().find(floats)) else { continue };
        if SKIPPED.iter().any(|(skipped, _)| skipped == name) {
            continue;
        }
        let first = |types: &Option<Vec<String>>| types.as_ref().and_then(|types| types.first()).map(|name| dtype(name));
        for (given, want) in [(DType::F32, first(from_f32)), (DType::F16, first(from_f16))] {
            // Where operands meet by promotion PyTorch takes f32 and the type of the scope only; linn takes f16 as well. A result
            // without floats has no type to compare.
            let want = match name.as_str() {
                "nn.functional.binary_cross_entropy" => None,
                // Among those that run in f32, but PyTorch's fake tensors have no decomposition of f16.
                "norm.nuc" => Some(DType::F32),
                _ => want.or(Some(given)),
            };
            asked += 1;
            match check(row, case, &hosts, given, want) {
                Ok(None) => {}
                Ok(Some(why)) => wrong.push(format!("{name}: {why}")),
                Err(fault) => wrong.push(format!("{name} from {given}: {}", said(&fault))),
            }
        }
    }
    println!("autocast {} of {asked} cases", asked - wrong.len());
    assert!(asked > 400, "{asked} cases only");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
