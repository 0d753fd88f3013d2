//! Softmax and log-softmax, forward and backward, against slow references in f64.

use linn::Tensor;
use linn::ops::softmax::{log_softmax, log_softmax_backward, softmax, softmax_backward};

use crate::device::device;
use crate::reference;

fn numbers(len: usize, spread: f32) -> Vec<f32> {
    let mut state = 99_991u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * spread
    };
    (0..len).map(|_| next()).collect()
}

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

#[track_caller]
fn close(got: &Tensor, want: &[f64], relative: f64, absolute: f64, what: &str) {
    let got = got.to_vec::<f32>().unwrap();
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        assert!(error <= relative * want.abs() + absolute, "{what}: element {i} is {got}, not {want}");
    }
}

#[test]
fn rows_of_all_lengths() {
    let device = device();
    for n in [1, 2, 3, 4, 5, 7, 64, 97, 1000, 8192, 16_384, 16_385, 100_003] {
        let rows = if n > 5000 { 2 } else { 33 };
        let (x, dy) = (numbers(rows * n, 8.0), numbers(rows * n, 1.0));
        let tensor = Tensor::from_slice(&device, &[rows, n], &x).unwrap();
        let gradient = Tensor::from_slice(&device, &[rows, n], &dy).unwrap();
        let y = softmax(&tensor, -1).unwrap();
        close(&y, &reference::softmax(&doubles(&x), n, 0, 1.0), 2e-6, 1e-9, &format!("softmax {n}"));
        let saved = doubles(&y.to_vec::<f32>().unwrap());
        let want = reference::softmax_backward(&saved, &doubles(&dy), n, 1.0);
        close(&softmax_backward(&y, &gradient, -1).unwrap(), &want, 1e-5, 1e-7, &format!("softmax_backward {n}"));
        let y = log_softmax(&tensor, -1).unwrap();
        close(&y, &reference::log_softmax(&doubles(&x), n), 1e-6, 2e-6, &format!("log_softmax {n}"));
        let saved = doubles(&y.to_vec::<f32>().unwrap());
        let want = reference::log_softmax_backward(&saved, &doubles(&dy), n);
        close(&log_softmax_backward(&y, &gradient, -1).unwrap(), &want, 1e-5, 2e-5, &format!("log_softmax_backward {n}"));
    }
}

#[test]
fn other_dimensions_and_views() {
    let device = device();
    let x = numbers(4 * 6 * 5, 3.0);
    let tensor = Tensor::from_slice(&device, &[4, 6, 5], &x).unwrap();
    let y = softmax(&tensor, 1).unwrap();
    assert_eq!(y.shape(), [4, 6, 5]);
    let moved: Vec<f64> = (0..4)
        .flat_map(|i| (0..5).flat_map(move |k| (0..6).map(move |j| (i, j, k))))
        .map(|(i, j, k)| f64::from(x[(i * 6 + j) * 5 + k]))
        .collect();
    let want = reference::softmax(&moved, 6, 0, 1.0);
    close(&y.transpose(1, 2).unwrap(), &want, 2e-6, 1e-9, "dimension 1");
    close(&softmax(&tensor.transpose(1, 2).unwrap(), -1).unwrap(), &want, 2e-6, 1e-9, "a transposed view");
    let scalar = Tensor::from_slice(&device, &[], &[3.0f32]).unwrap();
    assert_eq!(softmax(&scalar, 0).unwrap().to_vec::<f32>().unwrap(), [1.0]);
    assert_eq!(softmax(&Tensor::from_slice::<f32>(&device, &[0, 3], &[]).unwrap(), 1).unwrap().shape(), [0, 3]);
    assert!(softmax(&tensor, 3).is_err());
}

#[test]
fn infinities_and_nan_as_in_pytorch() {
    let device = device();
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for pad in [0, 1] {
        // With and without a fifth column: items of one and of four elements.
        let row = |values: [f32; 4]| values.into_iter().chain(std::iter::repeat_n(-inf, pad)).collect::<Vec<f32>>();
        let of = |values: [f32; 4]| {
            let x = Tensor::from_slice(&device, &[4 + pad], &row(values)).unwrap();
            (softmax(&x, 0).unwrap().to_vec::<f32>().unwrap(), log_softmax(&x, 0).unwrap().to_vec::<f32>().unwrap())
        };
        let (y, log) = of([-inf, 0.0, -inf, 0.0]);
        assert_eq!(y[..4], [0.0, 0.5, 0.0, 0.5]);
        assert!(log[0] == -inf && (log[1] + std::f32::consts::LN_2).abs() < 1e-6, "{log:?}");
        for values in [[-inf; 4], [1.0, nan, 0.0, 0.0], [inf, 0.0, 1.0, 2.0], [0.0, 1.0, inf, inf]] {
            let (y, log) = of(values);
            assert!(y.iter().all(|y| y.is_nan()), "softmax of {values:?} is {y:?}");
            assert!(log.iter().all(|y| y.is_nan()) || values[0] == inf || values[2] == inf, "log_softmax: {log:?}");
        }
        let (y, _) = of([1000.0, 1000.0, -1000.0, 0.0]);
        assert_eq!(y[..4], [0.5, 0.5, 0.0, 0.0]);
    }
}
