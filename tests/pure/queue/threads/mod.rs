//! The threads around the queue in many orders: wake-ups, waits for room, waits for work, loss and exit.
//!
//! What runs is `src/device/signals.rs` with shuttle's primitives, on the real timeline, wishes and policy; [`model`] does with
//! them what `Shared`, `enqueue` and `Queue` do. There are no time-outs: a wake-up that is missed is a deadlock, and found.

mod model;
#[allow(dead_code)]
#[path = "../../../../src/device/signals.rs"]
mod signals;
mod sync;

use std::panic::{AssertUnwindSafe, catch_unwind};

use linn::ids::StreamId;
use model::{Device, Fault, Outcome};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner, thread};

/// Orders tried for each scenario by each way of choosing them; `LINN_LONG=1` tries a hundred times as many.
fn orders() -> usize {
    if std::env::var_os("LINN_LONG").is_some_and(|value| value == "1") { 1_000_000 } else { 10_000 }
}

/// Runs a scenario in many orders of its threads.
fn check(fault: Option<Fault>, orders: usize, scenario: fn(Device)) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::Print;
    let run = move || {
        sync::mute(fault);
        scenario(Device::open(fault));
    };
    Runner::new(RandomScheduler::new_from_seed(1, orders / 2), config.clone()).run(run);
    Runner::new(PctScheduler::new_from_seed(2, 3, orders / 2), config).run(run);
}

/// Two threads enqueue and wait, each for its own stream.
fn two_callers(device: Device) {
    let callers = [0, 1].map(|_| {
        let device = device.clone();
        thread::spawn(move || {
            let stream = device.new_stream();
            for _ in 0..2 {
                device.enqueue(stream);
                assert_eq!(device.synchronize(stream), Outcome::Done);
            }
        })
    });
    callers.into_iter().for_each(|caller| caller.join().unwrap());
}

/// Nobody waits: what is enqueued is executed all the same, and memory goes back.
fn nobody_waits(device: Device) {
    let executed = device.watch(2);
    device.enqueue(StreamId::DEFAULT);
    device.release();
    device.wait_until_forgotten();
    device.enqueue(StreamId::DEFAULT);
    assert_eq!(executed.wait(), Outcome::Done);
}

/// Two threads enqueue more than may be recorded.
fn floods(device: Device) {
    let callers = [0, 1].map(|_| {
        let device = device.clone();
        thread::spawn(move || (0..2 * model::MOST_RECORDED).for_each(|_| device.enqueue(StreamId::DEFAULT)))
    });
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(device.synchronize(StreamId::DEFAULT), Outcome::Done);
}

/// One thread floods; another, which has a stream of its own and waits for each of its commands, is not held up.
fn one_floods(device: Device) {
    let flooding = device.clone();
    let flooding = thread::spawn(move || (0..2 * model::MOST_RECORDED).for_each(|_| flooding.enqueue(StreamId::DEFAULT)));
    let stream = device.new_stream();
    for _ in 0..2 {
        device.enqueue(stream);
        assert_eq!(device.synchronize(stream), Outcome::Done);
    }
    flooding.join().unwrap();
    assert_eq!(device.waits_for_room(stream), 0, "who does not flood waits for room");
}

/// A stream waits for another device while others go on, and while its own thread floods it.
fn waits_for_another_device(device: Device) {
    let (held, free) = (device.new_stream(), device.new_stream());
    let fence = device.hold(held);
    let flooding = device.clone();
    let flooding = thread::spawn(move || {
        (0..2 * model::MOST_RECORDED).for_each(|_| flooding.enqueue(held));
        assert_eq!(flooding.synchronize(held), Outcome::Done);
    });
    device.enqueue(free);
    assert_eq!(device.synchronize(free), Outcome::Done);
    device.pass(fence);
    flooding.join().unwrap();
}

/// Nothing is ever opened: the device is lost, or its last handle goes.
fn never_opened(device: Device) {
    let held = device.new_stream();
    device.hold(held);
    let (flooding, waiting) = (device.clone(), device.completion(held));
    let flooding = thread::spawn(move || (0..2 * model::MOST_RECORDED).for_each(|_| flooding.enqueue(held)));
    device.lose();
    assert_eq!(waiting.wait(), Outcome::Lost);
    flooding.join().unwrap();
}

/// The last handle goes while work is recorded and in flight, and somebody still holds a future.
fn exit_with_work(device: Device) {
    device.enqueue(StreamId::DEFAULT);
    let answer = device.completion(StreamId::DEFAULT);
    let shared = device.shared();
    device.enqueue(StreamId::DEFAULT);
    drop(device);
    assert!(shared.has_ended(), "the last handle waits for the queue");
    let _ = answer.wait();
}

/// The device is lost while one thread floods and another waits.
fn loss(device: Device) {
    let (flooding, waiting, losing) = (device.clone(), device.clone(), device.clone());
    let flooding = thread::spawn(move || (0..2 * model::MOST_RECORDED).for_each(|_| flooding.enqueue(StreamId::DEFAULT)));
    let waiting = thread::spawn(move || {
        let stream = waiting.new_stream();
        waiting.enqueue(stream);
        waiting.synchronize(stream);
        waiting.release();
        waiting.wait_until_forgotten();
    });
    let losing = thread::spawn(move || losing.lose());
    [flooding, waiting, losing].into_iter().for_each(|thread| thread.join().unwrap());
    // Afterwards everything fails fast.
    device.enqueue(StreamId::DEFAULT);
    assert_eq!(device.synchronize(StreamId::DEFAULT), Outcome::Lost);
}

/// The same where nobody else says anything.
fn loss_under_a_flood(device: Device) {
    let flooding = device.clone();
    let flooding = thread::spawn(move || (0..2 * model::MOST_RECORDED).for_each(|_| flooding.enqueue(StreamId::DEFAULT)));
    device.lose();
    flooding.join().unwrap();
}

/// The process ends while a thread waits for room: the queue ends, and nobody stays behind.
fn exit_under_a_flood(device: Device) {
    let flooding = device.clone();
    let flooding = thread::spawn(move || (0..2 * model::MOST_RECORDED).for_each(|_| flooding.enqueue(StreamId::DEFAULT)));
    device.shared().stop();
    flooding.join().unwrap();
}

#[test]
fn callers_are_woken() {
    check(None, orders(), two_callers);
}

#[test]
fn what_nobody_waits_for_is_done_all_the_same() {
    check(None, orders(), nobody_waits);
}

#[test]
fn callers_who_flood_wait_for_room_and_go_on() {
    check(None, orders(), floods);
}

#[test]
fn callers_who_do_not_flood_never_wait_for_room() {
    check(None, orders(), one_floods);
}

#[test]
fn a_stream_that_waits_for_another_device_holds_up_nobody_else_and_goes_on() {
    check(None, orders(), waits_for_another_device);
}

#[test]
fn a_loss_ends_the_wait_for_another_device() {
    check(None, orders(), never_opened);
}

#[test]
fn the_last_handle_ends_the_queue_and_answers_everybody() {
    check(None, orders(), exit_with_work);
}

#[test]
fn a_loss_wakes_everybody() {
    check(None, orders(), loss);
    check(None, orders(), loss_under_a_flood);
}

#[test]
fn the_end_of_the_process_leaves_nobody_waiting_for_room() {
    check(None, orders(), exit_under_a_flood);
}

#[test]
fn every_missing_signal_is_a_deadlock_that_is_found() {
    let found_as = |words: &str, fault, scenario: fn(Device)| {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(Some(fault), 4_000, scenario))) else {
            panic!("{fault:?} is not found");
        };
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(text.contains(words), "{fault:?}: {text}");
    };
    let found = |fault, scenario| found_as("deadlock", fault, scenario);
    found(Fault::NobodyWakes, two_callers);
    found(Fault::NobodyTells, floods);
    found(Fault::SleepsUnasked, nobody_waits);
    found(Fault::WokenTooSoon, nobody_waits);
    found(Fault::StopNotWoken, two_callers);
    found(Fault::LossNotAnswered, loss);
    found(Fault::LossNotTold, loss_under_a_flood);
    found(Fault::ClosesSilently, exit_under_a_flood);
    found(Fault::OpenedSilently, waits_for_another_device);
    found_as("who does not flood waits for room", Fault::EverybodyWaits, one_floods);
}
