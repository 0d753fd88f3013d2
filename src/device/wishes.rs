//! What somebody waits for: points that go to the driver before all that nobody waits for.

use std::collections::VecDeque;

use crate::ids::{FenceSet, Horizons};
use crate::timeline::Timeline;

/// Commands between two wishes up to which one flush serves both: a submission costs about as much as a few tiny dispatches.
const NEAR: u64 = 64;

/// Points that are waited for, in the order of asking.
#[derive(Default)]
pub(crate) struct Wishes(VecDeque<FenceSet>);

impl Wishes {
    /// Somebody waits for these commands. Wishes close to the one before join it; others keep their turn, so that the first
    /// waiter is not held up by all that came later.
    pub(crate) fn add(&mut self, fences: &FenceSet) {
        let near = |last: &FenceSet| {
            fences.iter().all(|fence| last.of(fence.stream).is_some_and(|known| fence.number <= known.number + NEAR))
        };
        match self.0.back_mut().filter(|last| near(last)) {
            Some(last) => last.merge(fences),
            None => self.0.push_back(fences.clone()),
        }
    }

    /// True when nobody waits; some may have what they waited for and be counted still.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next in turn that is not submitted yet and not held. One that takes several submissions takes turns with those of other streams:
    /// a read on an idle stream is not held up by a second of work that somebody else waits for. On one stream the order of
    /// asking stays.
    pub(crate) fn next(&mut self, timeline: &Timeline) -> Option<FenceSet> {
        self.0.retain(|fences| fences.iter().any(|fence| fence.number > timeline.submitted(fence.stream)));
        let next = self.0.iter().find(|fences| timeline.advances(fences))?.clone();
        let needs_it =
            |later: &FenceSet| next.iter().all(|fence| later.of(fence.stream).is_some_and(|other| other.number >= fence.number));
        self.0.make_contiguous().sort_by_key(needs_it);
        Some(next)
    }
}
