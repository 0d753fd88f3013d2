//! What comes back from the device: completions and mapped buffers, and the answers that wait for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use smallvec::SmallVec;

use crate::device::command::ChunkId;
use crate::device::core::ReadSlot;
use crate::device::staging::Direction;
use crate::device::{ReadChunk, Shared};
use crate::ids::{FenceSet, Horizons};
use crate::stream::encode::Uniform;
use crate::stream::queue::Queue;
use crate::timeline::SubmissionId;

pub(super) enum Event {
    Mapped(ChunkId, bool),
    Uniform(Uniform, bool),
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

    /// Maps the chunks that no later command will use.
    pub(super) fn map_chunks(&mut self, shared: &Arc<Shared>, chunks: &[ChunkId]) {
        let mappable: SmallVec<[_; 4]> = {
            let staging = &mut shared.lock().staging;
            let mappable = |chunk: &ChunkId| Some((*chunk, staging.direction(*chunk), staging.start_mapping(*chunk)?));
            chunks.iter().filter_map(mappable).collect()
        };
        for (chunk, direction, buffer) in mappable {
            self.map_chunk(shared, chunk, direction, &buffer);
        }
    }

    fn map_chunk(&mut self, shared: &Arc<Shared>, chunk: ChunkId, direction: Direction, buffer: &wgpu::Buffer) {
        self.mapping += 1;
        let (mailbox, wake) = (self.mailbox.clone(), waker(shared));
        let mode = match direction {
            Direction::Upload => wgpu::MapMode::Write,
            Direction::Download => wgpu::MapMode::Read,
        };
        let answer = move |ok| {
            mailbox.events.lock().unwrap_or_else(PoisonError::into_inner).push(Event::Mapped(chunk, ok));
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
        while let Some(oldest) = self.in_flight.front().filter(|oldest| oldest.id <= done) {
            let now = web_time::Instant::now();
            let taken = now.duration_since(oldest.submitted_at.max(self.last_completion));
            self.estimates.learn(&oldest.work, taken);
            self.last_completion = now;
            self.in_flight.pop_front();
        }
        let done = if self.in_flight.is_empty() { done.max(self.failed) } else { done };
        let mut mapped = SmallVec::<[(ChunkId, bool); 4]>::new();
        for event in events {
            // (A queue that has panicked has stopped counting.)
            self.mapping = self.mapping.saturating_sub(1);
            match event {
                Event::Mapped(chunk, ok) => mapped.push((chunk, ok)),
                Event::Uniform(uniform, true) => self.encoder.recycle(uniform),
                Event::Uniform(_, false) => {}
            }
        }
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
        for (id, ok) in mapped {
            if !ok {
                core.staging.handle_unmappable(id);
                answers.extend(core.reads.extract_if(.., |read| read.chunk == id).map(|read| (read.answer, None)));
                continue;
            }
            core.staging.handle_mapped(id);
            if core.staging.direction(id) == Direction::Upload {
                continue;
            }
            let chunk = Arc::new(ReadChunk { shared: shared.clone(), id, buffer: core.staging.buffer(id) });
            for read in core.reads.extract_if(.., |read| read.chunk == id) {
                let slot =
                    ReadSlot { chunk: chunk.clone(), offset: read.offset, size: read.size, status_offset: read.status_offset };
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
        let mut woken: SmallVec<[_; 4]> = finished.iter().rev().map(|index| core.waiters.swap_remove(*index).1).collect();
        // This thread is the one that submits: what counts as submitted here has been handed to the driver.
        let core_now = &mut *core;
        let submitted = |(fences, _): &mut (FenceSet, _)| {
            fences.iter().all(|fence| fence.number <= core_now.timeline.submitted(fence.stream))
        };
        woken.extend(core_now.submit_waiters.extract_if(.., submitted).map(|(_, waiter)| waiter));
        let read: SmallVec<[_; 4]> = std::mem::take(&mut core.read).into_iter().map(|id| (id, core.staging.buffer(id))).collect();
        drop(core);
        if !read.is_empty() {
            for (_, buffer) in &read {
                buffer.unmap();
            }
            let mut core = shared.lock();
            for (id, _) in &read {
                core.staging.handle_read(*id);
            }
        }
        shared.signals.tell();
        for waiter in woken {
            let _ = waiter.send(());
        }
        for (answer, slot) in answers {
            let refused =
                || crate::Error::Device { fact: "the bytes of a read could not be mapped".into(), help: "read again".into() };
            let _ = answer.send(slot.ok_or_else(refused));
        }
    }
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
