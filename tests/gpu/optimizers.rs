//! Optimizers against their references: many parameters of many sizes, groups and types in one step; few dispatches.

use half::{bf16, f16};
use linn::autograd::no_grad;
use linn::optim::{
    Adafactor, AdafactorOptions, Adagrad, AdagradOptions, Adam, AdamOptions, Decay, NAdam, NAdamOptions, Optimizer, ParamGroup,
    RmsProp, RmsPropOptions, Scaling, Sgd, SgdOptions,
};
use linn::{DType, DeviceOptions, Tensor};

use crate::close::{assert_close, numbers};
use crate::device::{device, open};
use crate::reference::{self, AdamSettings, RmsPropSettings};

/// Lengths that end within a `vec4`, within a chunk, and far behind one.
const LENS: [usize; 9] = [1, 3, 4, 35, 128, 1003, 4099, 70_001, 0];
const STEPS: u32 = 4;

fn read(x: &Tensor) -> Vec<f32> {
    x.to_dtype(DType::F32).unwrap().to_vec().unwrap()
}

/// A parameter's element and its state, and what becomes of them by a gradient: (state, gradient, step, lr, weight decay).
type Judge<'a> = &'a dyn Fn(&mut [f64; 5], f64, f64, f64, f64);

/// Groups with a learning rate and a weight decay each.
fn groups(params: &[Tensor], count: usize) -> Vec<ParamGroup> {
    let group = |at: usize| {
        let members = params.iter().enumerate().filter(|(i, _)| i % count == at);
        let named = members.map(|(i, param)| (i.to_string(), param.clone())).collect();
        ParamGroup::new(named, 0.01 * (1.0 + at as f64), 0.02 * at as f64)
    };
    (0..count).map(group).collect()
}

/// Steps parameters of `LENS` by gradients of which one is missing now and then, and compares them with the judge's.
fn compare(what: &str, count: usize, make: &dyn Fn(Vec<ParamGroup>) -> Box<dyn Optimizer>, judge: Judge<'_>) {
    let device = device();
    let data: Vec<Vec<f32>> = LENS.iter().enumerate().map(|(i, len)| numbers(i as u32 + 1, *len)).collect();
    let params: Vec<Tensor> =
        data.iter().map(|data| Tensor::from_slice(&device, &[data.len()], data).unwrap().requires_grad_(true).unwrap()).collect();
    let mut optimizer = make(groups(&params, count));
    let mut want: Vec<Vec<[f64; 5]>> =
        data.iter().map(|data| data.iter().map(|x| [f64::from(*x), 0.0, 0.0, 0.0, 1.0]).collect()).collect();
    let mut steps = vec![0f64; LENS.len()];
    let scale = Tensor::new(&device, 0.5f32).unwrap();
    for round in 0..STEPS {
        let scaled = round % 2 == 1;
        for (i, param) in params.iter().enumerate() {
            let rests = (round as usize + i) % 5 == 3;
            let grad = numbers(100 * round + i as u32, LENS[i]);
            param.set_grad((!rests).then(|| Tensor::from_slice(&device, &[LENS[i]], &grad).unwrap())).unwrap();
            if rests {
                continue;
            }
            steps[i] += 1.0;
            let (lr, decay) = (0.01 * (1.0 + (i % count) as f64), 0.02 * (i % count) as f64);
            for (state, g) in want[i].iter_mut().zip(&grad) {
                judge(state, f64::from(*g) * if scaled { 0.5 } else { 1.0 }, steps[i], lr, decay);
            }
        }
        optimizer.step_with(Scaling { grad_scale: scaled.then_some(&scale), ..Scaling::default() }).unwrap();
    }
    for ((param, want), len) in params.iter().zip(&want).zip(LENS) {
        let want: Vec<f64> = want.iter().map(|state| state[0]).collect();
        assert_close(&format!("{what}, {len} elements in {count} groups"), &read(param), &want, 1e-5, 3e-6);
    }
}

fn adam_settings(lr: f64, weight_decay: f64, decoupled: bool) -> AdamSettings {
    AdamSettings { lr, beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay, decoupled }
}

#[test]
fn every_optimizer_steps_many_parameters() {
    for count in [1, 3] {
        for (momentum, nesterov, dampening) in [(0.0, false, 0.0), (0.9, false, 0.5), (0.9, true, 0.0)] {
            let options = SgdOptions { momentum, dampening, nesterov };
            compare("sgd", count, &|groups| Box::new(Sgd::new(groups, options)), &|s, g, step, lr, decay| {
                let buffer = (step > 1.0).then_some(s[1]);
                (s[0], s[1]) = match momentum {
                    0.0 => (reference::sgd(s[0], g, lr, decay), 0.0),
                    _ => reference::sgd_momentum(s[0], g, buffer, [lr, decay, momentum, dampening], nesterov),
                };
            });
        }
        for (decay, amsgrad) in [(Decay::Coupled, false), (Decay::Decoupled, false), (Decay::Decoupled, true)] {
            let options = AdamOptions { betas: (0.9, 0.99), eps: 1e-8, amsgrad };
            let make = |groups| -> Box<dyn Optimizer> {
                Box::new(if decay == Decay::Coupled { Adam::new(groups, options) } else { Adam::adamw(groups, options) })
            };
            compare("adam", count, &make, &|s, g, step, lr, weight_decay| {
                let settings = adam_settings(lr, weight_decay, decay == Decay::Decoupled);
                let top = if amsgrad { s[3] } else { 0.0 };
                (s[0], s[1], s[2], s[3]) = reference::adam_amsgrad(s[0], g, s[1], s[2], top, step, settings);
            });
        }
        for decay in [Decay::Coupled, Decay::Decoupled] {
            let options = NAdamOptions { betas: (0.9, 0.99), decay, ..NAdamOptions::default() };
            compare("nadam", count, &|groups| Box::new(NAdam::new(groups, options)), &|s, g, step, lr, weight_decay| {
                let settings = adam_settings(lr, weight_decay, decay == Decay::Decoupled);
                s[4] = reference::count_steps(step - 1.0, s[4], 0.9, 4e-3).1;
                (s[0], s[1], s[2]) = reference::nadam(s[0], g, [s[1], s[2]], [step, s[4], 4e-3], settings);
            });
        }
        let options = AdagradOptions { lr_decay: 0.1, initial_accumulator_value: 0.0, eps: 1e-10 };
        compare("adagrad", count, &|groups| Box::new(Adagrad::new(groups, options)), &|s, g, step, lr, decay| {
            (s[0], s[1]) = reference::adagrad(s[0], g, s[1], step, [lr, decay, 0.1, 1e-10]);
        });
        for (momentum, centered) in [(0.0, false), (0.7, false), (0.0, true), (0.7, true)] {
            let options = RmsPropOptions { alpha: 0.9, eps: 1e-2, momentum, centered };
            compare("rmsprop", count, &|groups| Box::new(RmsProp::new(groups, options)), &|s, g, _, lr, weight_decay| {
                let settings = RmsPropSettings { lr, weight_decay, alpha: 0.9, eps: 1e-2, momentum, centered };
                let (x, state) = reference::rmsprop(s[0], g, [s[1], s[2], s[3]], settings);
                *s = [x, state[0], state[1], state[2], 1.0];
            });
        }
    }
}

/// More groups than a dispatch knows.
#[test]
fn fifteen_groups_have_learning_rates_of_their_own() {
    let device = device();
    let params: Vec<Tensor> = (0..15).map(|_| Tensor::new(&device, [1.0f32]).unwrap().requires_grad_(true).unwrap()).collect();
    let group = |(i, param): (usize, &Tensor)| ParamGroup::new(vec![(i.to_string(), param.clone())], i as f64, 0.0);
    let mut sgd = Sgd::new(params.iter().enumerate().map(group).collect(), SgdOptions::default());
    params.iter().for_each(|param| param.set_grad(Some(Tensor::new(&device, [0.5f32]).unwrap())).unwrap());
    // The tables of both dispatches stay where they are from step to step.
    for steps in 1..=3 {
        sgd.step().unwrap();
        for (i, param) in params.iter().enumerate() {
            assert_eq!(read(param), [1.0 - 0.5 * steps as f32 * i as f32]);
        }
    }
}

#[test]
fn a_parameter_that_is_there_twice_is_refused() {
    let device = device();
    let param = Tensor::new(&device, [1.0f32, 2.0]).unwrap().requires_grad_(true).unwrap();
    let group = |name: &str| ParamGroup::new(vec![(name.into(), param.clone())], 0.1, 0.0);
    let mut sgd = Sgd::new(vec![group("a"), group("b")], SgdOptions::default());
    param.set_grad(Some(Tensor::new(&device, [0.5f32, 0.5]).unwrap())).unwrap();
    let text = sgd.step().unwrap_err().to_string();
    assert!(text.starts_with("sgd_: parameters a and b of shape [2] are one tensor\nhelp: "), "{text}");
    let mut adafactor = Adafactor::new(vec![group("a"), group("b")], AdafactorOptions::default());
    let text = adafactor.step().unwrap_err().to_string();
    assert!(text.starts_with("adafactor_: parameters a and b of shape [2] are one tensor\nhelp: "), "{text}");
    assert_eq!(read(&param), [1.0, 2.0]);
}

/// Parameters of halves are stepped in f32, and parameter and state are rounded once.
#[test]
fn halves_are_rounded_once() {
    let device = device();
    for dtype in [DType::F16, DType::BF16] {
        let round = |x: f64| match dtype {
            DType::F16 => f16::from_f64(x).to_f64(),
            _ => bf16::from_f64(x).to_f64(),
        };
        let half = |seed: u32| Tensor::from_slice(&device, &[1021], &numbers(seed, 1021)).unwrap().to_dtype(dtype).unwrap();
        let param = half(1).requires_grad_(true).unwrap();
        let mut want: Vec<(f64, f64, f64)> = read(&param).iter().map(|x| (f64::from(*x), 0.0, 0.0)).collect();
        let mut adam = Adam::adamw(vec![ParamGroup::new(vec![("p".into(), param.clone())], 0.1, 0.1)], AdamOptions::default());
        for step in 1..=3u32 {
            let grad = half(step + 1);
            let settings = AdamSettings { beta2: 0.999, ..adam_settings(0.1, 0.1, true) };
            for ((x, m, v), g) in want.iter_mut().zip(read(&grad)) {
                let (a, b, c) = reference::adam(*x, f64::from(g), *m, *v, step.into(), settings);
                (*x, *m, *v) = (round(a), round(b), round(c));
            }
            param.set_grad(Some(grad)).unwrap();
            adam.step().unwrap();
        }
        // Where a sum lies between two halves, f32 and f64 can choose another: then by one unit.
        let unit = if dtype == DType::F16 { 1e-3 } else { 8e-3 };
        let same = read(&param).iter().zip(&want).filter(|(got, want)| f64::from(**got) == want.0).count();
        assert!(same > 1000, "{dtype}: {same} of 1021 are the nearest");
        assert_close(&dtype.to_string(), &read(&param), &want.iter().map(|w| w.0).collect::<Vec<_>>(), unit, 1e-6);
    }
}

/// AdamW with its state in bf16: half the memory, moments rounded at each step.
#[test]
fn state_in_bf16_takes_half_the_memory() {
    let device = device();
    let make = |data: &[f32]| Tensor::from_slice(&device, &[data.len()], data).unwrap().requires_grad_(true).unwrap();
    let data = numbers(7, 5003);
    let param = make(&data);
    let group = ParamGroup::new(vec![("p".into(), param.clone())], 0.01, 0.1);
    let mut adam = Adam::adamw(vec![group], AdamOptions { betas: (0.9, 0.95), ..AdamOptions::default() }).bf16_state().unwrap();
    let mut want: Vec<(f64, f64, f64)> = data.iter().map(|x| (f64::from(*x), 0.0, 0.0)).collect();
    for step in 1..=5u32 {
        let grad = numbers(step + 20, 5003);
        let settings = AdamSettings { beta2: 0.95, ..adam_settings(0.01, 0.1, true) };
        for ((x, m, v), g) in want.iter_mut().zip(&grad) {
            // The parameter is stepped by the moments before they are rounded.
            let (a, b, c) = reference::adam(*x, f64::from(*g), *m, *v, step.into(), settings);
            (*x, *m, *v) = (a, bf16::from_f64(b).to_f64(), bf16::from_f64(c).to_f64());
        }
        param.set_grad(Some(make(&grad).detach())).unwrap();
        adam.step().unwrap();
    }
    assert_close("parameters", &read(&param), &want.iter().map(|w| w.0).collect::<Vec<_>>(), 1e-4, 1e-4);
    for (name, state) in adam.state() {
        let wanted = if name.starts_with("step") { DType::F32 } else { DType::BF16 };
        assert_eq!(state.dtype(), wanted, "{name}");
    }
    let refused = adam.bf16_state().map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("bf16_state after a step"), "{refused}");
}

/// A hundred parameters, whose blocks lie in few segments, are stepped by few dispatches.
#[test]
fn a_step_takes_few_dispatches() {
    let device = open(DeviceOptions::default());
    let make = |i: usize| {
        let len = 100 + 37 * i;
        Tensor::from_slice(&device, &[len], &numbers(i as u32, len)).unwrap().requires_grad_(true).unwrap()
    };
    let params: Vec<Tensor> = (0..100).map(make).collect();
    let named = params.iter().enumerate().map(|(i, param)| (i.to_string(), param.clone())).collect();
    let mut adam = Adam::adamw(ParamGroup::by_rank(named, 1e-3, 0.1), AdamOptions::default());
    let mut dispatches = Vec::new();
    for _ in 0..3 {
        params.iter().for_each(|param| param.set_grad(Some(linn::ops::copy::copy(&param.detach()).unwrap())).unwrap());
        device.synchronize().unwrap();
        let before = device.stats().queue.dispatches;
        adam.step().unwrap();
        device.synchronize().unwrap();
        dispatches.push(device.stats().queue.dispatches - before);
        adam.zero_grad();
    }
    assert!(dispatches[1..].iter().all(|count| *count <= 6), "{dispatches:?} dispatches for 100 parameters");
}

/// Blocks that moved between two steps are found where they are.
#[test]
fn parameters_may_move_between_steps() {
    let device = open(DeviceOptions::default());
    let data = numbers(3, 50_000);
    let mut between = Vec::new();
    let params: Vec<Tensor> = (0..8)
        .map(|_| {
            between.push(Tensor::from_slice(&device, &[60_000], &numbers(1, 60_000)).unwrap());
            Tensor::from_slice(&device, &[data.len()], &data).unwrap().requires_grad_(true).unwrap()
        })
        .collect();
    let named = params.iter().enumerate().map(|(i, param)| (i.to_string(), param.clone())).collect();
    let mut adam = Adam::adamw(vec![ParamGroup::new(named, 0.01, 0.1)], AdamOptions { betas: (0.9, 0.99), ..Default::default() });
    let mut want: Vec<(f64, f64, f64)> = data.iter().map(|x| (f64::from(*x), 0.0, 0.0)).collect();
    for step in 1..=4u32 {
        let grad = numbers(step + 50, data.len());
        for ((x, m, v), g) in want.iter_mut().zip(&grad) {
            (*x, *m, *v) = reference::adam(*x, f64::from(*g), *m, *v, step.into(), adam_settings(0.01, 0.1, true));
        }
        params.iter().for_each(|param| param.set_grad(Some(Tensor::from_slice(&device, &[data.len()], &grad).unwrap())).unwrap());
        adam.step().unwrap();
        between.pop();
        between.pop();
        device.compact(u64::MAX).unwrap();
    }
    let want: Vec<f64> = want.iter().map(|w| w.0).collect();
    for param in &params {
        assert_close("a parameter that moved", &read(param), &want, 1e-5, 3e-6);
    }
}

/// What is saved is taken back by a new optimizer, which goes on with the same bits.
#[test]
fn state_goes_on_in_a_new_optimizer() {
    type Make = fn(Vec<ParamGroup>) -> Box<dyn Optimizer>;
    let makes: [Make; 7] = [
        |groups| Box::new(Sgd::new(groups, SgdOptions { momentum: 0.9, ..Default::default() })),
        |groups| Box::new(Adam::adamw(groups, AdamOptions { amsgrad: true, ..Default::default() })),
        |groups| Box::new(Adam::new(groups, AdamOptions::default()).bf16_state().unwrap()),
        |groups| Box::new(NAdam::new(groups, NAdamOptions::default())),
        |groups| Box::new(Adagrad::new(groups, AdagradOptions { lr_decay: 0.1, ..Default::default() })),
        |groups| Box::new(RmsProp::new(groups, RmsPropOptions { momentum: 0.5, centered: true, ..Default::default() })),
        |groups| Box::new(Adafactor::new(groups, AdafactorOptions::default())),
    ];
    let device = device();
    for (at, make) in makes.iter().enumerate() {
        let fresh = || -> Vec<Tensor> {
            let shapes: [&[usize]; 3] = [&[7, 5], &[11], &[2, 3, 4]];
            let tensor = |shape: &[usize]| Tensor::from_slice(&device, shape, &numbers(9, shape.iter().product())).unwrap();
            shapes.iter().map(|shape| tensor(shape).requires_grad_(true).unwrap()).collect()
        };
        let step = |params: &[Tensor], optimizer: &mut dyn Optimizer, round: u32| {
            for param in params {
                let grad = Tensor::from_slice(&device, param.shape(), &numbers(round, param.len())).unwrap();
                param.set_grad(Some(grad)).unwrap();
            }
            optimizer.step().unwrap();
        };
        let whole = fresh();
        let mut optimizer = make(groups(&whole, 2));
        (1..=3).for_each(|round| step(&whole, &mut *optimizer, round));
        let resumed: Vec<Tensor> =
            whole.iter().map(|param| linn::ops::copy::copy(&param.detach()).unwrap().requires_grad_(true).unwrap()).collect();
        let saved = optimizer
            .state()
            .into_iter()
            .map(|(name, state)| (format!("o.{name}"), linn::ops::copy::copy(&state).unwrap()))
            .collect();
        let mut second = make(groups(&resumed, 2));
        second.load_state(&saved, "o.").unwrap();
        for round in 4..=6 {
            step(&whole, &mut *optimizer, round);
            step(&resumed, &mut *second, round);
        }
        for (one, other) in whole.iter().zip(&resumed) {
            assert_eq!(read(one), read(other), "optimizer {at}");
        }
        let (mut partial, name) = (saved, "o.step.0");
        if partial.remove(name).is_some() {
            let text = make(groups(&resumed, 2)).load_state(&partial, "o.").unwrap_err().to_string();
            assert!(text.contains("optimizer state step.0 is missing"), "{text}");
        }
    }
}

/// Threads step models of their own on streams of their own, while memory moves all the time: the bits are those of one at a time.
#[test]
fn threads_step_while_another_compacts() {
    let run = |device: &linn::Device, seed: u32| -> Vec<f32> {
        let stream = device.new_stream();
        let _guard = stream.enter();
        let make = |i: usize| {
            let len = 3000 + 257 * i;
            Tensor::from_slice(device, &[len], &numbers(seed + i as u32, len)).unwrap().requires_grad_(true).unwrap()
        };
        let params: Vec<Tensor> = (0..10).map(make).collect();
        let named = params.iter().enumerate().map(|(i, param)| (i.to_string(), param.clone())).collect();
        let mut adam = Adam::adamw(vec![ParamGroup::new(named, 0.01, 0.1)], AdamOptions::default());
        for step in 0..15 {
            // Holes for others to fill, so that blocks move.
            let hole = Tensor::zeros(device, &[2000 + 1000 * (step % 3)]).unwrap();
            params.iter().for_each(|param| param.set_grad(Some(param.detach().mul_scalar(0.1).unwrap())).unwrap());
            drop(hole);
            adam.step().unwrap();
            adam.zero_grad();
        }
        params.iter().flat_map(read).collect()
    };
    let seeds = [1, 100, 200];
    let calm = open(DeviceOptions::default());
    let want: Vec<Vec<f32>> = seeds.iter().map(|seed| run(&calm, *seed)).collect();
    let device = open(DeviceOptions::default());
    let done = std::sync::atomic::AtomicBool::new(false);
    let got: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let (device, run, done) = (&device, &run, &done);
        let mover = scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                device.compact(u64::MAX).unwrap();
                std::thread::yield_now();
            }
        });
        let threads: Vec<_> = seeds.iter().map(|seed| scope.spawn(move || run(device, *seed))).collect();
        let got = threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        mover.join().unwrap();
        got.into_iter().map(|result| result.unwrap()).collect()
    });
    assert!(got == want);
}

/// A parameter that an application uses is not stepped, and nor is any other; no step is counted. Then all are.
#[test]
fn an_exported_parameter_is_not_stepped() {
    let device = open(DeviceOptions::default());
    let make = || Tensor::new(&device, [1.0f32, 2.0]).unwrap().requires_grad_(true).unwrap();
    let (a, b) = (make(), make());
    let named = vec![("a".into(), a.clone()), ("b".into(), b.clone())];
    let mut adam = Adam::new(vec![ParamGroup::new(named, 0.5, 0.0)], AdamOptions::default());
    for param in [&a, &b] {
        param.set_grad(Some(Tensor::new(&device, [0.5f32, -0.5]).unwrap())).unwrap();
    }
    let export = b.detach().export().unwrap();
    let text = adam.step().unwrap_err().to_string();
    assert!(text.starts_with("adam") && text.contains("exported") && text.contains("help: "), "{text}");
    export.submitted();
    assert_eq!((read(&a), read(&b)), (vec![1.0, 2.0], vec![1.0, 2.0]));
    assert_eq!(adam_steps(&adam), [0.0, 0.0]);
    adam.step().unwrap();
    for param in [&a, &b] {
        assert_close("the first step is lr along the sign", &read(param), &[0.5, 2.5], 1e-5, 1e-5);
    }
    assert_eq!(adam_steps(&adam), [1.0, 1.0]);
}

fn adam_steps(adam: &Adam) -> Vec<f32> {
    adam.state().iter().filter(|(name, _)| name.starts_with("step.")).flat_map(|(_, count)| read(count)).collect()
}

/// A submission that the driver refuses may take uploads of the optimizer with it: the step after it sends them again.
#[test]
fn a_step_after_one_that_was_refused_is_right() {
    for pass in 0..12 {
        let device = open(DeviceOptions::default());
        let make = |i: usize| Tensor::full(&device, &[5 + 3 * i], i as f32).unwrap().requires_grad_(true).unwrap();
        let params: Vec<Tensor> = (0..3).map(make).collect();
        let named = params.iter().enumerate().map(|(i, param)| (i.to_string(), param.clone())).collect();
        let mut sgd = Sgd::new(vec![ParamGroup::new(named, 0.5, 0.0)], SgdOptions::default());
        let step = |sgd: &mut Sgd| -> linn::Result<()> {
            for param in &params {
                param.set_grad(Some(Tensor::ones(&device, param.shape())?))?;
            }
            sgd.step()?;
            device.synchronize()
        };
        // The first step uploads the table and compiles the kernel; one of its calls is refused.
        device.synchronize().unwrap();
        device.refuse_driver_calls(pass, 1);
        let refused = step(&mut sgd).is_err();
        device.refuse_driver_calls(0, 0);
        while device.synchronize().is_err() {}
        no_grad(|| (0..3).try_for_each(|i| params[i].fill_(i as f64))).unwrap();
        step(&mut sgd).unwrap();
        for (i, param) in params.iter().enumerate() {
            assert_eq!(
                param.to_vec::<f32>().unwrap(),
                vec![i as f32 - 0.5; 5 + 3 * i],
                "after call {pass} (an error: {refused})"
            );
        }
    }
}
