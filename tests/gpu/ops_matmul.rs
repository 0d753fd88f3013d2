//! Matrix products and attention against slow references in f64: awkward shapes, views, broadcasting, long K.

use linn::ops::attention::{Mask, scaled_dot_product_attention, scaled_dot_product_attention_backward};
use linn::ops::matmul::{linear, matmul};
use linn::{Device, Tensor};

use crate::device::device;
use crate::reference;

/// Numbers in -1..1 without a pattern that strides could hide in.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

/// Every element within `bound` times the size of its sum, the root of `k` terms.
#[track_caller]
fn close(got: &[f32], want: &[f64], k: usize, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let bound = 1e-6 * (k as f64).sqrt().max(1.0);
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        assert!(error <= bound * want.abs().max(1.0), "{what}: element {i} is {got}, not {want}");
    }
}

/// A matrix [rows, columns], optionally stored transposed and in the middle of a larger one.
fn matrix(device: &Device, values: &[f32], rows: usize, columns: usize, how: &str) -> Tensor {
    let transposed =
        |values: &[f32]| -> Vec<f32> { (0..columns).flat_map(|j| (0..rows).map(move |i| values[i * columns + j])).collect() };
    match how {
        "plain" => Tensor::from_slice(device, &[rows, columns], values).unwrap(),
        "transposed" => Tensor::from_slice(device, &[columns, rows], &transposed(values)).unwrap().transpose(0, 1).unwrap(),
        _ => {
            // Rows 2.., columns 1.. of a matrix with odd strides; what lies around is NaN and must not leak.
            let (outer_rows, outer_columns) = (rows + 3, columns + 4);
            let mut outer = vec![f32::NAN; outer_rows * outer_columns];
            for i in 0..rows {
                for j in 0..columns {
                    outer[(i + 2) * outer_columns + j + 1] = values[i * columns + j];
                }
            }
            let outer = Tensor::from_slice(device, &[outer_rows, outer_columns], &outer).unwrap();
            outer.narrow(0, 2, rows).unwrap().narrow(1, 1, columns).unwrap()
        }
    }
}

const SHAPES: [[usize; 3]; 17] = [
    [66, 44, 8],
    [70, 36, 20],
    [1, 4, 4],
    [1, 1, 1],
    [3, 5, 7],
    [17, 33, 65],
    [31, 100, 13],
    [64, 32, 16],
    [64, 64, 64],
    [65, 97, 129],
    [8, 7, 256],
    [1, 200, 100],
    [200, 1, 100],
    [100, 100, 1],
    [2, 3, 1031],
    [128, 96, 768],
    [130, 34, 2],
];

#[test]
fn matmul_of_awkward_shapes_and_views() {
    let device = device();
    for [m, n, k] in SHAPES {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let want = reference::matmul(&doubles(&a), &doubles(&b), [m, n, k]);
        for a_how in ["plain", "transposed", "window"] {
            for b_how in ["plain", "transposed", "window"] {
                let y = matmul(&matrix(&device, &a, m, k, a_how), &matrix(&device, &b, k, n, b_how)).unwrap();
                assert_eq!(y.shape(), [m, n]);
                close(&y.to_vec::<f32>().unwrap(), &want, k, &format!("{m}x{n}x{k} {a_how} {b_how}"));
            }
        }
    }
}

#[test]
fn matmul_without_elements() {
    let device = device();
    let of = |shape: &[usize]| Tensor::from_slice::<f32>(&device, shape, &[]).unwrap();
    for (m, n) in [(0, 5), (5, 0), (0, 0)] {
        let (a, b) = (matrix(&device, &numbers(m * 3, 1), m, 3, "plain"), matrix(&device, &numbers(3 * n, 1), 3, n, "plain"));
        assert_eq!(matmul(&a, &b).unwrap().shape(), [m, n]);
    }
    let y = matmul(&of(&[3, 0]), &of(&[0, 4])).unwrap();
    assert_eq!(y.shape(), [3, 4]);
    assert_eq!(y.to_vec::<f32>().unwrap(), vec![0.0; 12]);
}

#[test]
fn matmul_of_vectors_and_batches() {
    let device = device();
    let (a, b) = (numbers(7, 3), numbers(7 * 4, 4));
    let (vector, columns) = (Tensor::from_slice(&device, &[7], &a).unwrap(), matrix(&device, &b, 7, 4, "plain"));
    let dot = matmul(&vector, &vector).unwrap();
    assert_eq!(dot.shape(), [0usize; 0]);
    let want: f64 = a.iter().map(|x| f64::from(*x).powi(2)).sum();
    close(&dot.to_vec::<f32>().unwrap(), &[want], 7, "dot");
    let want = reference::matmul(&doubles(&a), &doubles(&b), [1, 4, 7]);
    let y = matmul(&vector, &columns).unwrap();
    assert_eq!(y.shape(), [4]);
    close(&y.to_vec::<f32>().unwrap(), &want, 7, "vector times matrix");
    let y = matmul(&columns.transpose(0, 1).unwrap(), &vector).unwrap();
    assert_eq!(y.shape(), [4]);
    close(&y.to_vec::<f32>().unwrap(), &want, 7, "matrix times vector");

    // [2, 1, 3, 5] @ [4, 5, 6], and one matrix under a batch.
    let (a, b) = (numbers(2 * 15, 5), numbers(4 * 30, 6));
    let y =
        matmul(&Tensor::from_slice(&device, &[2, 1, 3, 5], &a).unwrap(), &Tensor::from_slice(&device, &[4, 5, 6], &b).unwrap())
            .unwrap();
    assert_eq!(y.shape(), [2, 4, 3, 6]);
    let mut want = Vec::new();
    for i in 0..2 {
        for j in 0..4 {
            let (a, b) = (&a[i * 15..][..15], &b[j * 30..][..30]);
            want.extend(reference::matmul(&doubles(a), &doubles(b), [3, 6, 5]));
        }
    }
    close(&y.to_vec::<f32>().unwrap(), &want, 5, "broadcast batches");
    let one = Tensor::from_slice(&device, &[5, 6], &b[..30]).unwrap();
    let y = matmul(&Tensor::from_slice(&device, &[2, 3, 5], &a).unwrap(), &one).unwrap();
    close(&y.to_vec::<f32>().unwrap(), &reference::matmul(&doubles(&a), &doubles(&b[..30]), [6, 6, 5]), 5, "batch as rows");

    // Three batch dimensions that do not merge: one launch per entry of the outermost.
    let a = numbers(2 * 3 * 2 * 4, 7);
    let x = Tensor::from_slice(&device, &[2, 3, 1, 2, 4], &a).unwrap();
    let b = numbers(3 * 2 * 4 * 3, 8);
    let w = Tensor::from_slice(&device, &[1, 3, 2, 4, 3], &b).unwrap();
    let y = matmul(&x, &w).unwrap();
    assert_eq!(y.shape(), [2, 3, 2, 2, 3]);
    let mut want = Vec::new();
    for i in 0..2 {
        for j in 0..3 {
            for l in 0..2 {
                let (a, b) = (&a[(i * 3 + j) * 8..][..8], &b[(j * 2 + l) * 12..][..12]);
                want.extend(reference::matmul(&doubles(a), &doubles(b), [2, 3, 4]));
            }
        }
    }
    close(&y.to_vec::<f32>().unwrap(), &want, 4, "three batch dimensions");
}

#[test]
fn matmul_over_a_k_longer_than_one_loop() {
    let device = device();
    for k in [16_384, 16_385, 100_003, 1 << 20] {
        let a = Tensor::from_slice(&device, &[1, k], &vec![1.0f32; k]).unwrap();
        let b: Vec<f32> = (0..k).map(|i| if i % 1024 == 7 { 1.0 } else { 0.0 }).collect();
        let b = Tensor::from_slice(&device, &[k, 1], &b).unwrap();
        let want = (0..k).filter(|i| i % 1024 == 7).count() as f32;
        assert_eq!(matmul(&a, &b).unwrap().to_vec::<f32>().unwrap(), [want], "k = {k}");
        let y = matmul(&a.expand(&[3, k as isize]).unwrap(), &b.expand(&[k as isize, 2]).unwrap()).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [want; 6], "k = {k}, expanded");
    }
}

#[test]
fn matmul_keeps_nan_and_infinity_where_they_belong() {
    let device = device();
    let mut a = vec![1.0f32; 4 * 3];
    a[3] = f32::NAN;
    a[7] = f32::INFINITY;
    let y = matmul(&matrix(&device, &a, 4, 3, "plain"), &matrix(&device, &[1.0; 15], 3, 5, "plain")).unwrap();
    let y = y.to_vec::<f32>().unwrap();
    assert!(y[..5].iter().all(|x| *x == 3.0) && y[15..].iter().all(|x| *x == 3.0), "{y:?}");
    assert!(y[5..10].iter().all(|x| x.is_nan()) && y[10..15].iter().all(|x| *x == f32::INFINITY), "{y:?}");
}

#[test]
fn linear_adds_its_bias_and_shapes_are_checked() {
    let device = device();
    let (x, w, c) = (numbers(2 * 3 * 5, 1), numbers(4 * 5, 2), numbers(4, 3));
    let weight = matrix(&device, &w, 4, 5, "plain");
    let input = Tensor::from_slice(&device, &[2, 3, 5], &x).unwrap();
    let y = linear(&input, &weight, Some(&Tensor::from_slice(&device, &[4], &c).unwrap())).unwrap();
    assert_eq!(y.shape(), [2, 3, 4]);
    let w_t: Vec<f64> = (0..5).flat_map(|k| (0..4).map(move |n| (k, n))).map(|(k, n)| f64::from(w[n * 5 + k])).collect();
    let mut want = reference::matmul(&doubles(&x), &w_t, [6, 4, 5]);
    want.iter_mut().enumerate().for_each(|(i, y)| *y += f64::from(c[i % 4]));
    close(&y.to_vec::<f32>().unwrap(), &want, 5, "linear");
    let error = matmul(&weight, &weight).unwrap_err().to_string();
    assert!(error.contains("[4, 5] and [4, 5]") && error.contains("help:"), "{error}");
    assert!(linear(&input, &weight.transpose(0, 1).unwrap(), None).is_err());
}

/// One head in f64: (out, dq, dk, dv).
fn attention_reference(
    [q, k, v, g]: [&[f64]; 4],
    [t, s, d]: [usize; 3],
    causal: bool,
) -> (Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>) {
    let transpose = |x: &[f64], rows: usize, columns: usize| -> Vec<f64> {
        (0..columns).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|(i, j)| x[i * columns + j]).collect()
    };
    let scale = 1.0 / (d as f64).sqrt();
    let scores = reference::matmul(q, &transpose(k, s, d), [t, s, d]);
    let probs = reference::softmax(&scores, s, if causal { t } else { 0 }, scale);
    let out = reference::matmul(&probs, v, [t, d, s]);
    let dv = reference::matmul(&transpose(&probs, t, s), g, [s, d, t]);
    let dprobs = reference::matmul(g, &transpose(v, s, d), [t, s, d]);
    let dscores = reference::softmax_backward(&probs, &dprobs, s, scale);
    let dq = reference::matmul(&dscores, k, [t, d, s]);
    let dk = reference::matmul(&transpose(&dscores, t, s), q, [s, d, t]);
    (out, dq, dk, dv)
}

#[test]
fn attention_and_its_gradients_over_slices_of_one_tensor() {
    let device = device();
    for ([batch, heads, t, d], mask) in [([2, 3, 5, 4], Mask::Causal), ([1, 2, 64, 32], Mask::Causal), ([2, 1, 7, 3], Mask::None)]
    {
        let width = heads * d;
        let qkv = numbers(batch * t * 3 * width, 9);
        let g = numbers(batch * heads * t * d, 10);
        let whole = Tensor::from_slice(&device, &[batch, t, 3 * width], &qkv).unwrap();
        let head = |part: usize| {
            let slice = whole.narrow(2, (part * width) as isize, width).unwrap();
            let sizes = [batch, t, heads, d].map(|n| n as isize);
            slice.reshape(&sizes).unwrap().transpose(1, 2).unwrap()
        };
        let (q, k, v) = (head(0), head(1), head(2));
        let (out, probs) = scaled_dot_product_attention(&q, &k, &v, mask).unwrap();
        assert!(out.transpose(1, 2).unwrap().is_contiguous());
        let dout = Tensor::from_slice(&device, &[batch, heads, t, d], &g).unwrap();
        let (dq, dk, dv) = scaled_dot_product_attention_backward(&q, &k, &v, &probs, &dout).unwrap();
        assert!(dq.shares_storage(&dk) && dq.shares_storage(&dv), "parts of one tensor have gradients that are parts of one");
        let (mut want, mut grads) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
        for b in 0..batch {
            for h in 0..heads {
                let part = |part: usize| -> Vec<f64> {
                    let at = |i: usize, j: usize| (b * t + i) * 3 * width + part * width + h * d + j;
                    (0..t).flat_map(|i| (0..d).map(move |j| (i, j))).map(|(i, j)| f64::from(qkv[at(i, j)])).collect()
                };
                let g = doubles(&g[(b * heads + h) * t * d..][..t * d]);
                let operands = [&part(0)[..], &part(1), &part(2), &g];
                let (out, dq, dk, dv) = attention_reference(operands, [t, t, d], mask == Mask::Causal);
                want.extend(out);
                grads.iter_mut().zip([dq, dk, dv]).for_each(|(all, one)| all.extend(one));
            }
        }
        let what = format!("{batch} {heads} {t} {d} {mask:?}");
        close(&out.to_vec::<f32>().unwrap(), &want, t, &what);
        for (got, (want, name)) in [dq, dk, dv].iter().zip(grads.iter().zip(["dq", "dk", "dv"])) {
            close(&got.to_vec::<f32>().unwrap(), want, t, &format!("{what} {name}"));
        }
    }
}
