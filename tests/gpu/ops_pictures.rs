//! Pooling, convolutions, normalisation and attention where PyTorch's database is thin, against sums written out.

use linn::autograd::{
    AttentionOptions, ConvOptions, ConvTransposeOptions, GradcheckOptions, NormOptions, Padding, PoolOptions, gradcheck,
};
use linn::{DType, Tensor};

use crate::close::{assert_close, numbers, wide};
use crate::device::device;

fn tensor(shape: &[usize], seed: u32) -> Tensor {
    Tensor::from_slice(&device(), shape, &numbers(seed, shape.iter().product())).unwrap()
}

fn read(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

#[test]
fn convolution_of_groups_with_everything() {
    let ([n, c, h, w], [o, kh, kw]) = ([2, 4, 7, 6], [6, 3, 2]);
    let (groups, [sh, sw], [ph, pw], [dh, dw]) = (2, [2, 3], [2, 1], [2, 3]);
    let (x, weight, bias) = (tensor(&[n, c, h, w], 1), tensor(&[o, c / groups, kh, kw], 2), tensor(&[o], 3));
    let padding = Padding::Zeros(&[ph as isize, pw as isize]);
    let options = ConvOptions { stride: &[2, 3], padding, dilation: &[2, 3], groups };
    let got = x.conv2d(&weight, Some(&bias), options).unwrap();
    let (rows, columns) = ((h + 2 * ph - dh * (kh - 1) - 1) / sh + 1, (w + 2 * pw - dw * (kw - 1) - 1) / sw + 1);
    assert_eq!(got.shape(), [n, o, rows, columns]);

    let (x, weight, bias) = (wide(&read(&x)), wide(&read(&weight)), wide(&read(&bias)));
    let entry = |i: usize, c_at: usize, row: usize, column: usize| {
        let (row, column) = (row.checked_sub(ph)?, column.checked_sub(pw)?);
        (row < h && column < w).then(|| x[((i * c + c_at) * h + row) * w + column])
    };
    let mut want = Vec::new();
    for i in 0..n * o * rows * columns {
        let (at, out, row, column) = (i / columns / rows / o, i / columns / rows % o, i / columns % rows, i % columns);
        let mut sum = bias[out];
        for k in 0..c / groups * kh * kw {
            let (channel, y, z) = (k / kw / kh, k / kw % kh, k % kw);
            let from = out / (o / groups) * (c / groups) + channel;
            let seen = entry(at, from, row * sh + y * dh, column * sw + z * dw).unwrap_or(0.0);
            sum += seen * weight[out * (c / groups) * kh * kw + k];
        }
        want.push(sum);
    }
    assert_close("conv2d", &read(&got), &want, 1e-5, 1e-5);
}

#[test]
fn transposed_convolution_is_the_adjoint() {
    let weight = tensor(&[6, 2, 3, 2], 2);
    let (x, y) = (tensor(&[2, 4, 8, 7], 1), tensor(&[2, 6, 4, 3], 4));
    let (stride, padding, dilation, groups) = (&[2, 3][..], &[2, 1][..], &[2, 1][..], 2);
    let there = x.conv2d(&weight, None, ConvOptions { stride, padding: Padding::Zeros(padding), dilation, groups }).unwrap();
    assert_eq!(there.shape(), y.shape());
    // The last row and column that the windows do not reach.
    let options = ConvTransposeOptions { stride, padding, output_padding: &[1, 1], dilation, groups };
    let back = y.conv_transpose2d(&weight, None, options).unwrap();
    assert_eq!(back.shape(), x.shape());
    let product = |a: &Tensor, b: &Tensor| read(&a.mul(b).unwrap().sum_all().unwrap())[0];
    let (one, other) = (product(&there, &y), product(&x, &back));
    assert!((one - other).abs() <= 1e-3 + 1e-4 * one.abs(), "{one} and {other}");
}

#[test]
fn maxima_stand_at_their_positions() {
    let (h, w) = (9, 11);
    let x = tensor(&[2, 3, h, w], 5);
    let options = PoolOptions { stride: &[2, 3], padding: &[2, 1], dilation: &[2, 1], ceil_mode: true, ..PoolOptions::default() };
    let (maxima, positions) = x.max_pool2d(&[3, 3], options).unwrap();
    let (data, maxima) = (read(&x), (maxima.shape().to_vec(), read(&maxima)));
    let positions = positions.to_vec::<i32>().unwrap();
    let [.., rows, columns] = maxima.0[..] else { panic!("{:?}", maxima.0) };
    for (i, (max, position)) in maxima.1.iter().zip(positions).enumerate() {
        let (channel, row, column) = (i / columns / rows, i / columns % rows, i % columns);
        let seen = (0..9).filter_map(|k| {
            let (y, z) = ((row * 2 + k / 3 * 2).checked_sub(2)?, (column * 3 + k % 3).checked_sub(1)?);
            (y < h && z < w).then(|| data[(channel * h + y) * w + z])
        });
        assert_eq!(seen.fold(f32::NEG_INFINITY, f32::max), *max, "window {i}");
        assert_eq!(data[channel * h * w + position as usize], *max, "window {i}");
    }
}

#[test]
fn running_statistics_learn() {
    let x = tensor(&[4, 3, 5], 6);
    let running = [Tensor::zeros(&device(), &[3]).unwrap(), Tensor::ones(&device(), &[3]).unwrap()];
    let options = NormOptions { running_mean: Some(&running[0]), running_var: Some(&running[1]), ..NormOptions::default() };
    x.batch_norm(NormOptions { training: true, momentum: 0.25, ..options }).unwrap();
    let data = wide(&read(&x));
    let (mut means, mut vars) = (Vec::new(), Vec::new());
    for channel in 0..3 {
        let own: Vec<f64> = (0..20).map(|i| data[(i / 5 * 3 + channel) * 5 + i % 5]).collect();
        let mean = own.iter().sum::<f64>() / 20.0;
        means.push(0.25 * mean);
        vars.push(0.75 + 0.25 * own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 19.0);
    }
    assert_close("running mean", &read(&running[0]), &means, 1e-5, 1e-6);
    assert_close("running variance", &read(&running[1]), &vars, 1e-5, 1e-6);
    let by_them: Vec<f64> =
        data.iter().enumerate().map(|(i, x)| (x - means[i / 5 % 3]) / (vars[i / 5 % 3] + 1e-5).sqrt()).collect();
    assert_close("after training", &read(&x.batch_norm(options).unwrap()), &by_them, 1e-5, 1e-5);
}

#[test]
fn attention_with_masks_and_shared_heads() {
    let (q, k, v) = (tensor(&[1, 4, 2, 8], 7), tensor(&[1, 2, 3, 8], 8), tensor(&[1, 2, 3, 5], 9));
    let shared = AttentionOptions { enable_gqa: true, ..AttentionOptions::default() };
    let of_all = |x: &Tensor| x.repeat_interleave(2, 1).unwrap();
    let want = q.scaled_dot_product_attention_with(&of_all(&k), &of_all(&v), AttentionOptions::default()).unwrap();
    let got = q.scaled_dot_product_attention_with(&k, &v, shared).unwrap();
    assert_close("shared heads", &read(&got), &wide(&read(&want)), 1e-6, 1e-6);

    // The first query sees keys 0 and 2, the second none.
    let seen = [1i32, 0, 1, 0, 0, 0];
    let mask = Tensor::from_slice(&device(), &[2, 3], &seen).unwrap().to_dtype(DType::Bool).unwrap();
    let added =
        Tensor::from_slice(&device(), &[2, 3], &seen.map(|seen| if seen == 1 { 0.0 } else { f32::NEG_INFINITY })).unwrap();
    for mask in [mask, added] {
        let q = q.detach().requires_grad_(true).unwrap();
        let options = AttentionOptions { attn_mask: Some(&mask), ..shared };
        let out = q.scaled_dot_product_attention_with(&k, &v, options).unwrap();
        assert!(read(&out).chunks(5).skip(1).step_by(2).flatten().all(|x| *x == 0.0), "a query that sees nothing");
        let two = |x: &Tensor| x.slice(2, .., 2).unwrap();
        let want = q.narrow(2, 0, 1).unwrap().scaled_dot_product_attention_with(&two(&k), &two(&v), shared).unwrap();
        assert_close("two keys", &read(&out.narrow(2, 0, 1).unwrap()), &wide(&read(&want)), 1e-6, 1e-6);
        out.sum_all().unwrap().backward().unwrap();
        assert!(read(&q.grad().unwrap()).iter().all(|x| x.is_finite()), "gradients of a query that sees nothing");
    }
}

#[test]
fn gradients_of_pictures() {
    let check = |name: &str, inputs: &[Tensor], f: &dyn Fn(&[Tensor]) -> linn::Result<Tensor>| {
        if let Err(why) = gradcheck(f, inputs, GradcheckOptions::default()) {
            panic!("{name}: {why}");
        }
    };
    let inputs = [tensor(&[1, 2, 3, 4, 3], 1), tensor(&[2, 1, 2, 2, 2], 2), tensor(&[2], 3)];
    let options = ConvOptions { padding: Padding::Same, groups: 2, ..ConvOptions::default() };
    check("conv3d", &inputs, &|x| x[0].conv3d(&x[1], Some(&x[2]), options));
    let inputs = [tensor(&[2, 5], 4), tensor(&[2, 3, 3], 5)];
    let options = ConvTransposeOptions { stride: &[2], padding: &[1], output_padding: &[1], ..ConvTransposeOptions::default() };
    check("conv_transpose1d", &inputs, &|x| x[0].conv_transpose1d(&x[1], None, options));
    let options = NormOptions { training: true, ..NormOptions::default() };
    check("instance_norm", &[tensor(&[2, 2, 4], 6)], &|x| x[0].instance_norm(options));
    check("adaptive_avg_pool1d", &[tensor(&[2, 7], 7)], &|x| x[0].adaptive_avg_pool1d(&[Some(4)]));
}
