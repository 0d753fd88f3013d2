//! Reductions and layer norm against their references.

use linn::ops::reduce::{self, KeepDim};
use linn::ops::{copy, norm};
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
fn middle_dimensions() {
    let shapes = [
        [1, 1, 1],
        [1, 5, 1],
        [3, 7, 1],
        [7, 64, 1],
        [1, 64, 12],
        [2, 33, 5],
        [1, 768, 384],
        [1, 70_001, 1],
        [5, 4096, 4],
        [600, 20, 1],
    ];
    for shape in shapes {
        let a = numbers(shape[1] as u32, shape.iter().product());
        let x = tensor(&shape, &a);
        let a = wide(&a);
        let what = |name: &str| format!("{name} of {shape:?}");
        let scale = shape[1] as f64;
        let want = reference::sum(&a, shape);
        assert_close(&what("sum"), &read(&reduce::sum(&x, &[1], KeepDim::Drop).unwrap()), &want, 1e-5, 1e-6 * scale);
        let want: Vec<f64> = want.iter().map(|x| x / scale).collect();
        assert_close(&what("mean"), &read(&reduce::mean(&x, &[1], KeepDim::Keep).unwrap()), &want, 1e-5, 1e-6);
        let got = read(&reduce::amax(&x, &[-2], KeepDim::Drop).unwrap());
        assert_close(&what("max"), &got, &reference::max(&a, shape), 0.0, 0.0);
        let got = read(&reduce::amin(&x, &[1], KeepDim::Drop).unwrap());
        assert_close(&what("min"), &got, &reference::min(&a, shape), 0.0, 0.0);
        let got = reduce::argmax(&x, 1, KeepDim::Drop).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(got, reference::argmax(&a, shape), "{}", what("argmax"));
    }
}

#[test]
fn several_dimensions_and_views() {
    let shape = [3, 4, 5, 8];
    let a = numbers(1, 480);
    let x = tensor(&shape, &a);
    for (view, order) in [(x.clone(), [0, 1, 2, 3]), (x.permute(&[3, 1, 0, 2]).unwrap(), [3, 1, 0, 2])] {
        let layout = view.layout();
        let dense = reference::copy_rank8(&wide(&a), layout.shape(), layout.strides(), layout.offset());
        for dims in [vec![0, 1], vec![0, 2], vec![1, 3], vec![0, 1, 2], vec![-1], vec![0, 3], vec![], vec![2]] {
            let reduced: Vec<bool> = (0..4).map(|i| dims.is_empty() || dims.contains(&i) || dims.contains(&(i - 4))).collect();
            let kept: Vec<usize> = (0..4).map(|i| if reduced[i as usize] { 1 } else { layout.shape()[i as usize] }).collect();
            let mut want = vec![0.0; kept.iter().product()];
            for (i, value) in dense.iter().enumerate() {
                let (mut rest, mut at, mut step) = (i, 0, 1);
                for dim in (0..4).rev() {
                    let index = rest % layout.shape()[dim];
                    rest /= layout.shape()[dim];
                    if !reduced[dim] {
                        at += index * step;
                        step *= layout.shape()[dim];
                    }
                }
                want[at] += value;
            }
            let got = reduce::sum(&view, &dims, KeepDim::Keep).unwrap();
            assert_eq!(got.shape(), kept);
            assert_close(&format!("sum of {order:?} over {dims:?}"), &read(&got), &want, 1e-5, 1e-5);
            let dropped: Vec<usize> = kept.iter().zip(&reduced).filter(|(_, gone)| !**gone).map(|(len, _)| *len).collect();
            assert_eq!(reduce::sum(&view, &dims, KeepDim::Drop).unwrap().shape(), dropped);
        }
    }
    let bias = reduce::sum_to(&x, &[8]).unwrap();
    assert_close("sum_to [8]", &read(&bias), &reference::sum(&wide(&a), [1, 60, 8]), 1e-5, 1e-5);
    assert_eq!(reduce::sum_to(&x, &[4, 1, 8]).unwrap().shape(), [4, 1, 8]);
    assert!(reduce::sum_to(&x, &[3]).is_err() && reduce::sum(&x, &[0, 0], KeepDim::Drop).is_err());
    let expanded = x.narrow(0, 0, 1).unwrap().with_expanded(&[6, 4, 5, 8]);
    let want: f64 = wide(&a)[..160].iter().sum::<f64>() * 6.0;
    assert_close("sum of an expanded view", &read(&reduce::sum(&expanded, &[], KeepDim::Drop).unwrap()), &[want], 1e-5, 1e-4);
}

trait Expanded {
    fn with_expanded(&self, shape: &[usize]) -> Tensor;
}
impl Expanded for Tensor {
    fn with_expanded(&self, shape: &[usize]) -> Tensor {
        let shape: Vec<isize> = shape.iter().map(|len| *len as isize).collect();
        self.expand(&shape).unwrap()
    }
}

#[test]
fn nothing_nan_and_ties() {
    let empty = tensor(&[3, 0], &[]);
    assert_eq!(read(&reduce::sum(&empty, &[1], KeepDim::Drop).unwrap()), [0.0; 3]);
    assert!(read(&reduce::mean(&empty, &[1], KeepDim::Drop).unwrap()).iter().all(|x| x.is_nan()));
    assert!(reduce::amax(&empty, &[1], KeepDim::Drop).is_err());
    assert_eq!(reduce::sum(&empty, &[0], KeepDim::Drop).unwrap().shape(), [0]);
    let x = tensor(&[2, 4], &[1.0, 5.0, 5.0, 2.0, 1.0, f32::NAN, 9.0, f32::NAN]);
    assert_eq!(reduce::argmax(&x, 1, KeepDim::Drop).unwrap().to_vec::<i32>().unwrap(), [1, 1]);
    let top = read(&reduce::amax(&x, &[1], KeepDim::Drop).unwrap());
    assert!(top[0] == 5.0 && top[1].is_nan());
    let whole = Tensor::from_slice(&device(), &[3], &[i32::MAX, 1, 5]).unwrap();
    assert_eq!(reduce::sum(&whole, &[0], KeepDim::Drop).unwrap().item::<i32>().unwrap(), i32::MIN + 5);
}

/// 16,777,216 elements: lavapipe would silently stop a loop of more than 65,535 steps, and f32 in one chain would stall.
#[test]
fn long_sums_are_right_and_repeatable() {
    let len = 1 << 24;
    let x = copy::full(&device(), &[len], 1.0, DType::F32).unwrap();
    assert_eq!(reduce::sum(&x, &[], KeepDim::Drop).unwrap().item::<f32>().unwrap(), len as f32);
    let data: Vec<f32> = numbers(5, len).iter().map(|x| x.abs() / 2.0).collect();
    let want: f64 = wide(&data).iter().sum();
    let x = tensor(&[len], &data);
    let first = reduce::sum(&x, &[], KeepDim::Drop).unwrap().item::<f32>().unwrap();
    assert!((f64::from(first) - want).abs() < 1e-6 * want, "{first} for {want}");
    let second = reduce::sum(&x, &[], KeepDim::Drop).unwrap().item::<f32>().unwrap();
    assert_eq!(first.to_bits(), second.to_bits());
    let columns = reduce::sum(&x.reshape(&[-1, 8]).unwrap(), &[0], KeepDim::Drop).unwrap();
    assert_close("2 million rows", &read(&columns), &reference::sum(&wide(&data), [1, len / 8, 8]), 1e-6, 0.0);
}

#[test]
fn layer_norm_and_its_gradients() {
    for (rows, c) in [(1, 1), (3, 7), (5, 64), (768, 128), (33, 130), (40_000, 4), (2, 10_000), (3, 43_689)] {
        let a: Vec<f32> = numbers(1, rows * c).iter().map(|x| 3.0 * x + 1.0).collect();
        let (weight, bias, dout) = (numbers(2, c), numbers(3, c), numbers(4, rows * c));
        let (x, w, b, g) = (tensor(&[rows, c], &a), tensor(&[c], &weight), tensor(&[c], &bias), tensor(&[rows, c], &dout));
        let what = |name: &str| format!("{name} of {rows} x {c}");
        let (y, mean, rstd) = norm::layer_norm(&x, Some(&w), Some(&b), 1e-5).unwrap();
        let (a, weight, bias, dout) = (wide(&a), wide(&weight), wide(&bias), wide(&dout));
        let (want, want_mean, want_rstd) = reference::layer_norm(&a, c, &weight, &bias, 1e-5);
        assert_close(&what("layer_norm"), &read(&y), &want, 1e-4, 1e-5);
        assert_close(&what("mean"), &read(&mean), &want_mean, 1e-5, 1e-6);
        assert_close(&what("rstd"), &read(&rstd), &want_rstd, 1e-5, 0.0);
        let (plain, _, _) = norm::layer_norm(&x, Some(&w), None, 1e-5).unwrap();
        assert_close(&what("no bias"), &read(&plain), &reference::layer_norm(&a, c, &weight, &vec![0.0; c], 1e-5).0, 1e-4, 1e-5);
        let (dx, dw, db) = norm::layer_norm_backward(&g, None, &x, Some(&w), &mean, &rstd, true, true).unwrap();
        let want = reference::layer_norm_backward(&a, &dout, c, &weight, 1e-5);
        // A row of one element has rstd = 1 / sqrt(eps): its gradient is rounding error times 316.
        assert_close(&what("dx"), &read(&dx), &want, 1e-3, if c == 1 { 1e-3 } else { 1e-5 });
        // Beside another gradient of x, that of a view here: the same, added once.
        let other = numbers(5, rows * c);
        let sum = tensor(&[c, rows], &other).transpose(0, 1).unwrap();
        let (both, no_dw, only_db) = norm::layer_norm_backward(&g, Some(&sum), &x, Some(&w), &mean, &rstd, false, true).unwrap();
        let other: Vec<f64> = (0..rows * c).map(|i| other[i % c * rows + i / c].into()).collect();
        let want = reference::layer_norm_backward_add(&a, &dout, &other, c, &weight, 1e-5);
        assert_close(&what("dx beside a sum"), &read(&both), &want, 1e-3, if c == 1 { 1e-3 } else { 1e-5 });
        assert!(no_dw.is_none());
        assert_eq!(read(&only_db.unwrap()), read(db.as_ref().unwrap()));
        let (want_w, want_b) = reference::layer_norm_backward_weight(&a, &dout, c, 1e-5);
        let size = (rows as f64).sqrt();
        assert_close(&what("dweight"), &read(&dw.unwrap()), &want_w, 1e-4, 1e-5 * size);
        assert_close(&what("dbias"), &read(&db.unwrap()), &want_b, 1e-4, 1e-5 * size);
    }
    let (x, row) = (tensor(&[2, 3], &numbers(1, 6)), tensor(&[2, 1], &numbers(2, 2)));
    let refused = norm::layer_norm_backward(&x, Some(&row), &x, None, &row, &row, false, false);
    assert!(refused.unwrap_err().to_string().contains("[2, 1]"));
}
