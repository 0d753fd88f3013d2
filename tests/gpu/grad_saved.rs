//! Hooks on saved tensors: what they see, what they may keep, and what happens when they misbehave.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use linn::autograd::{
    BackwardOptions, Context, Function, Retain, checkpoint, is_grad_enabled, no_grad, saved_tensors_hooks,
    saved_tensors_hooks_guard,
};
use linn::{DType, DeviceOptions, Error, Result, Tensor};

use crate::device::{device, open};

fn leaf<const N: usize>(values: [f32; N]) -> Tensor {
    Tensor::new(&device(), values).unwrap().requires_grad_(true).unwrap()
}

fn gradient(tensor: &Tensor) -> Vec<f32> {
    tensor.grad().expect("a gradient").to_vec::<f32>().unwrap()
}

/// As a pair of hooks that keeps the tensor itself.
fn same(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.clone())
}

#[test]
fn pack_sees_each_saved_tensor_once_and_unpack_each_use() {
    let (x, w) = (leaf([1.0, 2.0]), leaf([3.0, 4.0]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, uses) = (seen.clone(), Arc::new(AtomicUsize::new(0)));
    let count = uses.clone();
    let pack = move |tensor: &Tensor| {
        assert!(!is_grad_enabled());
        // What a hook saves itself reaches no hook.
        let twice = linn::autograd::enable_grad(|| tensor.detach().requires_grad_(true)?.square()?.mul_scalar(2.0));
        assert!(twice?.requires_grad());
        log.lock().unwrap().push((tensor.to_vec::<f32>()?, tensor.requires_grad()));
        Ok(tensor.clone())
    };
    let unpack = move |packed: &Tensor| {
        count.fetch_add(1, Ordering::Relaxed);
        same(packed)
    };
    let y = saved_tensors_hooks(pack, unpack, || {
        let product = x.mul(&w)?; // saves both, which are leaves
        let y = product.exp()?.sum_all()?; // saves its result
        no_grad(|| x.square())?; // saves nothing
        w.detach().square()?; // neither
        Ok::<_, Error>(y)
    })
    .unwrap();
    let e = [3f32.exp(), 8f32.exp()];
    let log = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(log[..2], [(vec![1.0, 2.0], true), (vec![3.0, 4.0], true)]);
    assert_eq!((log.len(), log[2].1), (3, false));
    assert!(log[2].0.iter().zip(e).all(|(got, want)| (got - want).abs() < 1e-5 * want), "{log:?}");
    assert_eq!(uses.load(Ordering::Relaxed), 0);
    // Outside of the scope: the hooks belong to what was recorded.
    y.backward_with(BackwardOptions { retain: Retain::Graph, ..Default::default() }).unwrap();
    assert_eq!(uses.load(Ordering::Relaxed), 3);
    x.square().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(uses.load(Ordering::Relaxed), 3);
    y.backward().unwrap();
    assert_eq!(uses.load(Ordering::Relaxed), 6);
    let want: Vec<f32> = vec![2.0 * 3.0 * e[0] + 2.0, 2.0 * 4.0 * e[1] + 4.0];
    assert!(gradient(&x).iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-5 * want));
}

#[test]
fn what_is_kept_in_halves_needs_half_of_the_memory() {
    let device = open(DeviceOptions::default());
    let numbers: Vec<f32> = (0..4096).map(|i| (i % 64) as f32 / 8.0).collect();
    let x = Tensor::from_slice(&device, &[4096], &numbers).unwrap().requires_grad_(true).unwrap();
    let start = device.memory_allocated();
    let run = |x: &Tensor| x.mul_scalar(2.0)?.square()?.sum_all();
    let y = run(&x).unwrap();
    let whole = device.memory_allocated() - start;
    drop(y);
    let y = saved_tensors_hooks(|x| x.to_dtype(DType::F16), |x: &Tensor| x.to_dtype(DType::F32), || run(&x)).unwrap();
    assert_eq!(whole - (device.memory_allocated() - start), 4 * 4096 / 2, "2x was kept, and is gone");
    y.backward().unwrap();
    // All numbers are exact in f16.
    assert_eq!(gradient(&x), numbers.iter().map(|x| 8.0 * x).collect::<Vec<f32>>());
    x.zero_grad();
    drop(y);
    assert_eq!(device.memory_allocated(), start, "nothing stays behind");
    // A hook that keeps a result of the very operation ties no knot.
    drop(saved_tensors_hooks(same, same, || x.exp().unwrap().exp().unwrap()));
    assert_eq!(device.memory_allocated(), start);
}

#[test]
fn the_innermost_hooks_count_and_belong_to_their_thread() {
    let x = leaf([1.0, 2.0]);
    let calls = |count: &Arc<AtomicUsize>| {
        let count = count.clone();
        move |tensor: &Tensor| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(tensor.clone())
        }
    };
    let (outer, inner) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let saves = || x.square().unwrap();
    let (a, b, c) = {
        let _outer = saved_tensors_hooks_guard(calls(&outer), same);
        let a = saves();
        let b = saved_tensors_hooks(calls(&inner), same, saves);
        std::thread::scope(|scope| scope.spawn(saves).join()).unwrap();
        (a, b, saves())
    };
    drop(saves());
    assert_eq!((outer.load(Ordering::Relaxed), inner.load(Ordering::Relaxed)), (2, 1));
    a.add(&b).unwrap().add(&c).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [6.0, 12.0]);
}

#[test]
fn errors_and_panics_of_hooks_come_out_where_they_belong() {
    let x = leaf([1.0, 2.0]);
    let refused = || Error::autograd("no more room", "buy some");
    let of = |pack: fn(&Tensor) -> Result<Tensor>, unpack: fn(&Tensor) -> Result<Tensor>| {
        saved_tensors_hooks(pack, unpack, || x.exp())?.sum_all()?.backward()
    };
    let message = |answer: Result<()>| answer.unwrap_err().to_string();
    assert!(
        saved_tensors_hooks(move |_| Err::<Tensor, _>(refused()), same, || x.exp()).unwrap_err().to_string().contains("room")
    );
    assert!(saved_tensors_hooks(same, move |_| Err(refused()), || x.exp()).unwrap().sum_all().unwrap().backward().is_err());
    let changed = message(of(|x| x.add_scalar_(1.0).map(|()| x.clone()), same));
    assert!(changed.contains("changed a tensor saved for `exp` in place"), "{changed}");
    let unfit = message(of(same, |x| x.narrow(0, 0, 1)));
    assert!(unfit.contains("shape [1] for a tensor saved for `exp`") && unfit.contains("help:"), "{unfit}");
    assert!(message(of(same, |x| x.to_dtype(DType::F16))).contains("gave f16"));
    assert!(x.grad().is_none());

    // The saved tensor itself, changed in between; another one may be anything.
    let y = saved_tensors_hooks(same, same, || x.exp()).unwrap();
    no_grad(|| y.mul_scalar_(2.0)).unwrap();
    assert!(message(y.sum_all().unwrap().backward()).contains("was changed in place"));
    let y = saved_tensors_hooks(|y| y.mul_scalar(1.0), same, || x.exp()).unwrap();
    no_grad(|| y.mul_scalar_(2.0)).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert!((gradient(&x)[0] - 1f32.exp()).abs() < 1e-5);

    // A panic leaves the modes as they were, and everything usable.
    let caught = catch_unwind(AssertUnwindSafe(|| of(|_| panic!("on purpose"), same)));
    assert!(caught.is_err() && is_grad_enabled());
    let caught = catch_unwind(AssertUnwindSafe(|| of(same, |_| panic!("on purpose"))));
    assert!(caught.is_err() && is_grad_enabled());
    x.zero_grad();
    x.square().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [2.0, 4.0]);
}

/// y = 2 x, with a tensor kept for nothing.
struct Twice;

impl Function for Twice {
    fn forward(&mut self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(inputs);
        Ok(vec![inputs[0].mul_scalar(2.0)?])
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        assert_eq!(ctx.saved_tensors()[0].to_vec::<f32>()?, [-1.0, -2.0]);
        Ok(vec![Some(grads[0].mul_scalar(2.0)?)])
    }
}

#[test]
fn custom_functions_in_place_methods_and_checkpoints_save_through_hooks() {
    let x = leaf([1.0, 2.0]);
    let packed = Arc::new(AtomicUsize::new(0));
    let count = packed.clone();
    let pack = move |tensor: &Tensor| {
        count.fetch_add(1, Ordering::Relaxed);
        tensor.neg()
    };
    saved_tensors_hooks(pack, same, || {
        let [y] = Twice.apply(&[&x])?;
        y.mul_(&Tensor::new(&device(), [10.0f32, 20.0])?)?;
        let z = checkpoint(|x| x[0].mul_scalar(3.0), &[&y])?;
        assert_eq!(packed.load(Ordering::Relaxed), 3);
        z.sum_all()?.backward()
    })
    .unwrap();
    // The factors of mul_ came back negative.
    assert_eq!(gradient(&x), [2.0 * -10.0 * 3.0, 2.0 * -20.0 * 3.0]);
}
