//! Times of the device between events. Where an adapter cannot tell the time, the error is what is looked at.

use std::time::Instant;

use linn::{DeviceOptions, Event, Tensor};

use crate::device::open;
use crate::timing::can_measure;

fn work(x: &Tensor, count: usize) -> Tensor {
    (0..count).fold(x.clone(), |y, _| y.matmul(x).unwrap())
}

#[test]
fn time_passes_between_events() {
    let device = open(DeviceOptions::default());
    if !can_measure(&device) {
        return;
    }
    let (main, side) = (device.default_stream(), device.new_stream());
    let x = Tensor::full(&device, &[256, 256], 1.0 / 256.0).unwrap();
    // Compiles.
    work(&x, 1);
    device.synchronize().unwrap();
    let events: Vec<Event> = std::iter::repeat_with(Event::with_timing).take(4).collect();
    let host = Instant::now();
    events[0].record(&main).unwrap();
    let y = work(&x, 20);
    events[1].record(&main).unwrap();
    let z = side.scope(|| work(&y, 20));
    events[2].record(&side).unwrap();
    side.scope(|| work(&z, 1));
    events[3].record(&side).unwrap();
    device.synchronize().unwrap();
    let host = host.elapsed().as_secs_f64() * 1e3;
    let time = |start: usize, end: usize| events[start].elapsed_time(&events[end]).unwrap();
    let all = time(0, 3);
    println!("{all:.3} ms of {host:.3} ms: {:.3}, {:.3}, {:.3}", time(0, 1), time(1, 2), time(2, 3));
    assert!(time(0, 1) > 0.0 && time(1, 2) > 0.0 && time(2, 3) >= 0.0);
    assert!((time(0, 1) + time(1, 2) + time(2, 3) - all).abs() <= 1e-6 * all, "the parts add up");
    assert_eq!(time(3, 0), -all, "backwards");
    assert_eq!(time(1, 1), 0.0);
    // The device's interval lies within the host's; another unit would be off by a thousand.
    assert!(all <= 1.05 * host + 1.0 && all >= host / 100.0, "{all} ms on the device, {host} ms on the host");
}

#[test]
fn an_event_that_is_recorded_again_has_the_later_time() {
    let device = open(DeviceOptions::default());
    if !can_measure(&device) {
        return;
    }
    let stream = device.new_stream();
    let _guard = stream.enter();
    let x = Tensor::full(&device, &[128, 128], 1.0 / 128.0).unwrap();
    let (first, moved, end) = (Event::with_timing(), Event::with_timing(), Event::with_timing());
    first.record(&stream).unwrap();
    moved.record(&stream).unwrap();
    moved.synchronize().unwrap();
    let mut last = first.elapsed_time(&moved).unwrap();
    for _ in 0..20 {
        work(&x, 3);
        moved.record(&stream).unwrap();
        moved.synchronize().unwrap();
        let now = first.elapsed_time(&moved).unwrap();
        assert!(now > last, "{now} ms after {last} ms");
        last = now;
    }
    work(&x, 3);
    end.record(&stream).unwrap();
    end.synchronize().unwrap();
    let (long, short) = (first.elapsed_time(&end).unwrap(), moved.elapsed_time(&end).unwrap());
    assert!(short > 0.0 && short < long, "{short} ms of {long} ms");
}

#[test]
fn kernels_around_events_with_timing_compute_what_they_do_without() {
    let device = open(DeviceOptions::default());
    let measures = can_measure(&device);
    let streams = [device.default_stream(), device.new_stream()];
    let run = |timed: bool| {
        let mut x = Tensor::full(&device, &[1000], 1.0).unwrap();
        let mut events = [Vec::new(), Vec::new()];
        for round in 0..600 {
            x = match round % 3 {
                0 => (&x + 1.0).unwrap(),
                1 => streams[1].scope(|| &x * 0.5).unwrap(),
                _ => x.relu().unwrap(),
            };
            if timed && measures {
                let (event, of) = (Event::with_timing(), round % 2);
                event.record(&streams[of]).unwrap();
                // Some are dropped at once.
                events[of].extend((round % 5 > 0).then_some(event));
            }
        }
        (x.to_vec::<f32>().unwrap(), events)
    };
    let (plain, _) = run(false);
    let (timed, events) = run(true);
    assert_eq!(plain, timed);
    device.synchronize().unwrap();
    for of_stream in &events {
        assert_eq!(of_stream.len(), if measures { 240 } else { 0 });
        let times = of_stream.windows(2).map(|pair| pair[0].elapsed_time(&pair[1]).unwrap());
        assert!(times.into_iter().all(|time| time >= 0.0), "commands of a stream run in order");
    }
}
