//! Histories and snapshots of a device: the clock and the stacks that the pure pool does without.

use std::backtrace::Backtrace;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::device::core::Core;
use crate::device::{Device, Shared};
use crate::memory::{Frame, HistoryOptions, Snapshot, StackId, Stacks};

/// The stacks of a history. Most programs have few different ones, however often they allocate; where they are many, those
/// that nothing refers to any more are forgotten whenever their number has doubled.
#[derive(Default)]
pub(crate) struct StackTable {
    known: FxHashMap<String, StackId>,
    /// By number. Shared, so that the copy for a snapshot is short under the lock.
    frames: Vec<Arc<[Frame]>>,
    vacant: Vec<StackId>,
    /// Known stacks after the last time that some were forgotten.
    kept: usize,
}

/// Below this many nothing is forgotten: looking which are in use is a walk over the history.
const FEW_STACKS: usize = 1024;

impl StackTable {
    fn number(&mut self, text: String, in_use: impl FnOnce() -> FxHashSet<StackId>) -> StackId {
        if let Some(number) = self.known.get(&text) {
            return *number;
        }
        if self.known.len() >= FEW_STACKS.max(2 * self.kept) {
            self.forget_all_but(&in_use());
        }
        let frames = parse(&text).into();
        let number = match self.vacant.pop() {
            Some(number) => {
                self.frames[number.0 as usize] = frames;
                number
            }
            None => {
                self.frames.push(frames);
                StackId(self.frames.len() as u32 - 1)
            }
        };
        self.known.insert(text, number);
        number
    }

    fn forget_all_but(&mut self, used: &FxHashSet<StackId>) {
        let StackTable { known, frames, vacant, kept } = self;
        known.retain(|_, number| {
            let keep = used.contains(number);
            if !keep {
                frames[number.0 as usize] = Arc::default();
                vacant.push(*number);
            }
            keep
        });
        *kept = known.len();
    }
}

/// The frames of a printed backtrace without the ones that took it.
fn parse(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            // file:line:column; a file may hold colons itself.
            let mut parts = place.rsplitn(3, ':');
            let (_column, line, file) = (parts.next(), parts.next(), parts.next());
            if let (Some(frame), Some(file)) = (frames.last_mut(), file) {
                frame.file = file.to_owned();
                frame.line = line.and_then(|line| line.parse().ok()).unwrap_or(0);
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.bytes().all(|digit| digit.is_ascii_digit())
        {
            frames.push(Frame { name: name.to_owned(), file: String::new(), line: 0 });
        }
    }
    let ours = |frame: &Frame| ["std::backtrace::Backtrace", "capture_stack"].iter().any(|part| frame.name.contains(part));
    let taken = frames.iter().rposition(ours).map_or(0, |last| last + 1);
    frames.split_off(taken)
}

impl Core {
    /// While a history is recorded: the pool is told what time it is and on whose behalf the next calls are made.
    pub(crate) fn note(&mut self, stack: Option<String>) {
        if self.pool.history_options().is_some() {
            let now = web_time::SystemTime::now().duration_since(web_time::UNIX_EPOCH);
            let Core { stacks, pool, .. } = self;
            let stack = stack.map(|stack| stacks.number(stack, || pool.stacks_in_use()));
            pool.handle_context(now.map_or(0, |now| now.as_micros() as u64), stack);
        }
    }
}

impl Shared {
    /// The stack of the caller, if calls of this kind are to be recorded with theirs.
    pub(crate) fn capture_stack(&self, kind: Stacks) -> Option<String> {
        let wanted = self.recorded_stacks.load(Ordering::Relaxed);
        (wanted >= kind as u8).then(|| Backtrace::force_capture().to_string())
    }
}

impl Device {
    /// Records what happens to the memory from now on, or, with `None`, no longer, and forgets what was recorded.
    ///
    /// PyTorch's `_record_memory_history`. Every event has the file and line of the caller; whole stacks are captured on
    /// request, at many times the cost of an allocation. Read it with [`Device::memory_snapshot`].
    pub fn record_memory_history(&self, options: Option<HistoryOptions>) {
        let shared = self.shared();
        let mut core = shared.lock();
        let stacks = options.map_or(Stacks::Off, |options| options.stacks);
        shared.recorded_stacks.store(stacks as u8, Ordering::Relaxed);
        core.pool.record_history(options);
        if options.is_none() {
            core.stacks = StackTable::default();
        }
    }

    /// Segments, blocks and counters, and the events recorded so far, all of one moment.
    ///
    /// `to_json` makes a file for PyTorch's memory_viz page of it, `to_html` a page that opens in any browser.
    pub fn memory_snapshot(&self) -> Snapshot {
        let (snapshot, stacks) = {
            let mut core = self.shared().lock();
            core.note(None);
            (core.pool.snapshot(), core.stacks.frames.clone())
        };
        Snapshot { stacks: stacks.iter().map(|frames| frames.to_vec()).collect(), ..snapshot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_backtrace_becomes_frames() {
        let text = "   0: std::backtrace::Backtrace::create\n             at /rustc/1/library/std/src/backtrace.rs:331:13\n   \
            1: linn::device::history::capture_stack\n             at ./src/device/history.rs:60:9\n   2: model::forward\n   \
            3: main::run::{{closure}}\n             at C:\\code\\main.rs:12:5\n";
        let frame = |name: &str, file: &str, line| Frame { name: name.into(), file: file.into(), line };
        assert_eq!(parse(text), [frame("model::forward", "", 0), frame("main::run::{{closure}}", "C:\\code\\main.rs", 12)]);
        let mut table = StackTable::default();
        let all = || panic!("a few are kept without a look at who uses them");
        assert_eq!(table.number(text.into(), all), StackId(0));
        assert_eq!(table.number("0: other".into(), all), StackId(1));
        assert_eq!(table.number(text.into(), all), StackId(0));
        assert_eq!(table.frames.len(), 2);
    }

    /// A program whose every stack is a new one, with a history of 100 events.
    #[test]
    fn stacks_that_nothing_refers_to_are_forgotten() {
        let mut table = StackTable::default();
        let mut ring = std::collections::VecDeque::new();
        let mut looks = 0;
        for at in 0..100_000 {
            let number = table.number(format!("0: function_{at}"), || {
                looks += 1;
                ring.iter().map(|(number, _)| *number).collect()
            });
            ring.push_back((number, at));
            if ring.len() > 100 {
                ring.pop_front();
            }
        }
        assert!(table.known.len() <= FEW_STACKS && table.frames.len() <= FEW_STACKS, "{}", table.frames.len());
        assert!(looks < 200, "{looks} walks over the history");
        for (number, at) in ring {
            assert_eq!(table.frames[number.0 as usize][0].name, format!("function_{at}"));
        }
    }
}
