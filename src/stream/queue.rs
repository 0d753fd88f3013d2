//! The queue: takes prefixes of recordings, encodes, submits, polls, answers. The only place that does so.
//!
//! Natively it is a thread (submitting can block, and on some drivers does the work); in browsers the event loop makes it
//! take a step. It submits at once when the device is idle, else in growing batches, with at most
//! [`MOST_IN_FLIGHT`] submissions under way, each bounded by [`policy`](super::policy).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;

use crate::device::command::{Op, PipelineId, Recording};
use crate::device::core::{Core, become_queue_thread, on_a_queue_thread};
use crate::device::driver::{self, BufferKind};
use crate::device::load::Load;
use crate::device::waiter;
use crate::device::{CLOSING, Gpu, Polling, Shared};
use crate::kernel::pipeline::Registry;
use crate::kernel::wgsl::COMPILER_STACK;
use crate::stream::batch::Taken;
use crate::stream::encode::{self, Encoder, Resolved, Uniform};
use crate::stream::interop::last_words;
use crate::stream::mail::{Mailbox, discard, waker};
use crate::stream::policy::{self, Estimates, Policy};
use crate::stream::timestamps::TimeSet;
use crate::timeline::SubmissionId;

/// Pause between two looks at an application's device. They are looks, no waits: with a timeout these panic inside wgpu 30 beside a
/// submission of another thread, and without one this thread could do nothing until all that the application has submitted is done.
const NAP: Duration = Duration::from_micros(100);

/// Times that the queue goes on after a panic: once to refuse what comes, once to close.
const MOST_PANICS: usize = 3;

/// What happened in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Something was done; look again.
    Worked,
    /// The device has to finish something first.
    InFlight,
    /// There is nothing to do.
    Idle,
    /// The last handle is gone.
    Stop,
}

pub(super) struct InFlight {
    pub(super) id: SubmissionId,
    pub(super) index: wgpu::SubmissionIndex,
    pub(super) work: SmallVec<[(PipelineId, u64); 16]>,
    pub(super) submitted_at: web_time::Instant,
}

pub(super) struct Queue {
    pub(super) encoder: Encoder,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) in_flight: VecDeque<InFlight>,
    /// The last batch that never reached the device; it counts as done when those before it are.
    pub(super) failed: SubmissionId,
    /// Buffers that are being mapped.
    pub(super) mapping: usize,
    pub(super) estimates: Estimates,
    pub(super) last_completion: web_time::Instant,
    policy: Policy,
    started: web_time::Instant,
}

/// Starts the queue of a device; the returned closure ends it.
pub(super) fn start(shared: &Arc<Shared>) -> Result<crate::device::Closer, String> {
    let status = driver::create(&shared.gpu, super::encode::STATUS_SIZE, BufferKind::Status)?;
    let bounce = driver::create(&shared.gpu, super::encode::BOUNCE_SIZE, BufferKind::Bounce)?;
    let mut queue = Queue {
        encoder: Encoder::new(&shared.gpu, status, bounce),
        mailbox: Arc::default(),
        in_flight: VecDeque::new(),
        failed: SubmissionId(0),
        mapping: 0,
        estimates: Estimates::default(),
        last_completion: web_time::Instant::now(),
        policy: Policy::default(),
        started: web_time::Instant::now(),
    };
    if cfg!(target_arch = "wasm32") {
        let (weak, queue) = (Arc::downgrade(shared), Mutex::new(queue));
        let step = move || {
            // A callback inside a step finds the lock taken: the running step goes on with what the callback left.
            if let (Some(shared), Ok(mut queue)) = (weak.upgrade(), queue.try_lock()) {
                while queue.step(&shared) == Progress::Worked {}
            }
        };
        let _ = shared.step.set(Box::new(step));
        return Ok(Box::new(|| {}));
    }
    let for_thread = shared.clone();
    // A process that ends before the thread has begun has to know of it, so it does not say itself that it is there.
    let mut core = shared.lock();
    let thread = std::thread::Builder::new()
        .name("linn-queue".into())
        .stack_size(COMPILER_STACK)
        .spawn(move || {
            become_queue_thread();
            // wgpu panics where a driver loses the device inside a wait: waiters are told, and later calls find a queue.
            for _ in 0..MOST_PANICS {
                match catch_unwind(AssertUnwindSafe(|| queue.run(&for_thread))) {
                    Ok(()) => break,
                    Err(panic) => queue.abandon(&for_thread, &last_words(panic)),
                }
            }
            drop(queue);
            let mut core = for_thread.lock();
            core.stop = true;
            core.queue_thread = None;
        })
        .map_err(|error| format!("the queue thread could not be started: {error}"))?;
    core.queue_thread = Some(thread.thread().id());
    drop(core);
    Ok(Box::new(move || {
        // A future that is dropped by its waker can hold the last handle: then this is the queue thread, which ends by itself, or
        // that of another device, and two would wait for each other.
        if !on_a_queue_thread() {
            let _ = thread.join();
        }
    }))
}

impl Queue {
    fn run(&mut self, shared: &Arc<Shared>) {
        loop {
            match self.step(shared) {
                Progress::Worked => {}
                Progress::InFlight => self.look(shared),
                Progress::Idle => {
                    let mut core = shared.lock();
                    // There is nothing to learn: who asked has been answered.
                    core.look = false;
                    let goes_on = !nothing_asked(&core) || !core.submit_waiters.is_empty();
                    if !goes_on && core.timeline.ready() == 0 {
                        shared.signals.sleep(core);
                    } else if core.stop {
                        // What is left of an application's work is held.
                        shared.signals.nap(core, policy::LOOK);
                    } else if !goes_on && core.is_light() && core.wanted.is_empty() {
                        core.naps = true;
                        shared.signals.nap(core, policy::LIGHT_PATIENCE);
                        shared.lock().naps = false;
                    }
                }
                Progress::Stop => return self.close(shared),
            }
        }
    }

    /// Work is under way: looks at the device. An application that polls its device itself does it for us while nobody waits.
    fn look(&mut self, shared: &Shared) {
        let Some(polling) = shared.foreign else { return self.poll(shared, policy::LOOK) };
        let mut core = shared.lock();
        if std::mem::take(&mut core.mail) || !nothing_asked(&core) {
            return;
        }
        if polling == Polling::WhenWaiting && !core.somebody_waits() {
            return shared.signals.sleep(core);
        }
        core.look = false;
        shared.signals.nap(core, NAP);
        let _ = shared.gpu.device.poll(wgpu::PollType::Poll);
    }

    /// Looks at a device of our own until the oldest submission is done, `bound` at most.
    fn poll(&mut self, shared: &Shared, bound: Duration) {
        let poll = match self.in_flight.front() {
            Some(oldest) => wgpu::PollType::Wait { submission_index: Some(oldest.index.clone()), timeout: Some(bound) },
            None => wgpu::PollType::Poll,
        };
        match shared.gpu.device.poll(poll) {
            Ok(_) | Err(wgpu::PollError::Timeout) => {}
            Err(error) => {
                if let Some(oldest) = self.in_flight.front() {
                    self.encoder.timestamps.give_up(oldest.id);
                }
                self.lost(shared, &format!("waiting for the device failed: {error}"));
            }
        }
    }

    /// wgpu does not know the submission that is waited for: it refused it, as a device that is lost does without a word.
    fn lost(&mut self, shared: &Shared, fact: &str) {
        // Lets wgpu say why.
        let _ = shared.gpu.device.poll(wgpu::PollType::Poll);
        shared.lost(fact.to_owned());
        self.in_flight.clear();
    }

    /// The thread has panicked, perhaps half way through something.
    fn abandon(&mut self, shared: &Shared, words: &str) {
        shared.lost(format!("the queue panicked: {words}"));
        self.in_flight.clear();
        self.mapping = 0;
    }

    /// Something failed that does not fail on a device that is there: asks whether it is.
    pub(super) fn probe(&mut self, shared: &Shared) {
        // wgpu refuses work of a lost device without a word; a buffer made there has no memory.
        let made = driver::create(&shared.gpu, 16, BufferKind::Upload);
        if made.is_ok_and(|buffer| buffer.get_mapped_range_mut(..).is_err()) {
            self.lost(shared, "the device refuses all work");
        }
    }

    fn step(&mut self, shared: &Arc<Shared>) -> Progress {
        self.collect(shared);
        let mut core = shared.lock();
        // An application can see what was enqueued on its device even when nobody is left who could read a tensor.
        let finishes = shared.foreign.is_some() && core.lost.is_none() && core.timeline.backlog() > 0;
        if core.stop && !finishes {
            return Progress::Stop;
        }
        if !core.orders.is_empty() {
            let orders = std::mem::take(&mut core.orders);
            drop(core);
            for order in orders {
                let _ = order.answer.send(driver::create(&shared.gpu, order.size, order.kind));
            }
            return Progress::Worked;
        }
        if core.drop_copies {
            drop(core);
            self.encoder.drop_copies();
            let mut core = shared.lock();
            core.staging.empty_cache();
            drop(discard(core));
            let mut core = shared.lock();
            core.drop_copies = false;
            self.count(&mut core);
            drop(core);
            shared.signals.tell();
            return Progress::Worked;
        }
        let dropped = if core.lost.is_some() { drop_recordings(&mut core) } else { Vec::new() };
        let buffers = self.take_segments(&mut core);
        let target = {
            let core = &mut *core;
            let now = self.started.elapsed();
            // (In browsers nothing would look again later.)
            self.policy.light = cfg!(not(target_arch = "wasm32")) && core.is_light();
            let in_flight = if core.stop { 0 } else { self.in_flight.len() };
            self.policy.target(&core.timeline, &mut core.wanted, in_flight, now)
        };
        let Some(target) = target else {
            let idle = self.in_flight.is_empty() && self.mapping == 0;
            drop(core);
            drop(dropped);
            forget(shared, buffers);
            return if idle { Progress::Idle } else { Progress::InFlight };
        };
        let (estimates, pipelines) = (&self.estimates, &self.encoder.pipelines);
        let mut budget = policy::Budget::default();
        let recordings = &core.recordings;
        let batch = core.timeline.plan(&target, |stream, n| {
            recordings[stream.0 as usize].get(n).is_none_or(|command| {
                let load = command.op.load();
                let compiles = load.kernel.is_some_and(|(pipeline, _)| !pipelines.has(pipeline));
                // A program's kernel that the driver may refuse costs nobody else's work.
                let alone = load.alone || compiles && matches!(command.op, Op::Own(_));
                budget.admit(estimates, Load { compiles, alone, ..load })
            })
        });
        let mut taken = Taken::default();
        // First, so that what comes next does not report again what was reported.
        if std::mem::take(&mut core.clear_status) {
            taken.commands.push(Resolved::ClearStatus);
        }
        for (stream, count) in &batch.runs {
            taken.take(&mut core, *stream, *count);
        }
        let id = core.timeline.handle_submitted(&batch);
        drop(core);
        shared.signals.tell();
        forget(shared, buffers);
        self.submit(shared, id, taken);
        Progress::Worked
    }

    /// Takes over bought segments and forgets released ones; returns buffers to drop outside the lock.
    fn take_segments(&mut self, core: &mut Core) -> Vec<wgpu::Buffer> {
        let released = std::mem::take(&mut core.released);
        let bought = std::mem::take(&mut core.bought);
        core.rewritten.drain(..).for_each(|bytes| self.encoder.stage.written(bytes));
        let gone: Vec<wgpu::Buffer> = released
            .into_iter()
            .map(|(segment, buffer)| {
                // The id may already belong to a newer segment: then only the bind groups go, and `bought` brings it.
                self.encoder.forget_segment(segment);
                buffer
            })
            .collect();
        for (segment, buffer) in bought {
            if core.segments.get(segment.0 as usize).and_then(Option::as_ref) == Some(&buffer) {
                self.encoder.add_segment(segment, buffer);
            }
        }
        gone
    }

    fn submit(&mut self, shared: &Arc<Shared>, id: SubmissionId, taken: Taken) {
        let gpu = &shared.gpu;
        for buffer in &taken.unmap {
            buffer.unmap();
        }
        let Some(registry) = registry(shared) else {
            return self.failed(shared, id, taken, "the kernel registry is missing");
        };
        let mut sent = self.send(gpu, registry, &taken);
        if sent.is_err() && taken.can_repeat() {
            // Nothing has been submitted, so it can be tried again, with whatever memory comes free by then.
            self.drain(shared);
            self.encoder.start_over();
            sent = self.send(gpu, registry, &taken);
        }
        let Sent { index, uniform, times, submitted_at } = match sent {
            Ok(sent) => sent,
            Err(fact) => {
                self.encoder.start_over();
                return self.failed(shared, id, taken, &fact);
            }
        };
        let mailbox = self.mailbox.clone();
        let wake = waker(shared);
        gpu.queue.on_submitted_work_done(move || {
            mailbox.done.fetch_max(id.0, Ordering::AcqRel);
            wake();
        });
        self.in_flight.push_back(InFlight { id, index, work: taken.work, submitted_at });
        if let Some(uniform) = uniform {
            self.map_uniform(shared, uniform);
        }
        if let Some(times) = times {
            self.map_times(shared, id, times, taken.stamps);
        }
        {
            let mut core = shared.lock();
            let dispatches = taken.commands.iter().filter(|command| matches!(command, Resolved::Dispatch { .. })).count();
            core.counters.dispatches += dispatches as u64;
            self.count(&mut core);
        }
        self.map_chunks(shared, &taken.chunks);
        if shared.foreign.is_some() {
            // Before anybody takes what was refused for done.
            self.probe(shared);
        }
    }

    /// What the encoder has counted.
    fn count(&self, core: &mut Core) {
        core.counters.pipelines = self.encoder.pipelines.compilations;
        core.counters.live_pipelines = self.encoder.pipelines.live;
        core.counters.staging_texture_bytes = self.encoder.stage.size();
        core.counters.bind_group_hits = self.encoder.bind_groups.hits;
        core.counters.bind_group_misses = self.encoder.bind_groups.misses;
        core.counters.bind_groups = self.encoder.bind_groups.len() as u64;
        core.counters.timestamp_sets = self.encoder.timestamps.len() as u64;
    }

    fn send(&mut self, gpu: &Gpu, registry: &Registry, taken: &Taken) -> Result<Sent, String> {
        let encoded = self.encoder.encode(gpu, registry, &taken.commands, &taken.params)?;
        // Measured from before the call: some drivers do the work inside it.
        let submitted_at = web_time::Instant::now();
        let index = gpu.attempt(driver::SUBMIT, || gpu.queue.submit([encoded.commands]))?;
        Ok(Sent { index, uniform: encoded.uniform, times: encoded.times, submitted_at })
    }

    /// Waits until the device has nothing left to do, within the bound of closing.
    fn drain(&self, shared: &Shared) {
        if let Some(last) = self.in_flight.back().filter(|_| shared.foreign.is_none() && cfg!(not(target_arch = "wasm32"))) {
            let wait = wgpu::PollType::Wait { submission_index: Some(last.index.clone()), timeout: Some(CLOSING) };
            let _ = shared.gpu.device.poll(wait);
        }
    }

    /// Nothing of the batch reached the device: its results are wrong, and whoever asks is told. The bytes of moved tensors
    /// are not where the table of places says: then nothing on the device can be trusted any more.
    fn failed(&mut self, shared: &Arc<Shared>, id: SubmissionId, taken: Taken, fact: &str) {
        let at = self.encoder.at.or_else(|| encode::speaks_for(&taken.commands));
        let fact = match (at, taken.commands.len()) {
            (Some(at), 1) => format!("{}: {fact}", taken.label(at)),
            (Some(at), len) => format!("{}: {fact} (commands lost with it: {})", taken.label(at), len - 1),
            (None, len) => format!("{len} commands from {} on: {fact}", taken.label(0)),
        };
        if taken.commands.iter().any(|command| matches!(command, Resolved::Move { .. })) {
            shared.lost(fact.clone());
        } else {
            shared.late_error(fact.clone());
        }
        self.failed = id;
        let answers: SmallVec<[_; 4]> = {
            let mut core = shared.lock();
            core.clear_status |= taken.commands.iter().any(|command| matches!(command, Resolved::ClearStatus));
            core.reads.extract_if(.., |read| taken.reads.contains(&(read.chunk, read.offset))).map(|read| read.answer).collect()
        };
        for answer in answers {
            waiter::answer(answer, Err(crate::Error::Device { fact: fact.clone(), help: "read again".into() }));
        }
        self.map_chunks(shared, &taken.chunks);
    }

    /// Awaits what is in flight, within a bound, and drops everything in order.
    fn close(&mut self, shared: &Arc<Shared>) {
        let start = web_time::Instant::now();
        // An application's device stays, and with it what its work uses.
        let awaits = shared.foreign.is_none();
        while let Some(left) = CLOSING.checked_sub(start.elapsed()).filter(|_| awaits && !self.in_flight.is_empty()) {
            self.poll(shared, left);
            let done = self.mailbox.done.load(Ordering::Acquire);
            self.in_flight.retain(|submission| submission.id.0 > done);
        }
        self.encoder.clear();
        let mut core = shared.lock();
        let abandon = core.orphans();
        let dropped = drop_recordings(&mut core);
        let segments = std::mem::take(&mut core.segments);
        let released = std::mem::take(&mut core.released);
        let bought = std::mem::take(&mut core.bought);
        let staging = std::mem::take(&mut core.staging);
        drop(core);
        abandon();
        drop((dropped, segments, released, bought, staging));
        // Where a process ends, other threads may still wait for room.
        shared.signals.tell();
        let _ = shared.gpu.device.poll(wgpu::PollType::Poll);
    }
}

/// Drops the buffers of released segments and says so.
fn forget(shared: &Shared, buffers: Vec<wgpu::Buffer>) {
    if !buffers.is_empty() {
        let count = buffers.len() as u64;
        drop(buffers);
        shared.lock().forgotten += count;
        shared.signals.tell();
    }
}

/// True when no other thread wants anything of the queue but that it submits.
fn nothing_asked(core: &Core) -> bool {
    !core.stop && core.orders.is_empty() && !core.staging.has_discarded() && core.released.is_empty() && !core.drop_copies
}

/// Recorded commands will never run: nobody can see their results. They are for the caller to drop, without the lock: what an
/// application's closures hold may need it.
#[must_use]
fn drop_recordings(core: &mut Core) -> Vec<Recording> {
    core.recorded = (0, 0);
    core.timeline.open_all();
    let recordings = std::mem::take(&mut core.recordings);
    for command in recordings.iter().flat_map(Recording::iter) {
        command.op.places().iter().for_each(|place| core.places.release(*place));
    }
    let rest = core.timeline.plan(&crate::timeline::Flush::Everything, |_, _| true);
    if rest.len > 0 {
        let id = core.timeline.handle_submitted(&rest);
        core.timeline.handle_completed(id);
    }
    recordings
}

pub(super) fn registry(shared: &Shared) -> Option<&Registry> {
    shared.attachment(Registry::default)
}

/// A batch that was handed to the driver.
struct Sent {
    index: wgpu::SubmissionIndex,
    uniform: Option<Uniform>,
    times: Option<TimeSet>,
    submitted_at: web_time::Instant,
}
