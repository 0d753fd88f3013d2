//! Element types of which several lie in a word: conversions bit by bit, odd lengths and offsets, neighbours that stay as they are.

use half::{bf16, f16};
use linn::ops::{binary, copy, unary};
use linn::{DType, Element, Tensor};

use crate::close::numbers;
use crate::device::device;

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

/// Each element-wise result is the f32 result, rounded once.
#[test]
fn half_results_are_f32_results_rounded_once() {
    for len in LENS {
        let (a, b): (Vec<f16>, Vec<f16>) = (
            numbers(1, len).iter().map(|x| f16::from_f32(*x)).collect(),
            numbers(2, len).iter().map(|x| f16::from_f32(*x)).collect(),
        );
        let (x, y) = (tensor(&[len], &a), tensor(&[len], &b));
        let (wide_x, wide_y) = (x.to_dtype(DType::F32).unwrap(), y.to_dtype(DType::F32).unwrap());
        let pairs = [
            (binary::add(&x, &y).unwrap(), binary::add(&wide_x, &wide_y).unwrap()),
            (binary::mul(&x, &y).unwrap(), binary::mul(&wide_x, &wide_y).unwrap()),
            (unary::exp(&x).unwrap(), unary::exp(&wide_x).unwrap()),
            (unary::gelu(&x).unwrap(), unary::gelu(&wide_x).unwrap()),
            (unary::add_scalar(&x, 0.1).unwrap(), unary::add_scalar(&wide_x, 0.1).unwrap()),
        ];
        for (i, (narrow, wide)) in pairs.iter().enumerate() {
            assert_eq!(narrow.dtype(), DType::F16);
            let want: Vec<f16> = read::<f32>(wide).iter().map(|x| f16::from_f32(*x)).collect();
            assert_eq!(read::<f16>(narrow), want, "function {i}, {len} elements");
        }
    }
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
    for (rows, columns) in [(1, 13), (5, 7), (6, 9)] {
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
    ];
    for (i, (result, want)) in cases.into_iter().enumerate() {
        assert_eq!(result.unwrap().dtype(), want, "case {i}");
    }
    assert_eq!(read::<u8>(&of(DType::Bool).add(&of(DType::Bool)).unwrap()), [1, 1, 1]);

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
