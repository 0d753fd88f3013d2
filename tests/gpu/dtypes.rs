//! Element types of which several lie in a word: conversions bit by bit, odd lengths and offsets, neighbours that stay as they are.

use half::{bf16, f16};
use linn::ops::reduce::KeepDim;
use linn::ops::{binary, copy};
use linn::{DType, Element, Tensor};

use crate::close::{assert_close, numbers};
use crate::device::device;
use crate::reference;

/// Single elements, around words, around `vec4`s and workgroups.
const LENS: [usize; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 257, 1023, 4099];

fn tensor<T: Element>(shape: &[usize], data: &[T]) -> Tensor {
    Tensor::from_slice(&device(), shape, data).unwrap()
}

fn read<T: Element>(x: &Tensor) -> Vec<T> {
    x.to_vec().unwrap()
}

#[test]
fn every_half_becomes_its_f32_and_comes_back() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let halves: Vec<f16> = bits.iter().map(|bits| f16::from_bits(*bits)).collect();
    let brains: Vec<bf16> = bits.iter().map(|bits| bf16::from_bits(*bits)).collect();
    let x = tensor(&[halves.len()], &halves).to_dtype(DType::F32).unwrap();
    for (got, want) in read::<f32>(&x).iter().zip(&halves) {
        assert!(got.to_bits() == want.to_f32().to_bits() || got.is_nan() && want.is_nan(), "{want:?} became {got}");
    }
    for (got, want) in read::<f16>(&x.to_dtype(DType::F16).unwrap()).iter().zip(&halves) {
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{want:?} came back as {got:?}");
    }
    let x = tensor(&[brains.len()], &brains).to_dtype(DType::F32).unwrap();
    for (got, want) in read::<f32>(&x).iter().zip(&brains) {
        // Numbers below the normal ones of f32 may be taken for 0.
        let flushed = want.to_f32().is_subnormal() && *got == 0.0;
        assert!(got.to_bits() == want.to_f32().to_bits() || flushed || got.is_nan() && want.is_nan(), "{want:?} became {got}");
    }
}

#[test]
fn f32_is_rounded_to_the_nearest_half() {
    // Ties, neighbours of ties, the ends of the ranges, numbers below the normal ones.
    let mut data: Vec<f32> = numbers(7, 4000).iter().map(|x| x * 100.0).collect();
    for exponent in -30..17 {
        for mantissa in [0u32, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7f_ffff, 0x7fff, 0x8000, 0x8001, 0x1_8000] {
            let value = f32::from_bits((((exponent + 127) as u32) << 23) | mantissa);
            data.extend([value, -value]);
        }
    }
    data.extend([0.0, -0.0, 65504.0, 65519.9, 65520.0, 1e30, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    let x = tensor(&[data.len()], &data);
    for (got, from) in read::<f16>(&x.to_dtype(DType::F16).unwrap()).iter().zip(&data) {
        let want = f16::from_f32(*from);
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{from:e} became {got:?}, not {want:?}");
    }
    for (got, from) in read::<bf16>(&x.to_dtype(DType::BF16).unwrap()).iter().zip(&data) {
        let want = bf16::from_f32(*from);
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{from:e} became {got:?}, not {want:?}");
    }
}

type One = fn(&Tensor) -> linn::Result<Tensor>;
type Two = fn(&Tensor, &Tensor) -> linn::Result<Tensor>;

macro_rules! methods {
    ($($name:ident)*) => { &[$((stringify!($name), |x| x.$name())),*] };
}
macro_rules! methods_of_two {
    ($($name:ident)*) => { &[$((stringify!($name), |x, y| x.$name(y))),*] };
}

const OF_ONE: &[(&str, One)] = methods!(
    neg exp exp2 expm1 log log1p log2 log10 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sinc sigmoid
    logsigmoid relu gelu erf erfc erfinv abs square reciprocal sign floor ceil trunc round frac positive deg2rad rad2deg selu silu
    mish relu6 hardsigmoid hardswish softsign tanhshrink
);

const OF_ONE_WITH_NUMBERS: &[(&str, One)] = &[
    ("add_scalar", |x| x.add_scalar(0.1)),
    ("mul_scalar", |x| x.mul_scalar(0.3)),
    ("pow_scalar", |x| x.pow_scalar(1.7)),
    ("pow 3", |x| x.pow_scalar(3)),
    ("clamp", |x| x.clamp(-0.3, 0.7)),
    ("elu", |x| x.elu(1.3)),
    ("celu", |x| x.celu(0.7)),
    ("leaky_relu", |x| x.leaky_relu(0.01)),
    ("hardshrink", |x| x.hardshrink(0.5)),
    ("softshrink", |x| x.softshrink(0.3)),
    ("threshold", |x| x.threshold(0.1, 20.0)),
    ("softplus", |x| x.softplus(1.5, 20.0)),
    ("hardtanh", |x| x.hardtanh(-0.7, 0.9)),
    ("gelu with tanh", |x| x.gelu_with(linn::ops::unary::Approximate::Tanh)),
    ("round_decimals", |x| x.round_decimals(2)),
    ("nan_to_num", |x| x.nan_to_num(Some(0.1), Some(3.0), None)),
    ("masked_fill", |x| x.masked_fill(&x.gt(&x.neg()?)?, 0.1)),
];

const OF_TWO: &[(&str, Two)] = methods_of_two!(
    add sub mul div pow maximum minimum atan2 copysign hypot xlogy logaddexp fmax fmin fmod remainder div_trunc div_floor heaviside
    prelu_of_one
);

const OF_TWO_WITH_NUMBERS: &[(&str, Two)] = &[
    ("lerp", |x, y| x.lerp(y, &x.mul_scalar(0.0)?.add_scalar(0.25)?)),
    ("addcmul", |x, y| x.addcmul(y, x, 0.3)),
    ("addcdiv", |x, y| x.addcdiv(y, x, 0.3)),
    ("add_scaled", |x, y| x.add_scaled(y, 0.3)),
    ("sub_scaled", |x, y| x.sub_scaled(y, 0.3)),
    ("rsub", |x, y| x.rsub(y, 0.3)),
    ("where", |x, y| x.where_(&x.gt(y)?, y)),
];

trait PreluOfOne {
    fn prelu_of_one(&self, other: &Tensor) -> linn::Result<Tensor>;
}

impl PreluOfOne for Tensor {
    /// A negative element times the first of the others.
    fn prelu_of_one(&self, other: &Tensor) -> linn::Result<Tensor> {
        if other.is_empty() { self.positive() } else { self.prelu(&other.narrow(0, 0, 1)?) }
    }
}

/// Each element-wise result is the f32 result, rounded once: of every second function, from the `first`th on.
fn check_halves<T: Element>(first: usize, from: fn(f32) -> T, is_nan: fn(T) -> bool) {
    // Compiling them is what takes time: each in one of the two types, or, with `LINN_LONG=1`, in both.
    let long = std::env::var_os("LINN_LONG").is_some_and(|value| value == "1");
    let (first, step) = if long { (0, 1) } else { (first, 2) };
    for len in LENS {
        let halves = |seed: u32| -> Vec<T> { numbers(seed, len).into_iter().map(from).collect() };
        let (x, y) = (tensor(&[len], &halves(1)), tensor(&[len], &halves(2)));
        let (wide_x, wide_y) = (x.to_dtype(DType::F32).unwrap(), y.to_dtype(DType::F32).unwrap());
        let check = |name: &str, narrow: linn::Result<Tensor>, wide: linn::Result<Tensor>| {
            let what = format!("{name} of {len} elements of {}", T::DTYPE);
            let narrow = narrow.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(narrow.dtype(), T::DTYPE, "{what}");
            let wide: Vec<f32> = read(&wide.unwrap());
            for (i, (got, wide)) in read::<T>(&narrow).into_iter().zip(wide).enumerate() {
                let want = from(wide);
                assert!(got == want || is_nan(got) && is_nan(want), "{what}: element {i} is {got:?}, {wide} rounds to {want:?}");
            }
        };
        let of_one = OF_ONE.iter().chain(OF_ONE_WITH_NUMBERS).skip(first).step_by(step);
        of_one.for_each(|(name, of)| check(name, of(&x), of(&wide_x)));
        let of_two = OF_TWO.iter().chain(OF_TWO_WITH_NUMBERS).skip(first).step_by(step);
        of_two.for_each(|(name, of)| check(name, of(&x, &y), of(&wide_x, &wide_y)));
    }
}

#[test]
fn half_results_are_f32_results_rounded_once() {
    check_halves(0, f16::from_f32, f16::is_nan);
    check_halves(1, bf16::from_f32, bf16::is_nan);
}

/// Sums of halves are sums of f32, rounded once: an error of half the distance of two halves, whatever their number.
#[test]
fn sums_and_products_of_halves_are_rounded_once() {
    let n = (1 << 16) + 3;
    let data: Vec<bf16> = numbers(5, n).into_iter().map(|x| bf16::from_f32(x.abs())).collect();
    let x = tensor(&[n], &data);
    let exact = |of: fn(f64) -> f64| data.iter().map(|x| of(x.to_f64())).sum::<f64>();
    let reductions: [(&str, Tensor, f64); 4] = [
        ("sum", x.sum_all().unwrap(), exact(|x| x)),
        ("mean", x.mean_all().unwrap(), exact(|x| x) / n as f64),
        ("norm", x.norm(2.0, &[], KeepDim::Drop).unwrap(), exact(|x| x * x).sqrt()),
        ("dot", x.dot(&x).unwrap(), exact(|x| x * x)),
    ];
    for (name, got, want) in reductions {
        let got = read::<bf16>(&got)[0].to_f64();
        // 8 binary digits.
        assert!((got - want).abs() <= want / 256.0, "{name} is {got}, should be {want}");
    }

    // Products of matrices: each element a sum in f32.
    let ([m, k, columns], of) =
        ([7, 300, 5], |seed: u32, len: usize| -> Vec<f16> { numbers(seed, len).into_iter().map(f16::from_f32).collect() });
    let (a, b, bias) = (of(1, m * k), of(2, k * columns), of(3, columns));
    let (x, y) = (tensor(&[m, k], &a), tensor(&[k, columns], &b));
    let wide = |x: &Tensor| x.to_dtype(DType::F32).unwrap();
    // 11 binary digits, and what sums in another order differ by.
    let same = |what: &str, got: &Tensor, want: &Tensor| {
        assert_eq!(got.dtype(), DType::F16, "{what}");
        assert_close(what, &read::<f32>(&wide(got)), &crate::close::wide(&read(want)), 0.51 / 1024.0, 1e-4);
    };
    let product = wide(&x).matmul(&wide(&y)).unwrap();
    same("matmul", &x.matmul(&y).unwrap(), &product);
    same("mm", &x.mm(&y).unwrap(), &product);
    let bias = tensor(&[columns], &bias);
    let linear = x.linear(&y.t().unwrap(), Some(&bias)).unwrap();
    same("linear", &linear, &product.add(&wide(&bias)).unwrap());
    same("linear without bias", &x.linear(&y.t().unwrap(), None).unwrap(), &product);
    let batch = x.reshape(&[1, 7, 300]).unwrap().expand(&[3, 7, 300]).unwrap();
    assert_eq!(batch.bmm(&y.unsqueeze(0).unwrap().expand(&[3, 300, 5]).unwrap()).unwrap().dtype(), DType::F16);
    let einsum = linn::autograd::einsum("ij,jk->ki", &[&x, &y]).unwrap();
    same("einsum", &einsum, &product.t().unwrap().contiguous().unwrap());
    let refused = x.matmul(&wide(&y)).unwrap_err().to_string();
    assert!(refused.contains("matmul: ") && refused.contains("f32") && refused.contains("f16"), "{refused}");

    // Gradients have the type of what they belong to.
    let (x, y) = (x.requires_grad_(true).unwrap(), y.requires_grad_(true).unwrap());
    x.matmul(&y).unwrap().to_dtype(DType::F32).unwrap().sum_all().unwrap().backward().unwrap();
    let ones = tensor(&[m, columns], &vec![1.0f32; m * columns]);
    same("gradient", &x.grad().unwrap(), &ones.matmul(&wide(&y.detach()).t().unwrap()).unwrap());
}

/// What networks are made of computes in f32 and rounds once, forward and backward; parameters may be f32 beside halves.
#[test]
fn networks_of_halves() {
    use linn::ops::attention::Mask;
    type Of = fn(&[Tensor]) -> linn::Result<Tensor>;
    let targets = |x: &Tensor| Tensor::arange(x.device(), x.shape()[0], DType::I32);
    let cases: [(&str, Of, &[&[usize]]); 5] = [
        ("layer_norm", |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5), &[&[5, 33], &[33], &[33]]),
        ("layer_norm without weight", |x| x[0].layer_norm(None, None, 1e-5), &[&[5, 64]]),
        (
            "attention",
            |x| x[0].scaled_dot_product_attention(&x[1], &x[2], Mask::Causal),
            &[&[2, 3, 7, 5], &[2, 3, 7, 5], &[2, 3, 7, 5]],
        ),
        ("mse_loss", |x| x[0].mse_loss(&x[1], linn::autograd::Reduction::Mean), &[&[70_000], &[70_000]]),
        ("rms_norm", |x| x[0].rms_norm(&[33], Some(&x[1]), None), &[&[5, 33], &[33]]),
    ];
    let gradients = |of: &dyn Fn(&[Tensor]) -> linn::Result<Tensor>, x: &[Tensor]| -> Vec<Tensor> {
        let x: Vec<Tensor> = x.iter().map(|x| x.detach().requires_grad_(true).unwrap()).collect();
        let out = of(&x).unwrap();
        // Numbers that both types of halves hold.
        let weights = numbers(99, out.len()).into_iter().map(|x| bf16::from_f32(x).to_f32()).collect::<Vec<_>>();
        let sum = out.to_dtype(DType::F32).unwrap().mul(&tensor(out.shape(), &weights)).unwrap().sum_all().unwrap();
        sum.backward().unwrap();
        [out.detach()].into_iter().chain(x.iter().map(|x| x.grad().unwrap())).collect()
    };
    for half in [DType::F16, DType::BF16] {
        let rounding = if half == DType::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 };
        let same = |what: &str, got: &Tensor, want: &Tensor| {
            assert_eq!((got.dtype(), got.shape()), (half, want.shape()), "{what}");
            let want: Vec<f64> = read::<f32>(want).into_iter().map(f64::from).collect();
            assert_close(what, &read(&got.to_dtype(DType::F32).unwrap()), &want, rounding * 1.05, 1e-5);
        };
        for (name, of, shapes) in &cases {
            let data = |i: usize, shape: &[usize]| tensor(shape, &numbers(i as u32 + 1, shape.iter().product()));
            let x: Vec<Tensor> = shapes.iter().enumerate().map(|(i, shape)| data(i, shape).to_dtype(half).unwrap()).collect();
            let wide: Vec<Tensor> = x.iter().map(|x| x.to_dtype(DType::F32).unwrap()).collect();
            let (got, want) = (gradients(of, &x), gradients(of, &wide));
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                same(&format!("{name} of {half}, {i}"), got, want);
            }
            let mixed: Vec<Tensor> = [x[0].clone()].into_iter().chain(wide[1..].iter().cloned()).collect();
            if name.contains("norm") {
                let mixed = gradients(of, &mixed);
                assert_eq!(mixed[0].dtype(), half, "{name}");
                assert!(mixed[2..].iter().all(|grad| grad.dtype() == DType::F32), "{name}");
            }
        }
        let logits = tensor(&[9, 12], &numbers(7, 108)).to_dtype(half).unwrap();
        let loss = |x: &[Tensor]| x[0].cross_entropy(&targets(&x[0])?)?.mul_scalar(4.0);
        let wide = gradients(&loss, &[logits.to_dtype(DType::F32).unwrap()]);
        gradients(&loss, &[logits]).iter().zip(&wide).for_each(|(got, want)| {
            assert_eq!(got.dtype(), half);
            let want: Vec<f64> = read::<f32>(want).into_iter().map(f64::from).collect();
            assert_close("cross_entropy", &read(&got.to_dtype(DType::F32).unwrap()), &want, 2.1 * rounding, 1e-5);
        });
    }
}

/// PyTorch compares halves step by step in their type: |a - b| <= atol + |rtol b|, each rounded.
#[test]
fn halves_are_close_as_in_pytorch() {
    let round = |x: f32| f16::from_f32(x).to_f32();
    let b: Vec<f32> = numbers(5, 2000).into_iter().map(|x| round(x * 10.0)).collect();
    let by = numbers(6, 2000);
    let a: Vec<f32> = b.iter().zip(&by).map(|(b, by)| round(b + by * 0.02)).collect();
    let halves = |data: &[f32]| tensor(&[data.len()], &data.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>());
    for (rtol, atol) in [(1e-3f32, 1e-3f32), (1e-5, 1e-8), (0.0, 0.0), (2e-3, 0.0), (0.0, 5e-3), (1e-2, 1e-2)] {
        let close = |(a, b): (&f32, &f32)| a == b || round(a - b).abs() <= round(atol + round(rtol * b).abs());
        let want: Vec<u8> = a.iter().zip(&b).map(|pair| u8::from(close(pair))).collect();
        let got = halves(&a).isclose(&halves(&b), rtol.into(), atol.into(), false).unwrap();
        assert_eq!(read::<u8>(&got), want, "rtol {rtol}, atol {atol}");
        let all = halves(&a).allclose(&halves(&b), rtol.into(), atol.into(), false).unwrap();
        assert_eq!(all, want.iter().all(|close| *close == 1));
    }
    let special = halves(&[f32::NAN, f32::INFINITY, f32::INFINITY, 65504.0]);
    let other = halves(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
    assert_eq!(read::<u8>(&special.isclose(&other, 1e-3, 1e-3, false).unwrap()), [0, 1, 0, 0]);
    assert_eq!(read::<u8>(&special.isclose(&other, 1e-3, 1e-3, true).unwrap()), [1, 1, 0, 0]);
}

/// Products of whole numbers wrap, as sums of them do.
#[test]
fn products_of_whole_numbers() {
    let whole = |seed: u32, len: usize| numbers(seed, len).into_iter().map(|x| (x * 1e9) as i32).collect::<Vec<_>>();
    for [m, n, k] in [[1, 1, 1], [3, 5, 0], [7, 33, 17], [17, 4, 1000], [1, 1, 40_000], [65, 64, 66]] {
        let (a, b) = (whole(1, m * k), whole(2, k * n));
        let want = reference::matmul_integer(&a, &b, [m, n, k]);
        let (x, y) = (tensor(&[m, k], &a), tensor(&[k, n], &b));
        assert_eq!(read::<i32>(&x.matmul(&y).unwrap()), want, "[{m}, {k}] [{k}, {n}]");
        // Transposed, and as u32, whose products have the same bits.
        let turned = y.t().unwrap().matmul(&x.t().unwrap()).unwrap().t().unwrap();
        assert_eq!(read::<i32>(&turned.contiguous().unwrap()), want, "turned [{m}, {k}] [{k}, {n}]");
        let unsigned = |data: &[i32]| data.iter().map(|x| *x as u32).collect::<Vec<_>>();
        let (x, y) = (tensor(&[m, k], &unsigned(&a)), tensor(&[k, n], &unsigned(&b)));
        assert_eq!(read::<u32>(&x.matmul(&y).unwrap()), unsigned(&want), "u32 [{m}, {k}] [{k}, {n}]");
    }
    let x = tensor(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    assert_eq!(read::<i32>(&x.mv(&tensor(&[3], &[1, 0, -1])).unwrap()), [-2, -2]);
    assert_eq!(read::<i32>(&tensor(&[2], &[10, 20]).addmv(&x, &tensor(&[3], &[1, 1, 1]), 1, 2).unwrap()), [22, 50]);
    let refused = x.to_dtype(DType::Bool).unwrap().matmul(&x.t().unwrap().to_dtype(DType::Bool).unwrap());
    assert!(refused.unwrap_err().to_string().starts_with("matmul: "));
}

/// Writing and reading by index, of every type that has numbers.
#[test]
fn indexing_of_every_type() {
    use linn::autograd::{Own, Put, ScatterReduce};
    let index = tensor(&[5], &[2i32, 0, 2, 2, 1]);
    let base = tensor(&[4], &[10.0f32, 20.0, 30.0, 40.0]);
    let source = tensor(&[5], &[1.0f32, 2.0, 3.0, 4.0, 5.0]);
    let reduce =
        |kind: ScatterReduce, own: Own| move |x: &Tensor, index: &Tensor, s: &Tensor| x.scatter_reduce(0, index, s, kind, own);
    type Indexed = Box<dyn Fn(&Tensor, &Tensor, &Tensor) -> linn::Result<Tensor>>;
    let cases: Vec<(&str, Indexed, Vec<f32>)> = vec![
        ("scatter_add", Box::new(|x, i, s| x.scatter_add(0, i, s)), vec![12.0, 25.0, 38.0, 40.0]),
        ("sum", Box::new(reduce(ScatterReduce::Sum, Own::Excluded)), vec![2.0, 5.0, 8.0, 40.0]),
        ("prod", Box::new(reduce(ScatterReduce::Prod, Own::Included)), vec![20.0, 100.0, 360.0, 40.0]),
        ("amax", Box::new(reduce(ScatterReduce::Amax, Own::Excluded)), vec![2.0, 5.0, 4.0, 40.0]),
        ("amin", Box::new(reduce(ScatterReduce::Amin, Own::Included)), vec![2.0, 5.0, 1.0, 40.0]),
        ("mean", Box::new(reduce(ScatterReduce::Mean, Own::Included)), vec![6.0, 12.5, 9.5, 40.0]),
        ("index_add", Box::new(|x, i, s| x.index_add(0, i, s, 2)), vec![14.0, 30.0, 46.0, 40.0]),
        ("index_put", Box::new(|x, i, s| x.index_put([i], s, Put::Add)), vec![12.0, 25.0, 38.0, 40.0]),
        ("scatter", Box::new(|x, i, s| x.scatter(0, i, s)), vec![2.0, 5.0, 4.0, 40.0]),
        ("gather", Box::new(|x, i, _| x.gather(0, i)), vec![30.0, 10.0, 30.0, 30.0, 20.0]),
        ("index_select", Box::new(|x, i, _| x.index_select(0, i)), vec![30.0, 10.0, 30.0, 30.0, 20.0]),
    ];
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32] {
        let of = |x: &Tensor| x.to_dtype(dtype).unwrap();
        for (name, case, want) in &cases {
            let got = case(&of(&base), &index, &of(&source)).unwrap_or_else(|error| panic!("{name} of {dtype}: {error}"));
            assert_eq!(got.dtype(), dtype, "{name}");
            let want: Vec<f32> = want.iter().map(|x| if dtype.is_float() { *x } else { x.floor() }).collect();
            assert_eq!(read::<f32>(&got.to_dtype(DType::F32).unwrap()), want, "{name} of {dtype}");
        }
    }
    let flags = tensor(&[3], &[1u8, 0, 1]);
    assert_eq!(read::<u8>(&flags.index_select(0, &tensor(&[2], &[1i32, 2])).unwrap()), [0, 1]);
    // 2,049 has no f16: elements that come to one place are added in f32.
    let ones = tensor(&[2049], &[f16::ONE; 2049]);
    let zeros = tensor(&[1], &[f16::ZERO]);
    let sum = zeros.scatter_add(0, &tensor(&[2049], &[0i32; 2049]), &ones).unwrap();
    assert_eq!(read::<f16>(&sum), [f16::from_f32(2049.0)]);
    let refused = flags.scatter_add(0, &tensor(&[1], &[0i32]), &flags.narrow(0, 0, 1).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("scatter_add") && refused.contains("bool"), "{refused}");
}

#[test]
fn bool_of_every_length_and_offset() {
    for len in LENS {
        let data: Vec<u8> = (0..len + 3).map(|i| u8::from(i % 3 == 0) * 7).collect();
        let whole = tensor(&[len + 3], &data);
        let truth: Vec<u8> = data.iter().map(|x| u8::from(*x != 0)).collect();
        assert_eq!(read::<u8>(&whole), truth, "{len}");
        for offset in 0..=3usize {
            let view = whole.narrow(0, offset as isize, len).unwrap();
            let want = &truth[offset..offset + len];
            assert_eq!(read::<u8>(&view), want, "view of {len} from {offset}");
            assert_eq!(read::<u8>(&copy::copy(&view).unwrap()), want, "copy of {len} from {offset}");
            let not = binary::eq(&view, &copy::full(&device(), &[], false, DType::Bool).unwrap()).unwrap();
            assert_eq!(read::<u8>(&not), want.iter().map(|x| 1 - x).collect::<Vec<_>>(), "not of {len} from {offset}");
            let sum: Vec<i32> = want.iter().map(|x| i32::from(*x) + 5).collect();
            assert_eq!(read::<i32>(&view.add_scalar(5).unwrap()), sum, "sum of {len} from {offset}");
        }
    }
}

/// What lies beside a view in the same word is as it was after something was written to the view.
#[test]
fn writing_to_a_view_leaves_its_neighbours() {
    // Of (1, 12) some views end in the last word of the memory, but not with the last element.
    for (rows, columns) in [(1, 12), (1, 13), (5, 7), (6, 9)] {
        for start in 0..4 {
            for len in 1..=columns - start {
                let data: Vec<u8> = (0..rows * columns).map(|i| u8::from(i % 2 == 0)).collect();
                let x = tensor(&[rows, columns], &data);
                x.narrow(1, start as isize, len).unwrap().fill_(true).unwrap();
                let inside = |i: usize| (start..start + len).contains(&(i % columns));
                let want: Vec<u8> = (0..rows * columns).map(|i| if inside(i) { 1 } else { data[i] }).collect();
                assert_eq!(read::<u8>(&x), want, "bool {rows} x {columns}, columns {start} to {}", start + len);

                let data: Vec<f16> = (0..rows * columns).map(|i| f16::from_f32(i as f32)).collect();
                let x = tensor(&[rows, columns], &data);
                let part = x.narrow(1, start as isize, len).unwrap();
                part.mul_scalar_(2.0).unwrap();
                part.transpose(0, 1).unwrap().add_scalar_(1.0).unwrap();
                let changed = |i: usize| f16::from_f32(2.0 * i as f32 + 1.0);
                let want: Vec<f16> = (0..rows * columns).map(|i| if inside(i) { changed(i) } else { data[i] }).collect();
                assert_eq!(read::<f16>(&x), want, "f16 {rows} x {columns}, columns {start} to {}", start + len);
            }
        }
    }
}

#[test]
fn comparisons_of_views_and_broadcast_operands() {
    let data = numbers(3, 2 * 3 * 5 * 4 * 3 * 6);
    let x = tensor(&[2, 3, 5, 4, 3, 6], &data);
    let views = [
        x.reshape(&[30, 72]).unwrap().transpose(0, 1).unwrap(),
        x.reshape(&[30, 72]).unwrap().narrow(1, 3, 17).unwrap(),
        x.reshape(&[2160]).unwrap().narrow(0, 7, 1001).unwrap(),
        x.permute(&[5, 3, 1, 0, 2, 4]).unwrap(),
    ];
    for view in &views {
        let row = view.narrow(0, 0, 1).unwrap();
        let greater = view.gt(&row).unwrap();
        assert_eq!((greater.dtype(), greater.shape()), (DType::Bool, view.shape()));
        let (a, row) = (read::<f32>(view), read::<f32>(&row));
        let want: Vec<u8> = a.iter().enumerate().map(|(i, x)| u8::from(*x > row[i % row.len()])).collect();
        assert_eq!(read::<u8>(&greater), want, "{:?}", view.shape());
        // Where it is greater the element, else 0.
        let got = binary::where_scalar(&greater, view, 0.0).unwrap();
        let want: Vec<f32> = a.iter().zip(&want).map(|(x, greater)| if *greater == 1 { *x } else { 0.0 }).collect();
        assert_eq!(read::<f32>(&got), want);
    }
}

#[test]
fn types_of_results_are_pytorchs() {
    let device = device();
    let of = |dtype: DType| copy::full(&device, &[3], 1, dtype).unwrap();
    let zero_dim = |dtype: DType| copy::full(&device, &[], 1, dtype).unwrap();
    let cases = [
        (of(DType::I32).add(&of(DType::F32)), DType::F32),
        (of(DType::I32).add(&of(DType::Bool)), DType::I32),
        (of(DType::Bool).add(&of(DType::Bool)), DType::Bool),
        (of(DType::F16).mul(&of(DType::BF16)), DType::F32),
        (of(DType::F16).mul(&zero_dim(DType::F32)), DType::F16),
        (of(DType::I32).div(&of(DType::I32)), DType::F32),
        (of(DType::I32).add_scalar(2), DType::I32),
        (of(DType::I32).add_scalar(2.5), DType::F32),
        (of(DType::Bool).mul_scalar(3), DType::I32),
        (of(DType::I32).exp(), DType::F32),
        (of(DType::BF16).exp(), DType::BF16),
        (of(DType::I32).maximum(&of(DType::Bool)), DType::I32),
        (of(DType::I32).clamp(0, 2.5), DType::F32),
        (of(DType::I32).eq(&of(DType::F16)), DType::Bool),
        (of(DType::I32).relu(), DType::I32),
        (of(DType::U32).relu(), DType::U32),
        (of(DType::Bool).sign(), DType::Bool),
        (of(DType::U32).sign(), DType::U32),
        (of(DType::Bool).square(), DType::I32),
        (of(DType::Bool).isclose(&of(DType::Bool), 0.0, 0.0, false), DType::Bool),
    ];
    for (i, (result, want)) in cases.into_iter().enumerate() {
        assert_eq!(result.unwrap().dtype(), want, "case {i}");
    }
    assert_eq!(read::<u8>(&of(DType::Bool).add(&of(DType::Bool)).unwrap()), [1, 1, 1]);

    let whole = |data: [i32; 3]| tensor(&[3], &data);
    assert_eq!(read::<i32>(&whole([i32::MIN, 0, i32::MAX]).relu().unwrap()), [0, 0, i32::MAX]);
    let bits = |data: [u8; 2]| Tensor::new(&device, data).unwrap();
    let (a, b) = (bits([1, 0]), bits([0, 1]));
    for (rtol, atol, want) in [(0.5, 0.0, [0, 0]), (1.0, 0.0, [0, 1]), (0.0, 1.0, [1, 1]), (0.5, 0.5, [0, 1])] {
        assert_eq!(read::<u8>(&a.isclose(&b, rtol, atol, false).unwrap()), want, "rtol {rtol}, atol {atol}");
    }
    assert!(of(DType::Bool).relu().unwrap_err().to_string().starts_with("relu: "));

    let refused = of(DType::I32).add_(&of(DType::F32), 1.0).unwrap_err().to_string();
    assert!(refused.contains("add_: the result is f32") && refused.contains("is i32\nhelp:"), "{refused}");
    assert!(of(DType::Bool).mul_scalar_(2).is_err());
    assert!(of(DType::Bool).sub(&of(DType::Bool)).is_err());
    assert!(of(DType::I32).add(&of(DType::U32)).is_err());
    // A half that an f32 is added to stays a half.
    let x = of(DType::F16);
    x.add_(&tensor(&[3], &[0.25f32, 0.5, 1.0]), 1.0).unwrap();
    assert_eq!(read::<f16>(&x), [1.25, 1.5, 2.0].map(f16::from_f32));
}

/// Gradients have the type of what they belong to, also where operands were promoted.
#[test]
fn gradients_have_the_type_of_their_tensor() {
    let half = tensor(&[4], &[1.0, 2.0, 3.0, 4.0].map(f16::from_f32)).requires_grad_(true).unwrap();
    let wide = tensor(&[4], &[0.5f32, 0.25, 2.0, 1.0]).requires_grad_(true).unwrap();
    half.mul(&wide).unwrap().to_dtype(DType::F32).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(read::<f16>(&half.grad().unwrap()), [0.5, 0.25, 2.0, 1.0].map(f16::from_f32));
    assert_eq!(read::<f32>(&wide.grad().unwrap()), [1.0, 2.0, 3.0, 4.0]);
}

/// Optimizers step parameters of halves in f32; tests/gpu/optimizers.rs compares each step.
#[test]
fn optimizers_of_halves() {
    use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup, Sgd, SgdOptions};
    // A line through points, learned in halves.
    for kind in ["adamw", "adam", "sgd"] {
        let w = tensor(&[1, 2], &[bf16::ZERO; 2]).requires_grad_(true).unwrap();
        let group = ParamGroup::new(vec![("w".to_owned(), w.clone())], 0.05, 0.0);
        let mut optimizer: Box<dyn Optimizer> = match kind {
            "adamw" => Box::new(Adam::adamw(vec![group], AdamOptions::default())),
            "adam" => Box::new(Adam::new(vec![group], AdamOptions { amsgrad: true, ..AdamOptions::default() })),
            _ => Box::new(Sgd::new(vec![group], SgdOptions { momentum: 0.5, ..SgdOptions::default() })),
        };
        let x = tensor(&[4, 2], &[-1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 2.0, 1.0].map(bf16::from_f32));
        let y = tensor(&[4, 1], &[-1.5, 0.5, 2.5, 4.5].map(bf16::from_f32));
        for _ in 0..150 {
            x.linear(&w, None).unwrap().mse_loss(&y, linn::autograd::Reduction::Mean).unwrap().backward().unwrap();
            linn::optim::clip_grad_norm_(std::slice::from_ref(&w), 10.0).unwrap();
            optimizer.step().unwrap();
            optimizer.zero_grad();
        }
        let learned = read::<bf16>(&w.detach());
        assert!((learned[0].to_f32() - 2.0).abs() < 0.1 && (learned[1].to_f32() - 0.5).abs() < 0.1, "{kind}: {learned:?}");
    }
}
