//! Initial values: bounds and moments of PyTorch's formulas, and what layers start with.

use linn::autograd::{ConvOptions, ConvTransposeOptions};
use linn::nn::init::{self, FanMode, Nonlinearity};
use linn::nn::*;
use linn::{Result, Tensor};

use crate::device::device;

fn values(x: &Tensor) -> Vec<f64> {
    x.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect()
}

fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt())
}

/// Uniform within `bound`: nothing beyond it, something near it, and the moments.
#[track_caller]
fn assert_uniform(what: &str, x: &Tensor, bound: f64) {
    let values = values(x);
    let most = values.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    assert!(most <= bound * (1.0 + 1e-6) && most > bound * (1.0 - 20.0 / values.len() as f64), "{what}: {most} of {bound}");
    let (mean, std) = moments(&values);
    let error = 4.0 * bound / (values.len() as f64).sqrt();
    assert!(mean.abs() < error && (std - bound / 3f64.sqrt()).abs() < error, "{what}: mean {mean}, deviation {std} for {bound}");
}

#[track_caller]
fn assert_normal(what: &str, x: &Tensor, mean: f64, std: f64) {
    let values = values(x);
    let (got_mean, got_std) = moments(&values);
    let error = 4.0 * std / (values.len() as f64).sqrt();
    assert!((got_mean - mean).abs() < error && (got_std - std).abs() < error, "{what}: {got_mean}, {got_std}");
    let far = values.iter().filter(|x| (*x - mean).abs() > 2.0 * std).count() as f64 / values.len() as f64;
    assert!((0.02..0.075).contains(&far), "{what}: {far} beyond two deviations");
}

fn drawn(shape: &[usize], draw: impl FnOnce(&Tensor) -> Result<()>) -> Tensor {
    let x = init::constant(&device(), shape, 9.0).unwrap();
    draw(&x).unwrap();
    assert!(x.requires_grad() && x.is_leaf());
    x
}

#[test]
fn functions_draw_within_pytorchs_bounds() {
    let shape = [24, 16, 3, 3]; // 144 weights of a result, 216 of an input
    assert_uniform("uniform_", &drawn(&shape, |x| init::uniform_(x, -0.5, 0.5)), 0.5);
    assert_normal("normal_", &drawn(&shape, |x| init::normal_(x, 1.0, 0.25)), 1.0, 0.25);
    assert_uniform("xavier_uniform_", &drawn(&shape, |x| init::xavier_uniform_(x, 2.0)), 2.0 * (6.0f64 / 360.0).sqrt());
    assert_normal("xavier_normal_", &drawn(&shape, |x| init::xavier_normal_(x, 1.0)), 0.0, (2.0f64 / 360.0).sqrt());
    let relu = Nonlinearity::Relu;
    assert_uniform("fan in", &drawn(&shape, |x| init::kaiming_uniform_(x, FanMode::In, relu)), (6.0f64 / 144.0).sqrt());
    assert_uniform("fan out", &drawn(&shape, |x| init::kaiming_uniform_(x, FanMode::Out, relu)), (6.0f64 / 216.0).sqrt());
    let leaky = Nonlinearity::LeakyRelu(5f64.sqrt());
    assert_uniform("leaky", &drawn(&shape, |x| init::kaiming_uniform_(x, FanMode::In, leaky)), 1.0 / 12.0);
    assert_normal(
        "kaiming_normal_",
        &drawn(&shape, |x| init::kaiming_normal_(x, FanMode::In, relu)),
        0.0,
        (2.0f64 / 144.0).sqrt(),
    );
    assert_eq!(values(&drawn(&[2, 3], |x| init::eye_(x))), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(values(&drawn(&[2], init::ones_)), [1.0; 2]);
    assert_eq!(values(&drawn(&[2], init::zeros_)), [0.0; 2]);
    assert_eq!(values(&drawn(&[2], |x| init::constant_(x, 0.25))), [0.25; 2]);
    let text = init::xavier_uniform_(&drawn(&[3], init::ones_), 1.0).unwrap_err().to_string();
    assert!(text.starts_with("xavier_uniform_: a tensor of shape [3]\nhelp: pass weights of at least 2 dimensions"), "{text}");
}

#[test]
fn truncated_normals_stay_within_their_bounds() {
    let x = values(&drawn(&[20_000], |x| init::trunc_normal_(x, 0.5, 2.0, 0.0, 2.0)));
    assert!(x.iter().all(|x| (0.0..=2.0).contains(x)));
    // By four million numbers of torch: the mean and the deviation of a normal (0.5, 2) within 0..2.
    let (mean, std) = moments(&x);
    assert!((mean - 0.9595).abs() < 0.02 && (std - 0.5668).abs() < 0.02, "{mean} {std}");
    let wide = drawn(&[20_000], |x| init::trunc_normal_(x, 0.0, 0.02, -2.0, 2.0));
    assert_normal("far bounds", &wide, 0.0, 0.02);
    for (std, low, high) in [(0.0, -1.0, 1.0), (-1.0, -1.0, 1.0), (f64::NAN, -1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 8.0, 9.0)] {
        let text = init::trunc_normal_(&wide, 0.0, std, low, high).unwrap_err().to_string();
        assert!(text.starts_with("trunc_normal_: mean 0.0, std "), "{text}");
    }
}

#[test]
fn orthogonal_rows_or_columns_are_at_right_angles() {
    for shape in [&[4usize, 9][..], &[9, 4], &[5, 5], &[3, 2, 2, 2]] {
        let x = values(&drawn(shape, |x| init::orthogonal_(x, 2.0)));
        let (rows, columns) = (shape[0], x.len() / shape[0]);
        let (count, len) = (rows.min(columns), rows.max(columns));
        let at = |vector: usize, i: usize| if rows <= columns { x[vector * columns + i] } else { x[i * columns + vector] };
        for a in 0..count {
            for b in 0..count {
                let product: f64 = (0..len).map(|i| at(a, i) * at(b, i)).sum();
                assert!((product - if a == b { 4.0 } else { 0.0 }).abs() < 1e-5, "{shape:?}: {a} and {b} give {product}");
            }
        }
    }
}

#[test]
fn layers_start_as_pytorchs_do() {
    let device = device();
    let d = &device;
    let linear = Linear::new(d, 400, 50, Bias::With).unwrap();
    assert_uniform("linear", &linear.weight, 0.05);
    assert_uniform("linear's bias", &linear.bias.unwrap(), 0.05);
    let conv = Conv2d::new(d, 16, 32, [3, 3], Bias::With, ConvOptions { groups: 4, ..Default::default() }).unwrap();
    assert_eq!(conv.weight.shape(), [32, 4, 3, 3]);
    assert_uniform("conv2d", &conv.weight, 1.0 / 6.0);
    assert_uniform("conv2d's bias", &conv.bias.unwrap(), 1.0 / 6.0);
    let conv = ConvTranspose2d::new(d, 32, 9, [2, 2], Bias::With, ConvTransposeOptions::default()).unwrap();
    assert_eq!(conv.weight.shape(), [32, 9, 2, 2]);
    assert_uniform("conv_transpose2d", &conv.weight, 1.0 / 6.0);
    let attention = MultiheadAttention::new(d, 48, 4, 0.0, Bias::With).unwrap();
    assert_uniform("in_proj", &attention.in_proj_weight, (6.0f64 / 192.0).sqrt());
    assert_uniform("out_proj", &attention.out_proj.weight, 1.0 / 48f64.sqrt());
    let biases = [attention.in_proj_bias.as_ref().unwrap(), attention.out_proj.bias.as_ref().unwrap()];
    assert!(biases.iter().all(|bias| values(bias).iter().all(|x| *x == 0.0)));
    let embedding = Embedding::new(d, 100, 30, 1.0).unwrap().padding_idx(3).unwrap();
    assert!(values(&embedding.weight)[90..120].iter().all(|x| *x == 0.0));
    assert_normal("embedding", &embedding.weight.narrow(0, 4, 96).unwrap().detach().contiguous().unwrap(), 0.0, 1.0);
    assert!(Embedding::new(d, 100, 30, 1.0).unwrap().padding_idx(100).is_err());
    let state = BatchNorm1d::new(d, 2, Default::default()).unwrap().state_dict();
    let read: Vec<(&str, Vec<f32>)> =
        state.iter().map(|(name, x)| (name.as_str(), x.to_dtype(linn::DType::F32).unwrap().to_vec().unwrap())).collect();
    let want = [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)].map(|(name, x)| (name, vec![x; 2]));
    assert_eq!(read[..4], want);
    assert_eq!(read[4], ("num_batches_tracked", vec![0.0]));
    let group = GroupNorm::new(d, 2, 4).unwrap();
    assert!(values(&group.weight) == [1.0; 4] && values(&group.bias) == [0.0; 4]);
    assert!(
        GroupNorm::new(d, 3, 4).is_err()
            && Conv1d::new(d, 3, 4, [1], Bias::With, ConvOptions { groups: 2, ..Default::default() }).is_err()
    );
    assert_eq!(values(&Prelu::new(d, 2, 0.25).unwrap().weight), [0.25; 2]);
}
