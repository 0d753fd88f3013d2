//! Grad mode: whether operations of this thread are recorded.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static RECORDS: Cell<bool> = const { Cell::new(true) };
}

/// True when operations of this thread are recorded (the initial state of every thread).
///
/// ```
/// use linn::autograd::{is_grad_enabled, no_grad};
/// assert!(is_grad_enabled());
/// assert!(!no_grad(is_grad_enabled));
/// ```
pub fn is_grad_enabled() -> bool {
    RECORDS.get()
}

/// Runs `f` without recording: results want no gradients and nothing is saved.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::no_grad;
/// let x = Tensor::new(&device, [1.0f32])?.requires_grad_(true)?;
/// assert!(!no_grad(|| x.square())?.requires_grad());
/// # Ok::<(), linn::Error>(())
/// ```
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    let _guard = no_grad_guard();
    f()
}

/// Runs `f` with recording on, inside a [`no_grad`] scope.
///
/// ```
/// use linn::autograd::{enable_grad, is_grad_enabled, no_grad};
/// assert!(no_grad(|| enable_grad(is_grad_enabled)));
/// ```
pub fn enable_grad<T>(f: impl FnOnce() -> T) -> T {
    let _guard = enable_grad_guard();
    f()
}

/// Recording is off in this thread until the guard is dropped; guards nest.
#[must_use = "recording is on again as soon as the guard is dropped"]
pub fn no_grad_guard() -> NoGradGuard {
    NoGradGuard { _before: Before::switch(false) }
}

/// Recording is on in this thread until the guard is dropped; guards nest.
#[must_use = "the earlier mode is back as soon as the guard is dropped"]
pub fn enable_grad_guard() -> EnableGradGuard {
    EnableGradGuard { _before: Before::switch(true) }
}

/// Keeps recording off while it lives; made by [`no_grad_guard`].
pub struct NoGradGuard {
    _before: Before,
}

/// Keeps recording on while it lives; made by [`enable_grad_guard`].
pub struct EnableGradGuard {
    _before: Before,
}

/// The mode to go back to. It belongs to its thread, so it must not be sent.
struct Before {
    records: bool,
    _stays_in_its_thread: PhantomData<*const ()>,
}

impl Before {
    fn switch(records: bool) -> Before {
        Before { records: RECORDS.replace(records), _stays_in_its_thread: PhantomData }
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        RECORDS.set(self.records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_nest_and_belong_to_their_thread() {
        assert!(is_grad_enabled());
        no_grad(|| {
            assert!(!is_grad_enabled());
            enable_grad(|| assert!(is_grad_enabled()));
            assert!(!is_grad_enabled());
            assert!(std::thread::spawn(is_grad_enabled).join().unwrap());
        });
        assert!(is_grad_enabled());
    }

    #[test]
    fn a_panic_brings_the_mode_back() {
        let _ = std::panic::catch_unwind(|| no_grad(|| panic!("on purpose")));
        assert!(is_grad_enabled());
    }
}
