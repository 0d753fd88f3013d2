//! Checkpointing: what a part of a model saves is dropped, and computed again when the backward pass needs it.
//!
//! The part runs under hooks on saved tensors (PyTorch's form without reentry): the first one that is asked for runs the part once
//! more, which gives them all. So its graph is an ordinary one, with weights, hooks and [`grad`](super::grad) as anywhere else.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};

use super::autocast::{autocast_dtype, autocast_guard};
use super::graph::lock;
use super::mode::{enable_grad, is_grad_enabled};
use super::saved::{Saved, saved_tensors_hooks};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops::generator::{Draws, record_draws, replay_draws};
use crate::stream::Origin;
use crate::tensor::Tensor;

/// `f(inputs)` without keeping what `f` would save: only the inputs are kept, and the backward pass runs `f` once more.
///
/// `f` must compute the same each time. Random numbers repeat: what it drew from a device's generator is drawn again, whatever others
/// draw meanwhile; [`autocast`](super::autocast()) is as it was. It may answer with a tensor, with several, or with anything else.
/// Checkpoints nest. Weights that it captures (tensors are cheap to clone) must not change before the backward pass.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::checkpoint;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
/// let y = checkpoint(|x| x[0].exp()?.log()?.square(), &[&x])?; // exp and log are computed again backward
/// y.sum_all()?.backward()?;
/// assert!(x.grad().is_some());
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// Those of `f`. The backward pass fails with those of its second run, and with [`Error::Autograd`] where that saves other tensors or
/// draws other random numbers than the first.
#[track_caller]
pub fn checkpoint<R>(f: impl Fn(&[Tensor]) -> Result<R> + Send + Sync + 'static, inputs: &[&Tensor]) -> Result<R> {
    let given: Vec<Tensor> = inputs.iter().map(|input| (*input).clone()).collect();
    let Some(first) = inputs.first().filter(|_| is_grad_enabled()) else { return f(&given) };
    let _origin = Origin::enter();
    // Kept as any operation keeps its operands: by the hooks around, if there are any.
    let keep = |input: &&Tensor| Ok((Saved::new(OP, input)?, input.requires_grad()));
    let f = Arc::new(f);
    let part = Arc::new(Part {
        again: {
            let f = f.clone();
            Box::new(move |inputs| f(inputs).map(drop))
        },
        device: first.device().clone(),
        inputs: inputs.iter().map(keep).collect::<Result<_>>()?,
        autocast: autocast_dtype().unwrap_or(DType::F32),
        draws: OnceLock::new(),
        saved: Mutex::default(),
        found: Mutex::default(),
    });
    let pack = {
        let part = part.clone();
        move |tensor: &Tensor| {
            let mut saved = lock(&part.saved);
            saved.push((tensor.layout, tensor.dtype));
            Ok(Place { part: part.clone(), index: saved.len() - 1 })
        }
    };
    let (out, draws) = record_draws(|| saved_tensors_hooks(pack, |place: &Place| place.part.tensor(place.index), || f(&given)));
    let _first = part.draws.set(draws);
    out
}

/// `functions` one after the other on `x`, in `segments` parts, each in a [`checkpoint`] but the last one, which keeps what it saves:
/// the backward pass begins with it. PyTorch's `checkpoint_sequential`.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use std::sync::Arc;
/// use linn::autograd::checkpoint_sequential;
/// let layers = [Tensor::exp, Tensor::sin, Tensor::tanh, Tensor::square].map(Arc::new);
/// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
/// checkpoint_sequential(&layers, 2, &x)?.sum_all()?.backward()?;
/// assert!(x.grad().is_some());
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// As [`checkpoint`]; [`Error::Argument`] for no segments, or more than there are functions.
#[track_caller]
pub fn checkpoint_sequential<F>(functions: &[Arc<F>], segments: usize, x: &Tensor) -> Result<Tensor>
where
    F: Fn(&Tensor) -> Result<Tensor> + Send + Sync + ?Sized + 'static,
{
    if segments == 0 || segments > functions.len() {
        return Err(Error::argument(
            "checkpoint_sequential",
            format!("{segments} segments of {} functions", functions.len()),
            "pass from 1 segment to as many as there are functions",
        ));
    }
    let _origin = Origin::enter();
    let run = |part: &[Arc<F>], x: &Tensor| part.iter().try_fold(x.clone(), |x, f| f(&x));
    let (early, last) = functions.split_at(functions.len() / segments * (segments - 1));
    let mut x = x.clone();
    for part in early.chunks(functions.len() / segments) {
        let part = part.to_vec();
        x = checkpoint(move |x| run(&part, &x[0]), &[&x])?;
    }
    run(last, &x)
}

const OP: &str = "checkpoint";

type Again = dyn Fn(&[Tensor]) -> Result<()> + Send + Sync;

/// A part of a model that is computed again.
struct Part {
    again: Box<Again>,
    device: Device,
    /// And whether they want gradients.
    inputs: Vec<(Saved, bool)>,
    autocast: DType,
    draws: OnceLock<Draws>,
    /// What the first run saved.
    saved: Mutex<Vec<(Layout, DType)>>,
    /// What the second run has saved and nobody has asked for yet.
    found: Mutex<Vec<Option<Tensor>>>,
}

/// A saved tensor, by its number.
struct Place {
    part: Arc<Part>,
    index: usize,
}

impl Part {
    /// Saved tensor number `index`; each is given out once, so that it is freed as soon as it was used.
    fn tensor(&self, index: usize) -> Result<Tensor> {
        let take = |found: &mut Vec<Option<Tensor>>| found.get_mut(index).and_then(Option::take);
        if let Some(tensor) = take(&mut lock(&self.found)) {
            return Ok(tensor);
        }
        // No lock is held: this is the user's code.
        let mut found = self.run()?;
        let tensor = take(&mut found).ok_or_else(|| self.other("saved fewer tensors than"))?;
        let _old = std::mem::replace(&mut *lock(&self.found), found);
        Ok(tensor)
    }

    /// Runs the part again: what it saves.
    fn run(&self) -> Result<Vec<Option<Tensor>>> {
        let unpack = |(saved, wanted): &(Saved, bool)| saved.unpack(OP, &self.device)?.requires_grad_(*wanted);
        let inputs = self.inputs.iter().map(unpack).collect::<Result<Vec<_>>>()?;
        let _types = autocast_guard(self.autocast)?;
        let found = Rc::new(RefCell::new(Vec::new()));
        let pack = {
            let found = found.clone();
            move |tensor: &Tensor| {
                found.borrow_mut().push(Some(tensor.without_grad_slot()));
                Ok(tensor.clone())
            }
        };
        let again = || saved_tensors_hooks(pack, |tensor: &Tensor| Ok(tensor.clone()), || (self.again)(&inputs));
        match self.draws.get() {
            Some(draws) => replay_draws(draws, || enable_grad(again))?,
            None => enable_grad(again)?,
        }
        let found = found.take();
        let alike = |(tensor, (layout, dtype)): (&Option<Tensor>, &(Layout, DType))| {
            tensor.as_ref().is_some_and(|tensor| (tensor.shape(), tensor.dtype) == (layout.shape(), *dtype))
        };
        let saved = lock(&self.saved);
        if found.len() != saved.len() {
            return Err(self.other(&format!("saved {} tensors, not the {} of", found.len(), saved.len())));
        }
        if !found.iter().zip(&*saved).all(alike) {
            return Err(self.other("saved a tensor of another shape or type than"));
        }
        Ok(found)
    }

    fn other(&self, what: &str) -> Error {
        Error::autograd(
            format!("checkpoint: the second run {what} the first"),
            "pass a function that computes the same each time, and none that looks whether recording is on",
        )
    }
}
