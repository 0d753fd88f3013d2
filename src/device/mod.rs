//! The wgpu boundary: which adapter, its limits, buffers, staging, and the state that all handles share.
//!
//! A [`Device`] is a cheap handle. Behind it stand the core (pure state machines under one lock, `core.rs`) and the queue
//! (`stream::queue`), which owns the last wgpu handles. Read next: `memory.rs` (the allocation ladder), `core.rs`.

mod adapter;
#[cfg(unix)]
mod at_exit;
mod choice;
pub(crate) mod command;
pub(crate) mod core;
pub(crate) mod driver;
mod edges;
pub(crate) mod entered;
mod failures;
mod history;
pub(crate) mod load;
mod mem_pool;
mod memory;
mod observers;
pub(crate) mod pinned;
pub(crate) mod places;
mod signals;
pub(crate) mod staging;
mod statistics;
mod sync;
pub(crate) mod waiter;
mod waits;
pub(crate) mod wishes;

use std::any::Any;
use std::panic::Location;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

pub use adapter::{AdapterInfo, AdapterKind, BufferUses, DeviceOptions, Limits, ParamsVia, Polling};
pub use core::Counters;
pub use mem_pool::{MemPool, MemPoolGuard};
pub use memory::Memory;
pub use observers::{MemoryUse, Observer};
pub use staging::PinnedStats;
pub use statistics::{DeviceStats, DriverMemory};
pub use waits::{HostWait, SyncDebug, WaitKind};

use crate::device::command::ChunkId;
use crate::device::core::Core;
use crate::error::{Error, Result};
use crate::ids::FenceSet;
use crate::memory::{Caching, Config, Pool};
use adapter::Opened;
pub(crate) use driver::Gpu;
use failures::Failures;
use futures_channel::oneshot;
use signals::Signals;
use waiter::Waiter;

/// A device: an adapter that was opened, with its streams, memory and queue. Cloning gives another handle on it.
///
/// When the last handle is gone (tensors hold one each), work in flight is awaited and everything is closed.
#[derive(Clone)]
pub struct Device(Arc<Handle>);

/// Ends the queue when the last handle of a device is gone.
struct Handle {
    shared: Arc<Shared>,
    closer: Mutex<Option<Closer>>,
}

/// How long closing waits for work in flight.
pub(crate) const CLOSING: std::time::Duration = std::time::Duration::from_secs(10);

/// What upper floors run when the device closes (joins the queue thread).
pub(crate) type Closer = Box<dyn FnOnce() + Send>;

/// What all handles and the queue share.
pub(crate) struct Shared {
    pub(crate) gpu: Gpu,
    pub(crate) id: u64,
    pub(crate) info: AdapterInfo,
    pub(crate) limits: Limits,
    pub(crate) options: DeviceOptions,
    pub(crate) on_queue_thread_only: bool,
    /// The wgpu device belongs to an application, and this is who polls it.
    pub(crate) foreign: Option<Polling>,
    core: Mutex<Core>,
    /// Between the queue and those who call.
    pub(crate) signals: Signals,
    /// State of upper floors.
    attachments: [OnceLock<Box<dyn Any + Send + Sync>>; 4],
    /// Where the queue runs without a thread of its own: makes it take a step.
    pub(crate) step: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Which calls record their whole stack, as a number of [`crate::memory::Stacks`].
    pub(crate) recorded_stacks: AtomicU8,
}

/// A mapped download chunk; given back when the last reader is done.
pub(crate) struct ReadChunk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: ChunkId,
    pub(crate) buffer: Arc<wgpu::Buffer>,
}

impl Drop for ReadChunk {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        core.staging.handle_read(self.id);
        let woken = core.staging.woken();
        if core.staging.has_discarded() {
            self.shared.wake(core);
        } else {
            drop(core);
        }
        woken.into_iter().for_each(|waiter| waiter::answer(waiter, ()));
    }
}

/// How the pool is set up: the environment first, then what the options say.
fn pool_config(limits: &Limits, options: &DeviceOptions) -> Result<Config> {
    let mut config = Config {
        max_segment: limits.max_buffer_size,
        alignment: u64::from(limits.storage_alignment).max(256),
        caching: options.caching,
        ..Config::default()
    };
    let (name, help) = ("LINN_ALLOC_CONF", "write the settings as plain text, as in limit_mb:512");
    let environment = adapter::variable(name, std::env::var(name), help)?;
    for settings in [environment.as_deref(), options.alloc_conf.as_deref()].into_iter().flatten() {
        config.apply(settings)?;
    }
    config.limit = options.memory_limit.unwrap_or(config.limit);
    if config.memory_fraction < 1.0 && config.limit == u64::MAX {
        return Err(Error::argument(
            "open",
            format!("per_process_memory_fraction is {} but there is no limit to take a share of", config.memory_fraction),
            "set limit_mb in LINN_ALLOC_CONF, or DeviceOptions::memory_limit: wgpu does not say how much memory there is",
        ));
    }
    Ok(config)
}

impl Shared {
    fn new(opened: Opened, options: DeviceOptions) -> Result<Arc<Shared>> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let config = pool_config(&opened.limits, &options)?;
        let (pass, count) = options.refuse_driver_calls;
        let on_queue_thread_only = opened.info.backend == "gl" && cfg!(not(target_arch = "wasm32"));
        let shared = Arc::new(Shared {
            gpu: Gpu {
                device: opened.device,
                queue: opened.queue,
                failures: Failures::new(pass, count),
                segment_usages: options.buffer_uses.usages(),
            },
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            info: opened.info,
            limits: opened.limits,
            options,
            on_queue_thread_only,
            foreign: opened.foreign,
            core: Mutex::new(Core::new(Pool::new(config))),
            signals: Signals::default(),
            attachments: [const { OnceLock::new() }; 4],
            step: OnceLock::new(),
            recorded_stacks: AtomicU8::new(0),
        });
        #[cfg(unix)]
        {
            if shared.info.kind == AdapterKind::Software {
                driver::warm_up(&shared.gpu, shared.foreign.is_none().then_some(CLOSING));
            }
            at_exit::watch(&shared);
        }
        if shared.foreign.is_some() {
            // The handlers of an application's device are the application's.
            return Ok(shared);
        }
        let weak = Arc::downgrade(&shared);
        shared.gpu.device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            if let Some(shared) = weak.upgrade() {
                shared.late_error(format!("an enqueued operation failed: {error}"));
            }
        }));
        let weak = Arc::downgrade(&shared);
        shared.gpu.device.set_device_lost_callback(move |reason, message| {
            if let Some(shared) = weak.upgrade() {
                shared.lost(format!("{reason:?}: {message}"));
            }
        });
        Ok(shared)
    }

    /// The core. A panic of another thread does not take it away: its state is plain data, changed by total functions.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock and makes the queue look at it.
    pub(crate) fn wake(&self, core: MutexGuard<'_, Core>) {
        match self.step.get() {
            Some(step) => {
                drop(core);
                step();
            }
            None => self.signals.wake(core),
        }
    }

    /// Ends the queue and waits until it has ended: for the end of the process, where nothing may block for ever.
    #[cfg(unix)]
    fn stop_and_wait(&self) {
        let step = std::time::Duration::from_millis(1);
        // Counted, not by the clock: a process that is stopped meanwhile (Ctrl-Z, a debugger) has not waited.
        for _ in 0..2 * CLOSING.as_millis() {
            // The thread that ends the process may be inside the lock.
            if let Ok(mut core) = self.core.try_lock() {
                core.stop = true;
                let on_its_own_thread = core.queue_thread == Some(std::thread::current().id());
                if core.queue_thread.is_none() || on_its_own_thread {
                    return;
                }
                self.signals.wake(core);
            }
            std::thread::sleep(step);
        }
    }

    /// Waits until the queue has dropped the buffers of the segments released so far, and copies where that is asked.
    pub(crate) fn wait_until_forgotten(&self) {
        if cfg!(target_arch = "wasm32") {
            return;
        }
        if core::on_a_queue_thread() {
            return;
        }
        let mut core = self.lock();
        let released = core.released_ever;
        while (core.forgotten < released || core.drop_copies) && !core.stop {
            core = self.signals.wait(core);
        }
    }

    /// Keeps an error of enqueued work for the next call that synchronises.
    pub(crate) fn late_error(&self, fact: String) {
        let fact = one_line(&fact);
        let mut core = self.lock();
        core.counters.failures += 1;
        if core.late_error.is_none() {
            core.late_error = Some(Error::Device {
                fact,
                help: "check the operation named here; results enqueued after it may be wrong".into(),
            });
        }
    }

    /// The device is gone: every waiter and every later call is told.
    pub(crate) fn lost(&self, fact: String) {
        let fact = one_line(&fact);
        let mut core = self.lock();
        if core.stop {
            return;
        }
        core.counters.failures += 1;
        core.lost.get_or_insert(fact);
        // Dropping the senders wakes the waiters; they find `lost`.
        let abandon = core.orphans();
        self.signals.tell();
        self.wake(core);
        abandon();
    }

    /// State of an upper floor, made at first use. At most four types per device.
    pub(crate) fn attachment<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> Option<&T> {
        self.attachments.iter().find_map(|slot| slot.get_or_init(|| Box::new(make())).downcast_ref::<T>())
    }
}

/// Drivers write several lines; a fact is one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Device {
    pub(crate) async fn open_parts(options: DeviceOptions) -> Result<Arc<Shared>> {
        Shared::new(adapter::open(&options).await?, options)
    }

    /// A device without a driver, for tests of everything but kernels.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn noop_parts(options: DeviceOptions) -> Result<Arc<Shared>> {
        Shared::new(adapter::open_noop(&options), options)
    }

    /// An application's device.
    pub(crate) fn adopted_parts(device: &wgpu::Device, queue: &wgpu::Queue, options: DeviceOptions) -> Result<Arc<Shared>> {
        Shared::new(adapter::adopt(device, queue, options.polling)?, options)
    }

    pub(crate) fn from_parts(shared: Arc<Shared>, closer: Closer) -> Device {
        Device(Arc::new(Handle { shared, closer: Mutex::new(Some(closer)) }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Name, backend, driver and kind of the adapter.
    pub fn info(&self) -> &AdapterInfo {
        &self.shared().info
    }

    /// Name of the adapter.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    /// The adapter's limits.
    pub fn limits(&self) -> &Limits {
        &self.shared().limits
    }

    /// Names of the optional wgpu features in use.
    pub fn features(&self) -> Vec<String> {
        self.shared().gpu.device.features().iter_names().map(|(name, _)| name.to_owned()).collect()
    }

    /// True when kernels may use subgroup operations.
    pub(crate) fn has_subgroups(&self) -> bool {
        self.shared().gpu.device.features().contains(wgpu::Features::SUBGROUP)
    }

    /// True when the device can tell the time, which events with timing need ([`crate::Event::with_timing`]).
    pub fn has_timestamps(&self) -> bool {
        self.shared().gpu.device.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// Milliseconds from one tick count of the device to another.
    pub(crate) fn milliseconds(&self, start: u64, end: u64) -> f64 {
        let period = f64::from(self.shared().gpu.queue.get_timestamp_period());
        end.wrapping_sub(start) as i64 as f64 * period / 1e6
    }

    /// True when both handles mean the same device.
    pub fn same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Devices of one adapter have one name, so errors name each with the number that says which of the process it is.
    pub(crate) fn numbered(&self) -> String {
        format!("device {} ({})", self.shared().id, self.name())
    }

    /// The error of an operation whose operands live here and on `other`.
    pub(crate) fn mismatch(&self, op: &'static str, other: &Device) -> Error {
        Error::DeviceMismatch { op, fact: format!("{} and {}", self.numbered(), other.numbered()) }
    }

    /// True when freed memory is kept for reuse.
    pub fn is_caching(&self) -> bool {
        self.shared().options.caching == Caching::Pooled
    }

    /// True when these commands have been executed, or never will be because the device is lost.
    pub(crate) fn has_reached(&self, fences: &FenceSet) -> bool {
        let shared = self.shared();
        let mut core = shared.lock();
        let reached = core.lost.is_some() || core.timeline.are_completed(fences);
        if !reached && shared.foreign.is_some() {
            core.look = true;
            shared.wake(core);
        }
        reached
    }

    /// A future that is ready when `fences` have been executed; flushes what it waits for.
    pub(crate) fn completion(&self, fences: FenceSet) -> Result<oneshot::Receiver<()>> {
        let (sender, receiver) = oneshot::channel();
        self.shared().lock().alive()?;
        self.tell_when_reached(fences, Waiter::Future(sender));
        Ok(receiver)
    }

    /// Tells `waiter` when `fences` have been executed, drops it when they never will be; flushes what it waits for.
    pub(crate) fn tell_when_reached(&self, fences: FenceSet, waiter: Waiter) {
        let shared = self.shared();
        let mut core = shared.lock();
        // Told without the lock: it may be another device's.
        if core.lost.is_some() {
            drop(core);
            return drop(waiter);
        }
        if core.timeline.are_completed(&fences) {
            drop(core);
            return waiter.tell();
        }
        core.want(&fences);
        core.waiters.push((fences, waiter));
        shared.wake(core);
    }

    /// Submits everything and waits until it has been executed.
    #[track_caller]
    pub(crate) fn wait_for_everything(&self) -> Result<()> {
        let fences = self.shared().lock().timeline.everything();
        if !fences.is_empty() {
            self.block_on(self.completion(fences)?, WaitKind::Synchronize, Location::caller())?;
        }
        self.shared().lock().alive()
    }

    /// Blocks this thread on an answer of the queue and books the wait on the line that asked for it.
    pub(crate) fn block_on<T>(
        &self,
        answer: oneshot::Receiver<T>,
        kind: WaitKind,
        location: &'static Location<'static>,
    ) -> Result<T> {
        self.block_at_most(answer, None, kind, location)?.ok_or_else(|| self.closed(&self.shared().lock()))
    }

    /// [`Device::block_on`] for so long at most; `None` where that was not enough.
    pub(crate) fn block_at_most<T>(
        &self,
        answer: oneshot::Receiver<T>,
        timeout: Option<Duration>,
        kind: WaitKind,
        location: &'static Location<'static>,
    ) -> Result<Option<T>> {
        if cfg!(target_arch = "wasm32") {
            return Err(Error::argument("wait", "a browser's thread cannot block", "use the async form of the call"));
        }
        core::may_wait()?;
        let start = web_time::Instant::now();
        let mut answer = answer;
        let answer = match (waits::soon(&mut answer, timeout), timeout) {
            (Some(answer), _) => Some(answer),
            (None, None) => Some(pollster::block_on(answer)),
            (None, Some(timeout)) => waits::block_at_most(answer, timeout),
        };
        let waited = start.elapsed();
        let mut core = self.shared().lock();
        core.counters.host_syncs += 1;
        core.counters.host_sync_nanos += waited.as_nanos() as u64;
        core.waits.add(kind, location, waited);
        answer.transpose().map_err(|_| self.closed(&core))
    }

    /// Staging that was mapped is no more, which happens when the device is lost.
    pub(crate) fn unmapped(&self, op: &'static str, words: &str) -> Error {
        self.shared().lost(format!("{op}: staging: {words}"));
        self.closed(&self.shared().lock())
    }

    /// Why an answer will never come.
    pub(crate) fn closed(&self, core: &Core) -> Error {
        Error::DeviceLost { fact: core.lost.clone().unwrap_or_else(|| "the queue was closed".into()) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        core.stop = true;
        core.queue_sleeps = true;
        self.shared.wake(core);
        let closer = self.closer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(close) = closer {
            close();
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.info())
    }
}
