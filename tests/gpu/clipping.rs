//! Clipping by norm and by value, over many gradients of many sizes and types at once.

use linn::optim::{GradScaler, GradScalerOptions, ParamGroup, Sgd, SgdOptions, clip_grad_norm_, clip_grad_value_, grad_norm};
use linn::{DType, Device, DeviceOptions, Tensor};

use crate::close::{assert_close, numbers, wide};
use crate::device::{device, open};
use crate::reference;

/// Lengths that end within a `vec4`, within a chunk, and far behind one.
const LENS: [usize; 9] = [1, 3, 4, 35, 257, 1003, 4099, 70_001, 0];

fn read(x: &Tensor) -> Vec<f32> {
    x.to_dtype(DType::F32).unwrap().to_vec().unwrap()
}

fn param(grad: Tensor) -> Tensor {
    let param = Tensor::zeros(grad.device(), grad.shape()).unwrap().to_dtype(grad.dtype()).unwrap().requires_grad_(true).unwrap();
    param.set_grad(Some(grad)).unwrap();
    param
}

/// Gradients of f32, of halves, transposed ones and parts of others, one without a gradient, and their numbers.
fn gradients(device: &Device) -> (Vec<Tensor>, Vec<Vec<f64>>) {
    let vector = |i: usize, len: usize| Tensor::from_slice(device, &[len], &numbers(i as u32, len)).unwrap();
    let mut grads: Vec<Tensor> = LENS.iter().enumerate().map(|(i, len)| vector(i, *len)).collect();
    grads.extend([DType::F16, DType::BF16, DType::F16].map(|dtype| vector(20, 1021).to_dtype(dtype).unwrap()));
    grads.push(vector(21, 35).reshape(&[5, 7]).unwrap().transpose(0, 1).unwrap());
    let whole = vector(22, 100);
    grads.extend([whole.narrow(0, 1, 50).unwrap(), whole.narrow(0, 52, 47).unwrap()]);
    let want = grads.iter().map(|grad| wide(&read(&grad.contiguous().unwrap()))).collect();
    let mut params: Vec<Tensor> = grads.into_iter().map(param).collect();
    params.push(Tensor::zeros(device, &[2]).unwrap().requires_grad_(true).unwrap());
    (params, want)
}

fn unit(param: &Tensor) -> f64 {
    match param.dtype() {
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        _ => 1e-6,
    }
}

#[test]
fn norms_are_clipped_over_all_gradients_together() {
    let (params, before) = gradients(&device());
    let norm = reference::square_parts(&before).sqrt();
    assert_close("norm", &[grad_norm(&params).unwrap().item().unwrap()], &[norm], 1e-6, 0.0);
    for (max_norm, scale) in [(2.0 * norm, 1.0), (0.1 * norm, 0.1)] {
        let got = clip_grad_norm_(&params, max_norm).unwrap().item::<f32>().unwrap();
        assert_close("norm before", &[got], &[norm], 1e-6, 0.0);
        for (param, before) in params.iter().zip(&before) {
            let want: Vec<f64> = before.iter().map(|x| reference::scale_gradients(*x, scale)).collect();
            assert_close(
                &format!("{:?} {}", param.shape(), param.dtype()),
                &read(&param.grad().unwrap()),
                &want,
                unit(param),
                1e-6,
            );
        }
    }
}

#[test]
fn values_are_clipped_one_by_one() {
    let (params, before) = gradients(&device());
    clip_grad_value_(&params, 0.75).unwrap();
    for (param, before) in params.iter().zip(&before) {
        let want: Vec<f64> = before.iter().map(|x| reference::clamp_gradients(*x, 0.75)).collect();
        assert_close(&format!("{:?} {}", param.shape(), param.dtype()), &read(&param.grad().unwrap()), &want, 0.0, 0.0);
    }
    let odd = param(Tensor::new(&device(), [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0]).unwrap());
    clip_grad_value_(std::slice::from_ref(&odd), 1.0).unwrap();
    assert_eq!(format!("{:?}", read(&odd.grad().unwrap())), "[NaN, 1.0, -1.0, -0.0]");
    for wrong in [-1.0, f64::NAN] {
        let text = clip_grad_value_(&[], wrong).unwrap_err().to_string();
        assert!(text.starts_with("clip_grad_value_: clip_value is "), "{text}");
    }
}

/// Where the tensors lie makes no difference to a bit: a run that goes on from a checkpoint clips as it would have.
#[test]
fn a_norm_has_the_same_bits_wherever_gradients_lie() {
    let device = open(DeviceOptions::default());
    let norm = |gap: usize| {
        let mut between = Vec::new();
        let grads: Vec<Tensor> = (0..30)
            .map(|i| {
                between.push(Tensor::zeros(&device, &[1 + gap * i]).unwrap());
                param(Tensor::from_slice(&device, &[777 * (i + 1)], &numbers(i as u32, 777 * (i + 1))).unwrap())
            })
            .collect();
        grad_norm(&grads).unwrap().item::<f32>().unwrap().to_bits()
    };
    let first = norm(0);
    assert!([100, 10_000, 200_000].map(norm).iter().all(|bits| *bits == first));
}

/// A hundred gradients: by norm, by value, and a scaler's look for infinities.
#[test]
fn clipping_takes_few_dispatches() {
    let device = open(DeviceOptions::default());
    let make = |i: usize| param(Tensor::from_slice(&device, &[100 + 37 * i], &numbers(i as u32, 100 + 37 * i)).unwrap());
    let params: Vec<Tensor> = (0..100).map(make).collect();
    let named = params.iter().enumerate().map(|(i, param)| (i.to_string(), param.clone())).collect();
    let sgd = Sgd::new(vec![ParamGroup::new(named, 0.1, 0.0)], SgdOptions::default());
    let mut scaler = GradScaler::new(&device, GradScalerOptions::default()).unwrap();
    let count = |work: &mut dyn FnMut()| {
        device.synchronize().unwrap();
        let before = device.stats().queue;
        work();
        assert_eq!(device.stats().queue.host_syncs, before.host_syncs, "nothing waits for the device");
        device.synchronize().unwrap();
        device.stats().queue.dispatches - before.dispatches
    };
    let by_norm = count(&mut || drop(clip_grad_norm_(&params, 1.0).unwrap()));
    let by_value = count(&mut || clip_grad_value_(&params, 1.0).unwrap());
    let unscaled = count(&mut || scaler.unscale_(&sgd).unwrap());
    println!("100 gradients: {by_norm} dispatches to clip by norm, {by_value} by value, {unscaled} to unscale");
    assert!(by_norm <= 12 && by_value <= 4 && unscaled <= 14, "{by_norm}, {by_value}, {unscaled} dispatches for 100 gradients");
}
