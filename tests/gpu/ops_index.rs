//! Indices, cross entropy and gradient norms against their references.

use linn::ops::{index, loss, optim, scatter};
use linn::{DeviceOptions, Tensor};

use crate::close::{assert_close, numbers, wide};
use crate::device::{device, open};
use crate::reference;

fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_slice(&device(), shape, data).unwrap()
}

fn read(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

fn ids(seed: u32, len: usize, below: usize) -> Vec<i32> {
    numbers(seed, len).iter().map(|x| (((x + 2.0) / 4.0 * below as f32) as i32).min(below as i32 - 1)).collect()
}

#[test]
fn embedding_and_its_gradient() {
    for (v, c, n) in [(1, 1, 1), (65, 128, 768), (7, 5, 100), (1000, 64, 33), (3, 4, 40_000)] {
        let (weight, picks, dout) = (numbers(1, v * c), ids(2, n, v), numbers(3, n * c));
        let w = tensor(&[v, c], &weight);
        let k = Tensor::from_slice(&device(), &[n, 1], &picks).unwrap();
        let what = format!("{n} of {v} x {c}");
        let out = index::embedding(&w, &k).unwrap();
        assert_eq!(out.shape(), [n, 1, c]);
        assert_close(&what, &read(&out), &reference::index_select(&wide(&weight), [1, v, c], &picks), 0.0, 0.0);
        let g = tensor(&[n, 1, c], &dout);
        let got = index::embedding_backward(&g, &k, v).unwrap();
        let want = reference::embedding_backward(&wide(&dout), &picks, v, c);
        assert_close(&format!("gradient, {what}"), &read(&got), &want, 1e-4, 1e-6 * n as f64);
        let again = index::embedding_backward(&g, &k, v).unwrap();
        assert_eq!(
            read(&got).iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            read(&again).iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        );
    }
}

#[test]
fn gather_and_its_gradient() {
    for (shape, dim, count) in [([2, 5, 3], 1, 4), ([4, 1, 7], 0, 9), ([3, 6, 65], 2, 1), ([1, 1, 1], 1, 3)] {
        let mut ids_shape = shape;
        ids_shape[dim] = count;
        let rows = shape[dim];
        let (a, picks) = (numbers(1, shape.iter().product()), ids(2, ids_shape.iter().product(), rows));
        let (x, k) = (tensor(&shape, &a), Tensor::from_slice(&device(), &ids_shape, &picks).unwrap());
        let middle = [shape[..dim].iter().product(), rows, shape[dim + 1..].iter().product()];
        let out = index::gather(&x, dim as isize, &k).unwrap();
        assert_close("gather", &read(&out), &reference::gather(&wide(&a), middle, &picks), 0.0, 0.0);
        let dout = numbers(3, picks.len());
        let got = scatter::gather_backward(&tensor(&ids_shape, &dout), dim as isize, &k, &shape).unwrap();
        assert_close("gather_backward", &read(&got), &reference::gather_backward(&wide(&dout), middle, &picks), 1e-5, 1e-5);
    }
    // An index shorter than the tensor in another dimension names its front.
    let a = numbers(4, 6 * 5);
    let k = Tensor::from_slice(&device(), &[2, 3], &[4i32, 0, 1, 2, 2, 3]).unwrap();
    let out = index::gather(&tensor(&[6, 5], &a), 1, &k).unwrap();
    assert_eq!(read(&out), [a[4], a[0], a[1], a[7], a[7], a[8]]);
    let got = scatter::gather_backward(&tensor(&[2, 3], &[1.0; 6]), 1, &k, &[6, 5]).unwrap();
    let mut want = vec![0.0; 30];
    [4, 0, 1, 7, 7, 8].iter().for_each(|at: &usize| want[*at] += 1.0);
    assert_close("gather_backward of a front", &read(&got), &want, 0.0, 0.0);
}

/// On a device of its own: the error of one test must not reach another.
#[test]
fn an_index_out_of_range_is_reported() {
    let device = open(DeviceOptions::default());
    let weight = Tensor::from_slice(&device, &[3, 4], &[1.0f32; 12]).unwrap();
    for bad in [3, -1, i32::MAX, i32::MIN] {
        let k = Tensor::from_slice(&device, &[2], &[0, bad]).unwrap();
        let out = index::embedding(&weight, &k).unwrap();
        let error = out.to_vec::<f32>().expect_err("the index is out of range").to_string();
        assert!(error.contains(&bad.to_string()), "{error}");
        let fine = Tensor::from_slice(&device, &[2], &[0, 2]).unwrap();
        assert_eq!(index::embedding(&weight, &fine).unwrap().to_vec::<f32>().unwrap(), [1.0; 8]);
    }
}

/// The error names what the program called, not the kernel that several operations share.
#[test]
fn an_index_out_of_range_names_its_operation() {
    use linn::autograd::{ClassOptions, Own, Put, ScatterReduce};
    let device = open(DeviceOptions::default());
    let x = Tensor::from_slice(&device, &[3], &[1.0f32, 2.0, 3.0]).unwrap();
    let table = x.reshape(&[3, 1]).unwrap();
    let bad = Tensor::from_slice(&device, &[1], &[7i32]).unwrap();
    let one = x.narrow(0, 0, 1).unwrap();
    let row = one.reshape(&[1, 1]).unwrap();
    let reduce = |kind: ScatterReduce, own: Own| x.scatter_reduce(0, &bad, &one, kind, own);
    let calls: [(&str, &dyn Fn() -> linn::Result<Tensor>); 20] = [
        ("embedding", &|| table.embedding(&bad)),
        ("gather", &|| x.gather(0, &bad)),
        ("index_select", &|| x.index_select(0, &bad)),
        ("take", &|| x.take(&bad)),
        ("take_along_dim", &|| x.take_along_dim(&bad, 0)),
        ("scatter", &|| x.scatter(0, &bad, &one)),
        ("scatter_add", &|| x.scatter_add(0, &bad, &one)),
        ("scatter_reduce", &|| reduce(ScatterReduce::Amax, Own::Included)),
        ("scatter_reduce", &|| reduce(ScatterReduce::Sum, Own::Included)),
        ("scatter_reduce", &|| reduce(ScatterReduce::Mean, Own::Included)),
        ("scatter_reduce", &|| reduce(ScatterReduce::Prod, Own::Excluded)),
        ("scatter_reduce", &|| reduce(ScatterReduce::Sum, Own::Excluded)),
        ("index_add", &|| x.index_add(0, &bad, &one, 1)),
        ("index_copy", &|| x.index_copy(0, &bad, &one)),
        ("index_fill", &|| x.index_fill(0, &bad, 1.0)),
        ("index_put", &|| x.index_put([&bad], &one, Put::Replace)),
        ("cross_entropy", &|| row.cross_entropy(&bad)),
        ("cross_entropy", &|| row.cross_entropy_with(&bad, ClassOptions::default())),
        ("nll_loss", &|| row.nll_loss(&bad, ClassOptions::default())),
        ("nll_loss", &|| row.nll_loss(&bad, ClassOptions { weight: Some(&one), ..Default::default() })),
    ];
    for (name, call) in calls {
        call().unwrap();
        let error = device.synchronize().expect_err(name).to_string();
        let what = if ["cross_entropy", "nll_loss"].contains(&name) { "target" } else { "index" };
        assert!(error.contains(&format!(" {name}: {what} 7 at position 0 is out of range for")), "{name}: {error}");
    }
}

/// Streams report through the same words; whoever waits for one stream may read them before the other has written.
#[test]
fn a_wait_for_one_stream_keeps_what_another_reports() {
    let device = open(DeviceOptions::default());
    let weight = Tensor::from_slice(&device, &[3, 4], &[1.0f32; 12]).unwrap();
    let bad = Tensor::from_slice(&device, &[1], &[3]).unwrap();
    let other = device.new_stream();
    for round in 0..50 {
        other.scope(|| index::embedding(&weight, &bad)).unwrap();
        let told = device.default_stream().synchronize().is_err();
        assert_ne!(told, device.synchronize().is_err(), "round {round}: told once");
        device.synchronize().unwrap();
    }
}

#[test]
fn cross_entropy_and_its_gradient() {
    for (n, v) in [(1, 1), (1, 7), (768, 65), (5, 1000), (3, 50_257), (1000, 2)] {
        let logits: Vec<f32> = numbers(1, n * v).iter().map(|x| 5.0 * x).collect();
        let targets = ids(2, n, v);
        let (x, t) = (tensor(&[n, v], &logits), Tensor::from_slice(&device(), &[n], &targets).unwrap());
        let what = |name: &str| format!("{name} of {n} x {v}");
        let (mean, lse) = loss::cross_entropy(&x, &t).unwrap();
        let (losses, want_lse) = reference::cross_entropy(&wide(&logits), v, &targets);
        assert_close(&what("lse"), &read(&lse), &want_lse, 1e-6, 1e-6);
        assert_close(&what("loss"), &read(&mean), &[losses.iter().sum::<f64>() / n as f64], 1e-6, 1e-6);
        let got = loss::cross_entropy_backward(&x, &t, &lse, &tensor(&[], &[0.5])).unwrap();
        let want = reference::cross_entropy_backward(&wide(&logits), v, &targets, 0.5 / n as f64);
        assert_close(&what("gradient"), &read(&got), &want, 1e-4, 1e-7);
    }
    let (x, t) = (tensor(&[1, 3], &[1000.0, -1000.0, 999.0]), Tensor::from_slice(&device(), &[1], &[0i32]).unwrap());
    let (mean, _) = loss::cross_entropy(&x, &t).unwrap();
    assert_close("large logits", &read(&mean), &[(1.0 + (-1f64).exp()).ln()], 1e-5, 0.0);
}

#[test]
fn norms_and_clipping() {
    let parts: Vec<Vec<f32>> = [1, 3, 128, 49_152, 100_003].iter().map(|len| numbers(*len as u32, *len)).collect();
    let tensors: Vec<Tensor> = parts.iter().map(|part| tensor(&[part.len()], part)).collect();
    let norm = linn::ops::foreach::total_norm(&tensors.iter().collect::<Vec<_>>()).unwrap();
    let want = parts.iter().flatten().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    assert_close("total norm", &read(&norm), &[want], 1e-6, 0.0);
    let clip = |max_norm: f64| read(&optim::clip_coefficient(&norm, max_norm).unwrap())[0];
    assert_eq!(clip(1e9), 1.0);
    assert!((f64::from(clip(1.0)) - 1.0 / want).abs() < 1e-6);
    assert!(read(&optim::clip_coefficient(&tensor(&[], &[f32::NAN]), 1.0).unwrap())[0].is_nan());
}
