//! A first set of operations, forward and backward, against the slow references.

use linn::Tensor;
use linn::ops::reduce::KeepDim;
use linn::ops::sort::Order;
use wasm_bindgen_test::wasm_bindgen_test;

use crate::close::{assert_close, numbers, wide};
use crate::device::{device, read, tensor};
use crate::reference;

#[wasm_bindgen_test]
async fn sums_and_products_of_whole_tensors_and_views() {
    let device = device().await;
    for len in [1, 3, 64, 1023, 70_001] {
        let (a, b) = (numbers(1, len), numbers(2, len));
        let (x, y) = (tensor(&device, &[len], &a), tensor(&device, &[len], &b));
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(read::<f32>(&x.add(&y).unwrap()).await, want, "{len} sums");
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        assert_eq!(read::<f32>(&(&x * &y).unwrap()).await, want, "{len} products");
    }
    let x = tensor(&device, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let column = tensor(&device, &[2, 1], &[10.0f32, 20.0]);
    assert_eq!(read::<f32>(&x.add(&column).unwrap()).await, [11.0, 12.0, 13.0, 24.0, 25.0, 26.0]);
    let turned = x.transpose(0, 1).unwrap();
    assert_eq!(read::<f32>(&turned).await, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(read::<f32>(&turned.narrow(0, 1, 2).unwrap().mul_scalar(2.0).unwrap()).await, [4.0, 10.0, 6.0, 12.0]);
    assert_eq!(read::<f32>(&turned.reshape(&[6]).unwrap()).await, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    // In place, through a view, and with operands in one block.
    x.narrow(0, 1, 1).unwrap().add_(&x.narrow(0, 0, 1).unwrap(), 1).unwrap();
    assert_eq!(read::<f32>(&x).await, [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    assert!(read::<f32>(&Tensor::zeros(&device, &[0, 4]).unwrap()).await.is_empty());
}

#[wasm_bindgen_test]
async fn element_wise_functions() {
    let device = device().await;
    let data: Vec<f32> = numbers(3, 4099).iter().map(|x| 3.0 * x).collect();
    let x = tensor(&device, &[data.len()], &data);
    for (name, got) in [
        ("exp", x.exp()),
        ("tanh", x.tanh()),
        ("sigmoid", x.sigmoid()),
        ("gelu", x.gelu()),
        ("relu", x.relu()),
        ("erf", x.erf()),
        ("sin", x.sin()),
        ("floor", x.floor()),
    ] {
        let formula = reference::element(name).unwrap();
        let want: Vec<f64> = data.iter().map(|a| formula(reference::Args { a: f64::from(*a), ..Default::default() })).collect();
        assert_close(name, &read::<f32>(&got.unwrap()).await, &want, 1e-5, 1e-6);
    }
    let special = tensor(&device, &[4], &[f32::NAN, f32::INFINITY, -0.0, -1.0]);
    let roots = read::<f32>(&special.sqrt().unwrap()).await;
    assert!(roots[0].is_nan() && roots[1] == f32::INFINITY && roots[2].to_bits() == (-0f32).to_bits() && roots[3].is_nan());
}

#[wasm_bindgen_test]
async fn reductions_of_each_dimension() {
    let device = device().await;
    let shape = [3, 130, 5];
    let data = numbers(4, shape.iter().product());
    let x = tensor(&device, &shape, &data);
    for (dim, middle) in [(0, [1, 3, 650]), (1, [3, 130, 5]), (2, [390, 5, 1])] {
        let got = read::<f32>(&x.sum(&[dim], KeepDim::Drop).unwrap()).await;
        assert_close("sum", &got, &reference::sum(&wide(&data), middle), 1e-5, 1e-5);
        let got = read::<f32>(&x.amax(&[dim], KeepDim::Drop).unwrap()).await;
        assert_close("max", &got, &reference::max(&wide(&data), middle), 0.0, 0.0);
        let got = read::<i32>(&x.argmax(Some(dim), KeepDim::Drop).unwrap()).await;
        assert_eq!(got, reference::argmax(&wide(&data), middle));
        let got = read::<f32>(&x.cumsum(dim).unwrap()).await;
        assert_close("cumsum", &got, &reference::cumsum(&wide(&data), middle), 1e-5, 1e-5);
    }
    let many = vec![1.0f32; 300_001];
    assert_eq!(read::<f32>(&tensor(&device, &[many.len()], &many).sum_all().unwrap()).await, [300_001.0]);
}

#[wasm_bindgen_test]
async fn products_of_matrices_and_their_gradients() {
    let device = device().await;
    for (m, n, k) in [(1, 1, 1), (5, 7, 3), (64, 64, 64), (65, 130, 33), (1, 300, 200)] {
        let (a, b) = (numbers(5, m * k), numbers(6, k * n));
        let x = tensor(&device, &[m, k], &a).requires_grad_(true).unwrap();
        let y = tensor(&device, &[k, n], &b).requires_grad_(true).unwrap();
        let z = x.matmul(&y).unwrap();
        assert_close("product", &read::<f32>(&z).await, &reference::matmul(&wide(&a), &wide(&b), [m, n, k]), 1e-5, 1e-4);
        z.sum_all().unwrap().backward().unwrap();
        // d sum(x y) / dx = 1 y^T, whose rows are the sums of y's rows; the same for y with x's columns.
        let rows = reference::sum(&wide(&b), [k, n, 1]);
        let want: Vec<f64> = (0..m).flat_map(|_| rows.clone()).collect();
        assert_close("gradient of a", &read::<f32>(&x.grad().unwrap()).await, &want, 1e-5, 1e-4);
        let columns = reference::sum(&wide(&a), [1, m, k]);
        let want: Vec<f64> = columns.iter().flat_map(|sum| vec![*sum; n]).collect();
        assert_close("gradient of b", &read::<f32>(&y.grad().unwrap()).await, &want, 1e-5, 1e-4);
    }
    let batches = (numbers(7, 3 * 4 * 6), numbers(8, 3 * 6 * 5));
    let z = tensor(&device, &[3, 4, 6], &batches.0).matmul(&tensor(&device, &[3, 6, 5], &batches.1)).unwrap();
    let want =
        (0..3).flat_map(|i| reference::matmul(&wide(&batches.0[i * 24..][..24]), &wide(&batches.1[i * 30..][..30]), [4, 5, 6]));
    assert_close("batches", &read::<f32>(&z).await, &want.collect::<Vec<_>>(), 1e-5, 1e-5);
}

#[wasm_bindgen_test]
async fn softmax_and_its_gradient() {
    let device = device().await;
    for (rows, n) in [(1, 1), (7, 33), (3, 1000), (128, 64)] {
        let (data, dout) = (numbers(9, rows * n), numbers(10, rows * n));
        let x = tensor(&device, &[rows, n], &data).requires_grad_(true).unwrap();
        let y = x.softmax(-1).unwrap();
        let want = reference::softmax(&wide(&data), n, 0, 1.0);
        assert_close("softmax", &read::<f32>(&y).await, &want, 1e-5, 1e-7);
        y.mul(&tensor(&device, &[rows, n], &dout)).unwrap().sum_all().unwrap().backward().unwrap();
        let want = reference::softmax_backward(&want, &wide(&dout), n, 1.0);
        assert_close("gradient", &read::<f32>(&x.grad().unwrap()).await, &want, 1e-4, 1e-6);
        let want = reference::log_softmax(&wide(&data), n);
        assert_close("log_softmax", &read::<f32>(&x.log_softmax(-1).unwrap()).await, &want, 1e-5, 1e-6);
    }
}

#[wasm_bindgen_test]
async fn layer_norm_and_its_gradients() {
    let device = device().await;
    for (rows, n) in [(1, 2), (5, 33), (70, 128)] {
        let (data, dout) = (numbers(11, rows * n), numbers(12, rows * n));
        let (weight, bias) = (numbers(13, n), numbers(14, n));
        let x = tensor(&device, &[rows, n], &data).requires_grad_(true).unwrap();
        let w = tensor(&device, &[n], &weight).requires_grad_(true).unwrap();
        let b = tensor(&device, &[n], &bias).requires_grad_(true).unwrap();
        let y = x.layer_norm(Some(&w), Some(&b), 1e-5).unwrap();
        let (want, ..) = reference::layer_norm(&wide(&data), n, &wide(&weight), &wide(&bias), 1e-5);
        assert_close("layer_norm", &read::<f32>(&y).await, &want, 1e-4, 1e-4);
        y.mul(&tensor(&device, &[rows, n], &dout)).unwrap().sum_all().unwrap().backward().unwrap();
        let want = reference::layer_norm_backward(&wide(&data), &wide(&dout), n, &wide(&weight), 1e-5);
        assert_close("gradient", &read::<f32>(&x.grad().unwrap()).await, &want, 1e-3, 1e-3);
        let (dweight, dbias) = reference::layer_norm_backward_weight(&wide(&data), &wide(&dout), n, 1e-5);
        assert_close("gradient of weight", &read::<f32>(&w.grad().unwrap()).await, &dweight, 1e-3, 1e-3);
        assert_close("gradient of bias", &read::<f32>(&b.grad().unwrap()).await, &dbias, 1e-4, 1e-4);
    }
}

#[wasm_bindgen_test]
async fn cross_entropy_and_its_gradient() {
    let device = device().await;
    for (rows, n) in [(1, 2), (64, 65), (3, 5000)] {
        let data = numbers(15, rows * n);
        let targets: Vec<i32> = (0..rows).map(|i| (i * 7 % n) as i32).collect();
        let x = tensor(&device, &[rows, n], &data).requires_grad_(true).unwrap();
        let loss = x.cross_entropy(&tensor(&device, &[rows], &targets)).unwrap();
        let (losses, _) = reference::cross_entropy(&wide(&data), n, &targets);
        let mean = losses.iter().sum::<f64>() / rows as f64;
        assert_close("loss", &read::<f32>(&loss).await, &[mean], 1e-5, 1e-6);
        loss.backward().unwrap();
        let want = reference::cross_entropy_backward(&wide(&data), n, &targets, 1.0 / rows as f64);
        assert_close("gradient", &read::<f32>(&x.grad().unwrap()).await, &want, 1e-4, 1e-7);
    }
}

#[wasm_bindgen_test]
async fn choosing_writing_and_sorting_by_index() {
    let device = device().await;
    let x = tensor(&device, &[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).requires_grad_(true).unwrap();
    let rows = x.embedding(&tensor(&device, &[4], &[2i32, 0, 2, 1])).unwrap();
    assert_eq!(read::<f32>(&rows).await, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 3.0, 4.0]);
    rows.sum_all().unwrap().backward().unwrap();
    assert_eq!(read::<f32>(&x.grad().unwrap()).await, [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]);
    let picked = x.gather(1, &tensor(&device, &[3, 1], &[1i32, 0, 1])).unwrap();
    assert_eq!(read::<f32>(&picked).await, [2.0, 3.0, 6.0]);
    let data = numbers(16, 3000);
    let (sorted, order) = tensor(&device, &[3000], &data).sort(0, Order::Ascending).unwrap();
    let mut want = data.clone();
    want.sort_by(f32::total_cmp);
    assert_eq!(read::<f32>(&sorted).await, want);
    let order = read::<i32>(&order).await;
    assert!(order.iter().zip(&want).all(|(at, value)| data[*at as usize] == *value));
}
