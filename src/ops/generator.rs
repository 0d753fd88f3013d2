//! The random generator of a device: which numbers come next.
//!
//! A (seed, offset) pair: a counter of Philox 4x32-10 makes four numbers, so a tensor of n elements takes n / 4 counters, rounded
//! up. The state is on the host, so drawing never waits for the device, and no two calls, on whatever threads and streams, get the
//! same counters.

use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::error::{Error, Result};

/// What a generator has left to say: the same state gives the same numbers. As text, `seed:offset`, it stands in the metadata of a
/// checkpoint.
///
/// ```
/// use linn::ops::generator::GeneratorState;
///
/// let state = GeneratorState { seed: 7, offset: 250 };
/// assert_eq!(state.to_string(), "7:250");
/// assert_eq!("7:250".parse::<GeneratorState>()?, state);
/// # Ok::<(), linn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GeneratorState {
    /// Key of the stream of numbers.
    pub seed: u64,
    /// Counters used so far.
    pub offset: u64,
}

impl fmt::Display for GeneratorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.offset)
    }
}

impl FromStr for GeneratorState {
    type Err = Error;

    fn from_str(text: &str) -> Result<GeneratorState> {
        let numbers = text.split_once(':').and_then(|(seed, offset)| Some((seed.parse().ok()?, offset.parse().ok()?)));
        let (seed, offset) = numbers.ok_or_else(|| {
            let fact = format!("{text:?} is no state of a generator");
            Error::argument("GeneratorState", fact, "pass two numbers joined by a colon, as rng_state().to_string() writes them")
        })?;
        Ok(GeneratorState { seed, offset })
    }
}

#[derive(Default)]
struct Generator(Mutex<GeneratorState>);

impl Device {
    /// Starts the device's generator over. A new device has seed 0.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// device.manual_seed(1)?;
    /// let first = linn::Tensor::rand(&device, &[3])?.to_vec::<f32>()?;
    /// device.manual_seed(1)?;
    /// assert_eq!(linn::Tensor::rand(&device, &[3])?.to_vec::<f32>()?, first);
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn manual_seed(&self, seed: u64) -> Result<()> {
        self.set_rng_state(GeneratorState { seed, offset: 0 })
    }

    /// Starts the device's generator over with a seed by chance, and tells it.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let seed = device.seed()?;
    /// assert_eq!(device.initial_seed()?, seed);
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn seed(&self) -> Result<u64> {
        let now = web_time::SystemTime::now().duration_since(web_time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let seed = RandomState::new().hash_one(now);
        self.manual_seed(seed)?;
        Ok(seed)
    }

    /// The seed that the device's generator started with.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// device.manual_seed(7)?;
    /// linn::Tensor::rand(&device, &[3])?;
    /// assert_eq!(device.initial_seed()?, 7);
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn initial_seed(&self) -> Result<u64> {
        Ok(generator(self)?.seed)
    }

    /// The state of the device's generator, to be kept in a checkpoint (as text in its metadata).
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let state = device.rng_state()?;
    /// let next = linn::Tensor::randn(&device, &[2])?.to_vec::<f32>()?;
    /// device.set_rng_state(state)?;
    /// assert_eq!(linn::Tensor::randn(&device, &[2])?.to_vec::<f32>()?, next);
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn rng_state(&self) -> Result<GeneratorState> {
        Ok(*generator(self)?)
    }

    /// Puts the device's generator into a state that [`Device::rng_state`] gave, of whatever device.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let state = device.rng_state()?;
    /// let first = linn::Tensor::rand(&device, &[3])?;
    /// device.set_rng_state(state)?;
    /// assert!(linn::Tensor::rand(&device, &[3])?.equal(&first)?);
    /// # Ok::<(), linn::Error>(())
    /// ```
    pub fn set_rng_state(&self, state: GeneratorState) -> Result<()> {
        *generator(self)? = state;
        Ok(())
    }
}

/// A draw: so many counters from a state on.
#[derive(Clone, Copy, Debug)]
struct Draw {
    device: u64,
    state: GeneratorState,
    counters: u64,
}

/// What was drawn while something ran in one thread, so that it can be drawn again.
#[derive(Debug, Default)]
pub(crate) struct Draws(Vec<Draw>);

/// What draws of this thread are noted on, or come from.
enum Tape {
    Record(Draws),
    Replay { draws: Vec<Draw>, next: usize },
}

thread_local! {
    /// The innermost last.
    static TAPES: RefCell<Vec<Tape>> = const { RefCell::new(Vec::new()) };
}

/// Takes its tape away, also where what runs panics.
struct TapeGuard;

impl TapeGuard {
    fn put(tape: Tape) -> TapeGuard {
        TAPES.with_borrow_mut(|tapes| tapes.push(tape));
        TapeGuard
    }

    fn take(self) -> Option<Tape> {
        std::mem::forget(self);
        TAPES.with_borrow_mut(Vec::pop)
    }
}

impl Drop for TapeGuard {
    fn drop(&mut self) {
        TAPES.with_borrow_mut(Vec::pop);
    }
}

/// Runs `f`, and tells what this thread drew meanwhile.
pub(crate) fn record_draws<T>(f: impl FnOnce() -> T) -> (T, Draws) {
    let tape = TapeGuard::put(Tape::Record(Draws::default()));
    let out = f();
    match tape.take() {
        Some(Tape::Record(draws)) => (out, draws),
        _ => (out, Draws::default()),
    }
}

/// Runs `f`, which draws again what `draws` tells, however the generators stand; they do not move.
pub(crate) fn replay_draws<T>(draws: &Draws, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let tape = TapeGuard::put(Tape::Replay { draws: draws.0.clone(), next: 0 });
    let out = f()?;
    match tape.take() {
        Some(Tape::Replay { draws, next }) if next < draws.len() => Err(other_draws()),
        _ => Ok(out),
    }
}

fn other_draws() -> Error {
    Error::autograd(
        "checkpoint: the second run drew other random numbers than the first",
        "pass a function that draws the same each time",
    )
}

/// The state before `counters` counters, which are nobody else's, or those of an earlier run.
pub(super) fn take(device: &Device, counters: u64) -> Result<GeneratorState> {
    TAPES.with_borrow_mut(|tapes| {
        // What lies further out than a replay does not see it: it is a replay there, too.
        let replay = tapes.iter().rposition(|tape| matches!(tape, Tape::Replay { .. }));
        let draw = match replay.map(|at| &mut tapes[at]) {
            Some(Tape::Replay { draws, next }) => {
                let draw =
                    draws.get(*next).copied().filter(|draw| (draw.device, draw.counters) == (device.shared().id, counters));
                *next += 1;
                draw.ok_or_else(other_draws)?
            }
            _ => {
                let mut generator = generator(device)?;
                let state = *generator;
                generator.offset = state.offset.wrapping_add(counters);
                Draw { device: device.shared().id, state, counters }
            }
        };
        for tape in &mut tapes[replay.map_or(0, |at| at + 1)..] {
            if let Tape::Record(draws) = tape {
                draws.0.push(draw);
            }
        }
        Ok(draw.state)
    })
}

fn generator(device: &Device) -> Result<MutexGuard<'_, GeneratorState>> {
    let generator: Option<&Generator> = device.shared().attachment(Generator::default);
    let generator = generator
        .ok_or_else(|| Error::argument("random", "the device has no room for a generator", "report this as a bug of linn"))?;
    Ok(generator.0.lock().unwrap_or_else(PoisonError::into_inner))
}
