//! Events: remembered points of streams, and the time from one to another.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::device::Device;
use crate::device::command::{Command, Op, Stamp};
use crate::error::{Error, Result};
use crate::ids::FenceSet;
use crate::stream::{Origin, Stream, enqueue_on, wait};
use crate::timeline::AccessList;

/// A point of a stream. An event that was never recorded counts as done, as in PyTorch.
///
/// One with timing also remembers when the device passed it:
///
/// ```no_run
/// # fn run(device: &linn::Device, x: &linn::Tensor) -> linn::Result<()> {
/// let (start, end, stream) = (linn::Event::with_timing(), linn::Event::with_timing(), device.current_stream());
/// start.record(&stream)?;
/// let y = x.matmul(x)?;
/// end.record(&stream)?;
/// end.synchronize()?;
/// println!("{:.3} ms on the device", start.elapsed_time(&end)?);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Event {
    timing: bool,
    recorded: Mutex<Option<Recorded>>,
}

#[derive(Clone)]
struct Recorded {
    device: Device,
    point: FenceSet,
    /// The time of it; events without timing have none.
    stamp: Option<Arc<Stamp>>,
}

impl Event {
    /// An event that is not recorded yet, without timing.
    pub fn new() -> Event {
        Event::default()
    }

    /// An event that is not recorded yet and measures time (PyTorch's `enable_timing`); see [`Event::elapsed_time`].
    ///
    /// Recording it enqueues a command, at which kernels that would share a pass with those after it do not.
    pub fn with_timing() -> Event {
        Event { timing: true, ..Event::default() }
    }

    pub(super) fn at(device: Device, point: FenceSet) -> Event {
        Event { timing: false, recorded: Mutex::new(Some(Recorded { device, point, stamp: None })) }
    }

    /// True when it measures time.
    pub fn has_timing(&self) -> bool {
        self.timing
    }

    /// Moves the event to this point of `stream`: everything enqueued on it so far. Who waits for an earlier point of it
    /// already goes on waiting for that.
    ///
    /// # Errors
    /// Where the event was recorded on another device before, and for an event with timing on a device that cannot tell the
    /// time ([`Device::has_timestamps`]) or is lost. The event stays where it was.
    #[track_caller]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let device = stream.device();
        if let Some(before) = self.recorded().filter(|before| !before.device.same(device)) {
            let fact = format!("event of {} and stream of {}", before.device.numbered(), device.numbered());
            return Err(Error::argument("record", fact, "an event stays on the device it was first recorded on: use another"));
        }
        let (point, stamp) = match self.timing {
            true => timed_point(stream).map(|(point, stamp)| (point, Some(stamp)))?,
            false => (stream.point(), None),
        };
        let recorded = Recorded { device: device.clone(), point, stamp };
        let before = self.recorded.lock().unwrap_or_else(PoisonError::into_inner).replace(recorded);
        // The last handle of a device may be in it.
        drop(before);
        Ok(())
    }

    /// Work enqueued on `stream` from now on comes after the event: [`Stream::wait_event`].
    #[track_caller]
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        stream.wait_event(self)
    }

    /// Milliseconds from when the device passed this event to when it passed `end`; negative where `end` was first. Both have
    /// to have passed ([`Event::query`], [`Event::synchronize`]): the call does not wait.
    ///
    /// It is the device's time. Streams take turns on it, so what other streams enqueued between the two counts too.
    ///
    /// # Errors
    /// In this order: an event without timing, one that is not recorded, events of two devices, one that has not passed yet,
    /// one whose commands failed.
    pub fn elapsed_time(&self, end: &Event) -> Result<f64> {
        let both = [("start", self), ("end", end)];
        let error = |fact: String, help: &str| Err(Error::argument("elapsed_time", fact, help));
        if let Some((name, _)) = both.iter().find(|(_, event)| !event.timing) {
            return error(format!("the {name} event has no timing"), "make both with Event::with_timing()");
        }
        let [start, end] = both.map(|(name, event)| (name, event.recorded()));
        let (start, end) = match (start, end) {
            ((_, Some(start)), (_, Some(end))) => (start, end),
            ((name, None), _) | (_, (name, None)) => {
                return error(format!("the {name} event is not recorded"), "call record(&stream) on it first");
            }
        };
        let device = &start.device;
        if !device.same(&end.device) {
            let fact = format!("the start event is of {}, the end event of {}", device.numbered(), end.device.numbered());
            return error(fact, "record both on streams of one device: each has its own clock");
        }
        let passed = {
            let core = device.shared().lock();
            core.alive()?;
            [&start, &end].map(|event| core.timeline.are_completed(&event.point))
        };
        if let Some((name, _)) = ["start", "end"].iter().zip(passed).find(|(_, passed)| !passed) {
            return error(format!("the device has not passed the {name} event yet"), "call synchronize() on it first");
        }
        // A completion is only told when its times are there.
        let ticks = |event: &Recorded| event.stamp.as_ref().and_then(|stamp| stamp.ticks());
        match (ticks(&start), ticks(&end)) {
            (Some(start), Some(end)) => Ok(device.milliseconds(start, end)),
            _ => Err(Error::Device {
                fact: "elapsed_time: the submission with one of the events failed, so it has no time".into(),
                help: "look at the error that synchronize() returned, then record both events again".into(),
            }),
        }
    }

    /// True when everything before the event has been executed; also on a lost device, see [`Stream::query`].
    pub fn query(&self) -> bool {
        self.point().is_none_or(|(device, point)| device.has_reached(&point))
    }

    /// Blocks until everything before the event has been executed, and reports what went wrong meanwhile.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        match self.point() {
            Some((device, point)) => wait::wait(&device, point),
            None => Ok(()),
        }
    }

    /// [`Event::synchronize`] for so long at most: false where work is left, which goes on. An index out of range is only
    /// reported by the next call that waits without a bound.
    #[track_caller]
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<bool> {
        match self.point() {
            Some((device, point)) => wait::wait_at_most(&device, point, timeout),
            None => Ok(true),
        }
    }

    /// [`Event::synchronize`] as a future; the point waited for is where the event stands at this call.
    pub fn synchronize_async(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let waiting = self.point().map(|(device, point)| wait::wait_async(&device, point));
        async move {
            match waiting {
                Some(waiting) => waiting.await,
                None => Ok(()),
            }
        }
    }

    pub(super) fn point(&self) -> Option<(Device, FenceSet)> {
        self.recorded().map(|recorded| (recorded.device, recorded.point))
    }

    fn recorded(&self) -> Option<Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// This point of the stream, and where its time will stand.
#[track_caller]
fn timed_point(stream: &Stream) -> Result<(FenceSet, Arc<Stamp>)> {
    let device = stream.device();
    if !device.has_timestamps() {
        return Err(Error::Limit {
            op: "record",
            fact: format!("{} cannot tell the time (no timestamp queries), which an event with timing needs", device.name()),
            help: "use Event::new(), and measure on the host: std::time::Instant before and after synchronize()".into(),
        });
    }
    let stamp = Arc::<Stamp>::default();
    let command = Command { label: "event", location: Origin::line(), op: Op::Time { stamp: stamp.clone() } };
    let core = device.shared().lock();
    let fence = enqueue_on(device, core, stream.0.id, &AccessList::default(), command, &[])?;
    Ok(([fence].into_iter().collect(), stamp))
}
