//! Element-wise kernels against their formulas: lengths, views, broadcasting, aliases, special values.

use linn::ops::{binary, copy, unary};
use linn::{DType, Result, Tensor};

use crate::close::{assert_close, numbers, wide};
use crate::device::device;
use crate::reference::{Args, element};

/// 1, primes, multiples of 4 and neighbours, more than one workgroup.
const LENS: [usize; 9] = [0, 1, 3, 4, 5, 257, 1024, 4099, 70_001];

type Unary = fn(&Tensor) -> Result<Tensor>;
const UNARY: [(&str, Unary); 44] = [
    ("neg", unary::neg),
    ("exp", unary::exp),
    ("log", unary::log),
    ("sqrt", unary::sqrt),
    ("rsqrt", unary::rsqrt),
    ("sin", unary::sin),
    ("cos", unary::cos),
    ("tanh", unary::tanh),
    ("sigmoid", unary::sigmoid),
    ("relu", unary::relu),
    ("gelu", unary::gelu),
    ("erf", unary::erf),
    ("abs", unary::abs),
    ("square", unary::square),
    ("reciprocal", unary::reciprocal),
    ("sign", unary::sign),
    ("exp2", unary::exp2),
    ("expm1", unary::expm1),
    ("log1p", unary::log1p),
    ("log2", unary::log2),
    ("log10", unary::log10),
    ("tan", unary::tan),
    ("asin", unary::asin),
    ("acos", unary::acos),
    ("atan", unary::atan),
    ("sinh", unary::sinh),
    ("cosh", unary::cosh),
    ("asinh", unary::asinh),
    ("acosh", unary::acosh),
    ("atanh", unary::atanh),
    ("erfc", unary::erfc),
    ("erfinv", unary::erfinv),
    ("sinc", unary::sinc),
    ("floor", unary::floor),
    ("ceil", unary::ceil),
    ("trunc", unary::trunc),
    ("round", unary::round),
    ("frac", unary::frac),
    ("logsigmoid", unary::logsigmoid),
    ("isnan", unary::isnan),
    ("isinf", unary::isinf),
    ("isfinite", unary::isfinite),
    ("signbit", unary::signbit),
    ("logical_not", unary::logical_not),
];

type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;
const BINARY: [(&str, Binary); 31] = [
    ("add", binary::add),
    ("sub", binary::sub),
    ("mul", binary::mul),
    ("div", binary::div),
    ("pow", binary::pow),
    ("maximum", binary::maximum),
    ("minimum", binary::minimum),
    ("eq", binary::eq),
    ("ne", binary::ne),
    ("lt", binary::lt),
    ("le", binary::le),
    ("gt", binary::gt),
    ("ge", binary::ge),
    ("atan2", binary::atan2),
    ("copysign", binary::copysign),
    ("fmax", binary::fmax),
    ("fmin", binary::fmin),
    ("div_trunc", binary::div_trunc),
    ("fmod", binary::fmod),
    ("remainder", binary::remainder),
    ("hypot", binary::hypot),
    ("heaviside", binary::heaviside),
    ("xlogy", binary::xlogy),
    ("logaddexp", binary::logaddexp),
    ("logical_and", binary::logical_and),
    ("logical_or", binary::logical_or),
    ("logical_xor", binary::logical_xor),
    ("relu_backward", unary::relu_backward),
    ("gelu_backward", unary::gelu_backward),
    ("tanh_backward", unary::tanh_backward),
    ("sigmoid_backward", unary::sigmoid_backward),
];

fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_slice(&device(), shape, data).unwrap()
}

/// The elements; bool as 0 and 1.
fn read(x: &Tensor) -> Vec<f32> {
    x.to_dtype(DType::F32).unwrap().to_vec().unwrap()
}

/// Absolute and relative tolerance: an error of one unit in the last place of the argument changes sin by that much.
const RELATIVE: f64 = 2e-6;
const ABSOLUTE: f64 = 3e-7;

fn expected(name: &str, a: &[f32], b: &[f32]) -> Vec<f64> {
    let formula = element(name).unwrap();
    (0..a.len())
        .map(|i| formula(Args { a: a[i].into(), b: b.get(i).copied().unwrap_or(0.0).into(), ..Args::default() }))
        .collect()
}

#[test]
fn unary_over_lengths() {
    for (name, f) in UNARY {
        for len in LENS {
            let data: Vec<f32> = numbers(len as u32, len).iter().map(|x| x * 4.0).collect();
            let got = read(&f(&tensor(&[len], &data)).unwrap());
            assert_close(&format!("{name} of {len}"), &got, &expected(name, &data, &[]), RELATIVE, ABSOLUTE);
        }
    }
}

#[test]
fn unary_over_special_values() {
    let data = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1.0,
        -1.0,
        88.0,
        89.5,
        -88.0,
        -104.5,
        1e-20,
        0.5999,
        0.6001,
        0.9999,
        1.0001,
        3.9999,
        4.0001,
        9.0,
        20.0,
        -20.0,
        100.0,
        -1000.0,
        1e4,
        -3e4,
    ];
    for (name, f) in UNARY {
        let trigonometric = matches!(name, "sin" | "cos" | "tan" | "sinc");
        let data: Vec<f32> = data.iter().copied().filter(|x| !trigonometric || !x.is_finite() || x.abs() < 1e5).collect();
        let got = read(&f(&tensor(&[data.len()], &data)).unwrap());
        let want: Vec<f64> = expected(name, &data, &[])
            .iter()
            .zip(&data)
            // A result below the normal numbers may be 0, as may such an argument.
            .map(|(want, x)| if name == "gelu" && *x == f32::NEG_INFINITY { f64::NAN } else { *want })
            .collect();
        let absolute = if trigonometric { 1e-5 } else { ABSOLUTE };
        for i in 0..data.len() {
            assert_close(&format!("{name}({})", data[i]), &got[i..=i], &want[i..=i], RELATIVE, absolute);
        }
    }
}

/// Functions that are nearly x at 0 lose no digits there: drivers may simplify what should put them back.
#[test]
fn small_numbers_keep_their_digits() {
    let sizes = (1..=20).flat_map(|k| [1.0, 1.7, 2.9, 6.1].map(|m| m * 0.1f32.powi(k)));
    let x: Vec<f32> = sizes.flat_map(|x| [x, -x]).collect();
    for name in ["log1p", "expm1", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh"] {
        let (_, op) = UNARY.iter().find(|(of, _)| *of == name).expect("a function of the list");
        let got = read(&op(&tensor(&[x.len()], &x)).unwrap());
        for ((x, got), want) in x.iter().zip(got).zip(expected(name, &x, &[])) {
            let off = (f64::from(got) - want).abs() / want.abs();
            assert!(off < 1e-6, "{name}({x:e}) is {want:e}, not {got:e}: {off:e} of it off");
        }
    }
}

#[test]
fn binary_over_lengths_and_special_values() {
    for (name, f) in BINARY {
        for len in LENS {
            let (a, b) = (numbers(1, len), numbers(2, len));
            let a: Vec<f32> = a.iter().map(|x| if name == "pow" { x.abs() } else { *x }).collect();
            let got = read(&f(&tensor(&[len], &a), &tensor(&[len], &b)).unwrap());
            assert_close(&format!("{name} of {len}"), &got, &expected(name, &a, &b), RELATIVE, ABSOLUTE);
        }
        let special = [0.0, -1.5, 2.0, 3.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0];
        let pairs: Vec<(f32, f32)> = special.iter().flat_map(|a| special.iter().map(move |b| (*a, *b))).collect();
        let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
        let got = read(&f(&tensor(&[a.len()], &a), &tensor(&[b.len()], &b)).unwrap());
        let want = expected(name, &a, &b);
        for i in 0..a.len() {
            let skip = name.ends_with("_backward") && !(a[i].is_finite() && b[i].is_finite());
            if !skip {
                assert_close(&format!("{name}({}, {})", a[i], b[i]), &got[i..=i], &want[i..=i], RELATIVE, ABSOLUTE);
            }
        }
    }
}

/// Views of one tensor: transposed, narrowed at every end, with an offset that is no multiple of 4, up to 6 dimensions.
#[test]
fn views_and_broadcasting() {
    let whole = numbers(3, 2 * 3 * 5 * 4 * 3 * 6);
    let x = tensor(&[2, 3, 5, 4, 3, 6], &whole);
    let views = [
        x.reshape(&[30, 72]).unwrap().transpose(0, 1).unwrap(),
        x.reshape(&[30, 72]).unwrap().narrow(1, 4, 64).unwrap(),
        x.reshape(&[30, 72]).unwrap().narrow(1, 3, 17).unwrap(),
        x.reshape(&[2160]).unwrap().narrow(0, 7, 1000).unwrap(),
        x.permute(&[5, 3, 1, 0, 2, 4]).unwrap(),
        x.narrow(2, 1, 3).unwrap().permute(&[4, 5, 0, 2, 3, 1]).unwrap().narrow(1, 1, 4).unwrap(),
    ];
    for (i, view) in views.iter().enumerate() {
        let dense = elements(view, &whole);
        assert_close(&format!("copy of view {i}"), &read(&copy::copy(view).unwrap()), &wide(&dense), 0.0, 0.0);
        let got = read(&unary::neg(view).unwrap());
        assert_close(&format!("neg of view {i}"), &got, &wide(&dense).iter().map(|x| -x).collect::<Vec<_>>(), 0.0, 0.0);
        // Broadcast against its own last row and column, and itself.
        let last = view.rank() as isize - 1;
        let row = view.narrow(0, 0, 1).unwrap();
        let column = view.narrow(last, 0, 1).unwrap();
        for (name, other) in [("itself", view), ("row", &row), ("column", &column)] {
            let expanded = broadcast(other, view.shape(), &whole);
            let want: Vec<f64> = dense.iter().zip(&expanded).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
            let got = read(&binary::sub(view, other).unwrap());
            assert_close(&format!("view {i} minus its {name}"), &got, &want, 1e-6, 1e-6);
            let got = read(&binary::sub(other, view).unwrap());
            let want: Vec<f64> = want.iter().map(|x| -x).collect();
            assert_close(&format!("{name} minus view {i}"), &got, &want, 1e-6, 1e-6);
        }
    }
}

#[test]
fn rows_and_scalars_broadcast() {
    let (a, bias) = (numbers(4, 65 * 128), numbers(5, 128));
    let got = read(&binary::add(&tensor(&[65, 128], &a), &tensor(&[128], &bias)).unwrap());
    let want: Vec<f64> = a.iter().enumerate().map(|(i, x)| f64::from(*x) + f64::from(bias[i % 128])).collect();
    assert_close("bias", &got, &want, 1e-6, 1e-6);
    let got = read(&binary::mul(&tensor(&[], &[3.0]), &tensor(&[65, 128], &a)).unwrap());
    assert_close("scalar", &got, &a.iter().map(|x| 3.0 * f64::from(*x)).collect::<Vec<_>>(), 1e-6, 0.0);
    let condition = tensor(&[65, 1], &(0..65).map(|i| (i % 2) as f32).collect::<Vec<_>>());
    let got = read(&binary::where_(&condition, &tensor(&[65, 128], &a), &tensor(&[], &[9.0])).unwrap());
    let want: Vec<f64> = a.iter().enumerate().map(|(i, x)| if i / 128 % 2 == 1 { f64::from(*x) } else { 9.0 }).collect();
    assert_close("where", &got, &want, 0.0, 0.0);
}

#[test]
fn in_place_and_overlapping() {
    // The longest are read as textures where a driver wants that.
    for len in [1, 6, 4099, 20_001] {
        let (a, b) = (numbers(6, len), numbers(7, len));
        let (x, y) = (tensor(&[len], &a), tensor(&[len], &b));
        binary::add_(&x, &y, -0.5).unwrap();
        let want: Vec<f64> = a.iter().zip(&b).map(|(a, b)| f64::from(*a) - 0.5 * f64::from(*b)).collect();
        assert_close("add_", &read(&x), &want, 1e-6, 1e-6);
        let x = tensor(&[len], &a);
        binary::mul_(&x, &x).unwrap();
        assert_close("x *= x", &read(&x), &a.iter().map(|x| f64::from(*x).powi(2)).collect::<Vec<_>>(), 1e-6, 0.0);
        let x = tensor(&[len], &a);
        unary::mul_scalar_(&x, 2.0).unwrap();
        unary::add_scalar_(&x, 1.0).unwrap();
        assert_close("2 x + 1", &read(&x), &a.iter().map(|x| 2.0 * f64::from(*x) + 1.0).collect::<Vec<_>>(), 1e-6, 1e-6);
    }
    // Writing through a view leaves its surroundings alone, also at an offset that is no multiple of 4.
    let a = numbers(8, 1000);
    for (start, len) in [(0, 5), (4, 9), (3, 700), (5, 2)] {
        let x = tensor(&[1000], &a);
        unary::mul_scalar_(&x.narrow(0, start as isize, len).unwrap(), 3.0).unwrap();
        let inside = |i: usize| (start..start + len).contains(&i);
        let want: Vec<f64> = a.iter().enumerate().map(|(i, x)| f64::from(*x) * if inside(i) { 3.0 } else { 1.0 }).collect();
        assert_close(&format!("window {start}+{len}"), &read(&x), &want, 1e-6, 0.0);
    }
    // The result overlaps the operand one element further on: a shift must not see what it has written.
    for len in [1000, 20_000] {
        let a = numbers(8, len);
        let x = tensor(&[len], &a);
        copy::copy_(&x.narrow(0, 1, len - 1).unwrap(), &x.narrow(0, 0, len - 1).unwrap()).unwrap();
        let want: Vec<f64> = (0..len).map(|i| f64::from(a[i.saturating_sub(1)])).collect();
        assert_close("shift", &read(&x), &want, 0.0, 0.0);
    }
    // The transposed operand of the same square.
    const SIDE: usize = 132;
    let square = numbers(9, SIDE * SIDE);
    let x = tensor(&[SIDE, SIDE], &square);
    binary::add_(&x, &x.transpose(0, 1).unwrap(), 1.0).unwrap();
    let at = |i: usize, j: usize| f64::from(square[i * SIDE + j]);
    let want: Vec<f64> = (0..SIDE * SIDE).map(|i| at(i / SIDE, i % SIDE) + at(i % SIDE, i / SIDE)).collect();
    assert_close("x + x^T in place", &read(&x), &want, 1e-6, 1e-6);
}

#[test]
fn scalars_integers_and_casts() {
    let a = numbers(10, 301);
    let x = tensor(&[301], &a);
    let check = |name: &str, got: Tensor, s: f64, t: f64| {
        let formula = element(name).unwrap();
        let want: Vec<f64> = a.iter().map(|a| formula(Args { a: f64::from(*a), s, t, ..Args::default() })).collect();
        assert_close(name, &read(&got), &want, RELATIVE, ABSOLUTE);
    };
    check("add_scalar", unary::add_scalar(&x, 1.5).unwrap(), 1.5, 0.0);
    check("mul_scalar", unary::mul_scalar(&x, -2.0).unwrap(), -2.0, 0.0);
    check("rsub_scalar", unary::rsub_scalar(&x, 0.5).unwrap(), 0.5, 0.0);
    check("rdiv_scalar", unary::rdiv_scalar(&x, 0.5).unwrap(), 0.5, 0.0);
    check("clamp", unary::clamp(&x, -1.0, 0.5).unwrap(), -1.0, 0.5);
    for exponent in [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, 2.5] {
        check("pow_scalar", unary::pow_scalar(&x, exponent).unwrap(), exponent, 0.0);
    }
    let whole = Tensor::from_slice(&device(), &[5], &[-7i32, 0, 3, i32::MAX, i32::MIN]).unwrap();
    assert_eq!(unary::neg(&whole).unwrap().to_vec::<i32>().unwrap(), [7, 0, -3, -i32::MAX, i32::MIN]);
    assert_eq!(binary::add(&whole, &whole).unwrap().to_vec::<i32>().unwrap(), [-14, 0, 6, -2, 0]);
    assert_eq!(copy::to_dtype(&whole, DType::F32).unwrap().to_vec::<f32>().unwrap()[..3], [-7.0, 0.0, 3.0]);
    let cut = copy::to_dtype(&tensor(&[4], &[-1.9, 1.9, 0.0, 100.5]), DType::I32).unwrap();
    assert_eq!(cut.to_vec::<i32>().unwrap(), [-1, 1, 0, 100]);
    assert_eq!(unary::clamp(&whole, -3, 5).unwrap().to_vec::<i32>().unwrap(), [-3, 0, 3, 5, -3]);
    assert!(unary::clamp(&tensor(&[1], &[f32::NAN]), 0.0, 1.0).unwrap().item::<f32>().unwrap().is_nan());
    // PyTorch's promotion; see dtypes.rs.
    assert_eq!(unary::add_scalar(&whole, 0.5).unwrap().to_vec::<f32>().unwrap()[..3], [-6.5, 0.5, 3.5]);
    assert_eq!(binary::add(&whole, &tensor(&[5], &[0.25; 5])).unwrap().to_vec::<f32>().unwrap()[..3], [-6.75, 0.25, 3.25]);
}

#[test]
fn fills_ranges_and_concatenation() {
    let device = device();
    for len in [0, 1, 7, 4096, 70_001] {
        assert_eq!(read(&copy::full(&device, &[len], 2.5, DType::F32).unwrap()), vec![2.5; len]);
        let range = copy::arange(&device, len, DType::I32).unwrap();
        assert_eq!(range.to_vec::<i32>().unwrap(), (0..len as i32).collect::<Vec<_>>());
    }
    let (a, b) = (numbers(11, 6 * 5), numbers(12, 6 * 8));
    let joined = copy::cat(&[&tensor(&[6, 5], &a), &tensor(&[6, 8], &b)], 1).unwrap();
    let want: Vec<f64> = (0..6).flat_map(|r| wide(&a[r * 5..][..5]).into_iter().chain(wide(&b[r * 8..][..8]))).collect();
    assert_eq!(joined.shape(), [6, 13]);
    assert_close("cat", &read(&joined), &want, 0.0, 0.0);
    assert!(copy::cat(&[], 0).is_err() && copy::cat(&[&joined, &tensor(&[2], &[0.0; 2])], 0).is_err());
}

/// More workgroups than one dimension of a dispatch has: 65,536 groups of 64 short strided rows.
#[test]
fn grids_fold() {
    let rows = 65_536 * 64 + 77;
    let x = copy::full(&device(), &[rows, 3], 1.5, DType::F32).unwrap();
    let doubled = unary::mul_scalar(&x.narrow(1, 1, 1).unwrap(), 2.0).unwrap();
    let values = read(&doubled);
    assert!(values.len() == rows && values.iter().all(|value| *value == 3.0));
}

/// A view in row-major order, by its layout.
fn elements(view: &Tensor, storage: &[f32]) -> Vec<f32> {
    let layout = view.layout();
    let wide: Vec<f64> = storage.iter().map(|x| f64::from(*x)).collect();
    crate::reference::copy_rank8(&wide, layout.shape(), layout.strides(), layout.offset()).iter().map(|x| *x as f32).collect()
}

fn broadcast(view: &Tensor, shape: &[usize], storage: &[f32]) -> Vec<f32> {
    let layout = view.layout().broadcast_to("test", shape).unwrap();
    let wide: Vec<f64> = storage.iter().map(|x| f64::from(*x)).collect();
    crate::reference::copy_rank8(&wide, layout.shape(), layout.strides(), layout.offset()).iter().map(|x| *x as f32).collect()
}
