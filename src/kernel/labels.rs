//! Numbers for names of operations: a kernel that meets an index out of range tells the host which operation it works for.

use std::sync::{Mutex, MutexGuard, PoisonError};

static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The number of an operation, from 1 on and the same while the program runs. There are a few dozen.
pub(crate) fn number(op: &'static str) -> u32 {
    let mut names = names();
    let at = names.iter().position(|name| *name == op).unwrap_or_else(|| {
        names.push(op);
        names.len() - 1
    });
    at as u32 + 1
}

/// The operation with this number.
pub(crate) fn name(number: u32) -> Option<&'static str> {
    names().get((number as usize).checked_sub(1)?).copied()
}

fn names() -> MutexGuard<'static, Vec<&'static str>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}
