//! Histories and snapshots of a device: the clock and the stacks that the pure pool does without.

use std::backtrace::Backtrace;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;

use crate::device::core::Core;
use crate::device::{Device, Shared};
use crate::memory::{Frame, HistoryOptions, Snapshot, StackId, Stacks};

/// Stacks seen so far. A program has few different ones, however often it allocates.
#[derive(Default)]
pub(crate) struct StackTable {
    known: FxHashMap<String, StackId>,
    frames: Vec<Vec<Frame>>,
}

impl StackTable {
    fn number(&mut self, text: String) -> StackId {
        let StackTable { known, frames } = self;
        *known.entry(text).or_insert_with_key(|text| {
            frames.push(parse(text));
            StackId(frames.len() as u32 - 1)
        })
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
            let stack = stack.map(|stack| self.stacks.number(stack));
            self.pool.handle_context(now.map_or(0, |now| now.as_micros() as u64), stack);
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
        let mut core = self.shared().lock();
        core.note(None);
        let snapshot = core.pool.snapshot();
        Snapshot { stacks: core.stacks.frames.clone(), ..snapshot }
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
        assert_eq!(table.number(text.into()), StackId(0));
        assert_eq!(table.number("0: other".into()), StackId(1));
        assert_eq!(table.number(text.into()), StackId(0));
        assert_eq!(table.frames.len(), 2);
    }
}
