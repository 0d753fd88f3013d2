//! What somebody waits for: points that go to the driver before all that nobody waits for.

use std::collections::VecDeque;

use crate::ids::{FenceSet, Horizons};

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

    /// The first that is not submitted yet; those before it are done with.
    pub(crate) fn first(&mut self, horizons: &impl Horizons) -> Option<&FenceSet> {
        let submitted = |fences: &FenceSet| fences.iter().all(|fence| fence.number <= horizons.submitted(fence.stream));
        while self.0.front().is_some_and(submitted) {
            self.0.pop_front();
        }
        self.0.front()
    }
}
