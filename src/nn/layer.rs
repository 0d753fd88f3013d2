//! What every layer has beside its tensors: its mode, and its name in the model.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::module::{Mode, join};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::checks::Subject;
use crate::kernel::labels::InLayer;
use crate::ops::copy::{contiguous, to_dtype};
use crate::ops::random::check;
use crate::stream::Origin;
use crate::tensor::Tensor;

/// The mode of a layer and its name: a field of layers that behave differently in training, or whose errors should say which they
/// are. [`Parts::of`](super::Parts::of) hands it to the module's methods.
///
/// ```
/// use linn::nn::{Layer, Module, Parts};
/// use linn::{Device, Result, Tensor};
///
/// struct Noise {
///     layer: Layer,
/// }
///
/// impl Module for Noise {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         match self.layer.is_training() {
///             true => self.layer.forward(|| x.add(&x.randn_like()?)),
///             false => Ok(x.clone()),
///         }
///     }
///
///     fn parts(&self) -> Parts<'_> {
///         Parts::of(&self.layer)
///     }
/// }
///
/// let (noise, x) = (Noise { layer: Layer::default() }, Tensor::zeros(&Device::open()?, &[2])?);
/// noise.eval();
/// assert_eq!(noise.forward(&x)?.to_vec::<f32>()?, [0.0, 0.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Layer {
    evaluates: AtomicBool,
    /// `None` before the model that it is in was asked for its parts.
    name: Mutex<Option<Arc<str>>>,
}

impl Layer {
    /// True in [`Mode::Train`], which it starts in.
    pub fn is_training(&self) -> bool {
        !self.evaluates.load(Ordering::Relaxed)
    }

    /// Its name in the model, such as `transformer.h.3.mlp.c_fc`.
    pub fn name(&self) -> Option<Arc<str>> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `work` in the layer: its errors, also those that the device finds later, name the layer.
    #[track_caller]
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _origin = Origin::enter();
        run(self.name(), work)
    }

    /// [`Layer::run`] of a forward pass, whose result [`DetectNan`] looks at.
    #[track_caller]
    pub fn forward(&self, work: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        self.run(|| {
            let result = work()?;
            look_at(&result)?;
            Ok(result)
        })
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.evaluates.store(mode == Mode::Eval, Ordering::Relaxed);
    }

    /// A part of a model that is asked for its own parts knows only the end of its name.
    pub(super) fn learn_name(&self, name: &str) {
        let mut known = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        let is_end = |known: &Arc<str>| known.ends_with(name);
        if !name.is_empty() && !known.as_ref().is_some_and(is_end) {
            *known = Some(name.into());
        }
    }
}

/// Runs `work` as a part of the model that is called `name`, within the part that runs: for what is no [`Module`](super::Module),
/// such as a loss.
///
/// ```
/// # use linn::{Device, Tensor, nn};
/// # let device = Device::open()?;
/// let (x, target) = (Tensor::zeros(&device, &[1, 3])?, Tensor::new(&device, [5i32])?);
/// let loss = nn::scope("head", || nn::loss::cross_entropy(&x, &target))?;
/// let error = loss.item::<f32>().unwrap_err().to_string();
/// assert!(error.starts_with("device: cross_entropy: in layer head: target 5 at position 0 is out of range for 3 classes"));
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn scope<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let _origin = Origin::enter();
    let outer = InLayer::name();
    run(Some(join(outer.as_deref().unwrap_or_default(), name).into()), work)
}

fn run<T>(name: Option<Arc<str>>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(name) = name else { return work() };
    let _layer = InLayer::enter(Some(name.clone()));
    work().map_err(|error| error.in_layer(&name))
}

thread_local! {
    static DETECTS_NAN: Cell<bool> = const { Cell::new(false) };
}

/// Until it is dropped, the device looks for NaN and infinities in what the layers of this thread answer with, and in the losses of
/// [`loss`](super::loss). The next call that waits for the device, `loss.item()` for instance, is an error then, and names the first
/// layer that has one. Nothing waits for it; it costs a dispatch for each layer.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::nn::{Bias, DetectNan, Linear, Module, Sequential};
/// let model = Sequential::new().add(Linear::new(&device, 2, 2, Bias::Without)?).add(Linear::new(&device, 2, 1, Bias::Without)?);
/// model.named_parameters()[1].1.detach().fill_(f64::NAN)?; // as a step that was too long would
/// let _detected = DetectNan::start();
/// let y = model.forward(&Tensor::ones(&device, &[1, 2])?)?;
/// let error = y.item::<f32>().unwrap_err().to_string();
/// assert!(error.starts_with("device: layer 1: result 0 is NaN\nhelp: it is the first layer that has one"));
/// # Ok::<(), linn::Error>(())
/// ```
#[must_use = "results are looked at only while the guard lives"]
pub struct DetectNan {
    before: bool,
    /// A guard belongs to the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl DetectNan {
    /// Looks at the results of this thread's layers from now on.
    pub fn start() -> DetectNan {
        DetectNan { before: DETECTS_NAN.replace(true), _not_send: PhantomData }
    }
}

impl Drop for DetectNan {
    fn drop(&mut self) {
        DETECTS_NAN.set(self.before);
    }
}

/// Lets the device look at a result, where this thread wants that.
#[track_caller]
pub(super) fn look_at(result: &Tensor) -> Result<()> {
    match DETECTS_NAN.get() && result.dtype().is_float() {
        true => check("DetectNan", &contiguous(&to_dtype(result, DType::F32)?)?, Subject::LayerResult),
        false => Ok(()),
    }
}
