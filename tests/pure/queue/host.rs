//! What the host calls: as the handles of the crate do, with the device's lock held.

use linn::ids::{Fence, FenceSet, Horizons, StreamId};
use linn::memory::{Answer, Category, Request, Tag};
use linn::timeline::{Access, AccessList};

use super::device::{Mask, mix, written};
use super::faults::Fault;
use super::program::{Point, View};
use super::world::{Body, Chunk, EVENTS, Read, Recorded, Recording, STORAGES, Storage, Waiter, What, World, ensure};
use crate::device::load::{Load, PipelineId};
use crate::device::places::PlaceId;

/// Chunks of host memory; then uploads wait for one that is done.
const CHUNKS: usize = 4;
/// The ladder ends before it has given so many answers.
const MOST_ANSWERS: usize = 64;

/// A view of a storage: its number there, first cell, cells.
type Part = (usize, usize, usize);

impl World {
    pub fn alloc(&mut self, choice: usize, cells: u64) -> Result<(), String> {
        if self.storages.len() == STORAGES {
            return Ok(());
        }
        let stream = StreamId(self.stream(choice) as u32);
        let mut request = Request::new(stream, cells * self.setup.cell, Tag::here(Category::Temporary, "simulation"));
        for _ in 0..MOST_ANSWERS {
            if self.lost {
                return Ok(());
            }
            let answer = self.pool.alloc(&mut request, &self.timeline);
            self.enqueue_moves()?;
            match answer {
                Answer::Ready { block, place, .. } => {
                    let mut inherited = self.pool.inherited(block).clone();
                    let others = inherited.iter().any(|fence| fence.stream != stream && !self.is_submitted(fence));
                    self.see(What::Reuse, u64::from(others));
                    if self.has(Fault::ReuseForgotten) {
                        inherited.clear();
                    }
                    self.timeline.begin_block(block, inherited);
                    let name = self.places.insert(block, place);
                    let serial = vec![0; cells as usize];
                    self.storages.push(Storage { block, name, serial, frozen: false, pinned: false });
                    return self.check_apart();
                }
                Answer::NeedSegment(segment) => {
                    self.release_segments();
                    let room = (self.setup.capacity as usize).saturating_sub(self.device.held());
                    let cells = (segment.size / self.setup.cell) as usize;
                    if self.refusals > 0 || cells > room {
                        self.refusals = self.refusals.saturating_sub(1);
                        self.see(What::Refused, 1);
                        self.pool.handle_segment_failed(&mut request, segment, &self.timeline);
                        continue;
                    }
                    let index = self.pool.handle_segment(segment).0 as usize;
                    if self.buffers.len() <= index {
                        self.buffers.resize(index + 1, None);
                    }
                    ensure!(self.buffers[index].is_none(), "the id of an open segment was given again");
                    self.buffers[index] = Some(self.device.buy(cells));
                    self.see(What::Segment, 1);
                }
                Answer::NeedCompletion => {
                    self.see(What::LastResort, 1);
                    self.release_segments();
                    let everything = self.timeline.everything();
                    self.block(&everything)?;
                }
                Answer::Exhausted(_) => {
                    self.see(What::OutOfMemory, 1);
                    self.release_segments();
                    return Ok(());
                }
            }
        }
        Err("the ladder has no end".into())
    }

    pub fn free(&mut self, choice: usize) {
        if self.storages.is_empty() {
            return;
        }
        let storage = self.storages.swap_remove(choice % self.storages.len());
        let mut uses = self.timeline.end_block(storage.block);
        if self.has(Fault::LastUsesForgotten) {
            uses.clear();
        }
        for stream in &mut self.streams {
            stream.late = stream.late.iter().filter(|(block, _)| *block != storage.block).fold(
                AccessList::default(),
                |mut list, (block, access)| {
                    list.push(block, access);
                    list
                },
            );
        }
        self.places.release(storage.name);
        if storage.pinned {
            self.pool.unpin(storage.block);
        }
        self.pool.free(storage.block, uses, &self.timeline);
        self.release_segments();
    }

    pub fn pin(&mut self, choice: usize) {
        if let Some(at) = choice.checked_rem(self.storages.len())
            && !std::mem::replace(&mut self.storages[at].pinned, true)
        {
            self.pool.pin(self.storages[at].block);
        }
    }

    pub fn compact(&mut self, choice: usize, cells: u64) -> Result<(), String> {
        if self.lost {
            return Ok(());
        }
        let stream = StreamId(self.stream(choice) as u32);
        self.pool.compact(stream, cells * self.setup.cell, &self.timeline);
        self.enqueue_moves()?;
        self.release_segments();
        self.check_apart()
    }

    fn enqueue_moves(&mut self) -> Result<(), String> {
        while let Some(step) = self.pool.poll_move() {
            let stream = step.fence.stream;
            let Some(storage) = self.storages.iter().find(|storage| storage.block == step.block) else {
                return Err(format!("{step:?} moves a block that nobody holds"));
            };
            ensure!(!storage.pinned, "{step:?} moves a pinned block");
            let name = storage.name;
            let used = self.timeline.last_uses(step.block).iter().any(|fence| !self.is_submitted(fence));
            self.see(What::Move, 1);
            self.see(What::MoveOfUsed, u64::from(used));
            if !self.has(Fault::MoveEdgesForgotten) {
                self.timeline.wait(stream, &step.after);
            }
            let foreign = self.timeline.foreign_uses(step.block);
            self.timeline.wait(stream, &foreign);
            let mut accesses = AccessList::default();
            accesses.push(step.block, Access::Write);
            if self.has(Fault::MovedAtOnce) {
                self.places.relocate(name, step.to);
            }
            let load = Load { bytes: step.to.size, ..Load::default() };
            self.push(stream.0 as usize, &accesses, load, vec![name], Body::Move { place: name, to: step.to });
            let last = self.timeline.last(stream);
            ensure!(last == step.fence, "a move became {last:?}, the pool named {:?}", step.fence);
        }
        Ok(())
    }

    pub fn is_submitted(&self, fence: Fence) -> bool {
        fence.number <= self.timeline.submitted(fence.stream)
    }

    /// Appends a command to a stream.
    fn push(&mut self, stream: usize, accesses: &AccessList, load: Load, places: Vec<PlaceId>, body: Body) -> Fence {
        places.iter().for_each(|place| self.places.retain(*place));
        let mut told = AccessList::default();
        let late = std::mem::take(&mut self.streams[stream].late);
        late.iter().for_each(|(block, access)| told.push(block, access));
        for (block, access) in accesses.iter() {
            match (self.fault, access) {
                (Some(Fault::ReadNotTold), Access::Read) => {}
                (Some(Fault::ReadToldLate), Access::Read) | (Some(Fault::WriteToldLate), Access::Write) => {
                    self.streams[stream].late.push(block, access);
                }
                (Some(Fault::WriteToldAsRead), _) => told.push(block, Access::Read),
                _ => told.push(block, access),
            }
        }
        if self.recordings.len() <= stream {
            self.recordings.resize_with(stream + 1, Default::default);
        }
        let after = self.streams[stream].waits.iter().collect();
        self.streams[stream].waits.clear();
        self.recordings[stream].push_back(Recorded { load, places, after, body });
        self.timeline.enqueue(StreamId(stream as u32), told.iter());
        self.timeline.last(StreamId(stream as u32))
    }

    fn part(&self, view: View) -> Option<Part> {
        let which = view.which.checked_rem(self.storages.len())?;
        let cells = self.storages[which].serial.len();
        let from = view.from % cells;
        Some((which, from, view.len.min(cells - from)))
    }

    fn named(&self, (which, from, len): Part) -> (PlaceId, usize, usize) {
        (self.storages[which].name, from, len)
    }

    /// The cells of a view that hold something.
    fn mask(&self, (which, from, len): Part) -> Mask {
        let cells = self.storages[which].serial[from..from + len].iter().enumerate();
        cells.fold(0, |mask, (i, cell)| mask | u32::from(*cell != 0) << i)
    }

    fn constant(&mut self) -> u32 {
        self.constants += 1;
        mix(self.constants, 0x51ED)
    }

    fn record_write(&mut self, (which, from, len): Part, value: u32) {
        let cells = &mut self.storages[which].serial[from..from + len];
        cells.iter_mut().enumerate().for_each(|(i, cell)| *cell = written(value, i));
    }

    fn writable(&self, view: View) -> Option<Part> {
        self.part(view).filter(|part| !self.storages[part.0].frozen)
    }

    pub fn dispatch(&mut self, choice: usize, reads: &[View], write: Option<View>, groups: u32) {
        if self.lost {
            return;
        }
        let stream = self.stream(choice);
        let reads: Vec<Part> = reads.iter().filter_map(|view| self.part(*view)).collect();
        let write = write.and_then(|view| self.writable(view));
        let in_place = write.is_some_and(|part| reads.iter().any(|read| read.0 == part.0));
        self.see(What::InPlace, u64::from(in_place));
        let mut accesses = AccessList::default();
        reads.iter().for_each(|part| accesses.push(self.storages[part.0].block, Access::Read));
        if let Some(part) = write
            && !(in_place && self.has(Fault::InPlaceToldAsRead))
        {
            accesses.push(self.storages[part.0].block, Access::Write);
        }
        let constant = self.constant();
        let mut expected = constant;
        for part in &reads {
            let cells = self.storages[part.0].serial[part.1..part.1 + part.2].iter().enumerate();
            expected = cells.filter(|(_, cell)| **cell != 0).fold(expected, |value, (i, cell)| mix(value, mix(*cell, i as u32)));
        }
        let body = Body::Dispatch {
            reads: reads.iter().map(|part| (self.storages[part.0].name, part.1, part.2, self.mask(*part))).collect(),
            write: write.map(|part| self.named(part)),
            constant,
            expected,
        };
        if let Some(part) = write {
            self.record_write(part, expected);
        }
        self.dispatch_op(stream, &accesses, &reads, write, groups, body);
    }

    fn dispatch_op(
        &mut self,
        stream: usize,
        accesses: &AccessList,
        reads: &[Part],
        write: Option<Part>,
        groups: u32,
        body: Body,
    ) {
        let places = reads.iter().chain(&write).map(|part| self.storages[part.0].name).collect();
        let load = Load { kernel: Some((PipelineId(0), u64::from(groups))), ..Load::default() };
        self.push(stream, accesses, load, places, body);
    }

    /// Host memory that nothing uses; the host waits where there is none.
    fn chunk(&mut self) -> Option<usize> {
        let free = |world: &World, chunk: &Chunk| {
            let done = |fence: Fence| match world.has(Fault::StagingReusedEarly) {
                true => world.is_submitted(fence),
                false => world.timeline.is_completed(fence),
            };
            !chunk.reading && chunk.last.is_none_or(done)
        };
        let found = self.chunks.iter().position(|chunk| free(self, chunk));
        self.see(What::NoStaging, u64::from(found.is_none() && self.chunks.len() == CHUNKS));
        if found.is_some() || self.chunks.len() == CHUNKS {
            return found;
        }
        self.chunks.push(Chunk { last: None, reading: false });
        self.device.chunks.push(Vec::new());
        Some(self.chunks.len() - 1)
    }

    pub fn upload(&mut self, choice: usize, to: View) {
        let stream = self.stream(choice);
        let Some(part) = self.writable(to).filter(|_| !self.lost) else { return };
        let Some(chunk) = self.chunk() else { return };
        let value = self.constant();
        self.record_write(part, value);
        self.device.chunks[chunk] = (0..part.2).map(|i| written(value, i)).collect();
        let mut accesses = AccessList::default();
        accesses.push(self.storages[part.0].block, Access::Write);
        let to = self.named(part);
        let load = Load { bytes: part.2 as u64 * self.setup.cell, ..Load::default() };
        self.chunks[chunk].last = Some(self.push(stream, &accesses, load, vec![to.0], Body::Upload { chunk, to }));
    }

    pub fn download(&mut self, choice: usize, from: View) {
        let stream = self.stream(choice);
        let Some(part) = self.part(from).filter(|_| !self.lost) else { return };
        let Some(chunk) = self.chunk() else { return };
        let mut accesses = AccessList::default();
        accesses.push(self.storages[part.0].block, Access::Read);
        let expected = self.storages[part.0].serial[part.1..part.1 + part.2].to_vec();
        let (from, mask) = (self.named(part), self.mask(part));
        let load = Load { bytes: part.2 as u64 * self.setup.cell, ..Load::default() };
        let fence = self.push(stream, &accesses, load, vec![from.0], Body::Download { from, chunk });
        self.chunks[chunk] = Chunk { last: Some(fence), reading: true };
        self.reads.push(Read { fence, chunk, expected, mask });
        self.wishes.add(&[fence].into_iter().collect());
    }

    pub fn foreign(&mut self, choice: usize, from: View) {
        let stream = self.stream(choice);
        let Some(part) = self.part(from).filter(|_| !self.lost) else { return };
        let block = self.storages[part.0].block;
        let point = self.timeline.last_uses(block);
        self.wait(stream_choice(self, stream), &Recording { truth: point.clone(), point });
        if !self.has(Fault::ForeignForgotten) {
            self.timeline.record_stream(block, StreamId(stream as u32));
        }
        self.storages[part.0].frozen = true;
        self.see(What::Foreign, 1);
        let constant = self.constant();
        let cells = self.storages[part.0].serial[part.1..part.1 + part.2].iter().enumerate();
        let expected = cells.filter(|(_, cell)| **cell != 0).fold(constant, |value, (i, cell)| mix(value, mix(*cell, i as u32)));
        let reads = vec![(self.storages[part.0].name, part.1, part.2, self.mask(part))];
        let body = Body::Dispatch { reads, write: None, constant, expected };
        self.dispatch_op(stream, &AccessList::default(), &[part], None, 1, body);
    }

    /// This point of a stream.
    pub fn recording(&self, stream: usize) -> Recording {
        let id = StreamId(stream as u32);
        let last = self.timeline.last(id);
        let mut truth = self.streams[stream].waits.clone();
        truth.insert(last);
        let point = match self.has(Fault::PendingNotRecorded) {
            true => [last].into_iter().collect(),
            false => self.timeline.record(id),
        };
        Recording { point, truth }
    }

    pub fn record(&mut self, event: usize, choice: usize) {
        self.events[event % EVENTS] = self.recording(self.stream(choice));
    }

    pub fn wait(&mut self, choice: usize, recording: &Recording) {
        let stream = self.stream(choice);
        if !self.has(Fault::WaitIgnored) {
            self.timeline.wait(StreamId(stream as u32), &recording.point);
        }
        self.streams[stream].waits.merge(&recording.truth);
    }

    /// What comes next on a stream waits for another device.
    pub fn hold(&mut self, choice: usize) {
        if self.lost {
            return;
        }
        let stream = self.stream(choice);
        let fence = self.push(stream, &AccessList::default(), Load::default(), Vec::new(), Body::Hold);
        if !self.has(Fault::HoldIgnored) {
            self.timeline.hold(fence.stream);
        }
        self.held.push(fence);
    }

    /// The other device has come so far.
    pub fn open(&mut self, which: usize) {
        if let Some(at) = which.checked_rem(self.held.len()) {
            let fence = self.held.swap_remove(at);
            self.timeline.open(fence);
        }
    }

    pub fn point(&self, point: Point) -> Recording {
        match point {
            Point::Stream(choice) => self.recording(self.stream(choice)),
            Point::Event(event) => self.events[event % EVENTS].clone(),
            Point::Everything => {
                let everything = self.timeline.everything();
                Recording { truth: everything.clone(), point: everything }
            }
        }
    }

    /// Somebody keeps a future.
    pub fn promise(&mut self, point: Point) {
        let Recording { point, truth } = self.point(point);
        if !self.lost && !self.timeline.are_completed(&point) {
            self.wishes.add(&point);
            self.waiters.push(Waiter { point, truth });
        }
    }

    /// The host waits for these commands.
    pub fn block(&mut self, point: &FenceSet) -> Result<(), String> {
        for _ in 0..1000 {
            if self.lost || self.timeline.are_completed(point) {
                return Ok(());
            }
            if self.device.hangs {
                self.lose();
                return Ok(());
            }
            // Other devices go on.
            self.open(0);
            self.wishes.add(point);
            self.submit(true, usize::MAX)?;
            self.device.run(usize::MAX)?;
            self.report(usize::MAX)?;
        }
        Err(format!("a wait for {point:?} never ends"))
    }
}

/// The choice that means this stream.
fn stream_choice(world: &World, stream: usize) -> usize {
    (0..stream).filter(|index| world.streams[*index].live).count()
}
