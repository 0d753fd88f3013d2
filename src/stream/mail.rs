//! What comes back from the device: completions and mapped buffers, and the answers that wait for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use smallvec::SmallVec;

use crate::device::command::{ChunkId, Stamp};
use crate::device::core::{Core, PendingRead, ReadSlot};
use crate::device::staging::{Direction, Mapped, Turn};
use crate::device::waiter::{self, Waiter};
use crate::device::{ReadChunk, Shared};
use crate::ids::{FenceSet, Horizons};
use crate::stream::encode::Uniform;
use crate::stream::queue::Queue;
use crate::stream::timestamps::TimeSet;
use crate::timeline::SubmissionId;

pub(super) enum Event {
    Mapped(Turn, bool),
    Uniform(Uniform, bool),
    Times { of: SubmissionId, set: TimeSet, stamps: Vec<Arc<Stamp>>, ok: bool },
}

/// What callbacks of wgpu leave behind.
#[derive(Default)]
pub(super) struct Mailbox {
    pub(super) events: Mutex<Vec<Event>>,
    pub(super) done: AtomicU64,
}

impl Queue {
    pub(super) fn map_uniform(&mut self, shared: &Arc<Shared>, uniform: Uniform) {
        self.mapping += 1;
        let (mailbox, wake) = (self.mailbox.clone(), waker(shared));
        let staging = uniform.staging.clone();
        let answer = move |ok| {
            mailbox.events.lock().unwrap_or_else(PoisonError::into_inner).push(Event::Uniform(uniform, ok));
            wake();
        };
        match shared.gpu.failures.check("linn.map") {
            Ok(()) => staging.map_async(wgpu::MapMode::Write, .., move |result| answer(result.is_ok())),
            Err(_) => answer(false),
        }
    }

    /// Reads the times of a submission when they are there.
    pub(super) fn map_times(&mut self, shared: &Arc<Shared>, of: SubmissionId, set: TimeSet, stamps: Vec<Arc<Stamp>>) {
        self.mapping += 1;
        self.encoder.timestamps.await_times(of);
        let (mailbox, wake) = (self.mailbox.clone(), waker(shared));
        let read = set.read.clone();
        let answer = move |ok| {
            mailbox.events.lock().unwrap_or_else(PoisonError::into_inner).push(Event::Times { of, set, stamps, ok });
            wake();
        };
        match shared.gpu.failures.check("linn.map") {
            Ok(()) => read.map_async(wgpu::MapMode::Read, .., move |result| answer(result.is_ok())),
            Err(_) => answer(false),
        }
    }

    /// Maps the chunks that no later command will use.
    pub(super) fn map_chunks(&mut self, shared: &Arc<Shared>, chunks: &[ChunkId]) {
        let mappable: SmallVec<[_; 4]> = {
            let staging = &mut shared.lock().staging;
            chunks.iter().filter_map(|chunk| staging.start_mapping(*chunk)).collect()
        };
        for (turn, direction, buffer) in mappable {
            self.map_chunk(shared, turn, direction, &buffer);
        }
    }

    fn map_chunk(&mut self, shared: &Arc<Shared>, turn: Turn, direction: Direction, buffer: &wgpu::Buffer) {
        self.mapping += 1;
        let (mailbox, wake) = (self.mailbox.clone(), waker(shared));
        let mode = match direction {
            Direction::Upload => wgpu::MapMode::Write,
            Direction::Download => wgpu::MapMode::Read,
        };
        let answer = move |ok| {
            mailbox.events.lock().unwrap_or_else(PoisonError::into_inner).push(Event::Mapped(turn, ok));
            wake();
        };
        match shared.gpu.failures.check("linn.map") {
            Ok(()) => buffer.map_async(mode, .., move |result| answer(result.is_ok())),
            Err(_) => answer(false),
        }
    }

    /// Passes on what the device has done: completions, mapped chunks, finished reads. Answers go out without the lock.
    pub(super) fn collect(&mut self, shared: &Arc<Shared>) {
        let done = SubmissionId(self.mailbox.done.load(Ordering::Acquire));
        let events = std::mem::take(&mut *self.mailbox.events.lock().unwrap_or_else(PoisonError::into_inner));
        let mut mapped = SmallVec::<[(Turn, bool); 4]>::new();
        for event in events {
            // (A queue that has panicked has stopped counting.)
            self.mapping = self.mapping.saturating_sub(1);
            match event {
                Event::Mapped(turn, ok) => mapped.push((turn, ok)),
                Event::Uniform(uniform, true) => self.encoder.recycle(uniform),
                Event::Uniform(_, false) => {}
                Event::Times { of, set, stamps, ok } => self.encoder.timestamps.handle_mapped(of, set, &stamps, ok),
            }
        }
        // Who sees that an event has passed can ask for its time.
        let done = self.encoder.timestamps.read_up_to(done);
        while let Some(oldest) = self.in_flight.front().filter(|oldest| oldest.id <= done) {
            let now = web_time::Instant::now();
            let taken = now.duration_since(oldest.submitted_at.max(self.last_completion));
            self.estimates.learn(&oldest.work, taken);
            self.last_completion = now;
            self.in_flight.pop_front();
        }
        let done = if self.in_flight.is_empty() { done.max(self.failed) } else { done };
        if mapped.iter().any(|(_, ok)| !ok) {
            self.probe(shared);
        }
        let mut core = shared.lock();
        core.timeline.handle_completed(done);
        {
            let core = &mut *core;
            core.note(None);
            core.pool.handle_completed(&core.timeline);
        }
        core.release_segments();
        let mut answers: SmallVec<[_; 4]> = SmallVec::new();
        // Kept until the lock is released: dropping the last handle of a chunk takes the lock.
        let mut chunks: SmallVec<[Arc<ReadChunk>; 4]> = SmallVec::new();
        for (turn, ok) in mapped {
            let id = turn.chunk;
            let buffer = match core.staging.handle_mapped(turn, ok) {
                Mapped::Download => core.staging.buffer(id),
                Mapped::Failed => {
                    answers.extend(core.reads.extract_if(.., |read| read.chunk == id).map(|read| (read.answer, None)));
                    continue;
                }
                Mapped::Upload | Mapped::Stale => continue,
            };
            let Some(buffer) = buffer else { continue };
            let chunk = Arc::new(ReadChunk { shared: shared.clone(), id, buffer });
            for read in core.reads.extract_if(.., |read| read.chunk == id) {
                let PendingRead { offset, size, status, .. } = read;
                let slot = ReadSlot { chunk: chunk.clone(), offset, size, status };
                answers.push((read.answer, Some(slot)));
            }
            chunks.push(chunk);
        }
        let timeline = &core.timeline;
        let finished: SmallVec<[usize; 4]> = core
            .waiters
            .iter()
            .enumerate()
            .filter_map(|(index, (fences, _))| timeline.are_completed(fences).then_some(index))
            .collect();
        let reached: SmallVec<[Waiter; 4]> = finished.iter().rev().map(|index| core.waiters.swap_remove(*index).1).collect();
        // This thread is the one that submits: what counts as submitted here has been handed to the driver.
        let core_now = &mut *core;
        let submitted = |(fences, _): &mut (FenceSet, _)| {
            fences.iter().all(|fence| fence.number <= core_now.timeline.submitted(fence.stream))
        };
        let mut woken: SmallVec<[_; 4]> = core_now.submit_waiters.extract_if(.., submitted).map(|(_, waiter)| waiter).collect();
        woken.extend(core.staging.woken());
        drop(discard(core));
        // Before the answers: whoever reads is then the last to hold a chunk, and has given it back when it says so.
        drop(chunks);
        shared.signals.tell();
        reached.into_iter().for_each(Waiter::tell);
        woken.into_iter().for_each(|sender| waiter::answer(sender, ()));
        for (sender, slot) in answers {
            let refused =
                || crate::Error::Device { fact: "the bytes of a read could not be mapped".into(), help: "read again".into() };
            waiter::answer(sender, slot.ok_or_else(refused));
        }
    }
}

/// Releases the lock and returns the staging buffers that are given up, to be dropped by the queue, which may do so on GL.
pub(super) fn discard(mut core: MutexGuard<'_, Core>) -> Vec<Arc<wgpu::Buffer>> {
    core.staging.take_discarded()
}

/// What callbacks do when they have left something: in browsers they make the queue take a step, and where an application may
/// poll, they wake its thread, which otherwise polls anyway.
pub(super) fn waker(shared: &Arc<Shared>) -> impl FnOnce() + Send + 'static {
    let called_by_others = cfg!(target_arch = "wasm32") || shared.foreign.is_some();
    let weak: Weak<Shared> = if called_by_others { Arc::downgrade(shared) } else { Weak::new() };
    move || {
        if let Some(shared) = weak.upgrade() {
            let mut core = shared.lock();
            core.mail = true;
            shared.wake(core);
        }
    }
}
