//! The primitives that [`signals`](super::signals) is made of; its model check puts others in their place.

pub(crate) use std::sync::atomic::AtomicUsize;
pub(crate) use std::sync::{Condvar, MutexGuard, PoisonError};
