//! Operations along dimensions of 2^18 + 1, 2^20 and 2^24 + 3 elements, where a loop that a driver stops, a position that f32 does
//! not hold, or a sum in one chain would show. The data is such that the right answer is cheap to find on the host.
//!
//! `LINN_LONG=1` runs every operation at every length, in every place of a dimension that the adapter's limits allow.
//! What is longest is in `ops_longest.rs`.

use linn::ops::reduce::KeepDim::{self, Drop};
use linn::ops::sort::Order;
use linn::{DType, Tensor};

use crate::close::{assert_close, numbers, wide};
use crate::device::device;

pub const SMALL: usize = (1 << 18) + 1;
pub const MIDDLE: usize = 1 << 20;
pub const LARGE: usize = (1 << 24) + 3;

pub fn long() -> bool {
    std::env::var_os("LINN_LONG").is_some_and(|value| value == "1")
}

/// What the elements are.
#[derive(Clone, Copy, PartialEq)]
pub enum Data {
    /// Whole numbers from -3 to 3: all partial sums are exact in f32.
    Whole,
    /// Between -2 and 2.
    Fractions,
    /// [`Data::Whole`], every thousandth NaN.
    SomeNan,
    /// 1, with -1 and 2 in places and as many halves: products are exact.
    Factors,
    /// 0 but for the last element of every second line.
    LastIsTrue,
    /// 1 but for the last element of every second line.
    LastIsFalse,
}

/// Elements of lines of `n` elements: element `k` of line `l`.
pub fn element(data: Data, random: &[f32], n: usize, l: usize, k: usize) -> f32 {
    let value = random[(k * 7 + l * 13) % random.len()];
    let whole = (value * 1.74).round();
    let last = k + 1 == n && l % 2 == 1;
    match data {
        Data::Whole => whole,
        Data::Fractions => random[(k + l * 12_345) % random.len()],
        Data::SomeNan if k % 1000 == 7 => f32::NAN,
        Data::SomeNan => whole,
        Data::Factors => match k % 4096 {
            5 if k < 1 << 16 => 2.0,
            9 if k + (1 << 16) > n && k % 8192 == 9 => 0.5,
            77 => -1.0,
            _ => 1.0,
        },
        Data::LastIsTrue => f32::from(u8::from(last)),
        Data::LastIsFalse => f32::from(u8::from(!last)),
    }
}

/// Where the long dimension stands.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    Alone,
    First,
    Last,
    Middle,
}

impl Place {
    pub const ALL: [Place; 4] = [Place::Alone, Place::First, Place::Last, Place::Middle];

    pub fn shape(self, n: usize) -> (Vec<usize>, isize, usize) {
        match self {
            Place::Alone => (vec![n], 0, 1),
            Place::First => (vec![n, 2], 0, 2),
            Place::Last => (vec![2, n], -1, 2),
            Place::Middle => (vec![1, n, 2], 1, 2),
        }
    }

    /// Position of element `k` of line `l` in row-major order.
    pub fn at(self, n: usize, l: usize, k: usize) -> usize {
        match self {
            Place::Alone => k,
            Place::Last => l * n + k,
            Place::First | Place::Middle => k * 2 + l,
        }
    }
}

pub type OnDevice = fn(&Tensor, isize) -> linn::Result<Tensor>;
/// One line to one value, or to as many as it has.
pub type OnHost = fn(&[f64]) -> Vec<f64>;

pub struct Op {
    pub name: &'static str,
    pub data: Data,
    pub run: OnDevice,
    pub want: OnHost,
    pub relative: f64,
    pub absolute: f64,
}

pub const fn exact(name: &'static str, data: Data, run: OnDevice, want: OnHost) -> Op {
    Op { name, data, run, want, relative: 0.0, absolute: 0.0 }
}

pub const fn near(name: &'static str, data: Data, run: OnDevice, want: OnHost, relative: f64, absolute: f64) -> Op {
    Op { name, data, run, want, relative, absolute }
}

pub fn sum(line: &[f64]) -> f64 {
    line.iter().sum()
}

pub fn mean(line: &[f64]) -> f64 {
    sum(line) / line.len() as f64
}

pub fn variance(line: &[f64], correction: f64) -> f64 {
    let mean = mean(line);
    line.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (line.len() as f64 - correction)
}

pub fn norm(line: &[f64], p: f64) -> f64 {
    match p {
        0.0 => line.iter().filter(|x| **x != 0.0).count() as f64,
        f64::INFINITY => line.iter().fold(0.0, |most, x| most.max(x.abs())),
        f64::NEG_INFINITY => line.iter().fold(f64::INFINITY, |least, x| least.min(x.abs())),
        _ => line.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p),
    }
}

pub fn log_sum_exp(line: &[f64]) -> f64 {
    line.iter().map(|x| x.exp()).sum::<f64>().ln()
}

/// Position of the first element that no other one beats.
fn first(line: &[f64], beats: fn(&f64, &f64) -> bool) -> usize {
    (1..line.len()).fold(0, |best, k| if beats(&line[k], &line[best]) { k } else { best })
}

/// Position of the last element so far that no other one beats.
fn running(line: &[f64], beats: fn(&f64, &f64) -> bool) -> Vec<usize> {
    let mut best = 0;
    let mut next = |k: usize| {
        best = if beats(&line[best], &line[k]) { best } else { k };
        best
    };
    (0..line.len()).map(&mut next).collect()
}

fn scan(line: &[f64], start: f64, fold: fn(f64, f64) -> f64) -> Vec<f64> {
    line.iter()
        .scan(start, |state, x| {
            *state = fold(*state, *x);
            Some(*state)
        })
        .collect()
}

fn numbers_of(line: &[f64]) -> Vec<f64> {
    line.iter().copied().filter(|x| !x.is_nan()).collect()
}

fn sorted(line: &[f64]) -> Vec<f64> {
    let mut line = line.to_vec();
    line.sort_by(f64::total_cmp);
    line
}

fn places(line: Vec<usize>) -> Vec<f64> {
    line.into_iter().map(|k| k as f64).collect()
}

/// Reductions: what they give is found again on the host in f64.
pub const REDUCTIONS: &[Op] = &[
    exact("sum", Data::Whole, |x, dim| x.sum(&[dim], Drop), |line| vec![sum(line)]),
    near("mean", Data::Whole, |x, dim| x.mean(&[dim], Drop), |line| vec![mean(line)], 1e-6, 0.0),
    near("sum of fractions", Data::Fractions, |x, dim| x.sum(&[dim], Drop), |line| vec![sum(line)], 1e-6, 1e-2),
    exact("nansum", Data::SomeNan, |x, dim| x.nansum(&[dim], Drop), |line| vec![sum(&numbers_of(line))]),
    near("nanmean", Data::SomeNan, |x, dim| x.nanmean(&[dim], Drop), |line| vec![mean(&numbers_of(line))], 1e-6, 0.0),
    exact("prod", Data::Factors, |x, dim| x.prod(&[dim], Drop), |line| vec![line.iter().product()]),
    exact("amax", Data::Fractions, |x, dim| x.amax(&[dim], Drop), |line| vec![line[first(line, |a, b| a > b)]]),
    exact("amin", Data::Fractions, |x, dim| x.amin(&[dim], Drop), |line| vec![line[first(line, |a, b| a < b)]]),
    exact("argmax", Data::Fractions, |x, dim| x.argmax(dim, Drop), |line| vec![first(line, |a, b| a > b) as f64]),
    exact("argmin", Data::Fractions, |x, dim| x.argmin(dim, Drop), |line| vec![first(line, |a, b| a < b) as f64]),
    exact("argmax at the end", Data::LastIsTrue, |x, dim| x.argmax(dim, Drop), |line| vec![first(line, |a, b| a > b) as f64]),
    exact("argmin at the end", Data::LastIsFalse, |x, dim| x.argmin(dim, Drop), |line| vec![first(line, |a, b| a < b) as f64]),
    exact("max", Data::Fractions, |x, dim| Ok(x.max(dim, Drop)?.0), |line| vec![line[first(line, |a, b| a > b)]]),
    exact("min", Data::Fractions, |x, dim| Ok(x.min(dim, Drop)?.0), |line| vec![line[first(line, |a, b| a < b)]]),
    exact("aminmax", Data::Fractions, |x, dim| Ok(x.aminmax(dim, Drop)?.0), |line| vec![line[first(line, |a, b| a < b)]]),
    exact(
        "any",
        Data::LastIsTrue,
        |x, dim| x.any(&[dim], Drop),
        |line| vec![f64::from(u8::from(line.iter().any(|x| *x != 0.0)))],
    ),
    exact(
        "all",
        Data::LastIsFalse,
        |x, dim| x.all(&[dim], Drop),
        |line| vec![f64::from(u8::from(line.iter().all(|x| *x != 0.0)))],
    ),
    exact("count_nonzero", Data::Whole, |x, dim| x.count_nonzero(&[dim]), |line| vec![norm(line, 0.0)]),
    near("var", Data::Fractions, |x, dim| x.var(&[dim], 1.0, Drop), |line| vec![variance(line, 1.0)], 1e-5, 0.0),
    near("std", Data::Fractions, |x, dim| x.std(&[dim], 0.0, Drop), |line| vec![variance(line, 0.0).sqrt()], 1e-5, 0.0),
    near("var_mean", Data::Whole, |x, dim| Ok(x.var_mean(&[dim], 1.0, Drop)?.1), |line| vec![mean(line)], 1e-6, 0.0),
    exact("norm 0", Data::Whole, |x, dim| x.norm(0.0, &[dim], Drop), |line| vec![norm(line, 0.0)]),
    near("norm 1", Data::Fractions, |x, dim| x.norm(1.0, &[dim], Drop), |line| vec![norm(line, 1.0)], 1e-6, 0.0),
    near("norm 2", Data::Fractions, |x, dim| x.norm(2.0, &[dim], Drop), |line| vec![norm(line, 2.0)], 1e-6, 0.0),
    near("norm 3", Data::Fractions, |x, dim| x.norm(3.0, &[dim], Drop), |line| vec![norm(line, 3.0)], 1e-5, 0.0),
    near("norm 0.5", Data::Fractions, |x, dim| x.norm(0.5, &[dim], Drop), |line| vec![norm(line, 0.5)], 1e-5, 0.0),
    exact("norm inf", Data::Fractions, |x, dim| x.norm(f64::INFINITY, &[dim], Drop), |line| vec![norm(line, f64::INFINITY)]),
    exact(
        "norm -inf",
        Data::Fractions,
        |x, dim| x.norm(f64::NEG_INFINITY, &[dim], Drop),
        |line| vec![norm(line, f64::NEG_INFINITY)],
    ),
    near("logsumexp", Data::Fractions, |x, dim| x.logsumexp(&[dim], Drop), |line| vec![log_sum_exp(line)], 1e-6, 0.0),
    near(
        "trapezoid",
        Data::Whole,
        |x, dim| x.trapezoid(1.0, dim),
        |line| vec![sum(line) - (line[0] + line[line.len() - 1]) / 2.0],
        0.0,
        0.0,
    ),
    near(
        "cosine_similarity",
        Data::Fractions,
        |x, dim| x.cosine_similarity(&x.mul_scalar(-2.0)?, dim, 1e-8),
        |_| vec![-1.0],
        1e-5,
        0.0,
    ),
];

/// Operations that give a value for every element of a line.
pub const SCANS: &[Op] = &[
    exact("cumsum", Data::Whole, |x, dim| x.cumsum(dim), |line| scan(line, 0.0, |a, b| a + b)),
    exact("cumprod", Data::Factors, |x, dim| x.cumprod(dim), |line| scan(line, 1.0, |a, b| a * b)),
    exact("cummax", Data::Fractions, |x, dim| Ok(x.cummax(dim)?.0), |line| scan(line, f64::NEG_INFINITY, f64::max)),
    exact("cummin", Data::Fractions, |x, dim| Ok(x.cummin(dim)?.0), |line| scan(line, f64::INFINITY, f64::min)),
    exact("cummax positions", Data::Whole, |x, dim| Ok(x.cummax(dim)?.1), |line| places(running(line, |a, b| a > b))),
    exact("cummin positions", Data::Whole, |x, dim| Ok(x.cummin(dim)?.1), |line| places(running(line, |a, b| a < b))),
    near(
        "logcumsumexp",
        Data::Fractions,
        |x, dim| x.logcumsumexp(dim),
        |line| {
            let mut total = 0.0;
            line.iter()
                .map(|x| {
                    total += x.exp();
                    total.ln()
                })
                .collect()
        },
        1e-6,
        3e-6,
    ),
    near(
        "softmax",
        Data::Fractions,
        |x, dim| x.softmax(dim),
        |line| {
            let total = log_sum_exp(line);
            line.iter().map(|x| (x - total).exp()).collect()
        },
        1e-5,
        0.0,
    ),
    near(
        "softmin",
        Data::Fractions,
        |x, dim| x.softmin(dim),
        |line| {
            let total = log_sum_exp(&line.iter().map(|x| -x).collect::<Vec<_>>());
            line.iter().map(|x| (-x - total).exp()).collect()
        },
        1e-5,
        0.0,
    ),
    near(
        "log_softmax",
        Data::Fractions,
        |x, dim| x.log_softmax(dim),
        |line| {
            let total = log_sum_exp(line);
            line.iter().map(|x| x - total).collect()
        },
        1e-6,
        1e-6,
    ),
    near(
        "normalize",
        Data::Fractions,
        |x, dim| x.normalize(2.0, dim, 1e-12),
        |line| {
            let norm = norm(line, 2.0);
            line.iter().map(|x| x / norm).collect()
        },
        1e-5,
        0.0,
    ),
    exact("flip", Data::Fractions, |x, dim| x.flip(&[dim]), |line| line.iter().rev().copied().collect()),
    exact(
        "roll",
        Data::Fractions,
        |x, dim| x.roll(&[3], &[dim]),
        |line| [&line[line.len() - 3..], &line[..line.len() - 3]].concat(),
    ),
];

/// Operations on whole numbers, whose sums and positions are exact whatever the order.
pub const WHOLE: &[Op] = &[
    exact("sum", Data::Whole, |x, dim| x.sum(&[dim], Drop), |line| vec![sum(line)]),
    exact("prod", Data::LastIsFalse, |x, dim| x.prod(&[dim], Drop), |line| vec![line.iter().product()]),
    exact("amax", Data::Whole, |x, dim| x.amax(&[dim], Drop), |line| vec![line[first(line, |a, b| a > b)]]),
    exact("argmin", Data::LastIsFalse, |x, dim| x.argmin(dim, Drop), |line| vec![first(line, |a, b| a < b) as f64]),
    exact("argmax", Data::LastIsTrue, |x, dim| x.argmax(dim, Drop), |line| vec![first(line, |a, b| a > b) as f64]),
    exact("cumsum", Data::Whole, |x, dim| x.cumsum(dim), |line| scan(line, 0.0, |a, b| a + b)),
    exact("cummin", Data::Whole, |x, dim| Ok(x.cummin(dim)?.0), |line| scan(line, f64::INFINITY, f64::min)),
];

/// Operations that sort.
pub const SORTS: &[Op] = &[
    exact("sort", Data::Fractions, |x, dim| Ok(x.sort(dim, Order::Ascending)?.0), sorted),
    exact(
        "topk",
        Data::Fractions,
        |x, dim| x.topk(2, dim, Order::Descending)?.0.narrow(dim, 1, 1),
        |line| vec![sorted(line)[line.len() - 2]],
    ),
    exact("median", Data::Fractions, |x, dim| Ok(x.median(dim, Drop)?.0), |line| vec![sorted(line)[(line.len() - 1) / 2]]),
];

/// The elements as f64, whatever their type.
pub fn read(x: &Tensor) -> Vec<f64> {
    match x.dtype() {
        DType::I32 => x.to_vec::<i32>().unwrap().into_iter().map(f64::from).collect(),
        DType::Bool => x.to_vec::<u8>().unwrap().into_iter().map(f64::from).collect(),
        _ => wide(&x.to_vec::<f32>().unwrap()),
    }
}

/// Each operation along a dimension of `n` elements.
pub fn check<'a>(ops: impl IntoIterator<Item = &'a Op>, n: usize, place: Place, dtype: DType) {
    let random = numbers(17, 1 << 20);
    let (shape, dim, lines) = place.shape(n);
    let mut last: Option<(Data, Tensor, Vec<Vec<f64>>)> = None;
    for op in ops {
        let what = format!("{} of {dtype} over {n} elements, {place:?}", op.name);
        if last.as_ref().is_none_or(|(data, ..)| *data != op.data) {
            // Before the memory of the next is needed.
            drop(last.take());
            let mut data = vec![0.0; lines * n];
            let mut by_line = vec![vec![0.0; n]; lines];
            for (l, line) in by_line.iter_mut().enumerate() {
                for (k, value) in line.iter_mut().enumerate() {
                    let x = element(op.data, &random, n, l, k);
                    (data[place.at(n, l, k)], *value) = (x, f64::from(x));
                }
            }
            let x = Tensor::from_slice(&device(), &shape, &data).unwrap().to_dtype(dtype).unwrap();
            last = Some((op.data, x, by_line));
        }
        let Some((_, x, by_line)) = &last else { continue };
        let got = read(&(op.run)(x, dim).unwrap_or_else(|error| panic!("{what}: {error}")));
        for (l, line) in by_line.iter().enumerate() {
            let want = (op.want)(line);
            let at = |k: usize| if want.len() == 1 { l } else { place.at(n, l, k) };
            assert_eq!(got.len(), want.len() * lines, "{what}");
            for (k, want) in want.iter().enumerate() {
                let (got, want) = (got[at(k)], *want);
                let error = (got - want).abs();
                assert!(
                    got == want || error <= op.relative * want.abs() + op.absolute,
                    "{what}: element {k} of line {l} is {got}, should be {want}"
                );
            }
        }
    }
}

fn sizes_and_places(ops: &[Op], dtype: DType) {
    for place in Place::ALL {
        check(ops, SMALL, place, dtype);
        if long() || matches!(place, Place::Middle) {
            check(ops, MIDDLE, place, dtype);
        }
        // (One line of so many elements: ops_longest.rs.)
        let fits = (2 * LARGE * dtype.size()) as u64 <= device().limits().max_storage_buffer_binding_size;
        if long() && fits {
            check(ops, LARGE, place, dtype);
        }
    }
}

#[test]
fn reductions_along_long_dimensions() {
    sizes_and_places(REDUCTIONS, DType::F32);
}

#[test]
fn scans_along_long_dimensions() {
    sizes_and_places(SCANS, DType::F32);
}

#[test]
fn whole_numbers_along_long_dimensions() {
    sizes_and_places(WHOLE, DType::I32);
}

#[test]
fn sorted_order_of_long_dimensions() {
    for place in [Place::Alone, Place::Middle] {
        check(SORTS, SMALL, place, DType::F32);
    }
    let device = device();
    let n = if long() { 1 << 22 } else { MIDDLE };
    // Falling numbers: the order is turned round.
    let x = Tensor::arange(&device, n, DType::I32).unwrap().mul_scalar(-3).unwrap();
    let at = x.argsort(0, Order::Ascending).unwrap();
    let want = Tensor::arange(&device, n, DType::I32).unwrap().flip(&[0]).unwrap();
    assert!(at.equal(&want).unwrap(), "argsort of {n}");
}

/// Rows, columns, batches and sums of so many elements; whole numbers, so that every order of the sums is exact.
#[test]
fn products_of_long_dimensions() {
    let random = numbers(19, 1 << 20);
    let whole = |seed: usize, len: usize| -> Vec<f32> { (0..len).map(|i| element(Data::Whole, &random, len, seed, i)).collect() };
    for n in [SMALL, MIDDLE, LARGE] {
        // Of the longest, what the smallest limit of an adapter (128 MiB) allows.
        let w = if n == LARGE { 1 } else { 3 };
        for (batch, m, k, columns) in [(1, w, n, w), (1, n, w, w), (1, w, w, n), (n, 1, w, 1)] {
            if batch == LARGE && !long() {
                continue;
            }
            let what = format!("{batch} x [{m}, {k}] @ [{k}, {columns}]");
            let (a, b) = (whole(1, batch * m * k), whole(2, batch * k * columns));
            let x = Tensor::from_slice(&device(), &[batch, m, k], &a).unwrap();
            let y = Tensor::from_slice(&device(), &[batch, k, columns], &b).unwrap();
            let got = x.matmul(&y).unwrap().to_vec::<f32>().unwrap();
            let mut want = vec![0.0; batch * m * columns];
            for (i, want) in want.iter_mut().enumerate() {
                let (column, row, e) = (i % columns, i / columns % m, i / columns / m);
                *want = (0..k).map(|k_at| a[(e * m + row) * k + k_at] * b[(e * k + k_at) * columns + column]).sum::<f32>();
            }
            assert!(got == want, "{what}: {:?}", got.iter().zip(&want).position(|(got, want)| got != want));
        }
    }
}

/// What trains: rows and classes of so many elements.
#[test]
fn losses_of_long_dimensions() {
    let device = device();
    for (rows, classes) in [(MIDDLE, 2), (SMALL, 3), (2, MIDDLE), (3, SMALL)] {
        let data = numbers(23, rows * classes);
        let targets: Vec<i32> = (0..rows).map(|row| (row * 7919 % classes) as i32).collect();
        let x = Tensor::from_slice(&device, &[rows, classes], &data).unwrap().requires_grad_(true).unwrap();
        let loss = x.cross_entropy(&Tensor::from_slice(&device, &[rows], &targets).unwrap()).unwrap();
        let a = wide(&data);
        let lines = a.chunks(classes).zip(&targets);
        let want = lines.map(|(line, target)| log_sum_exp(line) - line[*target as usize]).sum::<f64>() / rows as f64;
        let what = format!("cross entropy of {rows} x {classes}");
        assert_close(&what, &loss.to_vec().unwrap(), &[want], 1e-5, 0.0);
        loss.backward().unwrap();
        let total = x.grad().unwrap().abs().unwrap().sum_all().unwrap().to_vec().unwrap();
        let lines = a.chunks(classes).zip(&targets);
        let want = lines.map(|(line, target)| 2.0 * (1.0 - (line[*target as usize] - log_sum_exp(line)).exp())).sum::<f64>()
            / rows as f64;
        assert_close(&format!("{what}, gradient"), &total, &[want], 1e-4, 0.0);
    }
}

/// Sums and means of 16 M uniform values, and the variance of numbers far from 0.
#[test]
fn rounding_errors_of_sums_stay_small() {
    let n = 16 << 20;
    let data: Vec<f32> = numbers(29, n).iter().map(|x| (x + 2.0) / 4.0).collect();
    let want: f64 = wide(&data).iter().sum();
    let x = Tensor::from_slice(&device(), &[n], &data).unwrap();
    assert_close("sum", &x.sum_all().unwrap().to_vec().unwrap(), &[want], 1e-6, 0.0);
    assert_close("mean", &x.mean_all().unwrap().to_vec().unwrap(), &[want / n as f64], 1e-6, 0.0);
    // Rows and columns of the same numbers.
    for dim in [0, 1] {
        let parts = x.reshape(&[4096, 4096]).unwrap().sum(&[dim], KeepDim::Drop).unwrap();
        let mut want = vec![0.0; 4096];
        for (i, value) in data.iter().enumerate() {
            want[if dim == 0 { i % 4096 } else { i / 4096 }] += f64::from(*value);
        }
        assert_close(&format!("sums over dimension {dim}"), &parts.to_vec().unwrap(), &want, 1e-6, 0.0);
    }
    let far: Vec<f32> = data.iter().map(|x| 1e4 + (x - 0.5) * 12f32.sqrt()).collect();
    let want = variance(&wide(&far), 1.0);
    assert!((want - 1.0).abs() < 1e-2);
    let x = Tensor::from_slice(&device(), &[n], &far).unwrap();
    assert_close("variance", &x.var(&[], 1.0, Drop).unwrap().to_vec().unwrap(), &[want], 1e-3, 0.0);
    assert_close("deviation", &x.std(&[0], 1.0, Drop).unwrap().to_vec().unwrap(), &[want.sqrt()], 1e-3, 0.0);
}

/// So many indices are sorted: elements that come to one place are combined in the order of their positions all the same.
#[test]
fn writing_by_many_indices() {
    use linn::autograd::{Own, ScatterReduce};
    let device = device();
    for (shape, dim, rows) in
        [([1, MIDDLE, 1], 1, SMALL), ([2, 70_001, 3], 1, 5003), ([3, 2, 50_021], 2, 4099), ([40_009, 1, 5], 0, 7001)]
    {
        let random = numbers(37, shape.iter().product());
        let ids: Vec<i32> = random.iter().map(|x| ((x.abs() / 2.0 * rows as f32) as i32).min(rows as i32 - 1)).collect();
        // Most to a few places: runs that are longer than a window.
        let ids: Vec<i32> = ids.iter().enumerate().map(|(i, id)| if i % 2 == 0 { id % 3 } else { *id }).collect();
        let data: Vec<f32> = (0..random.len()).map(|i| element(Data::Whole, &random, shape[dim], 0, i)).collect();
        let mut wide = shape;
        wide[dim] = rows;
        let inner: usize = shape[dim + 1..].iter().product();
        let at = |i: usize| (i / (shape[dim] * inner) * rows + ids[i] as usize) * inner + i % inner;
        let index = Tensor::from_slice(&device, &shape, &ids).unwrap();
        let source = Tensor::from_slice(&device, &shape, &data).unwrap();
        let zeros = source.full_like(0.0).unwrap().narrow(0, 0, 1).unwrap().narrow(1, 0, 1).unwrap().narrow(2, 0, 1).unwrap();
        let zeros = zeros.expand(&wide.map(|len| len as isize)).unwrap().contiguous().unwrap();
        let what = format!("{shape:?} along {dim} into {rows}");
        let (mut sums, mut largest) = (vec![0.0f32; wide.iter().product()], vec![0.0f32; wide.iter().product()]);
        for (i, value) in data.iter().enumerate() {
            sums[at(i)] += value;
            largest[at(i)] = largest[at(i)].max(*value);
        }
        let dim = dim as isize;
        let got = zeros.scatter_add(dim, &index, &source).unwrap().to_vec::<f32>().unwrap();
        assert!(got == sums, "scatter_add of {what}");
        let whole = |x: &Tensor| x.to_dtype(DType::I32).unwrap();
        let got = whole(&zeros).scatter_reduce(dim, &index, &whole(&source), ScatterReduce::Amax, Own::Included).unwrap();
        let want: Vec<i32> = largest.iter().map(|x| *x as i32).collect();
        assert!(got.to_vec::<i32>().unwrap() == want, "scatter_reduce of {what}");
    }
    // Rows of a table, and its gradient. Sums of fractions have one order: twice the same bits.
    let (rows, count) = (1009, SMALL);
    let data = numbers(41, count * 2);
    let ids: Vec<i32> = data[..count].iter().map(|x| ((x.abs() * 500.0) as i32).min(rows as i32 - 1)).collect();
    let index = Tensor::from_slice(&device, &[count], &ids).unwrap();
    let source = Tensor::from_slice(&device, &[count, 2], &data).unwrap();
    let mut want = vec![0.0; rows * 2];
    for (i, id) in ids.iter().enumerate() {
        (0..2).for_each(|column| want[*id as usize * 2 + column] += f64::from(data[i * 2 + column]));
    }
    let added = || source.full_like(0.0).unwrap().narrow(0, 0, rows).unwrap().index_add(0, &index, &source, 1).unwrap();
    let first = added().to_vec::<f32>().unwrap();
    assert_close("index_add", &first, &want, 1e-5, 1e-3);
    assert_eq!(first, added().to_vec::<f32>().unwrap());
    let table = source.narrow(0, 0, rows).unwrap().contiguous().unwrap().requires_grad_(true).unwrap();
    table.embedding(&index).unwrap().mul(&source).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(table.grad().unwrap().to_vec::<f32>().unwrap(), first);
}
