//! Operations along a dimension of 2^24 + 3 elements: positions that f32 does not hold, more than 65,535 workgroups of 256, sums of
//! more than one stage; norms and gradients along shorter dimensions too. One line of so many elements is nearly what the smallest
//! adapter binds, so all other dimensions have length 1; the long one stands first, in the middle and last.
//!
//! `LINN_LONG=1` runs what takes minutes: every operation in every place, and sorts.

use linn::ops::reduce::KeepDim::Drop;
use linn::ops::sort::{Order, Side};
use linn::{DType, Tensor};

use crate::close::numbers;
use crate::device::device;
use crate::ops_large::{
    Data, LARGE, MIDDLE, Op, Place, REDUCTIONS, SCANS, SMALL, SORTS, WHOLE, check, element, exact, log_sum_exp, long, mean, near,
    norm, read, sum, variance,
};

/// The lines of `x` along `dim` as rows, through `of`, and back.
fn by_rows(x: &Tensor, dim: isize, of: impl Fn(&Tensor) -> linn::Result<Tensor>) -> linn::Result<Tensor> {
    let moved = x.movedim(&[dim], &[-1])?;
    let sizes: Vec<isize> = moved.shape().iter().map(|len| *len as isize).collect();
    let rows = moved.reshape(&[-1, *sizes.last().unwrap_or(&1)])?;
    of(&rows)?.reshape(&sizes)?.movedim(&[-1], &[dim])
}

fn standardized(line: &[f64]) -> Vec<f64> {
    let (mean, deviation) = (mean(line), (variance(line, 0.0) + 1e-5).sqrt());
    line.iter().map(|x| (x - mean) / deviation).collect()
}

fn over_root_mean_square(line: &[f64]) -> Vec<f64> {
    let size = (line.iter().map(|x| x * x).sum::<f64>() / line.len() as f64 + 1e-5).sqrt();
    line.iter().map(|x| x / size).collect()
}

fn batch() -> linn::autograd::NormOptions<'static> {
    linn::autograd::NormOptions { training: true, ..Default::default() }
}

/// Norms of each line.
const NORMS: &[Op] = &[
    near(
        "layer_norm",
        Data::Fractions,
        |x, dim| by_rows(x, dim, |rows| rows.layer_norm(None, None, 1e-5)),
        standardized,
        1e-5,
        1e-5,
    ),
    near(
        "rms_norm",
        Data::Fractions,
        |x, dim| by_rows(x, dim, |rows| rows.rms_norm(&[rows.shape()[1]], None, 1e-5)),
        over_root_mean_square,
        1e-5,
        1e-5,
    ),
    near(
        "batch_norm over samples",
        Data::Fractions,
        |x, dim| by_rows(x, dim, |rows| rows.t()?.batch_norm(batch())?.t()),
        standardized,
        1e-5,
        1e-5,
    ),
    near(
        "batch_norm over places",
        Data::Fractions,
        |x, dim| by_rows(x, dim, |rows| rows.unsqueeze(0)?.batch_norm(batch())),
        standardized,
        1e-5,
        1e-5,
    ),
    near(
        "instance_norm",
        Data::Fractions,
        |x, dim| by_rows(x, dim, |rows| rows.unsqueeze(0)?.instance_norm(batch())),
        standardized,
        1e-5,
        1e-5,
    ),
    near(
        "group_norm",
        Data::Fractions,
        |x, dim| by_rows(x, dim, |rows| rows.unsqueeze(0)?.group_norm(rows.shape()[0], None, None, 1e-5)),
        standardized,
        1e-5,
        1e-5,
    ),
];

fn classes(rows: &Tensor) -> linn::Result<Tensor> {
    Tensor::full(rows.device(), &[rows.shape()[0]], 5.0)?.to_dtype(DType::I32)
}

/// What else makes one number of a line.
const MORE_REDUCTIONS: &[Op] = &[
    exact("position of max", Data::LastIsTrue, |x, dim| Ok(x.max(dim, Drop)?.1), |line| vec![first_of(line, 1.0)]),
    exact("position of min", Data::LastIsFalse, |x, dim| Ok(x.min(dim, Drop)?.1), |line| vec![first_of(line, 0.0)]),
    exact("largest of aminmax", Data::LastIsTrue, |x, dim| Ok(x.aminmax(dim, Drop)?.1), |line| vec![norm(line, f64::INFINITY)]),
    near(
        "var of var_mean",
        Data::Fractions,
        |x, dim| Ok(x.var_mean(&[dim], 0.0, Drop)?.0),
        |l| vec![variance(l, 0.0)],
        1e-5,
        0.0,
    ),
    near(
        "std_mean",
        Data::Fractions,
        |x, dim| Ok(x.std_mean(&[dim], 1.0, Drop)?.0),
        |l| vec![variance(l, 1.0).sqrt()],
        1e-5,
        0.0,
    ),
    near(
        "dist",
        Data::Fractions,
        |x, dim| by_one(x, dim, |row| row.dist(&row.neg()?, 2.0)),
        |l| vec![2.0 * norm(l, 2.0)],
        1e-6,
        0.0,
    ),
    near(
        "cdist",
        Data::Fractions,
        |x, dim| by_one(x, dim, |row| row.cdist(&row.neg()?, 1.0)),
        |l| vec![2.0 * norm(l, 1.0)],
        1e-6,
        0.0,
    ),
    near(
        "cross_entropy of many classes",
        Data::Fractions,
        |x, dim| by_one(x, dim, |row| row.cross_entropy(&classes(row)?)),
        |line| vec![log_sum_exp(line) - line[5]],
        1e-6,
        0.0,
    ),
    near(
        "cross_entropy with options of many classes",
        Data::Fractions,
        |x, dim| {
            let options = linn::autograd::ClassOptions { label_smoothing: 0.25, ..Default::default() };
            by_one(x, dim, |row| row.cross_entropy_with(&classes(row)?, options))
        },
        |line| vec![log_sum_exp(line) - 0.75 * line[5] - 0.25 * mean(line)],
        1e-6,
        0.0,
    ),
    near(
        "mse_loss",
        Data::Whole,
        |x, dim| by_one(x, dim, |row| row.mse_loss(&row.neg()?, linn::autograd::Reduction::Mean)),
        |line| vec![4.0 * squares(line) / line.len() as f64],
        1e-6,
        0.0,
    ),
];

/// What [`Tensor::matmul`] computes under other names, whose long sums are asked in `ops_large.rs` too: slow here, so with
/// `LINN_LONG=1` only.
const PRODUCTS: &[Op] = &[
    near("dot", Data::Whole, |x, dim| along(x, dim)?.dot(&along(x, dim)?), |line| vec![squares(line)], 1e-6, 0.0),
    near("inner", Data::Whole, |x, dim| along(x, dim)?.inner(&along(x, dim)?), |line| vec![squares(line)], 1e-6, 0.0),
    near(
        "mv",
        Data::Whole,
        |x, dim| x.movedim(&[dim], &[-1])?.reshape(&[1, -1])?.mv(&along(x, dim)?),
        |line| vec![squares(line)],
        1e-6,
        0.0,
    ),
    near(
        "linear of many features",
        Data::Whole,
        |x, dim| by_one(x, dim, |row| row.linear(row, None)),
        |line| vec![squares(line)],
        1e-6,
        0.0,
    ),
    near(
        "bmm",
        Data::Whole,
        |x, dim| by_one(x, dim, |row| row.unsqueeze(0)?.bmm(&row.t()?.unsqueeze(0)?)),
        |line| vec![squares(line)],
        1e-6,
        0.0,
    ),
    near(
        "einsum",
        Data::Whole,
        |x, dim| linn::autograd::einsum("i,i", &[&along(x, dim)?, &along(x, dim)?]),
        |l| vec![squares(l)],
        1e-6,
        0.0,
    ),
    near(
        "nll_loss of many rows",
        Data::Whole,
        |x, dim| by_one(x, dim, |row| row.t()?.nll_loss(&classes(&row.t()?)?.mul_scalar(0)?, Default::default())),
        |line| vec![-mean(line)],
        1e-6,
        0.0,
    ),
];

/// [`PRODUCTS`] that make a line of a line.
const LINES_OF_PRODUCTS: &[Op] = &[
    exact("linear of many rows", Data::Whole, |x, dim| by_rows(x, dim, |row| row.t()?.linear(&three(row)?, None)), tripled),
    exact("linear to many features", Data::Whole, |x, dim| by_rows(x, dim, |row| three(row)?.linear(&row.t()?, None)), tripled),
    exact("mv of many rows", Data::Whole, |x, dim| by_rows(x, dim, |row| row.t()?.mv(&three(row)?.reshape(&[1])?)), tripled),
    exact("outer", Data::Whole, |x, dim| along(x, dim)?.outer(&three(x)?.reshape(&[1])?)?.reshape(&like(x)), tripled),
    exact(
        "addmm",
        Data::Whole,
        |x, dim| by_rows(x, dim, |row| row.addmm(&three(row)?, row, -1, 1)),
        |l| l.iter().map(|x| 2.0 * x).collect(),
    ),
];

fn like(x: &Tensor) -> Vec<isize> {
    x.shape().iter().map(|len| *len as isize).collect()
}

/// A matrix of one 3.
fn three(x: &Tensor) -> linn::Result<Tensor> {
    Tensor::full(x.device(), &[1, 1], 3.0)
}

fn tripled(line: &[f64]) -> Vec<f64> {
    line.iter().map(|x| 3.0 * x).collect()
}

/// The one line of `x` as a vector.
fn along(x: &Tensor, dim: isize) -> linn::Result<Tensor> {
    x.movedim(&[dim], &[-1])?.reshape(&[-1])
}

/// `of` the one line of `x` as a row, which gives one number.
fn by_one(x: &Tensor, dim: isize, of: impl Fn(&Tensor) -> linn::Result<Tensor>) -> linn::Result<Tensor> {
    of(&along(x, dim)?.unsqueeze(0)?)
}

fn squares(line: &[f64]) -> f64 {
    line.iter().map(|x| x * x).sum()
}

fn first_of(line: &[f64], value: f64) -> f64 {
    line.iter().position(|x| *x == value).unwrap_or(0) as f64
}

/// Shapes of one line, and where it stands.
fn shapes(n: isize) -> [(Vec<isize>, isize); 4] {
    [(vec![n], 0), (vec![n, 1], 0), (vec![1, n], 1), (vec![1, n, 1], 1)]
}

/// Each operation on one line of `n` elements in the shapes that `asks` names.
fn check_line<'a>(ops: impl IntoIterator<Item = &'a Op>, n: usize, dtype: DType, asks: impl Fn(usize, usize) -> bool) {
    let random = numbers(17, 1 << 20);
    let mut last: Option<(Data, Tensor, Vec<f64>)> = None;
    // What is asked of the same data comes together.
    let mut ops: Vec<(usize, &Op)> = ops.into_iter().enumerate().collect();
    ops.sort_by_key(|(_, op)| op.data as usize);
    for (at, op) in ops {
        if last.as_ref().is_none_or(|(data, ..)| *data != op.data) {
            drop(last.take());
            // The second of two lines, in which the last element is another.
            let data: Vec<f32> = (0..n).map(|k| element(op.data, &random, n, 1, k)).collect();
            let x = Tensor::from_slice(&device(), &[n], &data).unwrap().to_dtype(dtype).unwrap();
            last = Some((op.data, x, data.into_iter().map(f64::from).collect()));
        }
        let Some((_, x, line)) = &last else { continue };
        let want = (op.want)(line);
        for (_, (shape, dim)) in shapes(n as isize).into_iter().enumerate().filter(|(place, _)| asks(at, *place)) {
            let what = format!("{} of {dtype} over {n} elements of shape {shape:?}", op.name);
            let x = x.reshape(&shape).unwrap();
            let got = read(&(op.run)(&x, dim).unwrap_or_else(|error| panic!("{what}: {error}")));
            assert_eq!(got.len(), want.len(), "{what}");
            let wrong = (0..want.len()).find(|k| {
                let error = (got[*k] - want[*k]).abs();
                got[*k] != want[*k] && (error.is_nan() || error > op.relative * want[*k].abs() + op.absolute)
            });
            assert!(
                wrong.is_none(),
                "{what}: element {wrong:?} is {:?}, should be {:?}",
                wrong.map(|k| got[k]),
                wrong.map(|k| want[k])
            );
        }
    }
}

/// One shape of the four for each operation, all of them with `LINN_LONG=1`.
fn some(at: usize, place: usize) -> bool {
    long() || at % 4 == place
}

#[test]
fn reductions_along_the_longest_dimension() {
    check_line(REDUCTIONS.iter().chain(MORE_REDUCTIONS), LARGE, DType::F32, some);
    if long() {
        check_line(PRODUCTS, LARGE, DType::F32, some);
    }
}

#[test]
fn scans_and_norms_along_the_longest_dimension() {
    check_line(SCANS.iter().chain(NORMS), LARGE, DType::F32, some);
    if long() {
        check_line(LINES_OF_PRODUCTS, LARGE, DType::F32, some);
    }
}

#[test]
fn whole_numbers_along_the_longest_dimension() {
    check_line(WHOLE, LARGE, DType::I32, some);
}

/// Two lines through views that name each element twice: the largest that every adapter binds is less than two such lines.
#[test]
fn two_lines_of_the_longest_dimension() {
    let device = device();
    let x = Tensor::arange(&device, LARGE, DType::I32).unwrap();
    for (dim, view) in [(1, x.expand(&[2, -1]).unwrap()), (0, x.unsqueeze(1).unwrap().expand(&[-1, 2]).unwrap())] {
        let at = view.amax(&[dim], Drop).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(at, [LARGE as i32 - 1; 2], "amax over dimension {dim}");
        let mut sum = 0i32;
        (0..LARGE as i32).for_each(|k| sum = sum.wrapping_add(k));
        assert_eq!(view.sum(&[dim], Drop).unwrap().to_vec::<i32>().unwrap(), [sum; 2], "sum over dimension {dim}");
    }
}

/// Layer norm of rows beyond what an invocation walks, and the others beside it.
#[test]
fn norms_along_long_dimensions() {
    for place in Place::ALL {
        check(NORMS, SMALL, place, DType::F32);
        if long() || matches!(place, Place::Last) {
            check(NORMS, MIDDLE, place, DType::F32);
        }
    }
    check(&NORMS[..2], 43_689, Place::Last, DType::F32);
}

/// An operation whose gradient is checked, and this by a formula of the line and the gradients of the results.
struct Gradient {
    name: &'static str,
    run: fn(&Tensor, isize) -> linn::Result<Tensor>,
    want: fn(&[f64], &[f64]) -> Vec<f64>,
}

const fn gradient(
    name: &'static str,
    run: fn(&Tensor, isize) -> linn::Result<Tensor>,
    want: fn(&[f64], &[f64]) -> Vec<f64>,
) -> Gradient {
    Gradient { name, run, want }
}

fn each(line: &[f64], of: impl Fn(f64) -> f64) -> Vec<f64> {
    line.iter().map(|x| of(*x)).collect()
}

fn softmax(line: &[f64]) -> Vec<f64> {
    let total = log_sum_exp(line);
    each(line, |x| (x - total).exp())
}

fn products(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Gradients are scaled, so that they are of size 1 whatever the length is.
const GRADIENTS: &[Gradient] = &[
    gradient("mean", |x, dim| x.mean(&[dim], Drop)?.mul_scalar(x.shape()[dim as usize] as f64), |line, w| each(line, |_| w[0])),
    gradient(
        "var",
        |x, dim| x.var(&[dim], 0.0, Drop)?.mul_scalar(x.shape()[dim as usize] as f64),
        |line, w| {
            let mean = mean(line);
            each(line, |x| 2.0 * w[0] * (x - mean))
        },
    ),
    gradient(
        "norm",
        |x, dim| x.norm(2.0, &[dim], Drop)?.mul_scalar((x.shape()[dim as usize] as f64).sqrt()),
        |line, w| {
            let size = norm(line, 2.0) / (line.len() as f64).sqrt();
            each(line, |x| w[0] * x / size)
        },
    ),
    gradient(
        "logsumexp",
        |x, dim| x.logsumexp(&[dim], Drop)?.mul_scalar(x.shape()[dim as usize] as f64),
        |line, w| each(&softmax(line), |y| y * w[0] * line.len() as f64),
    ),
    gradient(
        "amax",
        |x, dim| x.amax(&[dim], Drop),
        |line, w| {
            let most = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let ties = line.iter().filter(|x| **x == most).count() as f64;
            each(line, |x| if x == most { w[0] / ties } else { 0.0 })
        },
    ),
    gradient(
        "softmax",
        |x, dim| x.softmax(dim)?.mul_scalar(x.shape()[dim as usize] as f64),
        |line, w| {
            let y = softmax(line);
            let sum = products(&y, w);
            y.iter().zip(w).map(|(y, w)| y * (w - sum) * line.len() as f64).collect()
        },
    ),
    gradient(
        "log_softmax",
        |x, dim| x.log_softmax(dim),
        |line, w| {
            let sum = sum(w);
            softmax(line).iter().zip(w).map(|(y, w)| w - y * sum).collect()
        },
    ),
    gradient(
        "cumsum",
        |x, dim| x.cumsum(dim),
        |_, w| {
            let mut sum = 0.0;
            let mut sums: Vec<f64> = w
                .iter()
                .rev()
                .map(|w| {
                    sum += w;
                    sum
                })
                .collect();
            sums.reverse();
            sums
        },
    ),
    gradient(
        "layer_norm",
        |x, dim| by_rows(x, dim, |rows| rows.layer_norm(None, None, 1e-5)),
        |line, w| {
            let (y, deviation, n) = (standardized(line), (variance(line, 0.0) + 1e-5).sqrt(), line.len() as f64);
            let (mean, slope) = (sum(w) / n, products(&y, w) / n);
            y.iter().zip(w).map(|(y, w)| (w - mean - y * slope) / deviation).collect()
        },
    ),
    gradient(
        "cross_entropy",
        |x, dim| by_one(x, dim, |row| row.cross_entropy(&classes(row)?))?.mul_scalar(x.shape()[dim as usize] as f64),
        |line, w| {
            let mut grad = each(&softmax(line), |y| y * w[0] * line.len() as f64);
            grad[5] -= w[0] * line.len() as f64;
            grad
        },
    ),
];

fn gradients(n: usize, asks: impl Fn(usize, usize) -> bool) {
    let random = numbers(17, 1 << 20);
    let data: Vec<f32> = (0..n).map(|k| element(Data::Fractions, &random, n, 1, k)).collect();
    let weights: Vec<f32> = (0..n).map(|k| element(Data::Whole, &random, n, 0, k + 3)).collect();
    let wide = |data: &[f32]| data.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
    let (line, w) = (wide(&data), wide(&weights));
    let x = Tensor::from_slice(&device(), &[n], &data).unwrap();
    let all = Tensor::from_slice(&device(), &[n], &weights).unwrap();
    for (at, Gradient { name, run, want }) in GRADIENTS.iter().enumerate() {
        for (_, (shape, dim)) in shapes(n as isize).into_iter().enumerate().filter(|(place, _)| asks(at, *place)) {
            let what = format!("gradient of {name} over {n} elements of shape {shape:?}");
            let x = x.reshape(&shape).unwrap().requires_grad_(true).unwrap();
            let y = run(&x, dim).unwrap_or_else(|error| panic!("{what}: {error}"));
            let results = y.len();
            let weights = all.narrow(0, 0, results).unwrap().reshape(&like(&y)).unwrap();
            y.mul(&weights).unwrap().sum_all().unwrap().backward().unwrap();
            let got = read(&x.grad().unwrap());
            let want = want(&line, &w[..results]);
            let largest = want.iter().fold(0f64, |most, x| most.max(x.abs()));
            let wrong = (0..n).find(|k| {
                let error = (got[*k] - want[*k]).abs();
                error.is_nan() || error > 1e-5 * want[*k].abs() + 1e-6 * largest
            });
            assert!(
                wrong.is_none(),
                "{what}: element {wrong:?} is {:?}, should be {:?}",
                wrong.map(|k| got[k]),
                wrong.map(|k| want[k])
            );
        }
    }
}

#[test]
fn gradients_along_long_dimensions() {
    gradients(SMALL, |_, _| true);
    gradients(MIDDLE, some);
    gradients(LARGE, |at, place| long() || (at % 4 == place && at < 5));
}

/// Sorting 2^24 + 3 elements takes some 300 steps over all of them.
#[test]
fn sorts_along_the_longest_dimension() {
    for place in Place::ALL {
        if long() {
            check(SORTS, MIDDLE, place, DType::F32);
        }
    }
    if long() {
        check_line(SORTS, LARGE, DType::F32, |_, place| place == 0);
        let x = Tensor::arange(&device(), LARGE, DType::I32).unwrap().flip(&[0]).unwrap();
        let want = x.argsort(0, Order::Ascending).unwrap();
        assert!(want.equal(&x).unwrap(), "argsort of {LARGE}");
    }
    // Places of numbers between those of a line.
    let line = Tensor::arange(&device(), LARGE, DType::I32).unwrap().mul_scalar(2).unwrap();
    let values = Tensor::from_slice(&device(), &[4], &[-1i32, 5, 1 << 20, 2 * (LARGE as i32 - 1)]).unwrap();
    let places = line.searchsorted(&values, Side::Left).unwrap().to_vec::<i32>().unwrap();
    assert_eq!(places, [0, 3, 1 << 19, LARGE as i32 - 1]);
}
