//! Streams, events, reads: what is enqueued where, and who waits for whom.

use std::pin::Pin;

use linn::{DeviceOptions, Tensor};

use crate::device::{device, open};
use crate::stop::{LONG, stop, stop_at};

#[test]
fn a_slice_comes_back() {
    let device = device();
    let data: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let tensor = Tensor::from_slice(&device, &[10, 100], &data).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), data);
}

#[test]
fn large_uploads_are_cut_and_come_back() {
    let device = device();
    let data: Vec<u32> = (0..5_000_000).collect();
    let tensor = Tensor::from_slice(&device, &[data.len()], &data).unwrap();
    assert_eq!(tensor.to_vec::<u32>().unwrap(), data);
}

#[test]
fn many_small_uploads_are_all_right() {
    let device = device();
    let tensors: Vec<Tensor> = (0..1000).map(|i| Tensor::from_slice(&device, &[1024], &[i; 1024]).unwrap()).collect();
    for (i, tensor) in tensors.iter().enumerate() {
        assert_eq!(tensor.to_vec::<i32>().unwrap(), vec![i as i32; 1024]);
    }
    assert!(device.stats().staging_upload_bytes <= 64 << 20);
}

#[test]
fn an_upload_does_not_overtake_kernels_that_read_the_memory() {
    let device = device();
    for round in 0..200 {
        let x = Tensor::full(&device, &[1024], 1.0).unwrap();
        let y = (&x * 2.0).unwrap();
        drop(x);
        let z = Tensor::from_slice(&device, &[1024], &[7.0f32; 1024]).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), vec![2.0; 1024], "round {round}");
        assert_eq!(z.to_vec::<f32>().unwrap(), vec![7.0; 1024], "round {round}");
    }
}

#[test]
fn two_threads_on_two_streams_get_what_they_would_alone() {
    let device = device();
    let results: Vec<f32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let device = device.clone();
                scope.spawn(move || {
                    let stream = device.new_stream();
                    let _guard = stream.enter();
                    let mut x = Tensor::full(&device, &[1000], f64::from(thread)).unwrap();
                    for _ in 0..100 {
                        x = (&x + 1.0).unwrap();
                    }
                    x.sum_all().unwrap().item::<f32>().unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results, [100_000.0, 101_000.0, 102_000.0, 103_000.0]);
}

#[test]
fn the_current_stream_belongs_to_the_thread_and_guards_nest() {
    let device = device();
    let (a, b) = (device.new_stream(), device.new_stream());
    assert_eq!(device.current_stream(), device.default_stream());
    let outer = a.enter();
    {
        let _inner = b.enter();
        assert_eq!(device.current_stream(), b);
        let other = std::thread::scope(|scope| scope.spawn(|| device.current_stream().id()).join().unwrap());
        assert_eq!(other, 0, "another thread starts on the default stream");
    }
    assert_eq!(device.current_stream(), a);
    drop(outer);
    assert_eq!(device.current_stream(), device.default_stream());
}

#[test]
fn events_and_queries_follow_the_work() {
    let device = device();
    let stream = device.new_stream();
    let never = linn::Event::new();
    assert!(never.query());
    never.synchronize().unwrap();
    let x = stream.scope(|| Tensor::ones(&device, &[100])).unwrap();
    let event = stream.record_event();
    event.synchronize().unwrap();
    assert!(event.query() && stream.query());
    never.record(&stream).unwrap();
    assert!(never.query());
    device.default_stream().wait_stream(&stream).unwrap();
    assert_eq!((&x + &x).unwrap().to_vec::<f32>().unwrap(), vec![2.0; 100]);
}

#[test]
fn views_in_place_and_across_streams_are_ordered() {
    let device = device();
    let side = device.new_stream();
    let x = Tensor::zeros(&device, &[8, 64]).unwrap();
    for row in 0..8 {
        let view = x.narrow(0, row as isize, 1).unwrap();
        let stream = if row % 2 == 0 { &side } else { &device.default_stream() };
        stream.scope(|| view.fill_(row as f64)).unwrap();
    }
    let expected: Vec<f32> = (0..8).flat_map(|row| vec![row as f32; 64]).collect();
    assert_eq!(x.to_vec::<f32>().unwrap(), expected);
}

/// A chain on one stream and a read on another are enqueued while the queue stands still, and it stops again in the moment
/// the read is answered. Was the chain done by then, and how many order edges did the read get?
fn chain_beside_a_read(read_waits: bool) -> (bool, u64) {
    let device = open(DeviceOptions::default());
    let side = device.new_stream();
    let x = Tensor::ones(&device, &[64]).unwrap();
    let mut y = Tensor::zeros(&device, &[64]).unwrap();
    let go_on = stop(&device);

    // Longer than all submissions that can be under way beside the read's.
    let guard = side.enter();
    for _ in 0..CHAIN {
        y = (&y + 1.0).unwrap();
    }
    drop(guard);
    let end = side.record_event();
    assert!(!end.query() && !side.query(), "nothing of the chain has been submitted");
    let edges = device.stats().timeline.order_edges;
    if read_waits {
        device.default_stream().wait_event(&end).unwrap();
    }
    x.fill_(3.0).unwrap();
    let mut read = x.to_vec_async::<f32>().unwrap();
    let edges = device.stats().timeline.order_edges - edges;
    let (answered, leave) = stop_at(Pin::new(&mut read)).expect("the queue stands still");
    go_on.send(()).unwrap();
    answered.recv_timeout(LONG).unwrap();
    let done = end.query();
    leave.send(()).unwrap();

    assert_eq!(read.wait().unwrap(), vec![3.0; 64]);
    end.synchronize().unwrap();
    assert!(end.query() && side.query());
    assert_eq!(y.to_vec::<f32>().unwrap(), vec![CHAIN as f32; 64]);
    (done, edges)
}

const CHAIN: usize = 8_000;

#[test]
fn a_read_waits_for_its_own_command_only() {
    assert_eq!(chain_beside_a_read(false), (false, 0));
}

#[test]
fn a_stream_that_waits_for_an_event_comes_after_it() {
    assert_eq!(chain_beside_a_read(true), (true, 1));
}
