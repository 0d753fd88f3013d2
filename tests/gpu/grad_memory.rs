//! What a model keeps for the backward pass, and two ways to keep less: computing it again, and keeping it in host memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use linn::autograd::{
    BackwardOptions, Retain, SaveOnCpu, autocast, checkpoint, checkpoint_sequential, grad, no_grad, saved_tensors_hooks,
};
use linn::memory::Category;
use linn::{DType, Device, DeviceOptions, Result, Tensor};

use crate::device::{device, open};

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.37).sin()).collect()
}

fn leaf(device: &Device, shape: &[usize]) -> Tensor {
    let tensor = Tensor::from_slice(device, shape, &numbers(shape.iter().product())).unwrap();
    tensor.requires_grad_(true).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec::<f32>().unwrap()
}

fn gradient(tensor: &Tensor) -> Vec<f32> {
    values(&tensor.grad().expect("a gradient"))
}

fn message<T>(answer: Result<T>) -> String {
    answer.err().expect("an error").to_string()
}

fn activations(device: &Device) -> u64 {
    device.memory_breakdown().of(Category::Activation)
}

/// A block with a weight of its own that draws random numbers.
fn block(w: &Tensor) -> impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + Clone + 'static {
    let w = w.clone();
    move |x: &Tensor| x.matmul(&w)?.gelu()?.dropout(0.3)?.softmax(-1)?.add(x)
}

/// Result and gradients of x and w of a run with seed 5.
fn run(x: &Tensor, w: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> [Vec<f32>; 3] {
    let device = x.device();
    x.zero_grad();
    w.zero_grad();
    device.manual_seed(5).unwrap();
    let out = f(x).unwrap();
    // Numbers that others draw in between are others.
    Tensor::rand(device, &[100]).unwrap();
    let before = device.rng_state().unwrap();
    out.square().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(device.rng_state().unwrap(), before, "the backward pass moves no generator");
    [values(&out), gradient(x), gradient(w)]
}

#[test]
fn a_checkpoint_draws_the_same_random_numbers_again() {
    let device = open(DeviceOptions::default());
    let (x, w) = (leaf(&device, &[16, 8]), leaf(&device, &[8, 8]));
    let f = block(&w);
    let plain = run(&x, &w, |x| f(&f(&f(x)?)?));
    assert!(plain.iter().flatten().all(|value| value.is_finite()));
    let again = f.clone();
    let once = run(&x, &w, move |x| checkpoint(move |x| again(&again(&again(&x[0])?)?), &[x]));
    assert_eq!(once, plain, "as one part");
    let again = f.clone();
    let nested = run(&x, &w, move |x| {
        checkpoint(
            move |x| {
                let inner = again.clone();
                let y = checkpoint(move |x| inner(&x[0]), &[&x[0]])?;
                let inner = again.clone();
                again(&checkpoint(move |x| inner(&x[0]), &[&y])?)
            },
            &[x],
        )
    });
    assert_eq!(nested, plain, "nested");
    let parts = [0; 3].map(|_| Arc::new(f.clone()));
    for segments in 1..=3 {
        assert_eq!(run(&x, &w, |x| checkpoint_sequential(&parts, segments, x)), plain, "{segments} segments");
    }
    assert!(message(checkpoint_sequential(&parts, 0, &x)).contains("0 segments of 3 functions"));
    assert!(message(checkpoint_sequential(&parts, 4, &x)).contains("help: pass from 1"));
}

#[test]
fn a_checkpoint_keeps_its_inputs_and_nothing_else() {
    let device = open(DeviceOptions::default());
    let x = leaf(&device, &[64, 64]);
    let size = 64 * 64 * 4;
    let start = device.memory_allocated();
    let f = |x: &Tensor| (0..8).try_fold(x.clone(), |x, _| x.sin());
    let held = |f: &dyn Fn() -> Result<Tensor>| {
        let y = f().unwrap();
        let held = device.memory_allocated() - start;
        y.sum_all().unwrap().backward().unwrap();
        drop(y);
        x.zero_grad();
        assert_eq!(device.memory_allocated(), start, "nothing stays behind");
        held
    };
    // sin keeps its operand; the last result is the answer.
    assert_eq!(held(&|| f(&x)), 8 * size);
    assert_eq!(held(&|| checkpoint(move |x| f(&x[0]), &[&x])), size);
    let two = || {
        let half = checkpoint(move |x| f(&x[0]), &[&x])?;
        checkpoint(move |x| f(&x[0]), &[&half])
    };
    assert_eq!(held(&two), 2 * size);
    // Never asked for: dropped with its graph.
    drop(checkpoint(move |x| f(&x[0]), &[&x]).unwrap());
    assert_eq!(device.memory_allocated(), start);
}

#[test]
fn a_checkpoint_is_a_graph_like_any_other() {
    let device = device();
    let (x, w) = (leaf(&device, &[6]), leaf(&device, &[6]));
    let calls = Arc::new(AtomicUsize::new(0));
    let (count, inner) = (calls.clone(), w.clone());
    let part = move |x: &[Tensor]| {
        count.fetch_add(1, Ordering::Relaxed);
        let product = x[0].mul(&inner)?.exp()?;
        Ok((product.sin()?, product.detach(), vec![x[1].square()?]))
    };
    let k = leaf(&device, &[6]).detach();
    let (y, constant, more) = checkpoint(part, &[&x, &k]).unwrap();
    assert!(y.requires_grad() && !constant.requires_grad() && !more[0].requires_grad());
    assert_eq!(values(&more[0]), values(&k.square().unwrap()));
    let plain = x.mul(&w).unwrap().exp().unwrap().sin().unwrap().sum_all().unwrap();
    let want = grad(&[&plain], &[&x, &w]).unwrap();

    // A weight that the function captures is an input of the graph, with its hooks.
    let seen = Arc::new(AtomicUsize::new(0));
    let log = seen.clone();
    let _hook = w.register_hook(move |_| {
        log.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    });
    let root = y.sum_all().unwrap();
    for _ in 0..2 {
        root.backward_with(BackwardOptions { retain: Retain::Graph, ..Default::default() }).unwrap();
    }
    assert_eq!((calls.load(Ordering::Relaxed), seen.load(Ordering::Relaxed)), (3, 2), "once more for each pass");
    let twice = |grad: &Tensor| values(&grad.add(grad).unwrap());
    assert_eq!([gradient(&x), gradient(&w)], [twice(&want[0]), twice(&want[1])]);
    let got = grad(&[&root], &[&w]).unwrap();
    assert_eq!(values(&got[0]), values(&want[1]));
    assert!(message(root.backward()).contains("help:"), "its graph is gone");

    // Without recording it is a call, and so it is without inputs.
    let calls = calls.clone();
    let count = calls.clone();
    let before = calls.load(Ordering::Relaxed);
    let y = no_grad(|| {
        checkpoint(
            move |x| {
                count.fetch_add(1, Ordering::Relaxed);
                x[0].exp()
            },
            &[&x],
        )
    });
    assert!(!y.unwrap().requires_grad());
    assert_eq!(calls.load(Ordering::Relaxed) - before, 1);
    let inner = w.clone();
    assert!(checkpoint(move |_| inner.exp(), &[]).unwrap().requires_grad());
}

#[test]
fn a_checkpoint_finds_the_types_as_they_were() {
    let device = device();
    let (x, w) = (leaf(&device, &[8, 8]), leaf(&device, &[8, 8]));
    let f = |w: &Tensor| {
        let w = w.clone();
        move |x: &Tensor| x.matmul(&w)?.matmul(&w)?.to_dtype(DType::F32)
    };
    let plain = run(&x, &w, |x| autocast(DType::BF16, || f(&w)(x)));
    let inner = f(&w);
    let again = run(&x, &w, move |x| autocast(DType::BF16, || checkpoint(move |x| inner(&x[0]), &[x])));
    assert_eq!(again, plain);
    let inner = f(&w);
    let whole = run(&x, &w, move |x| checkpoint(move |x| inner(&x[0]), &[x]));
    assert_ne!(whole[0], plain[0]);
    // And the backward pass may run in a scope that the forward pass was not in.
    let inner = f(&w);
    x.zero_grad();
    w.zero_grad();
    let out = checkpoint(move |x| inner(&x[0]), &[&x]).unwrap();
    autocast(DType::BF16, || out.square()?.sum_all()?.backward()).unwrap();
    assert_eq!([values(&out), gradient(&x), gradient(&w)], whole);
}

#[test]
fn a_checkpoint_that_computes_something_else_is_an_error() {
    let device = device();
    let x = leaf(&device, &[6]);
    let toggled = |first: fn(&Tensor) -> Result<Tensor>, second: fn(&Tensor) -> Result<Tensor>| {
        let calls = AtomicUsize::new(0);
        let part = move |x: &[Tensor]| if calls.fetch_add(1, Ordering::Relaxed) == 0 { first(&x[0]) } else { second(&x[0]) };
        message(checkpoint(part, &[&x]).unwrap().sum_all().unwrap().backward())
    };
    let fewer = toggled(|x| x.exp()?.sin(), |x| x.exp());
    assert!(fewer.contains("saved 1 tensors, not the 2 of the first") && fewer.contains("help:"), "{fewer}");
    let other = toggled(|x| x.sin(), |x| x.narrow(0, 0, 3)?.sin());
    assert!(other.contains("another shape or type"), "{other}");
    let draws =
        toggled(|x| x.mul(&Tensor::rand(x.device(), &[6])?), |x| x.mul(&Tensor::rand(x.device(), &[60])?.narrow(0, 0, 6)?));
    assert!(draws.contains("drew other random numbers"), "{draws}");
    let fewer = toggled(|x| x.mul(&Tensor::rand(x.device(), &[6])?), |x| x.mul(x));
    assert!(fewer.contains("drew other random numbers"), "{fewer}");
    let fails = toggled(|x| x.sin(), |x| x.reshape(&[7])?.sin());
    assert!(fails.contains("reshape"), "{fails}");
    // An input that was changed in place since.
    let y = x.mul_scalar(2.0).unwrap();
    let out = checkpoint(|x| x[0].exp(), &[&y]).unwrap();
    no_grad(|| y.add_scalar_(1.0)).unwrap();
    let changed = message(out.sum_all().unwrap().backward());
    assert!(changed.contains("`checkpoint`") && changed.contains("changed in place"), "{changed}");
    assert!(x.grad().is_none());
}

#[test]
fn hooks_around_a_checkpoint_pack_its_inputs_only() {
    let device = device();
    let x = leaf(&device, &[6]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let pack = move |tensor: &Tensor| {
        log.lock().unwrap().push(values(tensor));
        Ok(tensor.clone())
    };
    let y = x.mul_scalar(2.0).unwrap();
    let out = saved_tensors_hooks(pack, |x: &Tensor| Ok(x.clone()), || checkpoint(|x| x[0].exp()?.sin(), &[&y])).unwrap();
    out.sum_all().unwrap().backward().unwrap();
    assert_eq!(*seen.lock().unwrap(), [values(&y)]);
}

/// Keeps results of several types, strides and sizes, and one of them twice.
fn keeps_many(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let y = x.matmul(w)?;
    let gate = y.sigmoid()?.mul(&y)?; // keeps both; y is kept already
    let odd = gate.narrow(1, 3, 61)?.to_dtype(DType::F16)?.square()?; // a view of odd rows, and halves
    let turned = gate.transpose(0, 1)?.exp()?.log()?;
    let chosen = gate.gt_scalar(0.1)?.where_(&gate.tanh()?, &gate.neg()?)?; // a mask
    turned.transpose(0, 1)?.add(&chosen)?.narrow(1, 3, 61)?.add(&odd.to_dtype(DType::F32)?)?.softmax(-1)
}

#[test]
fn saved_tensors_come_back_from_host_memory_to_the_bit() {
    let device = open(DeviceOptions::default());
    let (x, w) = (leaf(&device, &[64, 64]), leaf(&device, &[64, 64]));
    let plain = run(&x, &w, |x| keeps_many(x, &w));
    let host = SaveOnCpu::new(&device).unwrap();
    let mut reserved = Vec::new();
    for _ in 0..4 {
        let away = run(&x, &w, |x| host.scope(|| keeps_many(x, &w)));
        assert_eq!(away, plain);
        assert_eq!(host.memory_allocated(), 0, "used and free again");
        reserved.push(host.memory_reserved());
    }
    assert!(reserved[0] > 0 && reserved.iter().all(|bytes| *bytes == reserved[0]), "{reserved:?}");

    // Passes that follow each other without a wait use the same memory, and so do streams beside each other.
    let expected = gradient(&w);
    let streams = [device.new_stream(), device.new_stream()];
    let results: Vec<[Tensor; 2]> = (0..8)
        .map(|i| {
            streams[i % 2].scope(|| {
                let (x, w) = (leaf(&device, &[64, 64]), leaf(&device, &[64, 64]));
                host.scope(|| keeps_many(&x, &w)).unwrap().square().unwrap().sum_all().unwrap().backward().unwrap();
                [x.grad().unwrap(), w.grad().unwrap()]
            })
        })
        .collect();
    assert_eq!(host.memory_reserved(), reserved[0]);
    for [_, of_w] in results {
        assert_eq!(values(&of_w), expected);
    }
    host.empty_cache();
    assert_eq!(host.memory_reserved(), 0);

    // Two passes over one graph; and the memory outlives its handle.
    x.zero_grad();
    let y = SaveOnCpu::new(&device).unwrap().scope(|| keeps_many(&x, &w)).unwrap().square().unwrap().sum_all().unwrap();
    y.backward_with(BackwardOptions { retain: Retain::Graph, ..Default::default() }).unwrap();
    assert_eq!(gradient(&x), plain[1]);
    assert_eq!(values(&grad(&[&y], &[&x]).unwrap()[0]), plain[1]);
}

#[test]
fn what_lies_in_host_memory_takes_none_of_the_device() {
    let device = open(DeviceOptions::default());
    let x = leaf(&device, &[128, 64]);
    let size = 128 * 64 * 4;
    let layers = |x: &Tensor| (0..10).try_fold(x.clone(), |x, _| x.sin());
    let start = device.memory_allocated();
    let y = layers(&x).unwrap();
    assert_eq!(activations(&device), 9 * size, "sin keeps its operand, and the first is a leaf");
    y.sum_all().unwrap().backward().unwrap();
    let want = gradient(&x);
    x.zero_grad();
    drop(y);
    assert_eq!(device.memory_allocated(), start);

    let host = SaveOnCpu::new(&device).unwrap();
    device.synchronize().unwrap();
    device.reset_host_waits();
    let y = host.scope(|| layers(&x)).unwrap();
    assert_eq!((activations(&device), host.memory_allocated()), (0, 9 * size));
    assert_eq!(device.memory_allocated() - start, size, "the result alone");
    device.reset_peak_memory_stats();
    y.sum_all().unwrap().backward().unwrap();
    let peak = device.max_memory_allocated() - start;
    // Of saved tensors three: one in use and two ahead; of others the result and three for gradients.
    assert!(peak <= 7 * size + 4096, "{} tensors", peak as f64 / size as f64);
    assert!(device.host_waits().is_empty(), "nothing waits: {:?}", device.host_waits());
    assert_eq!(gradient(&x), want);
    drop(y);
    x.zero_grad();
    assert_eq!((device.memory_allocated(), host.memory_allocated()), (start, 0));

    // Small tensors, leaves and expanded ones stay.
    let small = leaf(&device, &[32]).mul_scalar(2.0).unwrap();
    let wide = small.reshape(&[1, 32]).unwrap().expand(&[1024, 32]).unwrap();
    let y = host.scope(|| small.sin()?.add(&wide.sin()?)?.sum_all()?.add(&x.square()?.sum_all()?)).unwrap();
    assert_eq!(host.memory_allocated(), 0);
    y.backward().unwrap();
    // In a checkpoint the innermost hooks count: what it computes again stays on the device.
    let half = x.mul_scalar(0.5).unwrap();
    let y = host.scope(|| checkpoint(move |x| layers(&x[0]), &[&half])).unwrap();
    assert_eq!(host.memory_allocated(), size, "its input alone");
    y.sum_all().unwrap().backward().unwrap();
}
