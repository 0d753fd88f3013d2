//! Numbers for names of operations: a kernel that meets an index out of range tells the host which operation it works for, and in
//! which layer of a model.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An operation, and the layer that it was called in.
type Label = (&'static str, Option<Arc<str>>);

static LABELS: Mutex<Vec<Label>> = Mutex::new(Vec::new());

/// More are not told apart by their layers: layers can be called anything.
const MOST: usize = 1 << 14;

thread_local! {
    static LAYER: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Until it is dropped, what this thread calls is called in a layer.
pub(crate) struct InLayer(Option<Arc<str>>);

impl InLayer {
    /// The layer of this name; in none where it has no name.
    pub(crate) fn enter(layer: Option<Arc<str>>) -> InLayer {
        InLayer(LAYER.replace(layer))
    }

    /// The name of the layer that this thread is in.
    pub(crate) fn name() -> Option<Arc<str>> {
        LAYER.with_borrow(Clone::clone)
    }
}

impl Drop for InLayer {
    fn drop(&mut self) {
        LAYER.replace(self.0.take());
    }
}

/// The number of an operation in the layer that the thread is in, from 1 on and the same while the program runs. There are a few dozen.
pub(crate) fn number(op: &'static str) -> u32 {
    number_of(op, InLayer::name())
}

/// The number of an operation in a layer.
pub(crate) fn number_of(op: &'static str, layer: Option<Arc<str>>) -> u32 {
    let mut labels = labels();
    let layer = layer.filter(|_| labels.len() < MOST);
    let at = labels.iter().position(|known| known.0 == op && known.1 == layer).unwrap_or_else(|| {
        labels.push((op, layer));
        labels.len() - 1
    });
    at as u32 + 1
}

/// The operation with this number, and its layer.
pub(crate) fn name(number: u32) -> Option<Label> {
    labels().get((number as usize).checked_sub(1)?).cloned()
}

fn labels() -> MutexGuard<'static, Vec<Label>> {
    LABELS.lock().unwrap_or_else(PoisonError::into_inner)
}
