//! Everything that a program meets, and what always holds.

use linn::ids::{Fence, FenceSet, Horizons, SegmentId, StreamId};
use linn::memory::{Config, Place, Pool};
use linn::timeline::{AccessList, SubmissionId, Timeline};

use super::device::{Device, Mask, Range};
use super::faults::Fault;
use super::policy::{Estimates, Policy};
use super::program::{Program, Setup, Step};
use crate::device::load::Load;
use crate::device::places::{PlaceId, Places};
use crate::device::wishes::Wishes;

macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => { if !$holds { return Err(format!($($text)*)); } };
}
pub(super) use ensure;

pub const EVENTS: usize = 2;
/// Streams and storages at a time.
const STREAMS: usize = 4;
pub const STORAGES: usize = 6;

/// A live storage: one block, and what it holds after serial execution of all that was enqueued.
pub struct Storage {
    pub block: linn::ids::BlockId,
    pub name: PlaceId,
    pub serial: Vec<u32>,
    /// Uses that the timeline does not know of: nothing may write any more.
    pub frozen: bool,
    pub pinned: bool,
}

/// A recorded command: what the queue sees of it, and what it does.
pub struct Recorded {
    pub load: Load,
    /// The places it uses, once per use.
    pub places: Vec<PlaceId>,
    pub after: Vec<Fence>,
    pub body: Body,
}

/// Views are (place, first cell, cells).
pub enum Body {
    Dispatch {
        reads: Vec<(PlaceId, usize, usize, Mask)>,
        write: Option<(PlaceId, usize, usize)>,
        constant: u32,
        expected: u32,
    },
    Upload {
        chunk: usize,
        to: (PlaceId, usize, usize),
    },
    Download {
        from: (PlaceId, usize, usize),
        chunk: usize,
    },
    Move {
        place: PlaceId,
        to: Place,
    },
    /// Nothing: it waits for another device.
    Hold,
}

#[derive(Default)]
pub struct Stream {
    pub live: bool,
    /// What its next command comes after because the program said so.
    pub waits: FenceSet,
    /// Hazards that a fault tells one command late.
    pub late: AccessList,
}

/// A read on its way to the host.
pub struct Read {
    pub fence: Fence,
    pub chunk: usize,
    pub expected: Vec<u32>,
    pub mask: Mask,
}

/// A point of a stream, as the timeline and as the program remember it.
#[derive(Clone, Default)]
pub struct Recording {
    pub point: FenceSet,
    pub truth: FenceSet,
}

/// A future that somebody keeps: what it asked for, and what has to have happened when it is ready.
pub struct Waiter {
    pub point: FenceSet,
    pub truth: FenceSet,
}

/// Host memory for transfers, and the command that used it last.
pub struct Chunk {
    pub last: Option<Fence>,
    /// A read that was not answered yet.
    pub reading: bool,
}

/// What programs have to meet for the simulation to mean something.
#[derive(Clone, Copy, Debug)]
pub enum What {
    OrderEdge,
    InPlace,
    /// A block begins on memory that commands of other streams still use.
    Reuse,
    Move,
    /// Blocks are moved though commands that use them are not encoded.
    MoveOfUsed,
    Segment,
    SegmentBack,
    Refused,
    OutOfMemory,
    LastResort,
    Foreign,
    NoStaging,
    ReadAnswered,
    FutureReady,
    UrgentFirst,
    WishFirst,
    CutShort,
    FailedBatch,
    /// Commands stay behind because what they wait for on another device has not happened.
    HeldBack,
    Lost,
}

/// How often, by [`What`].
pub type Seen = [u64; What::Lost as usize + 1];

pub struct World {
    pub fault: Option<Fault>,
    pub setup: Setup,
    pub timeline: Timeline,
    pub pool: Pool,
    /// Since it was looked at last.
    pub pool_changed: bool,
    pub places: Places,
    pub wishes: Wishes,
    pub estimates: Estimates,
    pub policy: Policy,
    pub now: std::time::Duration,
    pub recordings: Vec<std::collections::VecDeque<Recorded>>,
    pub streams: Vec<Stream>,
    pub storages: Vec<Storage>,
    pub events: [Recording; EVENTS],
    /// By segment: the buffer of the device.
    pub buffers: Vec<Option<usize>>,
    pub chunks: Vec<Chunk>,
    pub reads: Vec<Read>,
    pub waiters: Vec<Waiter>,
    pub device: Device,
    /// Submissions that were not reported as done.
    pub in_flight: std::collections::VecDeque<SubmissionId>,
    pub lost: bool,
    /// Commands that wait for another device.
    pub held: Vec<Fence>,
    /// Purchases that the driver refuses, and batches.
    pub refusals: u32,
    pub fail_next: bool,
    /// Numbers for constants.
    pub constants: u32,
    pub seen: Seen,
}

impl World {
    pub fn new(setup: Setup, fault: Option<Fault>) -> World {
        let config = Config {
            limit: setup.limit * setup.cell,
            max_segment: setup.segment * setup.cell,
            compaction: setup.compaction,
            ..Config::default()
        };
        World {
            fault,
            setup,
            timeline: Timeline::new(),
            pool: Pool::new(config),
            pool_changed: true,
            places: Places::default(),
            wishes: Wishes::default(),
            estimates: Estimates::default(),
            policy: Policy::default(),
            now: std::time::Duration::ZERO,
            recordings: Vec::new(),
            streams: vec![Stream { live: true, ..Stream::default() }],
            storages: Vec::new(),
            events: Default::default(),
            buffers: Vec::new(),
            chunks: Vec::new(),
            reads: Vec::new(),
            waiters: Vec::new(),
            device: Device::default(),
            in_flight: Default::default(),
            lost: false,
            held: Vec::new(),
            refusals: 0,
            fail_next: false,
            constants: 0,
            seen: Seen::default(),
        }
    }

    pub fn see(&mut self, what: What, count: u64) {
        self.seen[what as usize] += count;
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// A live stream.
    pub fn stream(&self, choice: usize) -> usize {
        let live = || (0..self.streams.len()).filter(|index| self.streams[*index].live);
        live().nth(choice % live().count()).unwrap_or(0)
    }

    pub fn step(&mut self, step: &Step) -> Result<(), String> {
        self.pool_changed = step.changes_pool();
        match step {
            Step::NewStream { priority } => self.new_stream(*priority)?,
            Step::DropStream { stream } => self.drop_stream(*stream),
            Step::Alloc { stream, cells } => self.alloc(*stream, *cells)?,
            Step::Free { which } => self.free(*which),
            Step::Dispatch { stream, reads, write, groups } => self.dispatch(*stream, reads, *write, *groups),
            Step::Upload { stream, to } => self.upload(*stream, *to),
            Step::Download { stream, from } => self.download(*stream, *from),
            Step::Foreign { stream, from } => self.foreign(*stream, *from),
            Step::Record { event, stream } => self.record(*event, *stream),
            Step::WaitEvent { stream, event } => {
                let recording = self.events[event % EVENTS].clone();
                self.wait(*stream, &recording);
            }
            Step::WaitStream { stream, other } => {
                let recording = self.recording(self.stream(*other));
                self.wait(*stream, &recording);
            }
            Step::Flush { stream } => {
                let point = self.recording(self.stream(*stream)).point;
                self.wishes.add(&point);
            }
            Step::Await(point) => self.promise(*point),
            Step::Block(point) => {
                let point = self.point(*point).point;
                self.block(&point)?;
            }
            Step::Compact { stream, cells } => self.compact(*stream, *cells)?,
            Step::EmptyCache => {
                self.pool.empty_cache();
                self.release_segments();
            }
            Step::Limit { cells } => {
                self.pool.set_limit(cells * self.setup.cell);
                self.release_segments();
            }
            Step::Pin { which } => self.pin(*which),
            Step::Refuse { count } => self.refusals = *count,
            Step::Submit { patient, most } => {
                self.submit(*patient, *most)?;
            }
            Step::FailSubmit => self.fail_next = true,
            Step::Run { commands } => self.device.run(*commands)?,
            Step::Report { submissions } => self.report(*submissions)?,
            Step::Hold { stream } => self.hold(*stream),
            Step::Open { which } => self.open(*which),
            Step::Hang => self.device.hangs = true,
            Step::Lose => self.lose(),
        }
        self.check()
    }

    fn new_stream(&mut self, priority: i32) -> Result<(), String> {
        if self.streams.iter().filter(|stream| stream.live).count() < STREAMS {
            let index = self.timeline.new_stream_with_priority(priority).0 as usize;
            if index == self.streams.len() {
                self.streams.push(Stream::default());
            }
            ensure!(!self.streams[index].live, "the id of a live stream was given again");
            let id = StreamId(index as u32);
            ensure!(self.timeline.completed(id) == self.timeline.enqueued(id), "the id of a busy stream was given again");
            self.streams[index].live = true;
        }
        Ok(())
    }

    fn drop_stream(&mut self, choice: usize) {
        let index = self.stream(choice);
        if index > 0 {
            self.timeline.drop_stream(StreamId(index as u32));
            self.streams[index] = Stream::default();
        }
    }

    /// Cells of a place in its buffer.
    pub fn range(&self, place: Place, from: usize, len: usize) -> Result<Range, String> {
        let SegmentId(segment) = place.segment;
        let Some(buffer) = self.buffers.get(segment as usize).copied().flatten() else {
            return Err(format!("a command uses segment {segment}, which was given back"));
        };
        ensure!(place.offset.is_multiple_of(self.setup.cell), "{place:?} does not begin at a cell");
        Ok(Range { buffer, from: (place.offset / self.setup.cell) as usize + from, len })
    }

    /// What holds after every step.
    fn check(&mut self) -> Result<(), String> {
        self.timeline.validate()?;
        if std::mem::take(&mut self.pool_changed) {
            self.pool.validate()?;
        }
        let held = self.device.held() as u64 * self.setup.cell;
        let (reserved, _) = self.pool.reserved();
        ensure!(self.lost || held <= reserved, "the driver holds {held} bytes, the pool thinks {reserved}");
        for (index, _) in self.streams.iter().enumerate() {
            let stream = StreamId(index as u32);
            let fence = Fence { stream, number: self.timeline.completed(stream) };
            ensure!(self.lost || self.device.has_executed(fence), "{fence:?} counts as done and was not executed");
        }
        Ok(())
    }

    /// No two live storages share a byte.
    pub fn check_apart(&self) -> Result<(), String> {
        for (i, a) in self.storages.iter().enumerate() {
            for b in &self.storages[..i] {
                let (a, b) = (self.pool.place(a.block), self.pool.place(b.block));
                ensure!(!a.overlaps(&b), "{a:?} overlaps {b:?}, and both are lent");
            }
        }
        Ok(())
    }

    /// Whatever happened: the rest goes through, everybody is answered, and all memory goes back.
    fn finish(&mut self) -> Result<(), String> {
        if self.device.hangs {
            self.lose();
        }
        while !self.held.is_empty() {
            self.open(0);
        }
        let everything = self.timeline.everything();
        self.block(&everything)?;
        // After a loss only what was recorded is dropped; completions come as the driver gives up.
        self.settle()?;
        self.pool_changed = true;
        self.check()?;
        ensure!(self.timeline.is_idle() && self.in_flight.is_empty(), "work is left at the end");
        ensure!(self.waiters.is_empty(), "{} futures are never ready", self.waiters.len());
        ensure!(self.reads.is_empty(), "{} reads are never answered", self.reads.len());
        for (index, storage) in self.storages.iter().enumerate() {
            let place = self.pool.place(storage.block);
            let resolved = self.places.resolve(storage.name);
            ensure!(self.lost || resolved == Some(place), "storage {index} lies at {resolved:?}, the pool says {place:?}");
            let range = self.range(place, 0, storage.serial.len())?;
            let same = |(at, value): (usize, &u32)| *value == 0 || *value == self.device.cell(range, at);
            let same = self.lost || self.device.spoilt || storage.serial.iter().enumerate().all(same);
            ensure!(same, "storage {index} holds something else than after serial execution");
        }
        while !self.storages.is_empty() {
            self.free(0);
        }
        self.pool.empty_cache();
        self.release_segments();
        self.settle()?;
        ensure!(self.pool.reserved().0 == 0, "{} bytes are still reserved when all is dropped", self.pool.reserved().0);
        ensure!(self.device.held() == 0, "{} cells are still held when all is dropped", self.device.held());
        ensure!(self.places.len() == 0, "{} places are still named when all is dropped", self.places.len());
        self.pool.validate()
    }
}

/// Runs a program; `Err` says what does not hold. Also what was met on the way.
pub fn run(program: &Program, fault: Option<Fault>) -> (Result<(), String>, Seen) {
    let mut world = World::new(program.setup, fault);
    for (at, step) in program.steps.iter().enumerate() {
        if let Err(text) = world.step(step) {
            return (Err(format!("step {at}: {text}")), world.seen);
        }
    }
    let result = world.finish().map_err(|text| format!("at the end: {text}"));
    world.see(What::Lost, u64::from(world.lost));
    world.see(What::OrderEdge, world.timeline.stats().order_edges);
    (result, world.seen)
}
