//! Every operator on tensors of halves against the same operator in f32 on the same numbers: the type of the result is that of
//! the halves, and it is the f32 result rounded once. Gradients likewise.
//!
//! None refuses halves: what PyTorch refuses of them (on one device or the other) is computed in f32 as well. Cases that name a
//! type are left out, and such as have floats of 0 dimensions only, where rows hand a number over as an f32 tensor.
//!
//! Even rows are asked in f16, odd ones in bf16; `LINN_LONG=1` asks all in both.

use std::collections::BTreeMap;
use std::path::Path;

use linn::{DType, Tensor};

use super::call::{Call, Fault, Output};
use super::compare::{STRICT, close_within};
use super::layouts::upload;
use super::manifest::{self, Arg, Case, Data, Host};
use super::run::said;
use super::table::{self, Row};
use crate::device::device;

/// Operators that are not asked, and why.
const SKIPPED: &[(&str, &str)] = &[
    ("item", "the row reads an f32"),
    ("linspace.tensor_overload", "the result is f32 whatever the ends are"),
    ("logspace.tensor_overload", "the result is f32 whatever the ends are"),
];

/// Roundings of the largest element that a gradient may be off by: rules use the rounded result and round what they compute on the
/// way, as PyTorch's do.
const GRADIENT: f32 = 4.0;

fn long() -> bool {
    std::env::var_os("LINN_LONG").is_some_and(|value| value == "1")
}

/// Half of the distance between neighbours, of their size.
fn rounding(half: DType) -> f32 {
    match half {
        DType::F16 => 1.0 / 2048.0,
        _ => 1.0 / 256.0,
    }
}

/// Results and gradients of one call, whose floats are given in `dtype`.
pub struct Given {
    pub outputs: Vec<Tensor>,
    pub grads: BTreeMap<String, Option<Tensor>>,
}

/// The call with its floats in `dtype`, all of which are numbers that `half` has.
pub fn run(row: &Row, case: &Case, hosts: &BTreeMap<String, Host>, half: DType, dtype: DType) -> Result<Given, Fault> {
    let device = device();
    let of = |host: &Host| -> Result<Tensor, Fault> {
        let x = upload(&device, host)?;
        Ok(if x.dtype() == DType::F32 { x.to_dtype(half)?.to_dtype(dtype)? } else { x })
    };
    let (mut given, mut leaves) = (BTreeMap::new(), BTreeMap::new());
    for name in case.tensors() {
        let mut x = of(&hosts[name])?;
        if case.grads.as_ref().is_some_and(|grads| grads.contains_key(name)) {
            x = x.requires_grad_(true)?;
            leaves.insert(name.clone(), x.clone());
        }
        given.insert(name.clone(), x);
    }
    let outputs = match (row.run)(&Call::new(&device, &case.args, &case.kwargs, &given)?)? {
        Output::Tensors(outputs) => outputs,
        Output::Bool(value) => vec![Tensor::new(&device, i32::from(value))?],
        Output::Number(_) => Vec::new(),
    };
    if case.grads.is_some() {
        let mut total: Option<Tensor> = None;
        for (name, out) in case.outputs.iter().zip(&outputs) {
            let Some(cotangent) = case.cotangents.get(name) else { continue };
            // In f32, so that the sum does not overflow; the gradient of the result is the cotangent, rounded.
            let part = out.to_dtype(DType::F32)?.mul(&of(&hosts[cotangent])?.to_dtype(DType::F32)?)?.sum_all()?;
            total = Some(total.map_or(Ok(part.clone()), |total| total.add(&part))?);
        }
        total.map_or(Ok(()), |total| total.backward())?;
    }
    Ok(Given { outputs, grads: leaves.into_iter().map(|(name, leaf)| (name, leaf.grad())).collect() })
}

/// How far from right `got` is.
fn differs(what: &str, got: &Tensor, want: &Tensor, half: DType, allowed: Allowed) -> Result<Option<String>, Fault> {
    let dtype = if want.dtype() == DType::F32 { half } else { want.dtype() };
    if (got.dtype(), got.shape()) != (dtype, want.shape()) {
        let (a, b) = (got.dtype(), got.shape());
        return Ok(Some(format!("{what} is {a} of shape {b:?} instead of {dtype} of shape {:?}", want.shape())));
    }
    let rounded = want.to_dtype(dtype)?.to_dtype(DType::F32)?.to_vec::<f32>()?;
    let (got, want) = (got.to_dtype(DType::F32)?.to_vec::<f32>()?, want.to_dtype(DType::F32)?.to_vec::<f32>()?);
    let largest = want.iter().filter(|x| x.is_finite()).fold(0f32, |most, x| most.max(x.abs()));
    let unit = if dtype == half { rounding(half) } else { 0.0 };
    let right = |i: &usize| {
        let error = match allowed {
            Allowed::One => (unit + STRICT.rel) * want[*i].abs(),
            Allowed::OfLargest(roundings) => (roundings * unit + STRICT.rel) * largest,
        };
        close_within(got[*i], rounded[*i], 0.0) || close_within(got[*i], want[*i], error + STRICT.abs)
    };
    let wrong: Vec<usize> = (0..want.len()).filter(|i| !right(i)).collect();
    Ok(wrong.first().map(|i| {
        let (many, of) = (wrong.len(), want.len());
        format!("{what}: {many} of {of} differ, the first at {i}: {} instead of {} ({})", got[*i], rounded[*i], want[*i])
    }))
}

/// What a result may be off by.
#[derive(Clone, Copy)]
enum Allowed {
    /// One rounding of itself.
    One,
    /// So many roundings of the largest element.
    OfLargest(f32),
}

/// The first result and the first gradient that are wrong.
fn check(row: &Row, case: &Case, hosts: &BTreeMap<String, Host>, half: DType) -> Result<Vec<String>, Fault> {
    let want = run(row, case, hosts, half, DType::F32)?;
    let got = run(row, case, hosts, half, half)?;
    let mut wrong = Vec::new();
    for (i, (got, want)) in got.outputs.iter().zip(&want.outputs).enumerate() {
        wrong.extend(differs(&format!("result {i}"), got, want, half, Allowed::One)?);
    }
    // Rules that read a result which is too large for the type answer with infinities and NaN.
    let overflows = |x: &Tensor| Ok::<_, Fault>(x.to_dtype(half)?.isinf()?.sum_all()?.item::<i32>()? > 0);
    let mut grads = want.grads;
    for out in want.outputs.iter().filter(|out| out.dtype() == DType::F32) {
        if overflows(out)? {
            grads.clear();
        }
    }
    for (name, want) in &grads {
        match (want, &got.grads[name]) {
            (Some(want), Some(got)) => {
                wrong.extend(differs(&format!("gradient of {name}"), got, want, half, Allowed::OfLargest(GRADIENT))?);
            }
            (None, None) => {}
            _ => wrong.push(format!("{name} has a gradient in one type only")),
        }
    }
    Ok(wrong)
}

#[test]
fn golden_ops_of_halves() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/golden/ops");
    let some: Option<Vec<String>> =
        std::env::var("LINN_GOLDEN_OPS").ok().map(|names| names.split(',').map(str::to_string).collect());
    let (mut right, mut all) = (0, 0);
    for (at, (name, entry)) in manifest::manifest(&folder).ops.iter().enumerate() {
        let skipped = SKIPPED.iter().any(|(skipped, _)| skipped == name);
        if skipped || some.as_ref().is_some_and(|some| !some.contains(name)) {
            continue;
        }
        let Some(row) = table::find(name) else { continue };
        let hosts = manifest::tensors(&folder, name, &entry.dtypes);
        let asked = |case: &Case| {
            let floats = |host: &&Host| matches!(host.data, Data::F32(_));
            let mut args = case.args.iter().chain(case.kwargs.values());
            let numbers = case.args.iter().any(|arg| matches!(arg, Arg::Float(_)));
            let least = usize::from(numbers);
            !args.any(|arg| matches!(arg, Arg::DType(_)))
                && case.tensors().iter().map(|name| &hosts[*name]).filter(floats).any(|host| host.shape.len() >= least)
        };
        let both = [DType::F16, DType::BF16];
        let halves = if long() { &both[..] } else { &both[at % 2..=at % 2] };
        for half in halves {
            let mut told = false;
            for (index, case) in entry.cases.iter().enumerate().filter(|(_, case)| asked(case)) {
                all += 1;
                let wrong = check(row, case, &hosts, *half).unwrap_or_else(|fault| vec![said(&fault)]);
                if wrong.is_empty() {
                    right += 1;
                } else if !std::mem::replace(&mut told, true) {
                    wrong
                        .iter()
                        .for_each(|why| println!("{name} of {half}, case {index}: {}", why.lines().next().unwrap_or_default()));
                }
            }
        }
    }
    println!("halves {right} of {all} cases");
    assert_eq!(right, all, "what is wrong is listed above");
}
