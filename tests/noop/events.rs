//! Events with timing, without a driver: its clock stands still at 0, so what is looked at is who may ask when.

use std::sync::Arc;

use linn::{Device, DeviceOptions, Event, Tensor};

use crate::stop::stop;
use crate::timing::can_measure;
use crate::watch::watched;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

/// The two lines of the error.
fn refused(start: &Event, end: &Event) -> (String, String) {
    let text = start.elapsed_time(end).unwrap_err().to_string();
    let (fact, help) = text.split_once("\nhelp: ").unwrap();
    assert!(!help.contains('\n'), "{text}");
    (fact.to_owned(), help.to_owned())
}

#[test]
fn an_event_with_timing_that_was_never_recorded_is_done() {
    let (device, event) = (open(), Event::with_timing());
    assert!(event.has_timing() && !Event::new().has_timing());
    let before = device.stats();
    assert!(event.query());
    event.synchronize().unwrap();
    pollster::block_on(event.synchronize_async()).unwrap();
    event.wait(&device.new_stream()).unwrap();
    let after = device.stats();
    assert_eq!((before.queue.host_syncs, before.timeline), (after.queue.host_syncs, after.timeline), "no effect");
}

#[test]
fn an_adapter_that_cannot_tell_the_time_says_so() {
    let mut options = DeviceOptions::default();
    options.without_timestamps = true;
    assert!(!can_measure(&Device::noop(options).unwrap()) && can_measure(&open()));
}

#[test]
fn a_time_is_refused_for_a_reason_and_in_order() {
    let device = open();
    let other = open();
    let main = device.default_stream();
    let (untimed, start, end, elsewhere) = (Event::new(), Event::with_timing(), Event::with_timing(), Event::with_timing());
    // Timing is asked for before anything else, also of events that are not recorded.
    assert_eq!(refused(&untimed, &start).0, "elapsed_time: the start event has no timing");
    assert_eq!(refused(&start, &untimed).0, "elapsed_time: the end event has no timing");
    assert_eq!(refused(&start, &end).0, "elapsed_time: the start event is not recorded");
    start.record(&main).unwrap();
    assert_eq!(refused(&start, &end).0, "elapsed_time: the end event is not recorded");
    assert_eq!(refused(&end, &start).0, "elapsed_time: the start event is not recorded");
    elsewhere.record(&other.default_stream()).unwrap();
    let (fact, _) = refused(&start, &elsewhere);
    let name = |fact: &str, word: &str| fact.split(word).nth(1).unwrap().split(")").next().unwrap().to_owned();
    let (first, second) = (name(&fact, "the start event is of "), name(&fact, "the end event of "));
    assert!(first.starts_with("device ") && second.ends_with(" (noop") && first != second, "{fact}");
    start.synchronize().unwrap();

    let go_on = stop(&device);
    end.record(&main).unwrap();
    assert!(!end.query());
    let (fact, help) = refused(&start, &end);
    assert_eq!(fact, "elapsed_time: the device has not passed the end event yet");
    assert_eq!(help, "call synchronize() on it first");
    assert_eq!(refused(&end, &start).0, "elapsed_time: the device has not passed the start event yet");
    drop(go_on);
    end.synchronize().unwrap();
    assert_eq!(start.elapsed_time(&end).unwrap(), 0.0);
    // Moved to a point that is not reached yet.
    let go_on = stop(&device);
    start.record(&main).unwrap();
    assert_eq!(refused(&start, &end).0, "elapsed_time: the device has not passed the start event yet");
    drop(go_on);
    main.synchronize().unwrap();
    assert_eq!(start.elapsed_time(&end).unwrap(), 0.0);
}

#[test]
fn an_event_stays_on_its_device() {
    let (device, other) = (open(), open());
    for event in [Event::new(), Event::with_timing()] {
        event.record(&device.default_stream()).unwrap();
        let error = event.record(&other.default_stream()).unwrap_err().to_string();
        let (fact, _) = error.split_once("\nhelp: an event stays on the device").unwrap();
        let (event_of, stream_of) = fact.strip_prefix("record: event of ").unwrap().split_once(" and stream of ").unwrap();
        assert!(event_of.starts_with("device ") && event_of != stream_of, "{error}");
        event.record(&device.new_stream()).unwrap();
        event.synchronize().unwrap();
    }
}

/// A completion is told after its times are there: whoever has waited, in whatever way, may ask.
#[test]
fn who_has_waited_may_ask() {
    watched(60, || {
        let device = open();
        let (start, end) = (Arc::new(Event::with_timing()), Event::with_timing());
        start.record(&device.default_stream()).unwrap();
        start.synchronize().unwrap();
        for round in 0..300 {
            let stream = device.new_stream();
            let x = stream.scope(|| Tensor::ones(&device, &[16])).unwrap();
            end.record(&stream).unwrap();
            match round % 6 {
                0 => end.synchronize().unwrap(),
                1 => pollster::block_on(end.synchronize_async()).unwrap(),
                2 => device.synchronize().unwrap(),
                3 => stream.synchronize().unwrap(),
                4 => {
                    // Reading what comes after it on the stream.
                    stream.scope(|| x.to_vec::<f32>()).unwrap();
                    while !end.query() {
                        std::thread::yield_now();
                    }
                }
                _ => {
                    while !end.query() {
                        std::thread::yield_now();
                    }
                }
            }
            assert_eq!(start.elapsed_time(&end).unwrap(), 0.0, "round {round}");
        }
    });
}

#[test]
fn events_and_futures_may_be_dropped_at_any_time() {
    watched(60, || {
        let device = open();
        let kept = Event::with_timing();
        for round in 0..2_000 {
            let stream = device.new_stream();
            let event = Event::with_timing();
            event.record(&stream).unwrap();
            event.record(&stream).unwrap();
            let future = event.synchronize_async();
            if round % 2 == 0 {
                drop(event);
            }
            drop(stream);
            if round % 3 == 0 {
                pollster::block_on(future).unwrap();
            }
            kept.record(&device.default_stream()).unwrap();
        }
        kept.synchronize().unwrap();
        assert!(device.stats().queue.timestamp_sets <= 3);
        // The last handle of a closed device; nobody waits for what was recorded.
        let event = Event::with_timing();
        event.record(&device.default_stream()).unwrap();
        drop(device);
        drop((kept, event));
    });
}

/// Times of more than one submission can hold, in one go.
#[test]
fn many_times_take_few_sets() {
    watched(60, || {
        let device = open();
        let go_on = stop(&device);
        let events: Vec<Event> = std::iter::repeat_with(Event::with_timing).take(5_000).collect();
        let submissions = device.stats().timeline.submissions;
        events.iter().for_each(|event| event.record(&device.default_stream()).unwrap());
        drop(go_on);
        device.synchronize().unwrap();
        let stats = device.stats();
        assert!(stats.timeline.submissions - submissions >= 5_000 / 256, "a set holds 256 times");
        assert!((1..=3).contains(&stats.queue.timestamp_sets), "{} sets", stats.queue.timestamp_sets);
        assert!(events.windows(2).all(|pair| pair[0].elapsed_time(&pair[1]).unwrap() == 0.0));
    });
}

#[test]
fn programs_without_timing_make_no_sets() {
    let device = open();
    for _ in 0..100 {
        let x = Tensor::ones(&device, &[16]).unwrap();
        let event = device.default_stream().record_event();
        x.to_vec::<f32>().unwrap();
        event.synchronize().unwrap();
    }
    assert_eq!(device.stats().queue.timestamp_sets, 0);
}

#[test]
fn a_refused_time_is_an_error_and_the_next_one_is_right() {
    watched(60, || {
        let mut failed = 0;
        for refused in 0..40 {
            let device = open();
            let stream = device.default_stream();
            let (start, end) = (Event::with_timing(), Event::with_timing());
            start.record(&stream).unwrap();
            start.synchronize().unwrap();
            device.refuse_driver_calls(refused, 3);
            let recorded = end.record(&stream).and_then(|()| end.synchronize());
            let time = start.elapsed_time(&end);
            failed += u32::from(time.is_err());
            let missing = time.is_err_and(|error| error.to_string().contains("so it has no time"));
            assert!(recorded.is_ok() || missing, "{refused}: an error of synchronize says that there is no time");
            device.refuse_driver_calls(0, 0);
            let _ = device.synchronize();
            end.record(&stream).unwrap();
            end.synchronize().unwrap();
            assert!(device.stats().queue.timestamp_sets <= 3);
            if missing {
                start.record(&stream).unwrap();
                end.record(&stream).unwrap();
                end.synchronize().unwrap();
            }
            assert_eq!(start.elapsed_time(&end).unwrap(), 0.0);
        }
        assert!((1..40).contains(&failed), "{failed} of 40");
    });
}
