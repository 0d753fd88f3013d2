//! What a thread has entered and not left: streams, private pools.

use std::cell::RefCell;
use std::thread::LocalKey;

use smallvec::SmallVec;

/// The things of the guards alive on a thread with the numbers of their devices, innermost last; `None` where a guard was dropped
/// before one that was made later.
pub(crate) struct Entered<T>(SmallVec<[Option<(u64, T)>; 2]>);

impl<T> Default for Entered<T> {
    fn default() -> Entered<T> {
        Entered(SmallVec::new())
    }
}

/// Where a thread keeps them. A thread that ends has lost them before its last destructors run: then nothing is entered.
pub(crate) type Key<T> = LocalKey<RefCell<Entered<T>>>;

/// One more guard, for [`leave`].
pub(crate) fn enter<T>(key: &'static Key<T>, device: u64, thing: T) -> usize {
    let guard = key.try_with(|entered| {
        let things = &mut entered.borrow_mut().0;
        things.push(Some((device, thing)));
        things.len() - 1
    });
    guard.unwrap_or(usize::MAX)
}

/// The guard is dropped. Returns what it kept: its end may take locks, so it is for after the borrow.
pub(crate) fn leave<T>(key: &'static Key<T>, guard: usize) -> Option<(u64, T)> {
    let ended = key.try_with(|entered| {
        let things = &mut entered.borrow_mut().0;
        let ended = things.get_mut(guard).and_then(Option::take);
        while things.last().is_some_and(Option::is_none) {
            things.pop();
        }
        ended
    });
    ended.ok().flatten()
}

/// What counts for a device.
pub(crate) fn innermost<T, R>(key: &'static Key<T>, device: u64, of: impl FnOnce(&T) -> R) -> Option<R> {
    let found = key.try_with(|entered| {
        let entered = entered.borrow();
        entered.0.iter().rev().flatten().find(|(known, _)| *known == device).map(|(_, thing)| of(thing))
    });
    found.ok().flatten()
}
