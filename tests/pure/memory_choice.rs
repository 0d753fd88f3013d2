//! Which free block a stream is given, and what it costs in order.

use linn::ids::{FenceSet, StreamId};
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::{Answer, Caching, Category, Config, Place, Pool, Request, Tag};
use linn::timeline::{Access, Timeline};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId(0);
const SIDE: StreamId = StreamId(1);

fn device(limit: u64) -> SimDevice {
    SimDevice::new(1 << 40, Config { limit, ..Config::default() })
}

fn alloc(device: &mut SimDevice, stream: StreamId, bytes: u64) -> Lease {
    device.alloc(stream, bytes, Tag::here(Category::Temporary, "choice")).expect("there is room")
}

/// A block that `backlog` unsubmitted commands of `MAIN` lead up to, free.
fn freed_behind(device: &mut SimDevice, bytes: u64, backlog: u32) -> Place {
    let mut lease = alloc(device, MAIN, bytes);
    for _ in 0..backlog {
        device.use_on(MAIN, &mut lease);
    }
    let place = lease.place;
    device.free(lease);
    place
}

#[test]
fn a_short_backlog_is_taken_with_an_edge() {
    let mut device = device(u64::MAX);
    let place = freed_behind(&mut device, 2 * MIB, 3);
    let lease = alloc(&mut device, SIDE, 2 * MIB);
    assert_eq!(lease.place, place);
    assert_eq!(lease.after.of(MAIN).map(|fence| fence.number), Some(3));
    assert_eq!(device.pool().stats().order_edges, 1);
}

#[test]
fn an_urgent_stream_takes_no_edge_while_memory_can_be_bought() {
    let mut sim = device(6 * MIB);
    sim.make_urgent(SIDE);
    let place = freed_behind(&mut sim, 2 * MIB, 3);
    let leases = [0, 1].map(|_| alloc(&mut sim, SIDE, 2 * MIB));
    assert!(leases.iter().all(|lease| lease.after.is_empty() && lease.place.segment != place.segment));
    // The limit is reached: an edge is better than an error.
    assert_eq!(alloc(&mut sim, SIDE, 2 * MIB).place, place);
    // Memory that is dear is bought for it, too.
    let mut sim = SimDevice::new(1 << 40, Config { max_segment: 1 << 30, ..Config::default() });
    sim.make_urgent(SIDE);
    freed_behind(&mut sim, 300 * MIB, 1000);
    assert!(alloc(&mut sim, SIDE, 300 * MIB).after.is_empty());
}

#[test]
fn a_long_backlog_is_not_waited_for_when_memory_can_be_bought() {
    let mut device = device(u64::MAX);
    let place = freed_behind(&mut device, 2 * MIB, 1000);
    let lease = alloc(&mut device, SIDE, 2 * MIB);
    assert_ne!(lease.place.segment, place.segment);
    assert!(lease.after.is_empty());
    assert_eq!(device.pool().stats().num_device_alloc, 2);
}

#[test]
fn a_long_backlog_is_waited_for_when_memory_is_dear() {
    let mut device = SimDevice::new(1 << 40, Config { max_segment: 1 << 30, ..Config::default() });
    let place = freed_behind(&mut device, 300 * MIB, 1000);
    let lease = alloc(&mut device, SIDE, 300 * MIB);
    assert_eq!(lease.place, place, "twice what is live would be reserved");
    assert_eq!((device.pool().stats().order_edges, device.waits()), (1, 0), "an edge, not a wait");
}

#[test]
fn when_none_can_be_bought_any_edge_will_do() {
    let mut device = device(2 * MIB);
    let place = freed_behind(&mut device, 2 * MIB, 1000);
    let lease = alloc(&mut device, SIDE, 2 * MIB);
    assert_eq!(lease.place, place);
    assert_eq!(lease.after.of(MAIN).map(|fence| fence.number), Some(1000));
    assert_eq!(device.waits(), 0, "an edge, not a wait");
}

#[test]
fn submitted_work_needs_no_edge() {
    let mut device = device(u64::MAX);
    let place = freed_behind(&mut device, 2 * MIB, 1000);
    device.submit();
    let lease = alloc(&mut device, SIDE, 2 * MIB);
    assert_eq!(lease.place, place);
    assert!(lease.after.is_empty(), "submission order is execution order");
}

#[test]
fn splitting_copies_the_uses_and_merging_unites_them() {
    let mut device = device(4 * MIB);
    let mut halves = [alloc(&mut device, MAIN, 2 * MIB), alloc(&mut device, SIDE, 2 * MIB)];
    assert_ne!(halves[0].place.segment, halves[1].place.segment);
    let main = device.use_on(MAIN, &mut halves[0]);
    let [first, second] = halves;
    device.free(first);
    let mut quarters = [alloc(&mut device, SIDE, MIB), alloc(&mut device, SIDE, MIB)];
    for quarter in &quarters {
        assert_eq!(quarter.after.of(MAIN), Some(main), "both halves of the block were used by {main:?}");
    }
    let side = device.use_on(SIDE, &mut quarters[0]);
    // The second quarter is given back without a use: what used it before still counts.
    quarters.into_iter().for_each(|quarter| device.free(quarter));
    let third = StreamId(2);
    let whole = alloc(&mut device, third, 2 * MIB);
    assert_eq!((whole.after.of(MAIN), whole.after.of(SIDE), whole.after.len()), (Some(main), Some(side), 2));
    device.free(second);
}

#[test]
fn a_first_use_on_another_stream_finds_what_program_order_covers() {
    let mut device = device(u64::MAX);
    let place = freed_behind(&mut device, 2 * MIB, 3);
    let lease = alloc(&mut device, MAIN, 2 * MIB);
    assert_eq!(lease.place, place);
    assert!(lease.after.is_empty());
    assert_eq!(device.pool().inherited(lease.block).of(MAIN).map(|fence| fence.number), Some(3));
}

#[test]
fn unpooled_buys_one_segment_per_request_and_keeps_none() {
    let mut device = SimDevice::new(1 << 40, Config { caching: Caching::Unpooled, ..Config::default() });
    for round in 1..=3 {
        let mut lease = alloc(&mut device, MAIN, 1000);
        assert_eq!(lease.place.size, 1024);
        device.use_on(MAIN, &mut lease);
        device.free(lease);
        assert_eq!(device.pool().breakdown().retiring, 1024);
        device.synchronize();
        let stats = device.pool().stats();
        assert_eq!((stats.num_device_alloc, stats.num_device_free, stats.reserved_bytes.current), (round, round, 0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(u64),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0u32..22, 0u64..4).prop_map(|(octave, quarters)| Step::Alloc((1u64 << octave) * (4 + quarters) / 4)),
        any::<usize>().prop_map(Step::Free),
    ];
    proptest::collection::vec(step, 300)
}

/// Where each allocation of a single stream lands when the queue submits after every `submit_every`-th step.
fn places(steps: &[Step], submit_every: usize) -> Vec<Place> {
    let mut device = device(u64::MAX);
    let (mut held, mut places): (Vec<Lease>, Vec<Place>) = Default::default();
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Alloc(bytes) => {
                let mut lease = alloc(&mut device, MAIN, bytes);
                device.use_on(MAIN, &mut lease);
                places.push(lease.place);
                held.push(lease);
            }
            Step::Free(which) if !held.is_empty() => {
                let lease = held.swap_remove(which % held.len());
                device.free(lease);
            }
            Step::Free(_) => {}
        }
        if at % submit_every == submit_every - 1 {
            device.submit();
        }
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bind groups are cached by place: a program's second step must find its blocks where the first had them, however
    /// fast the queue was.
    #[test]
    fn one_stream_is_given_the_same_blocks_whatever_was_submitted(steps in steps(), every in 1usize..40) {
        prop_assert_eq!(places(&steps, every), places(&steps, usize::MAX));
    }
}

/// Large blocks are bought segments of their own while smaller ones idle: what is reserved must not creep up by that.
#[test]
fn repeated_large_steps_reserve_no_more_and_more() {
    let mut device = SimDevice::new(1 << 40, Config { max_segment: 1 << 40, ..Config::default() });
    for step in 0..500u64 {
        let mut held: Vec<Lease> = Vec::new();
        for at in 0..24 {
            let bytes = [33, 40, 100, 250, 61, 900, 47, 5][((at * 7 + step) % 8) as usize] * MIB + at * 4096;
            held.push(alloc(&mut device, MAIN, bytes));
            if at % 2 == 1 {
                let lease = held.swap_remove((at * 5 + step) as usize % held.len());
                device.free(lease);
            }
        }
        held.into_iter().for_each(|lease| device.free(lease));
        device.synchronize();
    }
    let stats = device.pool().stats();
    assert!(stats.reserved_bytes.peak <= stats.allocated_bytes.peak + stats.allocated_bytes.peak / 32, "{stats:?}");
}

#[test]
fn a_repeated_step_buys_nothing_and_lands_where_it_did() {
    let mut device = device(u64::MAX);
    let sizes = [393_216u64, 1_572_864, 786_432, 4096, 512, 199_680, 1_572_864, 65_536];
    let mut first: Option<Vec<Place>> = None;
    for step in 0..50 {
        let mut held: Vec<Lease> = Vec::new();
        let mut places = Vec::new();
        for (at, bytes) in sizes.into_iter().cycle().take(64).enumerate() {
            let mut lease = alloc(&mut device, MAIN, bytes);
            device.use_on(MAIN, &mut lease);
            places.push(lease.place);
            held.push(lease);
            if at % 3 == 2 {
                let lease = held.swap_remove(at % held.len());
                device.free(lease);
            }
            if (at + step) % 7 == 0 {
                device.submit();
            }
        }
        held.into_iter().for_each(|lease| device.free(lease));
        if step == 2 {
            first = Some(places);
            device.pool_mut().reset_accumulated_stats();
        } else if let Some(first) = &first {
            assert_eq!(&places, first, "step {step}");
        }
    }
    assert_eq!(device.pool().stats().num_device_alloc, 0, "after the third step");
}

/// A stream that waits for another device does so for as long as that takes; its memory serves others only where none can be bought.
#[test]
fn what_is_held_is_not_waited_for_when_memory_can_be_bought() {
    for held in [false, true] {
        let (mut pool, mut timeline) = (Pool::new(Config::default()), Timeline::new());
        let side = timeline.new_stream();
        let request = |stream| Request::new(stream, 2 * MIB, Tag::here(Category::Temporary, "test"));
        let mut first = request(side);
        let Answer::NeedSegment(segment) = pool.alloc(&mut first, &timeline) else { panic!("there is no memory yet") };
        pool.handle_segment(segment);
        let Answer::Ready { block, .. } = pool.alloc(&mut first, &timeline) else { panic!("there is memory") };
        timeline.begin_block(block, FenceSet::new());
        timeline.enqueue(side, []);
        if held {
            timeline.hold(side);
        }
        timeline.enqueue(side, [(block, Access::Write)]);
        let uses = timeline.end_block(block);
        pool.free(block, uses, &timeline);
        let buys = matches!(pool.alloc(&mut request(StreamId::DEFAULT), &timeline), Answer::NeedSegment(_));
        assert_eq!(buys, held);
        // Its own stream needs no edge.
        assert_eq!(matches!(pool.alloc(&mut request(side), &timeline), Answer::Ready { .. }), held);
    }
}
