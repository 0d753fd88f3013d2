//! The graph itself: what is recorded, accumulated, freed, refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use linn::autograd::{BackwardOptions, Retain, checkpoint, grad, is_grad_enabled, no_grad};
use linn::nn::{Bias, Linear, Module};
use linn::ops::reduce::KeepDim;
use linn::{DeviceOptions, Tensor};

use crate::device::{device, open};

fn leaf<const N: usize>(values: [f32; N]) -> Tensor {
    Tensor::new(&device(), values).unwrap().requires_grad_(true).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec::<f32>().unwrap()
}

fn gradient(tensor: &Tensor) -> Vec<f32> {
    values(&tensor.grad().expect("a gradient"))
}

#[test]
fn gradients_accumulate_and_zero_grad_drops_them() {
    let x = leaf([1.0, 2.0]);
    for _ in 0..2 {
        x.square().unwrap().sum_all().unwrap().backward().unwrap();
    }
    assert_eq!(gradient(&x), [4.0, 8.0]);
    x.zero_grad();
    assert!(x.grad().is_none());
    // Used three times in one graph.
    let y = (&x * &x).unwrap().add(&x).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [3.0, 5.0]);
}

#[test]
fn clones_are_the_same_leaf_and_gradients_own_their_memory() {
    let (a, b) = (leaf([1.0, 2.0]), leaf([3.0, 4.0]));
    let clone = a.clone();
    (&clone + &b).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&a), [1.0, 1.0]);
    // Both got the same gradient; changing one must not change the other.
    a.grad().unwrap().mul_scalar_(5.0).unwrap();
    assert_eq!(gradient(&a), [5.0, 5.0]);
    assert_eq!(gradient(&b), [1.0, 1.0]);
}

#[test]
fn no_grad_records_and_keeps_nothing() {
    let device = open(DeviceOptions::default());
    let x = Tensor::from_slice(&device, &[1000], &vec![0.5f32; 1000]).unwrap().requires_grad_(true).unwrap();
    let before = device.memory_allocated();
    let y = no_grad(|| {
        assert!(!is_grad_enabled());
        x.exp().unwrap().square().unwrap().tanh().unwrap()
    });
    assert!(!y.requires_grad() && y.is_leaf());
    assert_eq!(device.memory_allocated() - before, 4096, "only the result is alive");
    assert!(y.backward().unwrap_err().to_string().contains("wants no gradient"));
    // Recorded, the result of exp stays for two rules; the backward pass frees it while y is still there.
    let y = x.exp().unwrap().square().unwrap().sum_all().unwrap();
    let recorded = device.memory_allocated();
    y.backward().unwrap();
    x.zero_grad();
    assert_eq!(recorded - device.memory_allocated(), 4096, "what was saved is freed");
}

#[test]
fn a_second_backward_is_an_error_unless_the_graph_is_kept() {
    let x = leaf([1.0, 2.0]);
    let y = x.square().unwrap().sum_all().unwrap();
    y.backward().unwrap();
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("a second time") && error.contains("help: pass Retain::Graph"), "{error}");
    assert_eq!(gradient(&x), [2.0, 4.0], "a refused pass adds nothing");
    x.zero_grad();
    let y = x.square().unwrap().sum_all().unwrap();
    y.backward_with(BackwardOptions { retain: Retain::Graph, ..Default::default() }).unwrap();
    y.backward().unwrap();
    assert_eq!(gradient(&x), [4.0, 8.0]);
}

#[test]
fn backward_wants_a_scalar_or_a_gradient() {
    let x = leaf([1.0, 2.0]);
    let y = x.square().unwrap();
    assert!(y.backward().unwrap_err().to_string().contains("not a scalar"));
    let gradient_of_y = Tensor::new(&device(), [10.0f32, 1.0]).unwrap();
    y.backward_with(BackwardOptions { gradient: Some(gradient_of_y), ..Default::default() }).unwrap();
    assert_eq!(gradient(&x), [20.0, 4.0]);
}

#[test]
fn a_saved_tensor_that_was_changed_is_noticed() {
    let x = leaf([1.0, 2.0]);
    let y = x.exp().unwrap();
    let z = y.square().unwrap();
    no_grad(|| y.mul_scalar_(2.0)).unwrap();
    let error = z.sum_all().unwrap().backward().unwrap_err().to_string();
    assert!(error.contains("a tensor saved for `square`") && error.contains("changed in place"), "{error}");
    // A view of it counts too.
    let base = Tensor::new(&device(), [1.0f32, 2.0, 3.0]).unwrap();
    let w = leaf([1.0, 1.0]);
    let y = w.mul(&base.narrow(0, 0, 2).unwrap()).unwrap();
    base.fill_(7.0).unwrap();
    assert!(y.sum_all().unwrap().backward().unwrap_err().to_string().contains("saved for `mul`"));
}

#[test]
fn in_place_follows_pytorchs_rules() {
    let x = leaf([1.0, 2.0]);
    assert!(x.add_scalar_(1.0).unwrap_err().to_string().contains("on a leaf"));
    no_grad(|| x.add_scalar_(1.0)).unwrap();
    assert_eq!(values(&x), [2.0, 3.0]);

    // On a result, the change is part of the history: y = (2x + x) * x * 3.
    let y = x.mul_scalar(2.0).unwrap();
    let clone = y.clone();
    y.add_(&x, 1.0).unwrap();
    y.mul_(&x).unwrap();
    clone.mul_scalar_(3.0).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(values(&y), [36.0, 81.0]);
    assert_eq!(gradient(&x), [36.0, 54.0]); // 18 x

    // fill_ cuts the history, copy_ replaces it.
    x.zero_grad();
    let y = x.mul_scalar(2.0).unwrap();
    y.copy_(&x).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [1.0, 1.0]);

    let y = x.mul_scalar(2.0).unwrap();
    let view = y.narrow(0, 0, 1).unwrap();
    assert!(view.fill_(0.0).unwrap_err().to_string().contains("on a view"));
    y.mul_scalar_(2.0).unwrap();
    assert!(view.square().unwrap_err().to_string().contains("view of a tensor that was changed in place"));
    let plain = Tensor::new(&device(), [0.0f32, 0.0]).unwrap();
    assert!(plain.add_(&x, 1.0).unwrap_err().to_string().contains("without any"));
}

#[test]
fn grad_leaves_leaves_alone() {
    let (a, b) = (leaf([2.0, 3.0]), leaf([5.0, 7.0]));
    let product = a.mul(&b).unwrap();
    let out = product.square().unwrap().sum_all().unwrap();
    let found = grad(&[&out], &[&b, &product]).unwrap();
    assert_eq!(values(&found[0]), [2.0 * 10.0 * 2.0, 2.0 * 21.0 * 3.0]);
    assert_eq!(values(&found[1]), [20.0, 42.0]);
    assert!(a.grad().is_none() && b.grad().is_none());
    let unrelated = leaf([1.0]);
    let out = a.sum_all().unwrap();
    assert!(grad(&[&out], &[&unrelated]).unwrap_err().to_string().contains("no output depends on input 0"));
}

#[test]
fn hooks_see_and_change_gradients_with_no_lock_held() {
    let x = leaf([1.0, 2.0]);
    let y = x.square().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, inner) = (seen.clone(), x.clone());
    let on_y = y
        .register_hook(move |grad| {
            // Would hang if a lock were held: reads, uses and hooks tensors of the same graph.
            inner.register_hook(|_| Ok(None))?.remove();
            log.lock().unwrap().push(grad.to_vec::<f32>()?);
            Ok(Some(grad.mul_scalar(10.0)?))
        })
        .unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let on_x = x.register_hook(move |_| Ok(None.filter(|_: &Tensor| counter.fetch_add(1, Ordering::Relaxed) > 9))).unwrap();
    y.sum_all().unwrap().backward_with(BackwardOptions { retain: Retain::Graph, ..Default::default() }).unwrap();
    assert_eq!(*seen.lock().unwrap(), [[1.0, 1.0]]);
    assert_eq!(gradient(&x), [20.0, 40.0]);
    on_y.remove();
    on_x.remove();
    x.zero_grad();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [2.0, 4.0]);
    assert!(Tensor::new(&device(), [1.0f32]).unwrap().register_hook(|_| Ok(None)).is_err());
}

/// The rule of layer_norm takes what has come to its input so far; hooks, kept graphs and other users must not notice.
#[test]
fn a_rule_that_adds_to_the_sum_so_far() {
    let data: Vec<f32> = (0..24).map(|i| (i as f32 * 0.77).sin()).collect();
    let device = open(DeviceOptions::default());
    let x = Tensor::from_slice(&device, &[3, 8], &data).unwrap().requires_grad_(true).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let weights = Tensor::from_slice(&device, &[3, 8], &data.iter().map(|x| 1.5 - x).collect::<Vec<_>>()).unwrap();
    // Through scalars 1 every use has a node of its own, so that no two meet at the layer norm.
    let run = |apart: bool| {
        x.zero_grad();
        let h = x.mul_scalar(3.0).unwrap();
        let sink = seen.clone();
        let _hook = h.register_hook(move |grad| {
            sink.lock().unwrap().push(values(grad));
            Ok(None)
        });
        let use_of = || if apart { h.mul_scalar(1.0).unwrap() } else { h.clone() };
        let before = use_of().square().unwrap();
        let normed = use_of().layer_norm(None, None, 1e-5).unwrap();
        let after = use_of().exp().unwrap().add(&use_of()).unwrap();
        let y = normed.mul(&weights).unwrap().add(&before).unwrap().add(&after).unwrap().sum_all().unwrap();
        let mut all = Vec::new();
        for retain in [Retain::Graph, Retain::Nothing] {
            y.backward_with(BackwardOptions { gradient: None, retain }).unwrap();
            all.extend(gradient(&x));
        }
        all.extend(seen.lock().unwrap().drain(..).flatten());
        device.synchronize().unwrap();
        all
    };
    let dispatches = || device.stats().queue.dispatches;
    let start = dispatches();
    let together = run(false);
    let middle = dispatches();
    let apart = run(true);
    // Apart: four products, and in each of two backward passes four more, and the addition that the rule saves.
    assert_eq!((dispatches() - middle) - (middle - start), 4 + 2 * (4 + 1));
    assert_eq!((together.len(), apart.len()), (4 * 24, 4 * 24), "two gradients and two calls of the hook");
    for (a, b) in together.iter().zip(&apart) {
        assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{a} and {b}");
    }
}

#[test]
fn checkpoint_equals_plain() {
    let device = device();
    let layer = Arc::new(Linear::new(&device, 8, 8, Bias::With).unwrap());
    let data: Vec<f32> = (0..32).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = Tensor::from_slice(&device, &[4, 8], &data).unwrap().requires_grad_(true).unwrap();
    let inner = layer.clone();
    let block = move |x: &Tensor| inner.forward(x)?.gelu()?.softmax(-1);
    let plain = block(&x).unwrap();
    plain.square().unwrap().sum_all().unwrap().backward().unwrap();
    let want = [values(&plain), gradient(&x), gradient(&layer.weight), gradient(layer.bias.as_ref().unwrap())];
    x.zero_grad();
    layer.zero_grad();
    let again = checkpoint(move |inputs| block(&inputs[0]), &[&x]).unwrap();
    again.square().unwrap().sum_all().unwrap().backward().unwrap();
    let got = [values(&again), gradient(&x), gradient(&layer.weight), gradient(layer.bias.as_ref().unwrap())];
    assert_eq!(got, want, "bit for bit");
}

#[test]
fn a_graph_of_100_000_operations() {
    let x = leaf([1.0]);
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = y.add_scalar(1.0).unwrap();
    }
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(values(&y), [100_001.0]);
    assert_eq!(gradient(&x), [1.0]);
    // Dropped without a backward pass, too.
    let mut z = x.clone();
    for _ in 0..100_000 {
        z = z.mul_scalar(1.0).unwrap();
    }
    drop(z);
}

#[test]
fn backward_runs_on_the_stream_of_its_forward() {
    let device = device();
    let stream = device.new_stream();
    let x = leaf([1.0, 2.0, 3.0]);
    let y = stream.scope(|| x.square().unwrap().mul_scalar(3.0).unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    let (log, inner) = (seen.clone(), device.clone());
    let squared = stream.scope(|| x.square().unwrap());
    squared
        .register_hook(move |_| {
            log.store(inner.current_stream().id() as usize, Ordering::Relaxed);
            Ok(None)
        })
        .unwrap();
    // Both from the default stream.
    y.add(&squared).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), stream.id() as usize);
    assert_eq!(gradient(&x), [8.0, 16.0, 24.0]);
}

#[test]
fn gradients_are_booked_and_freed() {
    let device = open(DeviceOptions::default());
    let x = Tensor::from_slice(&device, &[1 << 16], &vec![1.0f32; 1 << 16]).unwrap().requires_grad_(true).unwrap();
    let start = device.memory_allocated();
    for _ in 0..3 {
        let y = x.exp().unwrap().mul_scalar(2.0).unwrap().mean(&[], KeepDim::Drop).unwrap();
        y.backward().unwrap();
        x.zero_grad();
    }
    device.synchronize().unwrap();
    assert_eq!(device.memory_allocated(), start, "nothing stays behind");
}

#[test]
fn integers_cannot_want_gradients() {
    let ids = Tensor::new(&device(), [1i32, 2]).unwrap();
    assert!(ids.requires_grad_(true).is_err());
    let x = leaf([1.0]);
    let y = x.square().unwrap();
    assert!(y.clone().requires_grad_(false).unwrap_err().to_string().contains("detach"));
    assert!(!y.detach().requires_grad());
}
