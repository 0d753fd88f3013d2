//! Which commands go to the driver next: prefixes of streams, closed over order edges, in the order of ordinals.

use smallvec::SmallVec;

use super::Timeline;
use crate::ids::{Fence, FenceSet, StreamId};

/// What a flush has to reach.
#[derive(Clone, Debug)]
pub enum Flush {
    /// Everything enqueued so far.
    Everything,
    /// These commands, and what has to go before them.
    To(FenceSet),
}

/// Commands to submit together: runs of commands from the front of streams, in the order to encode them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// (stream, how many of its next commands), in encoding order.
    pub runs: Vec<(StreamId, usize)>,
    /// Number of commands in all.
    pub len: usize,
}

/// A submission of this timeline; they complete in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubmissionId(pub u64);

pub(super) struct Submission {
    id: SubmissionId,
    reached: SmallVec<[Fence; 2]>,
}

impl Timeline {
    /// The next commands on the way to `target`, as far as nothing is held. `admit(stream, n)` is asked for each command in encoding order, `n` counting
    /// the stream's commands in this batch from 0; its first `false` ends the batch (the first command is always taken).
    pub fn plan(&self, target: &Flush, mut admit: impl FnMut(StreamId, usize) -> bool) -> Batch {
        let wanted = self.close(target);
        let mut taken: SmallVec<[usize; 8]> = SmallVec::from_elem(0, self.streams.len());
        let mut batch = Batch::default();
        // The next command is always the one with the smallest ordinal: an edge points to a smaller one, so whatever has to go
        // before it is already in the batch, also when the batch ends early.
        loop {
            let mut next: Option<(u64, usize)> = None;
            let mut limit = u64::MAX;
            for (index, stream) in self.streams.iter().enumerate() {
                if stream.submitted + (taken[index] as u64) < wanted[index] {
                    let ordinal = stream.ordinals[taken[index]];
                    match next {
                        Some((best, _)) if best < ordinal => limit = limit.min(ordinal),
                        _ => {
                            limit = limit.min(next.map_or(u64::MAX, |(best, _)| best));
                            next = Some((ordinal, index));
                        }
                    }
                }
            }
            let Some((_, index)) = next else { return batch };
            let (id, stream) = (StreamId(index as u32), &self.streams[index]);
            let mut run = 0;
            while stream.submitted + (taken[index] as u64) < wanted[index] && stream.ordinals[taken[index]] < limit {
                if batch.len > 0 && !admit(id, taken[index]) {
                    if run > 0 {
                        batch.runs.push((id, run));
                    }
                    return batch;
                }
                if batch.len == 0 {
                    admit(id, taken[index]);
                }
                run += 1;
                taken[index] += 1;
                batch.len += 1;
            }
            batch.runs.push((id, run));
        }
    }

    /// True when some command on the way to `target` may go to the driver.
    pub fn advances(&self, target: &FenceSet) -> bool {
        if self.held.is_empty() {
            return target.iter().any(|fence| fence.number > self.streams[fence.stream.0 as usize].submitted);
        }
        let wanted = self.close(&Flush::To(target.clone()));
        wanted.iter().zip(&self.streams).any(|(wanted, stream)| *wanted > stream.submitted)
    }

    /// By stream: the number up to which commands may go to the driver; `None` where nothing is held.
    pub(super) fn free(&self) -> Option<SmallVec<[u64; 8]>> {
        if self.held.is_empty() {
            return None;
        }
        let mut free: SmallVec<[u64; 8]> = self.streams.iter().map(|stream| stream.enqueued).collect();
        for fence in &self.held {
            let free = &mut free[fence.stream.0 as usize];
            *free = (*free).min(fence.number - 1);
        }
        // What depends on what is held is held too, and so on.
        loop {
            let mut changed = false;
            for (index, stream) in self.streams.iter().enumerate() {
                let mut edges = stream.edges.iter().take_while(|(at, ..)| *at <= free[index]);
                if let Some((at, ..)) = edges.find(|(_, before, _)| before.number > free[before.stream.0 as usize]) {
                    free[index] = at - 1;
                    changed = true;
                }
            }
            if !changed {
                return Some(free);
            }
        }
    }

    /// By stream: the number up to which commands are needed for `target` and may go.
    fn close(&self, target: &Flush) -> SmallVec<[u64; 8]> {
        let mut wanted = self.needs(target);
        // Both are closed over edges, and so is what they have in common.
        for (wanted, free) in wanted.iter_mut().zip(self.free().into_iter().flatten()) {
            *wanted = (*wanted).min(free);
        }
        wanted
    }

    /// By stream: the number up to which commands are needed for `target`.
    fn needs(&self, target: &Flush) -> SmallVec<[u64; 8]> {
        let targets = match target {
            Flush::Everything => return self.streams.iter().map(|stream| stream.enqueued).collect(),
            Flush::To(fences) => fences,
        };
        let mut wanted: SmallVec<[u64; 8]> = self.streams.iter().map(|stream| stream.submitted).collect();
        let mut seen_edges: SmallVec<[usize; 8]> = SmallVec::from_elem(0, self.streams.len());
        let mut work: SmallVec<[Fence; 8]> = targets.iter().collect();
        while let Some(fence) = work.pop() {
            let index = fence.stream.0 as usize;
            let stream = &self.streams[index];
            let number = fence.number.min(stream.enqueued);
            if number <= wanted[index] {
                continue;
            }
            wanted[index] = number;
            while let Some((_, before, _)) = stream.edges.get(seen_edges[index]).filter(|(at, ..)| *at <= number) {
                work.push(*before);
                seen_edges[index] += 1;
            }
        }
        wanted
    }

    /// The batch was handed to the driver (or is about to be, by the only thread that does so).
    pub fn handle_submitted(&mut self, batch: &Batch) -> SubmissionId {
        let mut reached: SmallVec<[Fence; 2]> = SmallVec::new();
        for (id, run) in &batch.runs {
            let stream = &mut self.streams[id.0 as usize];
            stream.submitted += *run as u64;
            stream.ordinals.drain(..*run);
            let done = stream.edges.iter().take_while(|(at, ..)| *at <= stream.submitted).count();
            stream.edges.drain(..done);
            match reached.iter_mut().find(|fence| fence.stream == *id) {
                Some(fence) => fence.number = stream.submitted,
                None => reached.push(Fence { stream: *id, number: stream.submitted }),
            }
        }
        self.last_submission += 1;
        self.stats.submissions += 1;
        let id = SubmissionId(self.last_submission);
        self.in_flight.push_back(Submission { id, reached });
        id
    }

    /// This submission, and all before it, have been executed.
    pub fn handle_completed(&mut self, id: SubmissionId) {
        while self.in_flight.front().is_some_and(|first| first.id <= id) {
            let Some(done) = self.in_flight.pop_front() else { return };
            for fence in done.reached {
                self.streams[fence.stream.0 as usize].completed = fence.number;
            }
        }
    }

    /// Checks every invariant; `Err` holds the sentence that does not hold.
    pub fn validate(&self) -> Result<(), String> {
        for (index, stream) in self.streams.iter().enumerate() {
            let ensure = |holds: bool, sentence: &str| if holds { Ok(()) } else { Err(format!("stream {index}: {sentence}")) };
            ensure(stream.enqueued >= stream.submitted, "enqueued is never behind submitted")?;
            ensure(stream.submitted >= stream.completed, "submitted is never behind completed")?;
            ensure(
                stream.ordinals.len() as u64 == stream.enqueued - stream.submitted,
                "every unsubmitted command has an ordinal",
            )?;
            ensure(stream.ordinals.iter().is_sorted(), "ordinals grow along a stream")?;
            ensure(stream.edges.iter().is_sorted_by_key(|(at, ..)| *at), "edges are ordered by their command")?;
            for (at, before, _) in &stream.edges {
                ensure(*at > stream.submitted, "edges of submitted commands are dropped")?;
                let here = stream.ordinals[(*at - stream.submitted - 1) as usize];
                let other = &self.streams[before.stream.0 as usize];
                let there = before.number.checked_sub(other.submitted + 1).map(|at| other.ordinals[at as usize]);
                ensure(there.is_none_or(|there| there < here), "edges point to smaller ordinals")?;
            }
            let mut held = self.held.iter().filter(|fence| fence.stream.0 as usize == index);
            let waits = |fence: &Fence| stream.submitted < fence.number && fence.number <= stream.enqueued;
            ensure(held.all(waits), "what is held is enqueued and not submitted")?;
        }
        Ok(())
    }
}
