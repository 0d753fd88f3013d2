//! What the queue does: submits what the policy says, passes on what the device has done, ends everything after a loss.

use linn::ids::{Fence, Horizons, StreamId};
use linn::timeline::{Batch, Flush, SubmissionId};

use super::device::{Encoded, Submission, Work};
use super::faults::Fault;
use super::policy::{self, Budget};
use super::world::{Body, Recorded, What, World, ensure};

/// The timeline as someone sees it who takes what was handed over for done.
struct Hasty<'a>(&'a linn::timeline::Timeline);

impl Horizons for Hasty<'_> {
    fn enqueued(&self, stream: StreamId) -> u64 {
        self.0.enqueued(stream)
    }
    fn submitted(&self, stream: StreamId) -> u64 {
        self.0.submitted(stream)
    }
    fn completed(&self, stream: StreamId) -> u64 {
        self.0.submitted(stream)
    }
}

impl World {
    /// One look of the queue. `most` ends a batch early, as a bound of the policy would.
    pub fn submit(&mut self, patient: bool, most: usize) -> Result<(), String> {
        if self.lost {
            self.drop_recordings();
            return Ok(());
        }
        let in_flight = self.in_flight.len();
        let mut target = self.policy.target(&self.timeline, &mut self.wishes, in_flight, self.now);
        if target.is_none() && patient {
            self.now += policy::PATIENCE;
            target = self.policy.target(&self.timeline, &mut self.wishes, in_flight, self.now);
        }
        let Some(target) = target else {
            let busy = in_flight >= policy::MOST_IN_FLIGHT || in_flight > 0 && !patient;
            ensure!(busy || self.timeline.ready() == 0, "commands are left though the device has room");
            return Ok(());
        };
        let (mut budget, mut count, mut ended) = (Budget::default(), 0, false);
        let mut batch = self.timeline.plan(&target, |stream, n| {
            count += 1;
            let recorded = self.recordings.get(stream.0 as usize).and_then(|recording| recording.get(n));
            let admits = count <= most && recorded.is_some_and(|recorded| budget.admit(&self.estimates, recorded.load));
            ended |= count > 1 && !admits;
            admits
        });
        self.spoil(&target, &mut batch);
        ensure!(batch.len > 0, "nothing is taken on the way to {target:?}");
        let failed = std::mem::take(&mut self.fail_next);
        let urgent = self.timeline.urgent().is_some();
        self.see(What::UrgentFirst, u64::from(urgent));
        self.see(What::WishFirst, u64::from(!urgent && matches!(target, Flush::To(_))));
        self.see(What::CutShort, u64::from(ended));
        self.see(What::FailedBatch, u64::from(failed));
        self.see(What::HeldBack, self.timeline.backlog() - self.timeline.ready());
        let mut moves = false;
        let mut commands = Vec::with_capacity(batch.len);
        for (stream, run) in &batch.runs {
            let first = self.timeline.submitted(*stream) + 1;
            let taken = commands.iter().filter(|encoded: &&Encoded| encoded.fence.stream == *stream).count() as u64;
            for number in first + taken..first + taken + *run as u64 {
                let recording = self.recordings.get_mut(stream.0 as usize);
                let Some(recorded) = recording.and_then(|recording| recording.pop_front()) else {
                    return Err(format!("stream {} has no command {number}", stream.0));
                };
                moves |= matches!(recorded.body, Body::Move { .. });
                commands.push(self.encode(Fence { stream: *stream, number }, recorded)?);
            }
        }
        let id = self.timeline.handle_submitted(&batch);
        if let (Flush::To(fences), false) = (&target, ended) {
            let behind = |fence: &Fence| fence.number > self.timeline.submitted(fence.stream);
            let missed = fences.iter().find(|fence| behind(fence) && self.held.is_empty());
            ensure!(missed.is_none(), "{missed:?} was to go to the driver and did not");
        }
        self.in_flight.push_back(id);
        self.device.spoilt |= failed;
        self.device.submit(Submission { id, commands, failed });
        if failed && moves {
            self.lose();
        }
        Ok(())
    }

    /// Resolves places; the table changes when a move is encoded.
    fn encode(&mut self, fence: Fence, recorded: Recorded) -> Result<Encoded, String> {
        let early = self.held.iter().find(|held| held.stream == fence.stream && held.number <= fence.number);
        ensure!(early.is_none(), "{fence:?} goes to the driver, and another device has not come to {early:?}");
        let place = |world: &World, name| world.places.resolve(name).ok_or_else(|| "a command without memory".to_owned());
        let range = |world: &World, (name, from, len)| world.range(place(world, name)?, from, len);
        let work = match recorded.body {
            Body::Dispatch { reads, write, constant, expected } => {
                let ranges = reads.iter().map(|(name, from, len, mask)| Ok((range(self, (*name, *from, *len))?, *mask)));
                let reads = ranges.collect::<Result<_, String>>()?;
                let write = write.map(|view| range(self, view)).transpose()?;
                Work::Dispatch { reads, write, constant, expected }
            }
            Body::Upload { chunk, to } => Work::Upload { chunk, to: range(self, to)? },
            Body::Download { from, chunk } => Work::Download { from: range(self, from)?, chunk },
            Body::Move { place, to } => {
                let from = self.places.relocate(place, to);
                let cells = (to.size / self.setup.cell) as usize;
                Work::Move { from: self.range(from, 0, cells)?, to: self.range(to, 0, cells)? }
            }
            Body::Hold => Work::Hold,
        };
        recorded.places.iter().for_each(|name| self.places.release(*name));
        Ok(Encoded { fence, after: recorded.after, work })
    }

    /// Faults of a planner.
    fn spoil(&self, target: &Flush, batch: &mut Batch) {
        let backlog = |stream: StreamId| self.timeline.enqueued(stream) - self.timeline.submitted(stream);
        match (self.fault, target) {
            (Some(Fault::EncodedByStream), _) => batch.runs.sort_by_key(|(stream, _)| *stream),
            (Some(Fault::TargetNotClosed), Flush::To(fences)) => {
                let ahead = |fence: &Fence| fence.number.saturating_sub(self.timeline.submitted(fence.stream)) as usize;
                batch.runs = fences.iter().map(|fence| (fence.stream, ahead(&fence))).filter(|(_, run)| *run > 0).collect();
            }
            (Some(Fault::UrgentIgnoresEdges), Flush::To(fences)) if self.timeline.urgent().as_ref() == Some(fences) => {
                batch.runs = fences.iter().map(|fence| (fence.stream, backlog(fence.stream) as usize)).collect();
            }
            _ => {}
        }
        batch.len = batch.runs.iter().map(|(_, run)| run).sum();
    }

    /// The host learns what the device has done.
    pub fn report(&mut self, submissions: usize) -> Result<(), String> {
        let executed = |id: SubmissionId| id.0 <= self.device.done;
        let mut count = self.in_flight.iter().take(submissions).take_while(|id| executed(**id)).count();
        if self.has(Fault::ReportedEarly) {
            count = (count + 1).min(self.in_flight.len());
        }
        if let Some(last) = self.in_flight.drain(..count).next_back() {
            self.timeline.handle_completed(last);
        }
        match self.has(Fault::GivenBackEarly) {
            true => self.pool.handle_completed(&Hasty(&self.timeline)),
            false => self.pool.handle_completed(&self.timeline),
        }
        self.release_segments();
        let (reads, waiters) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.waiters));
        let reached = |fence: Fence| match self.has(Fault::ReadAnsweredEarly) {
            true => self.is_submitted(fence),
            false => self.timeline.is_completed(fence),
        };
        let (answered, reads): (Vec<_>, Vec<_>) = reads.into_iter().partition(|read| reached(read.fence));
        self.reads = reads;
        self.see(What::ReadAnswered, answered.len() as u64);
        for read in answered {
            self.chunks[read.chunk].reading = false;
            let arrived = &self.device.chunks[read.chunk];
            let same = |(i, value): (usize, &u32)| read.mask >> i & 1 == 0 || arrived.get(i) == Some(value);
            let same = self.device.spoilt || read.expected.iter().enumerate().all(same);
            ensure!(same, "the host read something else than serial execution leaves at {:?}", read.fence);
        }
        let (woken, waiters): (Vec<_>, Vec<_>) =
            waiters.into_iter().partition(|waiter| self.timeline.are_completed(&waiter.point));
        self.waiters = waiters;
        self.see(What::FutureReady, woken.len() as u64);
        for waiter in woken {
            let early = waiter.truth.iter().find(|fence| !self.device.has_executed(*fence));
            ensure!(early.is_none(), "a future is ready before {early:?} was executed");
        }
        Ok(())
    }

    pub fn release_segments(&mut self) {
        while let Some(segment) = self.pool.poll_release(&self.timeline) {
            if let Some(buffer) = self.buffers.get_mut(segment.0 as usize).and_then(Option::take) {
                self.device.drop_buffer(buffer);
                self.see(What::SegmentBack, 1);
            }
        }
    }

    /// The device is gone: whoever waits is told, nothing is executed any more.
    pub fn lose(&mut self) {
        if std::mem::replace(&mut self.lost, true) {
            return;
        }
        if !self.has(Fault::LossNotTold) {
            self.waiters.clear();
            self.reads.clear();
        }
        self.device.abandon();
    }

    /// Recorded commands will never run.
    fn drop_recordings(&mut self) {
        if self.has(Fault::RecordingsKept) {
            return;
        }
        for recorded in std::mem::take(&mut self.recordings).into_iter().flatten() {
            recorded.places.iter().for_each(|name| self.places.release(*name));
        }
        if !self.has(Fault::HeldAfterLoss) {
            self.timeline.open_all();
        }
        self.held.clear();
        let rest = self.timeline.plan(&Flush::Everything, |_, _| true);
        if rest.len > 0 {
            let id = self.timeline.handle_submitted(&rest);
            self.timeline.handle_completed(id);
            self.in_flight.retain(|in_flight| *in_flight > id);
        }
    }

    /// The queue goes on until it has nothing left to do.
    pub fn settle(&mut self) -> Result<(), String> {
        for _ in 0..1000 {
            self.submit(true, usize::MAX)?;
            self.device.run(usize::MAX)?;
            self.report(usize::MAX)?;
            if self.in_flight.is_empty() && self.timeline.backlog() == 0 {
                return Ok(());
            }
        }
        Err("the queue never comes to an end".into())
    }
}
