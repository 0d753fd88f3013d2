//! Random numbers: the same words as Philox on the host, the distributions that they are said to have (seeded, so the same every
//! time), states, and what is refused.

use half::{bf16, f16};
use linn::autograd::Replacement;
use linn::ops::generator::GeneratorState;
use linn::ops::random::Distribution;
use linn::{DType, Device, DeviceOptions, Tensor};

use crate::close::{assert_close, numbers, wide};
use crate::device::open;
use crate::reference;

fn new_device() -> Device {
    open(DeviceOptions::default())
}

/// A device with a seed.
fn seeded(seed: u64) -> Device {
    let device = new_device();
    device.manual_seed(seed).unwrap();
    device
}

fn f32s(x: &Tensor) -> Vec<f32> {
    x.to_dtype(DType::F32).unwrap().to_vec().unwrap()
}

#[test]
fn numbers_are_those_of_philox() {
    let device = new_device();
    // Counters that carry into their second word, and that start over.
    for offset in [0, u64::from(u32::MAX) - 1, u64::MAX - 3] {
        let state = GeneratorState { seed: 0x1234_5678_9abc_def0, offset };
        for len in [0usize, 1, 5, 4096, 70_001] {
            let rounded = len.next_multiple_of(4);
            let bits = reference::random_bits(state.seed, offset, rounded);
            let draw = |distribution: Distribution, dtype: DType| {
                device.set_rng_state(state).unwrap();
                let drawn = distribution.draw(&device, &[len], dtype).unwrap();
                assert_eq!(device.rng_state().unwrap().offset, offset.wrapping_add(len.div_ceil(4) as u64));
                drawn
            };
            assert_eq!(draw(Distribution::bits(), DType::U32).to_vec::<u32>().unwrap(), bits[..len]);
            for (low, high) in [(0.0f32, 1.0), (-2.5, 7.3), (1e-3, 3e37), (5.0, 5.0), (-0.1, 0.0)] {
                let distribution = Distribution::uniform("uniform", low.into(), high.into(), DType::F32).unwrap();
                let want = reference::uniform(&bits[..len], 24, low, high);
                assert_eq!(f32s(&draw(distribution, DType::F32)), want, "{low} to {high}: the same bits everywhere");
                assert!(low == high || want.iter().all(|x| (low..high).contains(x)));
            }
            let low_bits = reference::words(state.seed, offset, 1, rounded);
            for (low, high, dtype) in
                [(-5, 1000, DType::I32), (i64::from(i32::MIN), 1 << 31, DType::I32), (7, 1 << 32, DType::U32)]
            {
                let got = draw(Distribution::randint("randint", low, high, dtype).unwrap(), dtype);
                let want = reference::randint(&bits[..len], &low_bits, low, (high - low) as u64);
                let got: Vec<i64> = match dtype {
                    DType::I32 => got.to_vec::<i32>().unwrap().into_iter().map(i64::from).collect(),
                    _ => got.to_vec::<u32>().unwrap().into_iter().map(i64::from).collect(),
                };
                assert_eq!(got, want, "{low}..{high}");
            }
            let got = f32s(&draw(Distribution::normal("normal", 0.0, 1.0).unwrap(), DType::F32));
            assert_close("normal", &got, &reference::normal(&bits, 0.0, 1.0)[..len], 1e-6, 1e-6);
            let got = f32s(&draw(Distribution::normal("normal", 1.0, 2.0).unwrap(), DType::F32));
            assert_close("normal around 1", &got, &reference::normal(&bits, 1.0, 2.0)[..len], 1e-6, 2e-6);
            let got = f32s(&draw(Distribution::exponential("exponential", 0.25).unwrap(), DType::F32));
            assert_close("exponential", &got, &reference::exponential(&bits, 4.0)[..len], 1e-6, 0.0);
            let got = f32s(&draw(Distribution::bernoulli("bernoulli", 0.3, 2.0).unwrap(), DType::F32));
            assert_eq!(wide(&got), reference::bernoulli(&bits[..len], f64::from(0.3f32), 2.0));
        }
    }
}

/// How far counts are from what is expected: with n categories about n - 1, and hardly ever more than 6 deviations from it.
fn chi_square(what: &str, counts: &[u64], expected: &[f64]) {
    let drawn: u64 = counts.iter().sum();
    let all: f64 = expected.iter().sum();
    assert!(expected.iter().all(|share| share / all * drawn as f64 >= 5.0), "{what}: too few numbers for this test");
    let term = |(count, share): (&u64, &f64)| {
        let want = share / all * drawn as f64;
        (*count as f64 - want).powi(2) / want
    };
    let sum: f64 = counts.iter().zip(expected).map(term).sum();
    let degrees = counts.len() as f64 - 1.0;
    assert!(
        (sum - degrees).abs() < 6.0 * (2.0 * degrees).sqrt().max(1.0),
        "{what}: chi-square {sum} for {degrees} degrees of freedom"
    );
}

/// Counts of values in `count` boxes by the cumulative distribution, each as probable as any other.
fn boxes(values: &[f32], count: usize, below: impl Fn(f64) -> f64) -> Vec<u64> {
    let mut counts = vec![0; count];
    for value in values {
        counts[((below(f64::from(*value)) * count as f64) as usize).min(count - 1)] += 1;
    }
    counts
}

/// Mean, variance, skewness and kurtosis are within 5 deviations of what they should be.
fn moments(what: &str, values: &[f32], [mean, variance, skewness, kurtosis]: [f64; 4]) {
    let n = values.len() as f64;
    let deviation = variance.sqrt();
    let of = |power: i32| values.iter().map(|x| ((f64::from(*x) - mean) / deviation).powi(power)).sum::<f64>() / n;
    for (power, want) in [(1, 0.0), (2, 1.0), (3, skewness), (4, kurtosis)] {
        let spread = (of(2 * power) - of(power).powi(2)).sqrt() / n.sqrt();
        assert!((of(power) - want).abs() < 5.0 * spread, "{what}: moment {power} is {}, should be {want} +- {spread}", of(power));
    }
}

const MANY: usize = 1 << 18;

#[test]
fn uniforms_normals_and_exponentials_have_their_distributions() {
    let device = seeded(11);
    let even = |count: usize| vec![1.0; count];
    let x = f32s(&Tensor::rand(&device, &[MANY]).unwrap());
    chi_square("uniform", &boxes(&x, 256, |x| x), &even(256));
    moments("uniform", &x, [0.5, 1.0 / 12.0, 0.0, 1.8]);
    let phi = |x: f64| 0.5 * reference::erfc(-x / std::f64::consts::SQRT_2);
    let x = f32s(&Tensor::randn(&device, &[MANY]).unwrap());
    chi_square("normal", &boxes(&x, 256, phi), &even(256));
    moments("normal", &x, [0.0, 1.0, 0.0, 3.0]);
    // Neighbours share the words of a pair.
    let sums: Vec<f32> = x.chunks(2).map(|pair| (pair[0] + pair[1]) / std::f32::consts::SQRT_2).collect();
    chi_square("sums of neighbours", &boxes(&sums, 256, phi), &even(256));
    let x = f32s(&Tensor::normal(&device, -3.0, 0.5, &[MANY]).unwrap());
    moments("normal of -3 and 0.5", &x, [-3.0, 0.25, 0.0, 3.0]);
    let x = Tensor::empty(&device, &[MANY], DType::F32).unwrap();
    x.exponential_(2.0).unwrap();
    let x = f32s(&x);
    assert!(x.iter().all(|x| *x > 0.0));
    chi_square("exponential", &boxes(&x, 256, |x| 1.0 - (-2.0 * x).exp()), &even(256));
    moments("exponential", &x, [0.5, 0.25, 2.0, 9.0]);
}

#[test]
fn whole_numbers_and_coins_have_their_distributions() {
    let device = seeded(12);
    for (low, high) in [(0, 2), (-3, 4), (100, 1100)] {
        let x = Tensor::randint(&device, low, high, &[MANY]).unwrap().to_vec::<i32>().unwrap();
        let mut counts = vec![0u64; (high - low) as usize];
        x.iter().for_each(|x| counts[(i64::from(*x) - low) as usize] += 1);
        chi_square(&format!("{low}..{high}"), &counts, &vec![1.0; counts.len()]);
    }
    // A range that does not divide 2^32, and is nearly as large.
    let x = Tensor::empty(&device, &[MANY], DType::U32).unwrap();
    x.random_(0, 3_000_000_000).unwrap();
    let mut counts = vec![0u64; 300];
    x.to_vec::<u32>().unwrap().iter().for_each(|x| counts[(x / 10_000_000) as usize] += 1);
    chi_square("0..3,000,000,000", &counts, &vec![1.0; 300]);
    for p in [0.0, 0.1, 0.5, 0.97, 1.0] {
        let x = Tensor::empty(&device, &[MANY], DType::Bool).unwrap();
        x.bernoulli_(p).unwrap();
        let ones = x.to_vec::<u8>().unwrap().iter().filter(|x| **x == 1).count();
        match p {
            0.0 | 1.0 => assert_eq!(ones as f64, p * MANY as f64),
            _ => chi_square("coins", &[ones as u64, (MANY - ones) as u64], &[p, 1.0 - p]),
        }
    }
    // A probability for each: column j of 4,096 rows is 1 with probability j / 64.
    let p: Vec<f32> = (0..4096 * 64).map(|i| (i % 64) as f32 / 64.0).collect();
    let x = Tensor::from_slice(&device, &[4096, 64], &p).unwrap().bernoulli().unwrap().to_vec::<f32>().unwrap();
    let column = |j: usize| x.iter().skip(j).step_by(64).sum::<f32>() as f64;
    assert_eq!(column(0), 0.0);
    let sum: f64 = (1..64).map(|j| (column(j) - 64.0 * j as f64).powi(2) / (64.0 * j as f64 * (1.0 - j as f64 / 64.0))).sum();
    assert!((sum - 63.0).abs() < 6.0 * 126f64.sqrt(), "{sum}");
}

#[test]
fn orders_are_permutations_and_each_as_probable() {
    let device = seeded(13);
    for n in [0, 1, 2, 1000, 20_011] {
        let order = Tensor::randperm(&device, n).unwrap();
        assert_eq!((order.shape(), order.dtype()), (&[n][..], DType::I32));
        let order = order.to_vec::<i32>().unwrap();
        let mut seen = vec![false; n];
        order.iter().for_each(|at| assert!(!std::mem::replace(&mut seen[*at as usize], true)));
        let fixed = order.iter().enumerate().filter(|(i, at)| *i as i32 == **at).count();
        assert!(n < 1000 || fixed < 12, "{fixed} of {n} stay where they are; one is to be expected");
    }
    let orders: Vec<Tensor> = (0..1200).map(|_| Tensor::randperm(&device, 4).unwrap()).collect();
    let mut counts = std::collections::BTreeMap::<Vec<i32>, u64>::new();
    for order in linn::autograd::stack(&orders.iter().collect::<Vec<_>>(), 0).unwrap().to_vec::<i32>().unwrap().chunks(4) {
        *counts.entry(order.to_vec()).or_default() += 1;
    }
    let counts: Vec<u64> = counts.into_values().collect();
    assert_eq!(counts.len(), 24);
    chi_square("orders of 4", &counts, &[1.0; 24]);
}

#[test]
fn categories_are_drawn_by_their_weights() {
    let device = seeded(14);
    let weights = [0.0f32, 3.0, 1.0, 0.0, 4.0, 0.5, 0.0];
    let w = Tensor::new(&device, weights).unwrap();
    let drawn = w.multinomial(100_000, Replacement::With).unwrap();
    assert_eq!((drawn.shape(), drawn.dtype()), (&[100_000][..], DType::I32));
    let mut counts = [0u64; 7];
    drawn.to_vec::<i32>().unwrap().iter().for_each(|at| counts[*at as usize] += 1);
    assert_eq!([counts[0], counts[3], counts[6]], [0; 3], "nobody draws what has no weight");
    let some = |x: &[f64]| [x[1], x[2], x[4], x[5]];
    chi_square("with replacement", &[counts[1], counts[2], counts[4], counts[5]], &some(&wide(&weights)));
    // Rows of a batch have weights of their own, of whatever size.
    let rows = Tensor::new(&device, [[1e-30f32, 0.0, 3e-30], [2e38, 2e38, 0.0]]).unwrap();
    let drawn = rows.multinomial(20_000, Replacement::With).unwrap().to_vec::<i32>().unwrap();
    let count = |row: usize, at: i32| drawn[row * 20_000..][..20_000].iter().filter(|x| **x == at).count() as u64;
    chi_square("small weights", &[count(0, 0), count(0, 2)], &[1.0, 3.0]);
    chi_square("large weights", &[count(1, 0), count(1, 1)], &[1.0, 1.0]);
    // Many categories, of which every other one has no weight.
    let many: Vec<f32> = (0..5000).map(|i| if i % 2 == 0 { 0.0 } else { (i % 10) as f32 }).collect();
    let drawn = Tensor::from_slice(&device, &[5000], &many).unwrap().multinomial(1 << 17, Replacement::With).unwrap();
    let mut counts = vec![0u64; 2500];
    for at in drawn.to_vec::<i32>().unwrap() {
        assert_eq!(at % 2, 1, "category {at} has no weight");
        counts[at as usize / 2] += 1;
    }
    chi_square("many categories", &counts, &many.iter().skip(1).step_by(2).map(|x| f64::from(*x)).collect::<Vec<_>>());
    // Small ones behind a large one, all of which f32 sums in this order would swallow, or round to a few.
    let small: Vec<f32> = (0..=1 << 16).map(|i| if i == 0 { 1.0 } else { 1.0 / (1 << 25) as f32 }).collect();
    let drawn = Tensor::from_slice(&device, &[small.len()], &small).unwrap().multinomial(1 << 20, Replacement::With).unwrap();
    let mut counts = [0u64; 9];
    for at in drawn.to_vec::<i32>().unwrap() {
        counts[if at == 0 { 8 } else { at as usize % 8 }] += 1;
    }
    let share = 1.0 / f64::from(1 << 12);
    chi_square("small weights beside a large one", &counts, &[share, share, share, share, share, share, share, share, 1.0]);
    // One of each row.
    let rows = Tensor::new(&device, [[1.0f32, 0.0, 2.0, 5.0]]).unwrap().expand(&[4096, 4]).unwrap();
    let drawn = rows.multinomial(1, Replacement::With).unwrap();
    assert_eq!(drawn.shape(), [4096, 1]);
    let mut counts = [0u64; 4];
    drawn.to_vec::<i32>().unwrap().iter().for_each(|at| counts[*at as usize] += 1);
    assert_eq!(counts[1], 0, "nobody draws what has no weight");
    chi_square("one of each row", &[counts[0], counts[2], counts[3]], &[1.0, 2.0, 5.0]);
    // Without replacement: ordered pairs of 4,096 rows, against a (b / (1 - a)).
    let weights = [1.0f32, 2.0, 5.0];
    let rows = Tensor::from_slice(&device, &[1, 3], &weights).unwrap().expand(&[4096, 3]).unwrap();
    let drawn = rows.multinomial(2, Replacement::Without).unwrap();
    assert_eq!(drawn.shape(), [4096, 2]);
    let (mut counts, mut expected) = (Vec::new(), Vec::new());
    let drawn = drawn.to_vec::<i32>().unwrap();
    for (a, b) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        counts.push(drawn.chunks(2).filter(|pair| **pair == [a, b]).count() as u64);
        let [a, b] = [weights[a as usize], weights[b as usize]].map(f64::from);
        expected.push(a / 8.0 * b / (8.0 - a));
    }
    assert_eq!(counts.iter().sum::<u64>(), 4096, "nothing is drawn twice");
    chi_square("without replacement", &counts, &expected);
    let all = w.multinomial(7, Replacement::Without).unwrap().to_vec::<i32>().unwrap();
    assert!(all[4..].iter().all(|at| [0, 3, 6].contains(at)), "{all:?}: what has no weight comes last");
}

#[test]
fn dropout_drops_and_scales() {
    let device = seeded(15);
    for p in [0.0, 0.25, 0.9, 1.0] {
        let x = Tensor::full(&device, &[MANY], 3.0).unwrap().requires_grad_(true).unwrap();
        let y = x.dropout(p).unwrap();
        y.sum_all().unwrap().backward().unwrap();
        let (y, grad) = (f32s(&y), f32s(&x.grad().unwrap()));
        let kept = y.iter().filter(|y| **y != 0.0).count();
        let scale = (1.0 / (1.0 - p)) as f32;
        assert!(y.iter().zip(&grad).all(|(y, grad)| *y == 3.0 * grad && (*grad == 0.0 || *grad == scale)), "{p}");
        match p {
            0.0 => assert_eq!(kept, MANY),
            1.0 => assert_eq!(kept, 0),
            _ => chi_square("dropout", &[kept as u64, (MANY - kept) as u64], &[1.0 - p, p]),
        }
    }
    let x = Tensor::ones(&device, &[1001]).unwrap().to_dtype(DType::F16).unwrap();
    x.dropout_(0.5).unwrap();
    assert!(x.to_vec::<f16>().unwrap().iter().all(|x| x.to_f32() == 0.0 || x.to_f32() == 2.0));
    assert!(x.dropout(1.5).unwrap_err().to_string().starts_with("dropout: p is"));
    assert!(Tensor::randperm(&device, 3).unwrap().dropout(0.5).is_err(), "floats");
}

/// What is dropped of attention are probabilities: values that are one line each show them. The gradient follows the same choice.
#[test]
fn attention_drops_probabilities() {
    use linn::autograd::AttentionOptions;
    let device = seeded(11);
    let [q, k] = [5, 7].map(|len| Tensor::randn(&device, &[2, 3, len, 4]).unwrap());
    let lines = Tensor::eye(&device, 7, 7).unwrap().expand(&[2, 3, 7, 7]).unwrap().contiguous().unwrap();
    let attend = |v: &Tensor, is_causal, dropout_p| {
        q.scaled_dot_product_attention_with(&k, v, AttentionOptions { is_causal, dropout_p, ..Default::default() })
    };
    for is_causal in [false, true] {
        let all = f32s(&attend(&lines, is_causal, 0.0).unwrap());
        let v = lines.detach().requires_grad_(true).unwrap();
        let out = attend(&v, is_causal, 0.25).unwrap();
        let left = f32s(&out);
        let dropped = all.iter().zip(&left).filter(|(all, left)| **all != 0.0 && **left == 0.0).count();
        let kept = all.iter().zip(&left).filter(|(all, left)| **all != 0.0 && (**left - **all / 0.75).abs() < 1e-6).count();
        assert_eq!(dropped + kept, all.iter().filter(|all| **all != 0.0).count(), "causal {is_causal}");
        assert!(dropped > 0 && kept > dropped, "causal {is_causal}: {dropped} dropped, {kept} kept");
        out.sum_all().unwrap().backward().unwrap();
        let grad = f32s(&v.grad().expect("a gradient"));
        for (batch, left) in left.chunks(5 * 7).enumerate() {
            for key in 0..7 {
                let sum: f32 = (0..5).map(|query| left[query * 7 + key]).sum();
                assert!((grad[(batch * 7 + key) * 7] - sum).abs() < 1e-5, "causal {is_causal}, batch {batch}, key {key}");
            }
        }
    }
    assert!(f32s(&attend(&lines, false, 1.0).unwrap()).iter().all(|x| *x == 0.0));
    for p in [1.5, -0.5, f64::NAN] {
        let text = attend(&lines, false, p).unwrap_err().to_string();
        assert!(text.contains("scaled_dot_product_attention") && text.contains("help:"), "{text}");
    }
}

#[test]
fn halves_stay_in_their_range() {
    let device = seeded(16);
    for (low, high) in [(0.0, 1.0), (-1.0, 1.0), (0.1, 0.11), (-3.0, -1.5), (100.0, 1000.0), (-1.0, 0.0)] {
        let x = Tensor::empty(&device, &[40_001], DType::F16).unwrap();
        x.uniform_(low, high).unwrap();
        let (from, to) = (f16::from_f64(low), f16::from_f64(high));
        assert!(x.to_vec::<f16>().unwrap().iter().all(|x| (from..to).contains(x)), "{low} to {high}");
        let x = x.to_dtype(DType::BF16).unwrap();
        x.uniform_(low, high).unwrap();
        let (from, to) = (bf16::from_f64(low), bf16::from_f64(high));
        assert!(x.to_vec::<bf16>().unwrap().iter().all(|x| (from..to).contains(x)), "{low} to {high}");
    }
    let x = Tensor::zeros(&device, &[MANY]).unwrap().to_dtype(DType::F16).unwrap();
    let uniform = x.rand_like().unwrap();
    assert_eq!((uniform.dtype(), uniform.shape()), (DType::F16, x.shape()));
    chi_square("f16", &boxes(&f32s(&uniform), 256, |x| x), &[1.0; 256]);
    moments("f16", &f32s(&x.randn_like().unwrap()), [0.0, 1.0, 0.0, 3.0]);
    let brains = x.to_dtype(DType::BF16).unwrap();
    chi_square("bf16", &boxes(&f32s(&brains.rand_like().unwrap()), 256, |x| x), &[1.0; 256]);
    let whole = brains.randint_like(-4, 5).unwrap();
    assert_eq!(whole.dtype(), DType::BF16);
    let mut counts = [0u64; 9];
    f32s(&whole).iter().for_each(|x| counts[(*x + 4.0) as usize] += 1);
    chi_square("whole bf16", &counts, &[1.0; 9]);
    brains.exponential_(1.0).unwrap();
    x.normal_(5.0, 0.0).unwrap();
    assert!(f32s(&brains).iter().all(|x| *x >= 0.0) && f32s(&x).iter().all(|x| *x == 5.0));
}

/// What beside a view is not drawn anew, the numbers of a view are those of a tensor of its own, and the history starts over.
#[test]
fn views_are_filled_in_row_major_order() {
    let device = seeded(17);
    let state = device.rng_state().unwrap();
    let alone = f32s(&Tensor::rand(&device, &[5, 7]).unwrap());
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        device.set_rng_state(state).unwrap();
        let whole = Tensor::full(&device, &[7, 9], 3.0).unwrap().to_dtype(dtype).unwrap();
        let view = whole.transpose(0, 1).unwrap().narrow(0, 2, 5).unwrap();
        view.uniform_(0.0, 1.0).unwrap();
        let after = f32s(&whole);
        for (i, value) in after.iter().enumerate() {
            let (row, column) = (i / 9, i % 9);
            let inside = (2..7).contains(&column);
            assert_eq!(*value == 3.0, !inside, "{dtype}, {row}, {column}");
            assert!(!inside || dtype != DType::F32 || *value == alone[(column - 2) * 7 + row]);
        }
    }
    device.set_rng_state(state).unwrap();
    let whole = Tensor::zeros(&device, &[50]).unwrap();
    whole.narrow(0, 10, 35).unwrap().uniform_(0.0, 1.0).unwrap();
    let after = f32s(&whole);
    assert_eq!((&after[..10], &after[10..45], &after[45..]), (&[0.0; 10][..], &alone[..], &[0.0; 5][..]));
    assert!(
        whole.narrow(0, 0, 1).unwrap().expand(&[4]).unwrap().uniform_(0.0, 1.0).is_err(),
        "an element would be drawn four times"
    );
    // Gradients: none through what was drawn.
    let w = Tensor::from_slice(&device, &[64], &numbers(1, 64)).unwrap().requires_grad_(true).unwrap();
    assert!(w.uniform_(0.0, 1.0).unwrap_err().to_string().contains("leaf"));
    let y = w.mul_scalar(2.0).unwrap();
    y.normal_(0.0, 1.0).unwrap();
    y.add(&w).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(f32s(&w.grad().unwrap()), [1.0; 64]);
    for drawn in
        [w.rand_like(), w.square().unwrap().mul_scalar(0.1).unwrap().bernoulli(), Tensor::normal_of(&w, &w.square().unwrap())]
    {
        assert!(!drawn.unwrap().requires_grad());
    }
}

#[test]
fn normals_of_given_means_and_deviations() {
    let device = seeded(18);
    let mean = Tensor::new(&device, [[10.0f32], [-10.0]]).unwrap();
    let std = Tensor::full(&device, &[MANY], 0.5).unwrap();
    let x = Tensor::normal_of(&mean, &std).unwrap();
    assert_eq!(x.shape(), [2, MANY]);
    let x = f32s(&x);
    moments("around 10", &x[..MANY], [10.0, 0.25, 0.0, 3.0]);
    moments("around -10", &x[MANY..], [-10.0, 0.25, 0.0, 3.0]);
}

#[test]
fn a_state_goes_through_a_checkpoint() {
    let device = seeded(19);
    Tensor::rand(&device, &[1001]).unwrap();
    let (folder, weights) = (tempfile::tempdir().unwrap(), Tensor::randn(&device, &[10]).unwrap());
    let path = folder.path().join("model.safetensors");
    let metadata = [("rng".to_string(), device.rng_state().unwrap().to_string())].into();
    linn::nn::state::save(&path, &[("w".to_string(), weights)], &metadata).unwrap();
    let next =
        |device: &Device| (f32s(&Tensor::randn(device, &[77]).unwrap()), Tensor::randperm(device, 50).unwrap().to_vec::<i32>());
    let (normals, order) = next(&device);
    // Another process would be no different: the state is two numbers.
    let other = seeded(1);
    let checkpoint = linn::nn::state::load(&other, &path).unwrap();
    other.set_rng_state(checkpoint.metadata["rng"].parse().unwrap()).unwrap();
    let (same_normals, same_order) = next(&other);
    assert_eq!((normals, order.unwrap()), (same_normals, same_order.unwrap()));
    assert!("7".parse::<GeneratorState>().unwrap_err().to_string().starts_with("GeneratorState: \"7\""));
    let seed = device.seed().unwrap();
    assert_eq!((device.initial_seed().unwrap(), device.rng_state().unwrap().offset), (seed, 0));
    assert_ne!(device.seed().unwrap(), seed);
}

#[test]
fn threads_and_streams_draw_different_numbers() {
    let device = seeded(20);
    let draw = |device: &Device| -> Vec<Vec<u32>> {
        let stream = device.new_stream();
        let drawn: Vec<Tensor> =
            stream.scope(|| (0..50).map(|_| Distribution::bits().draw(device, &[40], DType::U32).unwrap()).collect());
        drawn.iter().map(|x| x.to_vec().unwrap()).collect()
    };
    let mut fours: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| draw(&device))).collect();
        let all = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        all.flat_map(|x| x.chunks(4).map(<[u32]>::to_vec).collect::<Vec<_>>()).collect()
    });
    let mut want: Vec<Vec<u32>> = reference::random_bits(20, 0, 4 * 50 * 40).chunks(4).map(<[u32]>::to_vec).collect();
    fours.sort();
    want.sort();
    assert_eq!(fours, want, "every counter is used once");
}

#[test]
fn drawing_does_not_wait() {
    let device = seeded(21);
    let weights = Tensor::ones(&device, &[3, 50]).unwrap();
    let before = device.stats().queue.host_syncs;
    let drawn = [
        Tensor::randperm(&device, 300).unwrap(),
        weights.multinomial(20, Replacement::With).unwrap(),
        weights.multinomial(20, Replacement::Without).unwrap(),
        weights.bernoulli().unwrap(),
        weights.dropout(0.5).unwrap(),
        Tensor::normal_of(&weights, &weights).unwrap(),
    ];
    assert_eq!(device.stats().queue.host_syncs, before);
    drop(drawn);
    device.synchronize().unwrap();
}

#[test]
fn nothing_is_drawn_for_tensors_without_elements() {
    let device = seeded(22);
    let state = device.rng_state().unwrap();
    let empty = Tensor::rand(&device, &[3, 0, 2]).unwrap();
    assert_eq!(empty.shape(), [3, 0, 2]);
    empty.normal_(0.0, 1.0).unwrap();
    empty.exponential_(1.0).unwrap();
    empty.bernoulli().unwrap();
    empty.dropout(0.5).unwrap();
    assert_eq!(Tensor::randint(&device, 0, 3, &[0]).unwrap().to_vec::<i32>().unwrap(), Vec::<i32>::new());
    let none = Tensor::zeros(&device, &[0, 4]).unwrap().multinomial(3, Replacement::With).unwrap();
    assert_eq!((none.shape(), Tensor::randperm(&device, 0).unwrap().len()), (&[0, 3][..], 0));
    assert_eq!(device.rng_state().unwrap(), state);
    assert_eq!(Tensor::rand(&device, &[]).unwrap().to_vec::<f32>().unwrap().len(), 1);
    device.synchronize().unwrap();
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let device = new_device();
    let (x, whole) = (Tensor::zeros(&device, &[2, 3]).unwrap(), Tensor::randint(&device, 0, 9, &[3]).unwrap());
    let half = x.to_dtype(DType::F16).unwrap();
    let refused = [
        ("uniform_", x.uniform_(1.0, 0.0)),
        ("uniform_", x.uniform_(f64::NAN, 1.0)),
        ("uniform_", x.uniform_(-3e38, 3e38)),
        ("uniform_", half.uniform_(0.0, 1e6)),
        ("uniform_", whole.uniform_(0.0, 1.0)),
        ("normal_", x.normal_(0.0, -1.0)),
        ("normal_", x.normal_(0.0, f64::NAN)),
        ("normal_", whole.normal_(0.0, 1.0)),
        ("exponential_", x.exponential_(0.0)),
        ("exponential_", x.exponential_(f64::NAN)),
        ("bernoulli_", x.bernoulli_(1.1)),
        ("bernoulli_", x.bernoulli_(f64::NAN)),
        ("dropout: p is 1.5", x.dropout(1.5).map(drop)),
        ("dropout: p is NaN", x.dropout(f64::NAN).map(drop)),
        ("random_", x.random_(3, 3)),
        ("random_", half.random_(0, 3000)),
        ("random_", whole.random_(0, 1 << 40)),
        ("randint", Tensor::randint(&device, 5, 5, &[1]).map(drop)),
        ("randint", Tensor::randint(&device, i64::MIN, i64::MAX, &[1]).map(drop)),
        ("rand_like", whole.rand_like().map(drop)),
        ("randn_like", whole.randn_like().map(drop)),
        ("bernoulli", whole.bernoulli().map(drop)),
        ("normal", Tensor::normal(&device, 0.0, -2.0, &[1]).map(drop)),
        ("normal", Tensor::normal_of(&whole, &x).map(drop)),
        ("multinomial", x.multinomial(0, Replacement::With).map(drop)),
        ("multinomial", x.multinomial(4, Replacement::Without).map(drop)),
        ("multinomial", whole.multinomial(1, Replacement::With).map(drop)),
        ("multinomial", Tensor::ones(&device, &[]).unwrap().multinomial(1, Replacement::With).map(drop)),
        ("multinomial", Tensor::ones(&device, &[1, 1, 2]).unwrap().multinomial(1, Replacement::With).map(drop)),
        ("multinomial", Tensor::ones(&device, &[2, 0]).unwrap().multinomial(1, Replacement::With).map(drop)),
    ];
    for (op, result) in refused {
        let error = result.expect_err(op).to_string();
        assert!(error.starts_with(op) && error.contains(": ") && error.contains("\nhelp: "), "{op}: {error}");
    }
    device.synchronize().unwrap();
    // What only the device knows comes at the next call that waits, once.
    let late = |word: &str, bad: [f32; 3], draw: &dyn Fn(&Tensor) -> linn::Result<Tensor>| {
        let drawn = draw(&Tensor::new(&device, bad).unwrap()).unwrap();
        let error = drawn.device().synchronize().expect_err(word).to_string();
        assert!(error.contains(word) && error.contains("\nhelp: "), "{bad:?}: {error}");
        device.synchronize().unwrap();
    };
    let with = |x: &Tensor| x.multinomial(5, Replacement::With);
    let without = |x: &Tensor| x.multinomial(2, Replacement::Without);
    late("bernoulli: probability 1 is 1.5", [0.5, 1.5, 0.0], &|p| p.bernoulli());
    late("bernoulli: probability 2 is -0.5", [0.5, 1.0, -0.5], &|p| p.bernoulli());
    late("bernoulli: probability 0 is NaN", [f32::NAN, 1.0, 0.5], &|p| p.bernoulli());
    late("normal: standard deviation 1 is -1.0", [0.5, -1.0, 0.5], &|std| Tensor::normal_of(std, std));
    for (word, bad) in [
        ("multinomial: probability 1 is -1.0", [1.0, -1.0, 0.0]),
        ("multinomial: probability 2 is inf", [1.0, 1.0, f32::INFINITY]),
        ("multinomial: probability 0 is NaN", [f32::NAN, 1.0, 1.0]),
        ("multinomial: the probabilities of distribution 0 sum to 0", [0.0, 0.0, 0.0]),
    ] {
        late(word, bad, &with);
        late(word, bad, &without);
    }
}
