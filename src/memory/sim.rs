//! A pretend device behind the seam: so many bytes, streams that complete late, and failures on demand.
//!
//! It runs the same loop over [`Answer`] as a real device does, so tests, replays and readers can see the allocator think.

use std::collections::{BTreeMap, VecDeque};

use super::{Answer, Compacted, Config, Move, OomReport, Place, Pool, Request, SegmentRequest, Tag};
use crate::ids::{BlockId, Fence, FenceSet, Horizons, SegmentId, StreamId};

/// How far each pretend stream has come.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    enqueued: BTreeMap<StreamId, u64>,
    submitted: BTreeMap<StreamId, u64>,
    completed: BTreeMap<StreamId, u64>,
    /// Streams with commands that are not submitted, and the last of these: a submission costs no look at the others.
    waiting: BTreeMap<StreamId, u64>,
    /// What each submission holds: the last number of each stream. Work completes in this order.
    in_flight: VecDeque<BTreeMap<StreamId, u64>>,
    urgent: std::collections::BTreeSet<StreamId>,
}

impl Horizons for Streams {
    fn enqueued(&self, stream: StreamId) -> u64 {
        self.enqueued.get(&stream).copied().unwrap_or(0)
    }

    fn submitted(&self, stream: StreamId) -> u64 {
        self.submitted.get(&stream).copied().unwrap_or(0)
    }

    fn completed(&self, stream: StreamId) -> u64 {
        self.completed.get(&stream).copied().unwrap_or(0)
    }

    fn is_urgent(&self, stream: StreamId) -> bool {
        self.urgent.contains(&stream)
    }
}

/// A lent block and what has used it.
#[derive(Debug)]
pub struct Lease {
    /// The pool's name for it.
    pub block: BlockId,
    /// Where it lies.
    pub place: Place,
    /// The edges it came with.
    pub after: FenceSet,
    /// The last command of each stream that used it.
    pub uses: FenceSet,
}

/// The pretend device. It owns the pool.
#[derive(Debug)]
pub struct SimDevice {
    pool: Pool,
    streams: Streams,
    capacity: u64,
    /// Buffers that exist, and the uses they have seen.
    buffers: BTreeMap<SegmentId, (u64, FenceSet)>,
    /// Buffers that were dropped while the device still worked with them.
    dropped: Vec<(u64, FenceSet)>,
    /// Purchases to refuse from now on.
    refuse: u32,
    /// Times the host waited for the device.
    waits: u64,
    /// Moves of blocks whose leases do not know of them yet: the new place and the move's command.
    moved: BTreeMap<BlockId, (Place, FenceSet)>,
    /// All moves since [`SimDevice::take_moves`].
    moves: Vec<Move>,
    /// Buffers that the pool released while commands that use them were not submitted: a fault of the pool.
    early_releases: u64,
}

/// More answers than this to one request mean that the ladder has no end.
const MAX_ANSWERS: u32 = 64;

impl SimDevice {
    /// The stream's work should wait for no other stream's.
    pub fn make_urgent(&mut self, stream: StreamId) {
        self.streams.urgent.insert(stream);
    }

    /// A device with `capacity` bytes of memory.
    pub fn new(capacity: u64, config: Config) -> SimDevice {
        SimDevice {
            pool: Pool::new(config),
            streams: Streams::default(),
            capacity,
            buffers: BTreeMap::new(),
            dropped: Vec::new(),
            refuse: 0,
            waits: 0,
            moved: BTreeMap::new(),
            moves: Vec::new(),
            early_releases: 0,
        }
    }

    /// Memory for commands of `stream`.
    pub fn alloc(&mut self, stream: StreamId, bytes: u64, tag: Tag) -> Result<Lease, Box<OomReport>> {
        self.serve(Request::new(stream, bytes, tag))
    }

    /// Runs the ladder to its end.
    pub fn serve(&mut self, mut request: Request) -> Result<Lease, Box<OomReport>> {
        let mut answers = 0;
        loop {
            answers += 1;
            debug_assert!(answers <= MAX_ANSWERS, "the ladder has no end");
            let answer = self.pool.alloc(&mut request, &self.streams);
            self.enqueue_moves();
            match answer {
                Answer::Ready { block, place, after } => {
                    return Ok(Lease { block, place, after, uses: FenceSet::new() });
                }
                Answer::NeedSegment(segment) => {
                    self.release();
                    self.buy(&mut request, segment);
                }
                Answer::NeedCompletion => {
                    self.waits += 1;
                    self.synchronize();
                }
                Answer::Exhausted(report) => return Err(report),
            }
        }
    }

    /// Enqueues a command of `stream` that uses the block; it runs after what [`Lease::after`] names.
    pub fn use_on(&mut self, stream: StreamId, lease: &mut Lease) -> Fence {
        self.refresh(lease);
        let fence = self.enqueue(stream);
        lease.uses.insert(fence);
        if let Some((_, uses)) = self.buffers.get_mut(&lease.place.segment) {
            uses.insert(fence);
        }
        fence
    }

    /// Tells the lease where its block lies now and that the move has used it.
    pub fn refresh(&mut self, lease: &mut Lease) {
        if let Some((place, fences)) = self.moved.remove(&lease.block) {
            lease.place = place;
            lease.uses.merge(&fences);
        }
    }

    /// Moves live blocks, `budget` bytes at most, so that segments become empty, and gives these back.
    pub fn compact(&mut self, stream: StreamId, budget: u64) -> Compacted {
        let done = self.pool.compact(stream, budget, &self.streams);
        self.enqueue_moves();
        self.release();
        done
    }

    fn enqueue_moves(&mut self) {
        while let Some(step) = self.pool.poll_move() {
            let fence = self.enqueue(step.fence.stream);
            debug_assert_eq!(fence, step.fence, "the pool names the fence of a move in advance");
            for segment in [step.from.segment, step.to.segment] {
                if let Some((_, uses)) = self.buffers.get_mut(&segment) {
                    uses.insert(fence);
                }
            }
            let (place, fences) = self.moved.entry(step.block).or_insert((step.to, FenceSet::new()));
            *place = step.to;
            fences.insert(fence);
            self.moves.push(step);
        }
    }

    /// The moves since the last call, in the order they were enqueued.
    pub fn take_moves(&mut self) -> Vec<Move> {
        std::mem::take(&mut self.moves)
    }

    /// Enqueues a command that touches no block.
    pub fn enqueue(&mut self, stream: StreamId) -> Fence {
        let number = self.streams.enqueued.entry(stream).or_insert(0);
        *number += 1;
        self.streams.waiting.insert(stream, *number);
        Fence { stream, number: *number }
    }

    /// Gives the block back in stream order.
    pub fn free(&mut self, mut lease: Lease) {
        self.refresh(&mut lease);
        self.pool.free(lease.block, lease.uses, &self.streams);
    }

    /// Submits what every stream has enqueued, as one submission.
    pub fn submit(&mut self) {
        let all = self.streams.waiting.clone();
        self.submit_up_to(all);
    }

    /// Submits every stream named up to that command. What these depend on must be among them.
    pub fn submit_prefixes(&mut self, target: impl IntoIterator<Item = Fence>) {
        let ahead = target.into_iter().filter(|fence| fence.number > self.streams.submitted(fence.stream));
        let target = ahead.map(|fence| (fence.stream, fence.number)).collect();
        self.submit_up_to(target);
    }

    fn submit_up_to(&mut self, target: BTreeMap<StreamId, u64>) {
        for (stream, number) in &target {
            self.streams.submitted.insert(*stream, *number);
            if self.streams.waiting.get(stream).is_some_and(|last| last <= number) {
                self.streams.waiting.remove(stream);
            }
        }
        self.streams.in_flight.push_back(target);
        self.release();
    }

    /// The oldest submission in flight completes. False when there is none.
    pub fn complete_one(&mut self) -> bool {
        let Some(done) = self.streams.in_flight.pop_front() else { return false };
        self.streams.completed.extend(done);
        let streams = &self.streams;
        self.dropped.retain(|(_, uses)| uses.iter().any(|fence| fence.number > streams.completed(fence.stream)));
        self.pool.handle_completed(&self.streams);
        true
    }

    /// Submits everything and waits for all of it.
    pub fn synchronize(&mut self) {
        self.submit();
        while self.complete_one() {}
    }

    /// The driver refuses the next `count` purchases.
    pub fn refuse_next(&mut self, count: u32) {
        self.refuse = count;
    }

    /// Gives idle memory back to the driver.
    pub fn empty_cache(&mut self) {
        self.pool.empty_cache();
        self.release();
    }

    /// Drops the buffers that the pool wants to be rid of.
    pub fn release(&mut self) {
        while let Some(segment) = self.pool.poll_release(&self.streams) {
            let Some((size, uses)) = self.buffers.remove(&segment) else { continue };
            let late = uses.iter().any(|fence| fence.number > self.streams.submitted(fence.stream));
            self.early_releases += u64::from(late);
            if uses.iter().any(|fence| fence.number > self.streams.completed(fence.stream)) {
                self.dropped.push((size, uses));
            }
        }
    }

    fn buy(&mut self, request: &mut Request, segment: SegmentRequest) {
        let fits = self.driver_bytes().checked_add(segment.size).is_some_and(|sum| sum <= self.capacity);
        if self.refuse > 0 || !fits {
            self.refuse = self.refuse.saturating_sub(1);
            return self.pool.handle_segment_failed(request, segment, &self.streams);
        }
        let id = self.pool.handle_segment(segment);
        self.buffers.insert(id, (segment.size, FenceSet::new()));
    }

    /// Bytes the driver holds: buffers that exist, and dropped ones that the device still works with.
    pub fn driver_bytes(&self) -> u64 {
        self.buffers.values().map(|(size, _)| size).chain(self.dropped.iter().map(|(size, _)| size)).sum()
    }

    /// The buffers that exist, with their sizes.
    pub fn buffers(&self) -> impl Iterator<Item = (SegmentId, u64)> + '_ {
        self.buffers.iter().map(|(segment, (size, _))| (*segment, *size))
    }

    /// Buffers released while commands that use them were not submitted. Always 0.
    pub fn early_releases(&self) -> u64 {
        self.early_releases
    }

    /// Times the host waited for the device.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool, to change settings or counters.
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// How far each stream has come.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }
}
