//! What a thread has entered and not left: streams, private pools.

use smallvec::SmallVec;

/// The things of the guards alive on a thread with the numbers of their devices, innermost last; `None` where a guard was dropped
/// before one that was made later.
pub(crate) struct Entered<T>(SmallVec<[Option<(u64, T)>; 2]>);

impl<T> Default for Entered<T> {
    fn default() -> Entered<T> {
        Entered(SmallVec::new())
    }
}

impl<T> Entered<T> {
    /// One more guard, for [`Entered::leave`].
    pub(crate) fn enter(&mut self, device: u64, thing: T) -> usize {
        self.0.push(Some((device, thing)));
        self.0.len() - 1
    }

    /// The guard is dropped. Returns what it kept: its end may take locks, so it is for after the borrow.
    pub(crate) fn leave(&mut self, guard: usize) -> Option<(u64, T)> {
        let ended = self.0.get_mut(guard).and_then(Option::take);
        while self.0.last().is_some_and(Option::is_none) {
            self.0.pop();
        }
        ended
    }

    /// What counts for a device.
    pub(crate) fn innermost(&self, device: u64) -> Option<&T> {
        self.0.iter().rev().flatten().find(|(known, _)| *known == device).map(|(_, thing)| thing)
    }
}
