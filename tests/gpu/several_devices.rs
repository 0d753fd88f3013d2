//! Several devices open at once: they work side by side, share nothing, and mixing them is an error that names both.

use linn::autograd::cat;
use linn::nn::loss::cross_entropy;
use linn::{Device, DeviceOptions, Error, Tensor};

use crate::device::{open, products};

fn three() -> [Device; 3] {
    [(), (), ()].map(|()| open(DeviceOptions::default()))
}

#[test]
fn three_devices_work_side_by_side() {
    let devices = three();
    std::thread::scope(|scope| {
        for (which, device) in devices.iter().enumerate() {
            scope.spawn(move || {
                let n = 64 + 16 * which;
                let x = Tensor::full(device, &[n, n], 1.0 / n as f64).unwrap();
                let side = device.new_stream();
                for round in 0..20 {
                    let y = x.matmul(&x).unwrap();
                    let z = side.scope(|| y.add_scalar(f64::from(round)).unwrap());
                    let expected = 1.0 / n as f32 + round as f32;
                    let values = z.to_vec::<f32>().unwrap();
                    assert!(values.iter().all(|value| (value - expected).abs() < 1e-4), "device {which}, round {round}");
                }
            });
        }
    });
    // From one thread, taking turns; what is entered on one is nothing to the others.
    let side = devices[0].new_stream();
    let _guard = side.enter();
    let mut sums: Vec<Tensor> = devices.iter().map(|device| Tensor::zeros(device, &[100]).unwrap()).collect();
    for _ in 0..30 {
        sums = sums.iter().map(|sum| sum.add_scalar(1.0).unwrap()).collect();
    }
    assert_eq!((devices[0].current_stream() == side, devices[1].current_stream().id()), (true, 0));
    sums.iter().for_each(|sum| assert_eq!(sum.to_vec::<f32>().unwrap(), [30.0; 100]));
    // Each has its own memory, and closing one is nothing to the others.
    let reserved = devices[2].memory_reserved();
    let [first, second, third] = devices;
    let held = Tensor::zeros(&first, &[1 << 20]).unwrap();
    assert_eq!(third.memory_reserved(), reserved);
    drop((held, second, sums.swap_remove(1)));
    assert_eq!(sums[1].add_scalar(1.0).unwrap().to_vec::<f32>().unwrap(), [31.0; 100]);
    drop(first);
}

#[test]
fn a_tensor_goes_to_another_device_and_its_gradient_comes_back() {
    let [first, second, third] = three();
    let w = Tensor::new(&first, [1.0f32, 2.0, 3.0]).unwrap().requires_grad_(true).unwrap();
    let there = w.mul_scalar(2.0).unwrap().to(&second).unwrap().to(&third).unwrap();
    assert!(there.device().same(&third));
    let loss = there.mul(&Tensor::new(&third, [1.0f32, 10.0, 100.0]).unwrap()).unwrap().sum_all().unwrap();
    loss.backward().unwrap();
    let grad = w.grad().unwrap();
    assert!(grad.device().same(&first));
    assert_eq!(grad.to_vec::<f32>().unwrap(), [2.0, 20.0, 200.0]);
}

/// The error names both, though their adapter is the same.
fn names_both<T>(result: linn::Result<T>, op: &str, devices: [&Device; 2]) {
    let Err(error @ Error::DeviceMismatch { .. }) = result.map(drop) else { panic!("{op} of two devices is no mismatch") };
    let text = error.to_string();
    let (fact, help) = text.split_once("\nhelp: ").unwrap();
    assert!(fact.starts_with(&format!("{op}: operands live on two devices: device ")), "{text}");
    assert!(help.contains("to(&device)"), "{text}");
    // "device 3 (name) and device 4 (name)"
    let (a, b) = fact.rsplit_once(" and device ").unwrap();
    let number = |text: &str| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    assert_ne!(number(a.rsplit_once("devices: device ").unwrap().1), number(b), "{text}");
    assert!(fact.matches(devices[0].name()).count() >= 2, "{text}");
}

#[test]
fn mixing_two_devices_is_an_error_that_names_both() {
    let (here, there) = (open(DeviceOptions::default()), open(DeviceOptions::default()));
    let both = [&here, &there];
    let (x, y) = (Tensor::ones(&here, &[4, 4]).unwrap(), Tensor::ones(&there, &[4, 4]).unwrap());
    let (ids, theirs) = (Tensor::new(&here, [0i32, 1, 2, 3]).unwrap(), Tensor::new(&there, [0i32, 1, 2, 3]).unwrap());
    names_both(x.add(&y), "add", both);
    names_both(&x * &y, "mul", both);
    names_both(x.maximum(&y), "maximum", both);
    names_both(x.eq(&y), "eq", both);
    names_both(x.matmul(&y), "matmul", both);
    names_both(x.add_(&y, 1.0), "add_", both);
    names_both(cat(&[&x, &y], 0), "cat", both);
    names_both(x.embedding(&theirs), "embedding", both);
    names_both(cross_entropy(&x, &theirs), "cross_entropy", both);
    let weight = Tensor::ones(&there, &[4]).unwrap();
    names_both(x.layer_norm(Some(&weight), None, 1e-5), "layer_norm", both);
    names_both(x.where_(&x.eq(&x).unwrap(), &y), "where_", both);
    // Streams. (One may wait for another device's work, see below.)
    let (mine, other) = (here.default_stream(), there.new_stream());
    names_both(x.record_stream(&other), "record_stream", both);
    names_both(mine.with_encoder(&[&x, &y], &[], |_, _| {}), "with_encoder", both);
    names_both(mine.with_encoder(&[], &[&y], |_, _| {}), "with_encoder", both);
    // Nothing of it was done, and both go on.
    assert_eq!(x.embedding(&ids).unwrap().to_vec::<f32>().unwrap(), [1.0; 16]);
    assert_eq!((x.version(), y.version()), (Tensor::ones(&here, &[4, 4]).unwrap().version(), y.version()));
    assert_eq!(x.add(&y.to(&here).unwrap()).unwrap().to_vec::<f32>().unwrap(), [2.0; 16]);
    here.synchronize().unwrap();
    there.synchronize().unwrap();
}

/// The work of one device waits for that of the other, there and back, while the host runs ahead and other streams go on.
#[test]
fn streams_wait_for_work_of_another_device() {
    let (here, there) = (open(DeviceOptions::default()), open(DeviceOptions::default()));
    let (waiting, other, free) = (here.new_stream(), there.new_stream(), here.new_stream());
    let x = Tensor::ones(&here, &[1000]).unwrap();
    // Compiled, and bought.
    products(&there, 256, 2);
    x.add_scalar(1.0).unwrap().to_vec::<f32>().unwrap();
    there.synchronize().unwrap();
    for round in 0..5 {
        let syncs = here.stats().queue.host_syncs + there.stats().queue.host_syncs;
        let long = other.scope(|| products(&there, 256, 30));
        let first = other.record_event();
        waiting.wait_event(&first).unwrap();
        let y = waiting.scope(|| x.add_scalar(f64::from(round)).unwrap());
        let second = waiting.record_event();
        other.wait_stream(&waiting).unwrap();
        let z = other.scope(|| products(&there, 64, 2));
        let third = other.record_event();
        assert_eq!(here.stats().queue.host_syncs + there.stats().queue.host_syncs, syncs, "nobody has waited");
        // In no order of looking is a later one done before an earlier one.
        let seen = |third: bool, second: bool, first: bool| (!third || second) && (!second || first);
        while !third.query() {
            assert!(seen(third.query(), second.query(), first.query()), "round {round}");
            assert_eq!(free.scope(|| x.to_vec::<f32>()).unwrap(), [1.0; 1000]);
        }
        assert!(first.query() && second.query() && waiting.query(), "round {round}");
        assert_eq!(waiting.scope(|| y.to_vec::<f32>()).unwrap(), vec![1.0 + round as f32; 1000]);
        drop((long, z));
    }
}
