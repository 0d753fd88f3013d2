//! Optimizers whose state and step counts live on the device: a step enqueues kernels and never waits.
//!
//! State has the type of its parameter, as in PyTorch. Halves are stepped in f32: parameter and state are rounded once a step each, so
//! a change of less than half the distance of two neighbouring halves (at most a 256th of a bf16 parameter, a 2,048th of an f16 one) is lost.
//! Where that matters, step f32 parameters and give the model copies of them (`to_dtype`, which passes gradients on).
//!
//! ```no_run
//! # use linn::{device::Device, nn::{Bias, Linear, Module}, optim::{Adam, AdamOptions, Optimizer, ParamGroup}, tensor::Tensor};
//! # fn main() -> linn::Result<()> {
//! # let device = Device::open()?;
//! # let (model, x) = (Linear::new(&device, 4, 1, Bias::With)?, Tensor::new(&device, [[1.0f32, 2.0, 3.0, 4.0]])?);
//! let group = ParamGroup::new(model.named_parameters(), 1e-3, 0.01);
//! let mut optimizer = Adam::adamw(vec![group], AdamOptions::default());
//! model.forward(&x)?.square()?.mean_all()?.backward()?;
//! optimizer.step()?;
//! optimizer.zero_grad();
//! # Ok(()) }
//! ```

pub mod clip;
pub mod schedule;

mod adafactor;
mod adam;
mod adaptive;
mod grad_scaler;
mod group;
mod scheduler;
mod sgd;
mod stepper;

pub use adafactor::{Adafactor, AdafactorOptions};
pub use adam::{Adam, AdamOptions, Decay, NAdam, NAdamOptions};
pub use adaptive::{Adagrad, AdagradOptions, RmsProp, RmsPropOptions};
pub use clip::{clip_grad_norm_, clip_grad_value_, clip_scale, grad_norm};
pub use grad_scaler::{GradScaler, GradScalerOptions};
pub use group::{Optimizer, ParamGroup, Scaling, StaleGradients};
pub use schedule::{
    Anneal, ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts, ExponentialLr, LambdaLr, LinearLr, MultiStepLr,
    OneCycleLr, PolynomialLr, Schedule, SequentialLr, StepLr, WarmupCosine,
};
pub use scheduler::{Better, PlateauOptions, ReduceLrOnPlateau, Scheduler, Threshold};
pub use sgd::{Sgd, SgdOptions};
