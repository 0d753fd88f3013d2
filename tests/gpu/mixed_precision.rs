//! Scopes of autocast, and gradient scalers. Which operation runs in which type: golden_ops/autocast.rs; whole runs, and scalers
//! before every optimizer: golden_training.rs.

use linn::autograd::{autocast, autocast_guard, no_grad};
use linn::device::SyncDebug;
use linn::nn::{Bias, Linear, Module};
use linn::optim::{GradScaler, GradScalerOptions, Optimizer, ParamGroup, Sgd, SgdOptions, clip_grad_norm_};
use linn::{DType, DeviceOptions, Tensor};

use crate::close::{assert_close, numbers};
use crate::device::{device, open};

fn tensor(seed: u32, shape: &[usize]) -> Tensor {
    Tensor::from_slice(&device(), shape, &numbers(seed, shape.iter().product())).unwrap()
}

fn read(x: &Tensor) -> Vec<f32> {
    x.to_dtype(DType::F32).unwrap().to_vec().unwrap()
}

fn wide(x: &Tensor) -> Vec<f64> {
    read(x).into_iter().map(f64::from).collect()
}

#[test]
fn gradients_of_f32_tensors_are_f32_and_close() {
    let (x, w, c) = (tensor(1, &[7, 5]), tensor(2, &[3, 5]), tensor(3, &[3]));
    let run = |dtype: DType| {
        let [x, w, c] = [&x, &w, &c].map(|x| x.detach().requires_grad_(true).unwrap());
        let y = autocast(dtype, || x.linear(&w, Some(&c))?.tanh()).unwrap();
        assert_eq!(y.dtype(), dtype);
        y.square().unwrap().sum_all().unwrap().backward().unwrap();
        [x, w, c].map(|x| x.grad().unwrap())
    };
    let want = run(DType::F32);
    for dtype in [DType::F16, DType::BF16] {
        for (got, want) in run(dtype).iter().zip(&want) {
            assert_eq!(got.dtype(), DType::F32);
            assert_close("gradient", &read(got), &wide(want), 0.05, 0.05);
        }
    }
}

#[test]
fn a_parameter_is_converted_once_in_a_scope() {
    let device = open(DeviceOptions::default());
    let w = Tensor::ones(&device, &[64, 64]).unwrap().requires_grad_(true).unwrap();
    let x = Tensor::ones(&device, &[64, 64]).unwrap().to_dtype(DType::BF16).unwrap();
    let commands = |w: &Tensor, times: usize| {
        let before = device.stats().timeline;
        autocast(DType::BF16, || (0..times).try_for_each(|_| x.matmul(w).map(drop))).unwrap();
        device.stats().timeline.commands - before.commands
    };
    let product = commands(&w.detach().to_dtype(DType::BF16).unwrap(), 1);
    assert_eq!((commands(&w, 1), commands(&w, 5)), (1 + product, 1 + 5 * product), "one conversion, and five products");
}

#[test]
fn a_converted_parameter_is_never_stale() {
    let w = tensor(1, &[4, 4]).requires_grad_(true).unwrap();
    let x = tensor(2, &[4, 4]);
    let plain = |w: &Tensor| read(&x.to_dtype(DType::BF16).unwrap().matmul(&w.detach().to_dtype(DType::BF16).unwrap()).unwrap());
    let _scope = autocast_guard(DType::BF16).unwrap();
    // Converted without recording first: later uses still have a gradient.
    no_grad(|| x.matmul(&w)).unwrap();
    for round in 0..3 {
        let y = x.matmul(&w).unwrap();
        assert_eq!(read(&y), plain(&w), "round {round}");
        // Backward frees the conversion that all uses share; the next round needs one of its own.
        let twice = y.add(&x.matmul(&w).unwrap()).unwrap();
        twice.sum_all().unwrap().backward().unwrap();
        let grad = w.grad().unwrap();
        assert_eq!(grad.dtype(), DType::F32);
        no_grad(|| w.add_scalar_(1.0)).unwrap();
    }
    let three = read(&w.grad().unwrap());
    let x_bf16 = x.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
    let want: Vec<f64> =
        wide(&x_bf16.sum(&[0], linn::ops::reduce::KeepDim::Keep).unwrap().transpose(0, 1).unwrap().mul_scalar(6.0).unwrap());
    let want: Vec<f64> = want.iter().flat_map(|row| [*row; 4]).collect();
    assert_close("three backward passes", &three, &want, 0.02, 0.02);
}

#[test]
fn two_threads_have_scopes_of_their_own() {
    let _scope = autocast_guard(DType::F16).unwrap();
    let (x, w) = (tensor(1, &[3, 3]), tensor(2, &[3, 3]).requires_grad_(true).unwrap());
    assert_eq!(x.matmul(&w).unwrap().dtype(), DType::F16);
    let other = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let outside = x.matmul(&w).unwrap().dtype();
            (outside, autocast(DType::BF16, || Ok(x.matmul(&w)?.dtype())).unwrap())
        });
        thread.join().unwrap()
    });
    assert_eq!(other, (DType::F32, DType::BF16));
    assert_eq!(autocast(DType::F32, || Ok(x.matmul(&w)?.dtype())).unwrap(), DType::F32);
    assert!(autocast_guard(DType::I32).is_err_and(|error| error.to_string().contains("autocast: takes f16 or bf16")));
    let refused = x.sigmoid().unwrap().binary_cross_entropy(&x.sigmoid().unwrap(), None, Default::default());
    assert!(refused.is_err_and(|error| error.to_string().contains("pass logits to binary_cross_entropy_with_logits")));
}

/// A model of one layer and its optimizer; its loss is computed in f16.
struct Run {
    model: Linear,
    optimizer: Sgd,
}

impl Run {
    fn new(device: &linn::Device) -> Run {
        let model = Linear::new(device, 5, 3, Bias::With).unwrap();
        let group = ParamGroup::new(model.named_parameters(), 0.1, 0.0);
        Run { model, optimizer: Sgd::new(vec![group], SgdOptions { momentum: 0.9, ..SgdOptions::default() }) }
    }

    fn loss(&self, x: &Tensor) -> Tensor {
        autocast(DType::F16, || self.model.forward(x)?.square()?.mean_all()).unwrap()
    }
}

/// Small gradients become 0 in f16, and do not with a scaler; nothing of it waits.
#[test]
fn a_scaler_saves_small_gradients_without_a_wait() {
    let device = open(DeviceOptions::default());
    let x = Tensor::ones(&device, &[4, 5]).unwrap();
    let mut run = Run::new(&device);
    let tiny = |loss: &Tensor| loss.mul_scalar(2f64.powi(-30)).unwrap();
    tiny(&run.loss(&x)).backward().unwrap();
    let lost = run.model.weight.grad().unwrap();
    assert!(read(&lost).iter().all(|g| *g == 0.0), "2^-30 is below the range of f16");
    run.optimizer.zero_grad();
    let mut scaler = GradScaler::new(&device, GradScalerOptions::default()).unwrap();
    device.set_sync_debug(SyncDebug::Error);
    for _ in 0..3 {
        scaler.scale(&tiny(&run.loss(&x))).unwrap().backward().unwrap();
        scaler.unscale_(&run.optimizer).unwrap();
        clip_grad_norm_(&run.model.parameters(), 1.0).unwrap();
        scaler.step(&mut run.optimizer).unwrap();
        scaler.update().unwrap();
    }
    device.set_sync_debug(SyncDebug::Off);
    let grad = run.model.weight.grad().unwrap();
    assert!(read(&grad).iter().all(|g| *g != 0.0 && g.abs() < 1e-6), "{:?}", read(&grad));
    assert_eq!(scaler.get_scale().unwrap(), 65_536.0);
}

#[test]
fn a_scaler_finds_its_scale() {
    let device = device();
    let mut run = Run::new(&device);
    let x = Tensor::ones(&device, &[4, 5]).unwrap();
    let options = GradScalerOptions { init_scale: 2f64.powi(40), ..GradScalerOptions::default() };
    let mut scaler = GradScaler::new(&device, options).unwrap();
    let start = read(&run.model.weight);
    let mut skipped = 0;
    while read(&run.model.weight) == start {
        assert!(skipped < 40);
        scaler.scale(&run.loss(&x)).unwrap().backward().unwrap();
        scaler.step(&mut run.optimizer).unwrap();
        scaler.update().unwrap();
        run.optimizer.zero_grad();
        skipped += 1;
    }
    assert!(skipped > 10, "2^40 is too large for f16, found after {skipped} iterations");
    assert_eq!(scaler.get_scale().unwrap(), 2f32.powi(41 - skipped));
    assert!(read(&run.model.weight).iter().all(|x| x.is_finite()));
    // Saved, and taken back by another one.
    let saved = scaler.state().unwrap().into_iter().map(|(name, tensor)| (format!("scaler.{name}"), tensor)).collect();
    let mut other = GradScaler::new(&device, GradScalerOptions::default()).unwrap();
    other.load_state(&saved, "scaler.").unwrap();
    assert_eq!(other.get_scale().unwrap(), scaler.get_scale().unwrap());
    assert!(other.load_state(&saved, "else.").is_err_and(|error| error.to_string().contains("else.scale, an f32, is missing")));
}

#[test]
fn a_scale_grows_and_never_becomes_infinite() {
    let device = device();
    let mut run = Run::new(&device);
    run.model.weight.set_grad(Some(Tensor::ones(&device, &[3, 5]).unwrap())).unwrap();
    for (start, growth, interval) in [(4.0, 3.0, 2), (2f64.powi(127), 2.0, 1)] {
        let options =
            GradScalerOptions { init_scale: start, growth_factor: growth, growth_interval: interval, ..Default::default() };
        let mut scaler = GradScaler::new(&device, options).unwrap();
        let (mut scale, mut lasted) = (start as f32, 0f32);
        for _ in 0..5 {
            scaler.step(&mut run.optimizer).unwrap();
            scaler.update().unwrap();
            (scale, lasted) = crate::reference::update_scale(scale, lasted, false, [growth as f32, 0.5], interval);
            assert_eq!(scaler.get_scale().unwrap(), scale);
        }
    }
}

#[test]
fn two_optimizers_of_one_scaler() {
    let device = device();
    let (mut good, mut bad) = (Run::new(&device), Run::new(&device));
    let mut scaler = GradScaler::new(&device, GradScalerOptions::default()).unwrap();
    let x = Tensor::ones(&device, &[4, 5]).unwrap();
    scaler.scale(&good.loss(&x)).unwrap().backward().unwrap();
    bad.model.weight.set_grad(Some(Tensor::full(&device, &[3, 5], f32::NAN).unwrap())).unwrap();
    let (one, other) = (read(&good.model.weight), read(&bad.model.weight));
    scaler.step(&mut good.optimizer).unwrap();
    scaler.step(&mut bad.optimizer).unwrap();
    scaler.update().unwrap();
    assert_ne!(read(&good.model.weight), one, "its gradients are finite");
    assert_eq!(read(&bad.model.weight), other, "its gradients are not");
    assert_eq!(scaler.get_scale().unwrap(), 32_768.0);
}

#[test]
fn what_a_scaler_refuses() {
    let device = device();
    let mut run = Run::new(&device);
    let mut scaler = GradScaler::new(&device, GradScalerOptions::default()).unwrap();
    let text = |result: linn::Result<()>| result.unwrap_err().to_string();
    assert!(text(scaler.update()).contains("without a step since the last update\nhelp: call step(&mut optimizer)"));
    assert!(
        text(scaler.step(&mut run.optimizer)).contains("no parameter has a gradient\nhelp: call backward on the scaled loss")
    );
    run.model.weight.set_grad(Some(Tensor::ones(&device, &[3, 5]).unwrap())).unwrap();
    scaler.unscale_(&run.optimizer).unwrap();
    assert!(text(scaler.unscale_(&run.optimizer)).contains("called a second time"));
    scaler.step(&mut run.optimizer).unwrap();
    assert!(text(scaler.unscale_(&run.optimizer)).contains("called after step"));
    assert!(text(scaler.step(&mut run.optimizer)).contains("help: call update at the end of each iteration"));
    scaler.update().unwrap();
    let half = Tensor::ones(&device, &[2]).unwrap().to_dtype(DType::F16).unwrap().requires_grad_(true).unwrap();
    half.set_grad(Some(half.detach())).unwrap();
    let halves = Sgd::new(vec![ParamGroup::new(vec![("half".into(), half)], 0.1, 0.0)], SgdOptions::default());
    assert!(text(scaler.unscale_(&halves)).contains("help: keep parameters in f32"));
    for options in [
        GradScalerOptions { growth_factor: 1.0, ..Default::default() },
        GradScalerOptions { backoff_factor: 1.0, ..Default::default() },
        GradScalerOptions { init_scale: 0.0, ..Default::default() },
        GradScalerOptions { init_scale: f64::NAN, ..Default::default() },
        GradScalerOptions { growth_interval: 0, ..Default::default() },
    ] {
        assert!(GradScaler::new(&device, options).is_err(), "{options:?}");
    }
    let off = GradScaler::new(&device, GradScalerOptions { enabled: false, ..Default::default() }).unwrap();
    assert_eq!(off.get_scale().unwrap(), 1.0);
}
