//! The rungs of the ladder, and that several requests in flight always come to an end.

use linn::ids::{BlockId, FenceSet, Horizons, StreamId};
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::{Answer, Category, Compaction, Config, Place, Pool, Request, SegmentRequest, Tag};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId(0);

fn tag() -> Tag {
    Tag::here(Category::Temporary, "ladder")
}

fn alloc(device: &mut SimDevice, bytes: u64) -> Lease {
    device.alloc(MAIN, bytes, tag()).expect("there is room")
}

#[test]
fn idle_segments_make_room_under_the_limit_without_a_wait() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 64 * MIB, ..Config::default() });
    let blocks: Vec<Lease> = (0..8).map(|_| alloc(&mut device, 8 * MIB)).collect();
    blocks.into_iter().for_each(|lease| device.free(lease));
    let lease = alloc(&mut device, 20 * MIB);
    assert_eq!((lease.place.size, device.waits()), (20 * MIB, 0));
    let stats = device.pool().stats();
    assert_eq!(stats.num_device_free, 3, "as many as needed and no more");
    assert!(stats.reserved_bytes.peak <= 64 * MIB);
}

#[test]
fn the_last_resort_waits_for_what_is_in_use() {
    let mut device = SimDevice::new(64 * MIB, Config { limit: 64 * MIB, ..Config::default() });
    let mut blocks: Vec<Lease> = (0..8).map(|_| alloc(&mut device, 8 * MIB)).collect();
    for lease in &mut blocks {
        device.use_on(MAIN, lease);
    }
    blocks.into_iter().for_each(|lease| device.free(lease));
    let lease = alloc(&mut device, 20 * MIB);
    assert_eq!((lease.place.size, device.waits(), device.pool().stats().num_alloc_retries), (20 * MIB, 1, 1));
    assert!(device.driver_bytes() <= 64 * MIB);
}

#[test]
fn a_refused_growth_is_bought_smaller() {
    let mut device = SimDevice::new(1 << 40, Config::default());
    let _held: Vec<Lease> = (0..10).map(|_| alloc(&mut device, 100 * MIB)).collect();
    device.refuse_next(1);
    let lease = alloc(&mut device, 3 * MIB);
    let size = device.buffers().find(|(segment, _)| *segment == lease.place.segment).map(|(_, size)| size);
    assert_eq!((size, device.waits()), (Some(3 * MIB), 0));
}

#[test]
fn a_driver_that_refuses_gets_idle_memory_back_first() {
    let mut device = SimDevice::new(64 * MIB, Config::default());
    let small: Vec<Lease> = (0..6).map(|_| alloc(&mut device, 8 * MIB)).collect();
    small.into_iter().for_each(|lease| device.free(lease));
    let lease = alloc(&mut device, 50 * MIB);
    assert_eq!((lease.place.size, device.waits()), (50 * MIB, 0), "idle and unused: nothing to wait for");
}

#[test]
fn memory_marked_for_release_is_taken_back_rather_than_bought_again() {
    let mut device = SimDevice::new(1 << 40, Config::default());
    let mut lease = alloc(&mut device, 8 * MIB);
    device.use_on(MAIN, &mut lease);
    let place = lease.place;
    device.free(lease);
    device.empty_cache();
    assert_eq!(device.pool().breakdown().retiring, 8 * MIB, "not submitted, so not yet released");
    assert_eq!(alloc(&mut device, 8 * MIB).place, place);
    assert_eq!(device.pool().stats().num_device_alloc, 1);
}

#[test]
fn a_segment_whose_buyer_never_came_is_not_lost() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 4 * MIB, ..Config::default() });
    // The thread that asked for it ends before it asks again.
    let mut request = Request::new(MAIN, MIB, tag());
    let streams = device.streams().clone();
    let Answer::NeedSegment(segment) = device.pool_mut().alloc(&mut request, &streams) else { panic!("nothing is cached") };
    device.pool_mut().handle_segment(segment);
    assert_eq!(alloc(&mut device, 4 * MIB).place.size, 4 * MIB);
}

/// What was bought for a request that was then served by what another thread gave back is idle, not kept for nobody.
#[test]
fn a_segment_whose_buyer_was_served_otherwise_goes_back_like_any_idle_one() {
    let mut device = SimDevice::new(1 << 40, Config { limit: 64 * MIB, ..Config::default() });
    let other = alloc(&mut device, 16 * MIB);
    let mut request = Request::new(MAIN, 16 * MIB, tag());
    let streams = device.streams().clone();
    let Answer::NeedSegment(segment) = device.pool_mut().alloc(&mut request, &streams) else { panic!("nothing is cached") };
    let (first, place) = (other.block, other.place);
    device.free(other);
    let bought = device.pool_mut().handle_segment(segment);
    assert_ne!(bought, place.segment);
    let Answer::Ready { block, place: served, .. } = device.pool_mut().alloc(&mut request, &streams) else { panic!("two fit") };
    assert_eq!((served, block), (place, first), "the older of two equal blocks");
    // 16 lent, 16 idle, 40 wanted of 64: the idle one makes room, without a wait.
    assert_eq!((alloc(&mut device, 40 * MIB).place.size, device.waits()), (40 * MIB, 0));
    assert_eq!(device.pool().stats().num_device_free, 1);
}

/// `garbage_collection_threshold` under this policy: before more than its share of the limit is reserved, idle segments go
/// back, whatever the peak was. What is live may pass it.
#[test]
fn idle_segments_go_back_above_the_threshold() {
    for (threshold, left) in [(0.0, 52), (0.5, 36)] {
        let config = Config { limit: 100 * MIB, garbage_collection_threshold: threshold, ..Config::default() };
        let mut device = SimDevice::new(1 << 40, config);
        let blocks: Vec<Lease> = (0..4).map(|_| alloc(&mut device, 16 * MIB)).collect();
        blocks.into_iter().for_each(|lease| device.free(lease));
        let _lease = alloc(&mut device, 20 * MIB);
        assert_eq!((device.pool().stats().reserved_bytes.current, device.waits()), (left * MIB, 0), "{threshold}");
        let _live: Vec<Lease> = (0..2).map(|_| alloc(&mut device, 30 * MIB)).collect();
        assert!(device.pool().stats().reserved_bytes.current >= 80 * MIB && device.waits() == 0, "no limit for what is live");
    }
}

/// Blocks come, go and come, more of them with time; resets of counters at some steps. Places of all blocks.
fn places(compaction: Compaction, reset: impl Fn(u64) -> bool) -> Vec<Place> {
    let mut device = SimDevice::new(1 << 40, Config { compaction, ..Config::default() });
    let mut live: Vec<Lease> = Vec::new();
    let mut places = Vec::new();
    let mut seed = 7u64;
    for step in 0..4000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = seed >> 33;
        if random % 5 < 2 && !live.is_empty() {
            let lease = live.swap_remove(random as usize % live.len());
            device.free(lease);
        } else if live.len() < 300 || step % 1000 > 600 {
            let lease = alloc(&mut device, 1 + ((random % 4096) << (random % 13)));
            places.push(lease.place);
            live.push(lease);
        } else {
            live.drain(..250).for_each(|lease| device.free(lease));
        }
        if reset(step) {
            device.pool_mut().reset_peak_stats();
            device.pool_mut().reset_accumulated_stats();
        }
        device.submit();
        device.complete_one();
    }
    places
}

#[test]
fn resets_of_counters_change_no_decision() {
    for compaction in [Compaction::Pressure, Compaction::Share(0.05)] {
        let quiet = places(compaction, |_| false);
        assert!(quiet.iter().any(|place| place.segment.0 > 3), "several segments");
        assert!(quiet == places(compaction, |step| step % 37 == 0), "{compaction:?}");
    }
}

#[test]
fn small_programs_buy_few_segments_with_a_budget_for_moves_too() {
    let mut device = SimDevice::new(1 << 40, Config { compaction: Compaction::Share(0.01), ..Config::default() });
    let _held: Vec<Lease> = (0..10_000).map(|_| alloc(&mut device, 64 << 10)).collect();
    let stats = device.pool().stats();
    // 625 MiB in steps of at least a 64th.
    assert!(stats.num_device_alloc < 300, "{} segments", stats.num_device_alloc);
    assert!(stats.reserved_bytes.peak <= 645 * MIB, "{} bytes", stats.reserved_bytes.peak);
}

#[test]
fn a_share_of_the_limit_holds_for_later_limits() {
    let config = Config { limit: 64 * MIB, memory_fraction: 0.5, ..Config::default() };
    let mut device = SimDevice::new(1 << 40, config);
    assert_eq!(device.pool().limit(), 32 * MIB);
    assert!(device.alloc(MAIN, 40 * MIB, tag()).is_err());
    device.pool_mut().set_limit(100 * MIB);
    assert_eq!((device.pool().limit(), device.pool().config().limit), (50 * MIB, 100 * MIB));
    assert!(device.alloc(MAIN, 40 * MIB, tag()).is_ok());
    assert!(device.alloc(MAIN, 20 * MIB, tag()).is_err());
    device.pool_mut().set_limit(u64::MAX);
    assert_eq!(device.pool().limit(), u64::MAX);
}

#[test]
fn a_lowered_limit_gives_idle_memory_back() {
    let mut device = SimDevice::new(1 << 40, Config::default());
    let kept = alloc(&mut device, 8 * MIB);
    let idle: Vec<Lease> = (0..4).map(|_| alloc(&mut device, 8 * MIB)).collect();
    idle.into_iter().for_each(|lease| device.free(lease));
    device.pool_mut().set_limit(20 * MIB);
    device.release();
    assert_eq!(device.pool().stats().reserved_bytes.current, 16 * MIB);
    device.pool_mut().set_limit(0);
    device.release();
    assert_eq!(device.pool().stats().reserved_bytes.current, 8 * MIB, "what is lent stays");
    assert!(device.alloc(MAIN, 1, tag()).is_err());
    device.free(kept);
    assert!(device.alloc(MAIN, 1, tag()).is_ok(), "cached memory may be lent above the limit");
}

/// Everything is done the moment it is enqueued.
struct Done;

impl Horizons for Done {
    fn enqueued(&self, _: StreamId) -> u64 {
        0
    }
    fn submitted(&self, _: StreamId) -> u64 {
        0
    }
    fn completed(&self, _: StreamId) -> u64 {
        0
    }
}

/// A thread that asks for memory, as far as it has come.
enum Thread {
    Asking(Request),
    Buying(Request, SegmentRequest),
    Holding(BlockId),
    Idle,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Threads take each other's segments, the driver refuses, purchases are under way at the same time: the limit
    /// holds, and a thread that is left alone is answered within a few calls.
    #[test]
    fn requests_in_flight(
        steps in proptest::collection::vec((0usize..4, 0u32..24, any::<u8>()), 400),
        limit in 4u64..64,
    ) {
        let limit = limit * MIB;
        let mut pool = Pool::new(Config { limit, ..Config::default() });
        let mut threads = [Thread::Idle, Thread::Idle, Thread::Idle, Thread::Idle];
        for (who, octave, dice) in steps {
            let thread = std::mem::replace(&mut threads[who], Thread::Idle);
            threads[who] = step(&mut pool, thread, octave, dice % 5 == 0);
            prop_assert_eq!(pool.validate(), Ok(()));
            prop_assert!(pool.stats().reserved_bytes.current <= limit);
        }
        for thread in &mut threads {
            let mut calls = 0;
            while matches!(thread, Thread::Asking(_) | Thread::Buying(..)) {
                *thread = step(&mut pool, std::mem::replace(thread, Thread::Idle), 0, true);
                calls += 1;
                prop_assert!(calls < 24, "no end of the ladder");
            }
        }
    }
}

/// Moves are done at once.
fn asked(pool: &mut Pool, request: &mut Request) -> Answer {
    let answer = pool.alloc(request, &Done);
    while pool.poll_move().is_some() {}
    answer
}

fn step(pool: &mut Pool, thread: Thread, octave: u32, refuse: bool) -> Thread {
    while pool.poll_release(&Done).is_some() {}
    match thread {
        Thread::Idle => Thread::Asking(Request::new(MAIN, 1 << octave, tag())),
        Thread::Holding(block) => {
            pool.free(block, FenceSet::new(), &Done);
            Thread::Idle
        }
        Thread::Buying(mut request, segment) => {
            if refuse {
                pool.handle_segment_failed(&mut request, segment, &Done);
            } else {
                pool.handle_segment(segment);
            }
            Thread::Asking(request)
        }
        Thread::Asking(mut request) => match asked(pool, &mut request) {
            Answer::Ready { block, .. } => Thread::Holding(block),
            Answer::NeedSegment(segment) => Thread::Buying(request, segment),
            Answer::NeedCompletion => {
                pool.handle_completed(&Done);
                Thread::Asking(request)
            }
            Answer::Exhausted(_) => Thread::Idle,
        },
    }
}
