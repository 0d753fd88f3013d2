//! A loader that prepares items ahead on worker threads and hands them out in order.
//!
//! Workers call the producer and copy what it returns to pinned memory; the call that takes an item enqueues its upload. So
//! three things overlap: the preparation of later items, the host that enqueues work on this one, and the device.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error as AnyError;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Upload;
use super::host::{HostTensor, PinnedTensor, Slots};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::interop::last_words;
use crate::stream::{Origin, Stream};
use crate::tensor::Tensor;

/// How a [`DataLoader`] works. PyTorch's names.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DataLoaderOptions {
    /// Threads that prepare items. 0: each is prepared by the call that takes it (in browsers always).
    pub num_workers: usize,
    /// Items that each worker may be ahead of the one taken last; at least 1.
    pub prefetch_factor: usize,
    /// Where items are uploaded.
    pub upload: Upload,
}

impl Default for DataLoaderOptions {
    /// One worker, two items ahead, a stream of its own.
    fn default() -> DataLoaderOptions {
        DataLoaderOptions { num_workers: 1, prefetch_factor: 2, upload: Upload::OwnStream }
    }
}

/// What a loader has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataLoaderStats {
    /// Items taken.
    pub items: u64,
    /// Time spent in the producer and copying what it returned, over all workers.
    pub prepared: Duration,
    /// Time that the calls that take items waited for a worker (without workers: prepared).
    pub waited: Duration,
}

type Producer = dyn Fn(u64) -> Result<Vec<HostTensor>> + Send + Sync;

/// An iterator over items on a device: each is what a producer made of its number, uploaded.
///
/// Items come in order, whatever worker is done first, and are prepared at most
/// `num_workers * prefetch_factor` ahead. The tensors of an item are used again for a later one when nobody holds them any more.
///
/// An error of the producer, or its panic, is the answer for that item; the items before it are good, and the loader goes on
/// with those after it. Dropping the loader waits for the calls of the producer that are running, and for nothing else.
///
/// ```no_run
/// # use linn::data::{DataLoader, HostTensor};
/// # fn main() -> linn::Result<()> {
/// # let device = linn::Device::open()?;
/// let squares = |i: u64| Ok::<_, linn::Error>(vec![HostTensor::new(&[2], vec![i as f32, (i * i) as f32])?]);
/// for item in DataLoader::new(&device, 0..100, Default::default(), squares)? {
///     let x = &item?[0]; // [2] on the device
/// }
/// # Ok(()) }
/// ```
pub struct DataLoader {
    device: Device,
    stream: Option<Stream>,
    producer: Arc<Producer>,
    slots: Slots,
    next: u64,
    end: u64,
    shop: Arc<Shop>,
    workers: Vec<JoinHandle<()>>,
    stats: DataLoaderStats,
}

/// What the workers and the loader share.
#[derive(Default)]
struct Shop {
    state: Mutex<State>,
    /// Wakes workers.
    work: Condvar,
    /// Wakes workers that wait for the device.
    device: Condvar,
    /// Wakes the loader.
    ready: Condvar,
}

#[derive(Default)]
struct State {
    /// The next item to prepare, the end, and the end of what may be prepared by now.
    next: u64,
    end: u64,
    allowed: u64,
    done: BTreeMap<u64, Result<Vec<PinnedTensor>>>,
    /// Pinned memory of items whose uploads are enqueued, oldest first. There are as many sets as items are ahead at most, so
    /// the workers cannot be further ahead of the device than that.
    returned: VecDeque<Vec<PinnedTensor>>,
    prepared: Duration,
    /// How often the device has woken somebody.
    wakes: u64,
    stop: bool,
}

impl Shop {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks a worker until the device has done something; `None` where the loader is dropped before that.
    fn block_on<T>(self: &Arc<Shop>, future: impl Future<Output = T>) -> Option<T> {
        let (waker, mut future) = (self.clone().into(), pin!(future));
        loop {
            let seen = self.lock().wakes;
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            let mut state = self.lock();
            while state.wakes == seen {
                if state.stop {
                    return None;
                }
                state = self.device.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Wake for Shop {
    fn wake(self: Arc<Self>) {
        self.lock().wakes += 1;
        self.device.notify_all();
    }
}

impl DataLoader {
    /// A loader of the items `range`. `producer` is called with the number of an item, by any worker, in any order.
    ///
    /// # Errors
    /// [`Error::Device`] where a thread cannot be started.
    pub fn new<E, P>(device: &Device, range: Range<u64>, options: DataLoaderOptions, producer: P) -> Result<DataLoader>
    where
        E: Into<Box<dyn AnyError + Send + Sync>>,
        P: Fn(u64) -> Result<Vec<HostTensor>, E> + Send + Sync + 'static,
    {
        let num_workers = if cfg!(target_arch = "wasm32") { 0 } else { options.num_workers };
        let ahead = num_workers.saturating_mul(options.prefetch_factor.max(1)) as u64;
        let (next, end) = (range.start, range.end.max(range.start));
        let state = State { next, end, allowed: next.saturating_add(ahead).min(end), ..State::default() };
        let mut loader = DataLoader {
            device: device.clone(),
            stream: (options.upload == Upload::OwnStream).then(|| device.new_stream()),
            producer: Arc::new(move |item| producer(item).map_err(|error| explained(item, error.into()))),
            slots: Slots::default(),
            next,
            end,
            shop: Arc::new(Shop { state: Mutex::new(state), ..Shop::default() }),
            workers: Vec::new(),
            stats: DataLoaderStats::default(),
        };
        for n in 0..num_workers {
            let (shop, producer, device) = (loader.shop.clone(), loader.producer.clone(), device.clone());
            let thread = std::thread::Builder::new().name(format!("linn-data-{n}"));
            let started = thread.spawn(move || work(&shop, &*producer, &device)).map_err(|error| Error::Device {
                fact: format!("a worker of a data loader could not be started: {error}"),
                help: "use fewer workers".into(),
            })?;
            loader.workers.push(started);
        }
        Ok(loader)
    }

    /// What it has done so far.
    pub fn stats(&self) -> DataLoaderStats {
        DataLoaderStats { prepared: self.stats.prepared + self.shop.lock().prepared, ..self.stats }
    }

    /// The next item, prepared here.
    fn prepare(&mut self, item: u64) -> Result<Vec<Tensor>> {
        let start = web_time::Instant::now();
        let arrays = caught(item, || (self.producer)(item));
        self.stats.prepared += start.elapsed();
        self.stats.waited += start.elapsed();
        let _stream = self.stream.as_ref().map(Stream::enter);
        self.slots.upload(&self.device, &arrays?)
    }

    /// The next item, prepared by a worker.
    fn take(&mut self, item: u64) -> Result<Vec<Tensor>> {
        let start = web_time::Instant::now();
        let mut state = self.shop.lock();
        let arrays = loop {
            match state.done.remove(&item) {
                Some(arrays) => break arrays,
                None => state = self.shop.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(state);
        self.stats.waited += start.elapsed();
        let uploaded = arrays.map(|arrays| {
            let _stream = self.stream.as_ref().map(Stream::enter);
            (self.slots.upload(&self.device, &arrays), arrays)
        });
        let (uploaded, used) = match uploaded {
            Ok((uploaded, arrays)) => (uploaded, Some(arrays)),
            Err(error) => (Err(error), None),
        };
        let mut state = self.shop.lock();
        state.allowed = state.allowed.saturating_add(1).min(state.end);
        state.returned.extend(used);
        drop(state);
        self.shop.work.notify_one();
        uploaded
    }
}

impl Iterator for DataLoader {
    type Item = Result<Vec<Tensor>>;

    #[track_caller]
    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        let _origin = Origin::enter();
        let item = self.next;
        if item >= self.end {
            return None;
        }
        self.next += 1;
        self.stats.items += 1;
        Some(if self.workers.is_empty() { self.prepare(item) } else { self.take(item) })
    }
}

impl Drop for DataLoader {
    fn drop(&mut self) {
        self.shop.lock().stop = true;
        self.shop.work.notify_all();
        self.shop.device.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// What a worker does.
fn work(shop: &Arc<Shop>, producer: &Producer, device: &Device) {
    loop {
        let mut state = shop.lock();
        while !state.stop && state.next < state.end && state.next >= state.allowed {
            state = shop.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop || state.next >= state.end {
            return;
        }
        let item = state.next;
        state.next += 1;
        let used = state.returned.pop_front().unwrap_or_default();
        drop(state);
        let mut prepared = Duration::ZERO;
        let arrays = caught(item, || {
            let start = web_time::Instant::now();
            let arrays = producer(item)?;
            prepared += start.elapsed();
            pinned(shop, device, arrays, used, &mut prepared)
        });
        let mut state = shop.lock();
        state.prepared += prepared;
        state.done.insert(item, arrays);
        drop(state);
        shop.ready.notify_one();
    }
}

/// The arrays in pinned memory: in that of an earlier item as far as it fits, once its upload has been executed.
fn pinned(
    shop: &Arc<Shop>,
    device: &Device,
    arrays: Vec<HostTensor>,
    used: Vec<PinnedTensor>,
    prepared: &mut Duration,
) -> Result<Vec<PinnedTensor>> {
    let mut used = used.into_iter();
    let mut pinned = Vec::with_capacity(arrays.len());
    for array in arrays {
        let mut words = match used.next().map(|used| used.words).filter(|words| words.len() == array.words().len()) {
            Some(words) => {
                // Without an answer nobody is left who could take the item.
                let Some(free) = shop.block_on(words.synchronize_async()) else { return Ok(Vec::new()) };
                free.map(|()| words)?
            }
            None => device.pinned_upload(array.words().len())?,
        };
        let start = web_time::Instant::now();
        words.copy_from_slice(array.words())?;
        *prepared += start.elapsed();
        pinned.push(PinnedTensor { shape: array.shape().to_vec(), dtype: array.dtype(), words });
    }
    Ok(pinned)
}

/// The answer of `call`, or its panic as an error.
fn caught<T>(item: u64, call: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(Error::Data {
            fact: format!("the producer panicked at item {item}: {}", last_words(panic)),
            help: "mend the producer; the loader goes on with the next item".into(),
        })
    })
}

/// An error of the producer; one of linn's own stays as it is.
fn explained(item: u64, error: Box<dyn AnyError + Send + Sync>) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => Error::Data {
            fact: format!("item {item} could not be prepared: {error}"),
            help: "see the producer's error; the loader goes on with the next item".into(),
        },
    }
}
