//! The gradient of every differentiable operator against differences of the operator itself, along random directions.
//!
//! For inputs x, a direction u and weights w let L(t) be the sum of w f(x + t u), added up in f64 on the host. Its slope at 0 is
//! <gradient, u>, and central differences D(h) = (L(h) - L(-h)) / 2h find it without the rule. What they are worth is found from
//! f alone, so that a wrong rule cannot hide behind it:
//! - R(h) = (4 D(h / 2) - D(h)) / 3 has an error of h^4, so |R(2h) - R(h)| bounds what is left of the curvature in R(h);
//! - E(h) = (L(h) + L(-h) - 2 L(0)) / h falls with h where f is smooth; 2 E(h / 2) - E(h) is what a kink at x leaves of it;
//! - results are rounded in f32, each by [`ROUNDING`] at most, independently.
//!
//! A point is *sharp* when all of this together is below [`SHARP`] of the slope. Points at a kink or a jump, outside the domain or
//! where f32 hides the slope are not, and another is asked: a smaller step, inputs moved a little, another case. An operator
//! passes when it has a sharp point and the gradient is right at all of them.

use std::collections::BTreeMap;
use std::path::Path;

use linn::autograd::{BackwardOptions, Retain};
use linn::tensor::TensorRead;
use linn::{Device, Tensor};

use super::call::{Answer, Call, Fault, Output};
use super::layouts::upload;
use super::manifest::{self, Case, Data, Host};
use super::table::{self, Row};
use crate::device::device;
use crate::random_programs::Dice;

/// Error of the differences, of the slope, from which on a point says nothing. A wrong factor is above 1.05 in practice.
const SHARP: f64 = 0.02;

/// Error that a right gradient in f32 may have, of the slope: it is a sum of products that cancel in part.
const RIGHT: f64 = 1e-3;

/// Rounding of one result, of its size: 16 units in the last place of f32, for operators of several steps. Where a function loses
/// more digits than that, differences of it are wrong, and are found (log1p was, by mish).
const ROUNDING: f64 = 16.0 / (1 << 24) as f64;

/// How a point is asked.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// Of t; a power of two, so that x + t u is rounded little.
    step: f64,
    /// How far inputs are moved before.
    jump: f32,
    /// Elements of each input that the direction moves.
    elements: usize,
}

const fn attempt(step: f64, jump: f32, elements: usize) -> Attempt {
    Attempt { step, jump, elements }
}

/// All elements first; one in each input where others are near the end of the domain or a jump.
const ATTEMPTS: [Attempt; 10] = [
    attempt(1.0 / 64.0, 0.0, usize::MAX),
    attempt(1.0 / 512.0, 0.0, usize::MAX),
    attempt(1.0 / 64.0, 1.0 / 16.0, usize::MAX),
    attempt(1.0 / 512.0, 1.0 / 16.0, usize::MAX),
    attempt(1.0 / 8.0, 0.0, usize::MAX),
    attempt(1.0 / 64.0, 0.0, 1),
    attempt(1.0 / 64.0, 0.0, 1),
    attempt(1.0 / 512.0, 0.0, 1),
    attempt(1.0 / 512.0, 0.0, 1),
    attempt(1.0 / 512.0, 0.0, 1),
];

/// One element by less than the smallest jump (1e-3), for operators that are constant in between.
const SMALL: [Attempt; 4] = [attempt(1.0 / 65536.0, 0.0, 1); 4];

/// Sharp points of one operator that are enough.
const ENOUGH: usize = 2;

/// Operators that are constant between jumps, or everywhere; every other needs a point with a slope.
const CONSTANT: [&str; 12] = [
    "ceil",
    "div.floor_rounding",
    "div.trunc_rounding",
    "fill",
    "floor",
    "round",
    "round.decimals_0",
    "round.decimals_3",
    "round.decimals_neg_3",
    "sgn",
    "sign",
    "trunc",
];

/// What a function is asked at: t as multiples of the step.
const TIMES: [f64; 7] = [0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0];

/// The sum of weighted results, and the rounding that is in it.
#[derive(Clone, Copy)]
struct Sum {
    value: f64,
    rounding: f64,
}

/// What a point says.
#[derive(Debug, PartialEq)]
enum Verdict {
    Right,
    Wrong(String),
    /// f is constant around the point, and the gradient 0.
    Flat,
    /// Nothing, and why.
    Blunt(String),
}

/// Compares the slope with the differences of `sums`, one for each of [`TIMES`].
fn verdict(sums: [Sum; 7], h: f64, slope: f64) -> Verdict {
    let [middle, halves, ones, twos] = [[0, 0], [1, 2], [3, 4], [5, 6]].map(|[up, down]| (sums[up].value, sums[down].value));
    let central = |(up, down): (f64, f64), times: f64| (up - down) / (2.0 * times * h);
    let bend = |(up, down): (f64, f64), times: f64| (up + down - 2.0 * middle.0) / (times * h);
    let better = |half: f64, full: f64| (4.0 * half - full) / 3.0;
    let far = better(central(ones, 1.0), central(twos, 2.0));
    let want = better(central(halves, 0.5), central(ones, 1.0));
    let kink = 2.0 * bend(halves, 0.5) - bend(ones, 1.0);
    let rounding = sums.iter().map(|sum| sum.rounding).fold(0.0, f64::max);
    let off = (far - want).abs() + kink.abs() + 2.0 * rounding / h;
    let constant = sums.iter().all(|sum| sum.value == middle.0);
    if !(off.is_finite() && slope.is_finite()) {
        return Verdict::Blunt(format!("not finite: {want}, gradient {slope}"));
    }
    if off > SHARP * want.abs() && !constant {
        return Verdict::Blunt(format!("{want} within {off}"));
    }
    match (slope - want).abs() <= off + RIGHT * want.abs() {
        true if constant => Verdict::Flat,
        true => Verdict::Right,
        false => Verdict::Wrong(format!("the gradient says {slope}, differences {want} within {off}")),
    }
}

/// The results of a call with tensors by name.
type Results<'a> = dyn Fn(&BTreeMap<String, Tensor>) -> Answer<Vec<Tensor>> + 'a;

/// A function of named tensors, with the weights of its results (`None`: this one has no gradient).
struct Function<'a> {
    device: &'a Device,
    call: &'a Results<'a>,
    weights: Vec<Option<Host>>,
}

impl Function<'_> {
    /// The gradient's slope at `x` along `u`.
    fn slope(&self, x: &BTreeMap<String, Host>, u: &BTreeMap<String, Vec<f32>>) -> Answer<f64> {
        let mut given = self.upload(x)?;
        for name in u.keys() {
            let leaf = given[name].clone().requires_grad_(true)?;
            given.insert(name.clone(), leaf);
        }
        let outputs = (self.call)(&given)?;
        for (out, weights) in outputs.iter().zip(&self.weights) {
            if let (Some(weights), true) = (weights, out.requires_grad()) {
                let gradient = Some(upload(self.device, weights)?);
                out.backward_with(BackwardOptions { gradient, retain: Retain::Graph })?;
            }
        }
        let mut slope = 0.0;
        for (name, u) in u {
            let grad = given[name].grad().map_or(Ok(Vec::new()), |grad| grad.to_vec::<f32>())?;
            slope += grad.iter().zip(u).map(|(g, u)| f64::from(*g) * f64::from(*u)).sum::<f64>();
        }
        Ok(slope)
    }

    /// The weighted sum at x + t u for every t, less that at x.
    fn sums(&self, x: &BTreeMap<String, Host>, u: &BTreeMap<String, Vec<f32>>, times: [f64; 7]) -> Answer<[Sum; 7]> {
        let mut reads = Vec::new();
        for t in times {
            let outputs = (self.call)(&self.upload(&moved(x, u, t as f32))?)?;
            let weighted = outputs.iter().zip(&self.weights).filter_map(|(out, weights)| Some((out, floats(weights.as_ref()?)?)));
            let reads_of = weighted.map(|(out, weights)| Ok((out.to_vec_async::<f32>()?, weights)));
            reads.push(reads_of.collect::<linn::Result<Vec<_>>>()?);
        }
        let mut results = Vec::new();
        for reads in reads {
            let read = |(read, weights): (TensorRead<f32>, _)| Ok((read.wait()?, weights));
            results.push(reads.into_iter().map(read).collect::<linn::Result<Vec<(Vec<f32>, &Vec<f32>)>>>()?);
        }
        let mut sums = Vec::new();
        for moved in &results {
            let (mut value, mut squares) = (0.0, 0.0);
            for ((now, weights), (before, _)) in moved.iter().zip(&results[0]) {
                // What does not move is rounded the same way.
                for ((now, before), w) in now.iter().zip(before).zip(*weights).filter(|((now, before), _)| now != before) {
                    value += (f64::from(*now) - f64::from(*before)) * f64::from(*w);
                    squares += (f64::from(*now) * f64::from(*w)).powi(2);
                }
            }
            sums.push(Sum { value, rounding: ROUNDING * f64::sqrt(squares) });
        }
        sums.try_into().map_err(|_| Fault::Row("a sum is missing".to_string()))
    }

    fn upload(&self, x: &BTreeMap<String, Host>) -> Answer<BTreeMap<String, Tensor>> {
        x.iter().map(|(name, host)| Ok((name.clone(), upload(self.device, host)?))).collect()
    }

    /// What the point `x` says along `u` with steps of `h`.
    fn judge(&self, x: &BTreeMap<String, Host>, u: &BTreeMap<String, Vec<f32>>, h: f64) -> Answer<Verdict> {
        Ok(verdict(self.sums(x, u, TIMES.map(|time| time * h))?, h, self.slope(x, u)?))
    }
}

fn floats(host: &Host) -> Option<&Vec<f32>> {
    match &host.data {
        Data::F32(data) => Some(data),
        _ => None,
    }
}

/// x + t u.
fn moved(x: &BTreeMap<String, Host>, u: &BTreeMap<String, Vec<f32>>, t: f32) -> BTreeMap<String, Host> {
    let move_one = |(name, host): (&String, &Host)| {
        let data = match (floats(host), u.get(name)) {
            (Some(x), Some(u)) => Data::F32(x.iter().zip(u).map(|(x, u)| x + t * u).collect()),
            _ => host.data.clone(),
        };
        (name.clone(), Host { shape: host.shape.clone(), data })
    };
    x.iter().map(move_one).collect()
}

/// Numbers of both signs between 0.5 and 1.5 in size for `elements` of each of the named tensors, 0 for the others.
fn direction(dice: &mut Dice, x: &BTreeMap<String, Host>, names: &[&String], elements: usize) -> BTreeMap<String, Vec<f32>> {
    let mut numbers = |name: &String| {
        let len = floats(x.get(name)?)?.len();
        let (from, moved) = (dice.below(len), elements.min(len));
        let mut u = vec![0.0; len];
        for i in 0..moved {
            let size = 0.5 + dice.below(1024) as f32 / 1024.0;
            u[(from + i) % len] = if dice.below(2) == 0 { size } else { -size };
        }
        Some(u)
    };
    names.iter().filter_map(|name| Some(((*name).clone(), numbers(name)?))).collect()
}

/// Numbers of both signs between 0.5 and 1.5 in size.
fn random(dice: &mut Dice, shape: Vec<usize>) -> Host {
    let x = Host { data: Data::F32(vec![0.0; shape.iter().product()]), shape };
    let name = String::new();
    let x = BTreeMap::from([(name.clone(), x)]);
    moved(&x, &direction(dice, &x, &[&name], usize::MAX), 1.0).remove(&name).expect("the one tensor")
}

/// The tensor itself, or, where it has no elements, one with lengths of 3 for those of 0.
fn filled(dice: &mut Dice, host: &Host) -> Host {
    match (&host.data, host.shape.contains(&0)) {
        (Data::F32(_), true) => random(dice, host.shape.iter().map(|len| if *len == 0 { 3 } else { *len }).collect()),
        _ => host.clone(),
    }
}

/// What the cases of one operator say: a wrong point, or the number of sharp ones and what the last one that is none was like.
fn check(device: &Device, row: &Row, cases: &[Case], tensors: &BTreeMap<String, Host>) -> Result<(usize, String), String> {
    let (mut sharp, mut blunt) = (0, "no case has a gradient".to_string());
    for (index, case) in cases.iter().enumerate() {
        let Some(grads) = &case.grads else { continue };
        let names: Vec<&String> = grads.keys().collect();
        let mut dice = Dice::new(1 + index as u64);
        let x = case.tensors().into_iter().map(|name| (name.clone(), filled(&mut dice, &tensors[name]))).collect();
        let call = |given: &BTreeMap<String, Tensor>| match (row.run)(&Call::new(device, &case.args, &case.kwargs, given)?)? {
            Output::Tensors(outputs) => Ok(outputs),
            _ => Err(Fault::Row("no tensors".to_string())),
        };
        let mut function = Function { device, call: &call, weights: Vec::new() };
        let outputs = match function.upload(&x).and_then(|given| call(&given)) {
            Ok(outputs) => outputs,
            Err(fault) => {
                blunt = format!("case {index}: {fault:?}");
                continue;
            }
        };
        let weights =
            |(name, out): (&String, &Tensor)| case.cotangents.contains_key(name).then(|| random(&mut dice, out.shape().to_vec()));
        function.weights = case.outputs.iter().zip(&outputs).map(weights).collect();
        for attempt in if CONSTANT.contains(&row.name) { SMALL.as_slice() } else { ATTEMPTS.as_slice() } {
            let x = moved(&x, &direction(&mut dice, &x, &names, usize::MAX), attempt.jump);
            match function.judge(&x, &direction(&mut dice, &x, &names, attempt.elements), attempt.step) {
                Ok(Verdict::Right) => {
                    sharp += 1;
                    break;
                }
                Ok(Verdict::Wrong(why)) => return Err(format!("case {index}, {attempt:?}: {why}")),
                Ok(Verdict::Flat) if CONSTANT.contains(&row.name) => {
                    sharp += 1;
                    break;
                }
                Ok(Verdict::Flat) => blunt = format!("case {index} is constant"),
                Ok(Verdict::Blunt(why)) => blunt = format!("case {index}, {attempt:?}: {why}"),
                Err(fault) => blunt = format!("case {index}: {fault:?}"),
            }
        }
        if sharp == ENOUGH {
            break;
        }
    }
    Ok((sharp, blunt))
}

#[test]
fn golden_ops_gradcheck() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/golden/ops");
    let some: Option<Vec<String>> =
        std::env::var("LINN_GOLDEN_OPS").ok().map(|names| names.split(',').map(str::to_string).collect());
    let device = device();
    let (mut right, mut all) = (0, 0);
    for (name, entry) in &manifest::manifest(&folder).ops {
        let differentiable = entry.cases.iter().any(|case| case.grads.as_ref().is_some_and(|grads| !grads.is_empty()));
        if !differentiable || some.as_ref().is_some_and(|some| !some.contains(name)) {
            continue;
        }
        all += 1;
        let tensors = manifest::tensors(&folder, name, &entry.dtypes);
        match table::find(name).map(|row| check(&device, row, &entry.cases, &tensors)) {
            Some(Ok((sharp, _))) if sharp > 0 => right += 1,
            Some(Ok((_, why))) => println!("{name}: no point says anything, the last: {why}"),
            Some(Err(why)) => println!("{name}: {why}"),
            None => println!("{name}: no row"),
        }
    }
    println!("gradcheck {right} of {all} operators");
    assert_eq!(right, all, "operators whose gradients are not checked or wrong are listed above");
}

/// x^2 with a gradient `factor` times too large, at `x`.
fn square_with(factor: f64, x: &[f32]) -> Verdict {
    let device = device();
    let call = |given: &BTreeMap<String, Tensor>| {
        let x = &given["x"];
        let excess = x.detach().square()?.mul_scalar(factor - 1.0)?;
        Ok(vec![x.square()?.mul_scalar(factor)?.sub(&excess)?])
    };
    let host = |data: Vec<f32>| Host { shape: vec![data.len()], data: Data::F32(data) };
    let function = Function { device: &device, call: &call, weights: vec![Some(host(vec![1.0; x.len()]))] };
    let x = BTreeMap::from([("x".to_string(), host(x.to_vec()))]);
    let u = direction(&mut Dice::new(1), &x, &[&"x".to_string()], usize::MAX);
    function.judge(&x, &u, 1.0 / 64.0).expect("a verdict")
}

#[test]
fn golden_ops_gradcheck_can_fail() {
    let x = [0.5, -1.5, 2.0, 3.0, -0.25];
    assert_eq!(square_with(1.0, &x), Verdict::Right);
    assert!(matches!(square_with(1.05, &x), Verdict::Wrong(_)));
    assert!(matches!(square_with(0.95, &x), Verdict::Wrong(_)));
    // Neither a kink at x nor noise says anything, whatever the gradient is.
    let exact = |value: fn(f64) -> f64| TIMES.map(|time| Sum { value: value(time / 64.0), rounding: 0.0 });
    assert!(matches!(verdict(exact(|t| t.max(0.0)), 1.0 / 64.0, 0.0), Verdict::Blunt(_)));
    assert!(matches!(verdict(exact(|t| t.max(0.0)), 1.0 / 64.0, 0.5), Verdict::Blunt(_)));
    assert!(matches!(verdict(exact(|t| if t > 0.0 { 1.0 } else { 0.0 }), 1.0 / 64.0, 0.0), Verdict::Blunt(_)));
    let noisy = exact(|t| t).map(|sum| Sum { rounding: 1e-3, ..sum });
    assert!(matches!(verdict(noisy, 1.0 / 64.0, 1.0), Verdict::Blunt(_)));
    // The gradient of a constant has to be 0.
    assert_eq!(verdict(exact(|_| 3.0), 1.0 / 64.0, 0.0), Verdict::Flat);
    assert!(matches!(verdict(exact(|_| 3.0), 1.0 / 64.0, 0.1), Verdict::Wrong(_)));
}
