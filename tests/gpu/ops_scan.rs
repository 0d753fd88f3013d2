//! Scans, and what is put together from reductions, against their references.

use linn::ops::reduce::{self, KeepDim};
use linn::ops::scan::{self, Direction};
use linn::{DType, Tensor};

use crate::close::{assert_close, numbers, wide};
use crate::device::device;
use crate::reference;

fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_slice(&device(), shape, data).unwrap()
}

fn read(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

#[test]
fn scans_of_middle_dimensions() {
    for shape in
        [[1, 1, 1], [3, 7, 2], [1, 64, 1], [2, 65, 3], [1, 1024, 5], [4, 1025, 1], [1, 70_001, 1], [5, 4096, 4], [700, 67, 3]]
    {
        let data = numbers(shape[1] as u32, shape.iter().product());
        let (x, a) = (tensor(&shape, &data), wide(&data));
        let what = |name: &str| format!("{name} of {shape:?}");
        let n = shape[1] as f64;
        let got = read(&scan::cumsum(&x, 1, Direction::Forward).unwrap());
        assert_close(&what("cumsum"), &got, &reference::cumsum(&a, shape), 1e-5, 1e-6 * n);
        let got = read(&scan::cumsum(&x, -2, Direction::Backward).unwrap());
        let total = reference::sum(&a, shape);
        // Backward: the total less what comes before.
        let line = shape[1] * shape[2];
        let ends = |(i, (sum, value)): (usize, (f64, &f64))| total[i / line * shape[2] + i % shape[2]] - sum + value;
        let want: Vec<f64> = reference::cumsum(&a, shape).into_iter().zip(&a).enumerate().map(ends).collect();
        assert_close(&what("cumsum backward"), &got, &want, 1e-5, 1e-6 * n);
        let near: Vec<f32> = data.iter().map(|value| 1.0 + value / (16.0 * n as f32)).collect();
        let got = read(&scan::cumprod(&tensor(&shape, &near), 1).unwrap());
        assert_close(&what("cumprod"), &got, &reference::cumprod(&wide(&near), shape), 1e-7 * n + 1e-6, 0.0);
        let got = read(&scan::cummax(&x, 1).unwrap());
        assert_close(&what("cummax"), &got, &reference::cummax(&a, shape), 0.0, 0.0);
        let got = read(&scan::cummin(&x, 1).unwrap());
        assert_close(&what("cummin"), &got, &reference::cummin(&a, shape), 0.0, 0.0);
        let got = read(&scan::logcumsumexp(&x, 1, Direction::Forward).unwrap());
        assert_close(&what("logcumsumexp"), &got, &reference::logcumsumexp(&a, shape), 1e-5, 1e-5);

        let whole: Vec<i32> = data.iter().map(|value| (value * 1e9) as i32).collect();
        let x = Tensor::from_slice(&device(), &shape, &whole).unwrap();
        let at = |i: usize, k: usize| (i / shape[2] * shape[1] + k) * shape[2] + i % shape[2];
        let running = |fold: fn(i32, i32) -> i32| {
            let mut out = whole.clone();
            for i in 0..shape[0] * shape[2] {
                (1..shape[1]).for_each(|k| out[at(i, k)] = fold(out[at(i, k - 1)], out[at(i, k)]));
            }
            out
        };
        let got = scan::cumsum(&x, 1, Direction::Forward).unwrap().to_vec::<i32>().unwrap();
        assert!(got == running(i32::wrapping_add), "{}", what("cumsum of i32"));
        let got = scan::cummin(&x, 1).unwrap().to_vec::<i32>().unwrap();
        assert!(got == running(i32::min), "{}", what("cummin of i32"));
    }
}

/// Lines beyond what one invocation may walk, up to 2^24 + 3 elements along one dimension.
#[test]
fn scans_of_long_lines() {
    for n in [(1 << 18) + 1, 1 << 20, (1 << 24) + 3] {
        let ones = reduce_to_one(&Tensor::from_slice(&device(), &[1], &[1i32]).unwrap(), n);
        let sums = ones.cumsum(0).unwrap();
        // A running sum of ones is the place of an element, plus 1.
        let places = Tensor::arange(&device(), n, DType::I32).unwrap().add_scalar(1).unwrap();
        let equal = sums.eq(&places).unwrap().all(&[], KeepDim::Drop).unwrap();
        assert_eq!(equal.to_vec::<u8>().unwrap(), [1], "cumsum of {n} ones");
        let (largest, at) = places.cummax(0).unwrap();
        let equal = largest.eq(&places).unwrap().logical_and(&at.add_scalar(1).unwrap().eq(&places).unwrap()).unwrap();
        assert_eq!(equal.count_nonzero(&[]).unwrap().item::<i32>().unwrap(), n as i32, "cummax of {n} places");
        let down = places.rsub(&places.full_like(7).unwrap(), 1).unwrap();
        assert_eq!(down.argmin(None, KeepDim::Drop).unwrap().item::<i32>().unwrap(), n as i32 - 1);
        assert_eq!(down.argmax(0, KeepDim::Drop).unwrap().item::<i32>().unwrap(), 0);
        let data: Vec<f32> = numbers(7, n).iter().map(|x| x.abs() / 2.0).collect();
        let want = reference::cumsum(&wide(&data), [1, n, 1]);
        let got = read(&tensor(&[n], &data).cumsum(0).unwrap());
        assert_close(&format!("cumsum of {n} numbers"), &got, &want, 2e-6, 1e-4);
    }
}

fn reduce_to_one(x: &Tensor, n: usize) -> Tensor {
    x.expand(&[n as isize]).unwrap()
}

#[test]
fn whole_numbers_truths_and_halves() {
    let device = device();
    let x = Tensor::from_slice(&device, &[2, 3], &[i32::MIN, 5, i32::MAX, 7, i32::MIN, i32::MIN]).unwrap();
    let whole = |x: Tensor| x.to_vec::<i32>().unwrap();
    assert_eq!(whole(x.amax(&[1], KeepDim::Drop).unwrap()), [i32::MAX, 7]);
    assert_eq!(whole(x.amin(&[0], KeepDim::Drop).unwrap()), [i32::MIN; 3]);
    assert_eq!(whole(x.argmin(1, KeepDim::Drop).unwrap()), [0, 1]);
    assert_eq!(whole(x.argmax(1, KeepDim::Drop).unwrap()), [2, 0]);
    assert_eq!(whole(x.prod(&[1], KeepDim::Drop).unwrap()), [i32::MIN, 0]);
    let unsigned = Tensor::from_slice(&device, &[3], &[1u32, u32::MAX, 0]).unwrap();
    assert_eq!(whole(unsigned.argmin(0, KeepDim::Drop).unwrap()), [2]);
    assert_eq!(whole(unsigned.argmax(0, KeepDim::Drop).unwrap()), [1]);

    let nan = f32::NAN;
    let x = tensor(&[3, 3], &[0.0, -0.0, 0.0, 1.0, nan, 0.0, 2.0, 3.0, nan]);
    let truths = |x: Tensor| x.to_vec::<u8>().unwrap();
    assert_eq!(truths(x.any(&[1], KeepDim::Drop).unwrap()), [0, 1, 1]);
    assert_eq!(truths(x.all(&[1], KeepDim::Drop).unwrap()), [0, 0, 1]);
    assert_eq!(whole(x.count_nonzero(&[0]).unwrap()), [2, 2, 1]);
    assert_eq!(whole(x.argmin(1, KeepDim::Drop).unwrap()), [0, 1, 2]);
    let (values, at) = x.cummin(0).unwrap();
    assert_eq!(whole(at), [0, 0, 0, 0, 1, 1, 0, 1, 2]);
    let values = read(&values);
    assert!(values[..4].iter().all(|value| *value == 0.0) && values[4].is_nan() && values[7].is_nan() && values[8].is_nan());
    let none = tensor(&[2, 0], &[]);
    assert_eq!(truths(none.all(&[1], KeepDim::Drop).unwrap()), [1, 1]);
    assert_eq!(truths(none.any(&[1], KeepDim::Drop).unwrap()), [0, 0]);
    assert_eq!(read(&none.prod(&[1], KeepDim::Drop).unwrap()), [1.0, 1.0]);
    assert_eq!(read(&none.logsumexp(&[1], KeepDim::Drop).unwrap()), [f32::NEG_INFINITY; 2]);

    // 2,049 has no f16: halves are summed in f32 and rounded once.
    let halves = Tensor::from_slice(&device, &[4098], &vec![half::f16::ONE; 4098]).unwrap();
    assert_eq!(halves.sum_all().unwrap().to_vec::<half::f16>().unwrap(), [half::f16::from_f32(4098.0)]);
    assert_eq!(halves.mean_all().unwrap().to_vec::<half::f16>().unwrap(), [half::f16::ONE]);
    assert_eq!(halves.to_dtype(DType::Bool).unwrap().sum_all().unwrap().item::<i32>().unwrap(), 4098);
    let last = halves.cumsum(0).unwrap().narrow(0, 4097, 1).unwrap();
    assert_eq!(last.to_vec::<half::f16>().unwrap(), [half::f16::from_f32(4098.0)]);
    let rows = halves.narrow(0, 0, 8).unwrap().softmax(0).unwrap();
    assert_eq!(rows.to_vec::<half::f16>().unwrap(), [half::f16::from_f32(0.125); 8]);
    assert!(x.to_dtype(DType::I32).unwrap().var(&[], 1.0, KeepDim::Drop).unwrap_err().to_string().starts_with("var: "));
}

/// Variance of numbers with mean 10,000 and deviation 1 within 1e-3: squares of such numbers differ by less than f32 holds.
#[test]
fn variance_far_from_zero() {
    let n = (1 << 20) + 3;
    let data: Vec<f32> = numbers(11, n).iter().map(|x| 1e4 + x * 0.75f32.sqrt()).collect();
    let a = wide(&data);
    let mean = a.iter().sum::<f64>() / n as f64;
    let want = a.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let (var, got_mean) = tensor(&[n], &data).var_mean(&[], 1.0, KeepDim::Drop).unwrap();
    assert_close("variance", &read(&var), &[want], 1e-3, 0.0);
    assert_close("mean", &read(&got_mean), &[mean], 1e-6, 0.0);
    let x = reduce::sum(&tensor(&[n], &data), &[], KeepDim::Drop).unwrap();
    assert_close("sum", &read(&x), &[mean * n as f64], 1e-6, 0.0);
}
