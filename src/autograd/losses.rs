//! Losses under PyTorch's names, put together from other methods, whose gradients they have.

use super::autocast::in_autocast;
use super::graph::Grads;
use super::halves::rounded_once;
use super::record::record;
use super::rules;
use super::views::signed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::broadcast_shapes;
use crate::ops;
use crate::ops::reduce::{KeepDim, expect_float};
use crate::tensor::Tensor;

/// What becomes of the losses of the elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// They are the result.
    None,
    /// Their mean; where there are weights, the mean by weight.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Their sum divided by the length of the first dimension; for [`Tensor::kl_div`].
    BatchMean,
}

impl Reduction {
    /// The reduction of `op` that PyTorch calls `text`.
    pub fn parse(op: &'static str, text: &str) -> Result<Reduction> {
        match text {
            "none" => Ok(Reduction::None),
            "mean" => Ok(Reduction::Mean),
            "sum" => Ok(Reduction::Sum),
            "batchmean" => Ok(Reduction::BatchMean),
            _ => {
                let help = "pass \"none\", \"mean\", \"sum\" or, to kl_div, \"batchmean\"";
                Err(Error::argument(op, format!("reduction is {text}"), help))
            }
        }
    }

    #[track_caller]
    fn of(self, op: &'static str, losses: &Tensor) -> Result<Tensor> {
        match self {
            Reduction::None => Ok(losses.clone()),
            Reduction::Mean => losses.mean_all(),
            Reduction::Sum => losses.sum_all(),
            Reduction::BatchMean if op == "kl_div" => {
                losses.sum_all()?.mul_scalar(1.0 / losses.shape().first().copied().unwrap_or(1) as f64)
            }
            Reduction::BatchMean => {
                Err(Error::argument(op, "reduction is BatchMean", "pass None, Mean or Sum: BatchMean is for kl_div"))
            }
        }
    }
}

/// What [`Tensor::nll_loss`] and [`Tensor::cross_entropy_with`] can be told besides their operands.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassOptions<'a> {
    /// Factors of the classes, `[C]`; 1 where there are none.
    pub weight: Option<&'a Tensor>,
    /// Elements with this target do not count (PyTorch's default is -100).
    pub ignore_index: Option<i32>,
    /// What becomes of the losses.
    pub reduction: Reduction,
    /// The part of the target that all classes share, from 0 to 1; for cross entropy.
    pub label_smoothing: f64,
}

/// Losses of two tensors, element by element; they broadcast.
impl Tensor {
    /// (self - target)^2.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::Reduction;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let target = Tensor::new(&device, [2.0f32, 4.0])?;
    /// assert_eq!(x.mse_loss(&target, Reduction::Mean)?.item::<f32>()?, 2.5);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        const OP: &str = "mse_loss";
        in_autocast!(OP, (x = self, t = target), x.mse_loss(&t, reduction));
        rounded_once(OP, [self, target], |[x, t]| reduction.of(OP, &x.apart(OP, t)?.square()?))
    }

    /// |self - target|.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::Reduction;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let target = Tensor::new(&device, [2.0f32, 4.0])?;
    /// assert_eq!(x.l1_loss(&target, Reduction::Sum)?.item::<f32>()?, 3.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        const OP: &str = "l1_loss";
        in_autocast!(OP, (x = self, t = target), x.l1_loss(&t, reduction));
        rounded_once(OP, [self, target], |[x, t]| reduction.of(OP, &x.apart(OP, t)?.abs()?))
    }

    /// With d = |self - target|: d^2 / 2 beta where d is below beta, else d - beta / 2. PyTorch's default beta is 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::Reduction;
    /// let x = Tensor::new(&device, [1.5f32, 2.0])?;
    /// let target = Tensor::new(&device, [2.0f32, 4.0])?;
    /// assert_eq!(x.smooth_l1_loss(&target, 1.0, Reduction::None)?.to_vec::<f32>()?, [0.125, 1.5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn smooth_l1_loss(&self, target: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
        const OP: &str = "smooth_l1_loss";
        in_autocast!(OP, (x = self, t = target), x.smooth_l1_loss(&t, beta, reduction));
        if beta.is_nan() || beta < 0.0 {
            return Err(Error::argument(OP, format!("beta is {beta} (shape {:?})", self.shape()), "pass a beta of at least 0"));
        }
        rounded_once(OP, [self, target], |[x, t]| {
            let d = x.apart(OP, t)?.abs()?;
            let losses = if beta == 0.0 { d } else { huber(&d, beta)?.mul_scalar(1.0 / beta)? };
            reduction.of(OP, &losses)
        })
    }

    /// With d = |self - target|: d^2 / 2 where d is below delta, else delta (d - delta / 2). PyTorch's default delta is 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::Reduction;
    /// let x = Tensor::new(&device, [1.5f32, 2.0])?;
    /// let target = Tensor::new(&device, [2.0f32, 4.0])?;
    /// assert_eq!(x.huber_loss(&target, 1.0, Reduction::None)?.to_vec::<f32>()?, [0.125, 1.5]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
        const OP: &str = "huber_loss";
        in_autocast!(OP, (x = self, t = target), x.huber_loss(&t, delta, reduction));
        if delta.is_nan() || delta <= 0.0 {
            return Err(Error::argument(OP, format!("delta is {delta} (shape {:?})", self.shape()), "pass a delta above 0"));
        }
        rounded_once(OP, [self, target], |[x, t]| reduction.of(OP, &huber(&x.apart(OP, t)?.abs()?, delta)?))
    }

    /// target (log(target) - self), for self the logarithm of a probability; where `log_target`, the target is one too.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::Reduction;
    /// let x = Tensor::new(&device, [[0.5f32, 0.5]])?.log()?;
    /// let target = Tensor::new(&device, [[1.0f32, 0.0]])?;
    /// assert_eq!(format!("{:.4}", x.kl_div(&target, false, Reduction::BatchMean)?.item::<f32>()?), "0.6931");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor, log_target: bool, reduction: Reduction) -> Result<Tensor> {
        const OP: &str = "kl_div";
        in_autocast!(OP, (x = self, t = target), x.kl_div(&t, log_target, reduction));
        expect_float(OP, self)?;
        broadcast_shapes(OP, self.shape(), target.shape())?;
        rounded_once(OP, [self, target], |[x, t]| {
            let losses = match log_target {
                true => t.exp()?.mul(&t.sub(x)?)?,
                false => t.xlogy(t)?.sub(&t.mul(x)?)?,
            };
            reduction.of(OP, &losses)
        })
    }

    /// -weight (target log(self) + (1 - target) log(1 - self)) for probabilities of one shape; logarithms count from -100 on.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::Reduction;
    /// let x = Tensor::new(&device, [0.5f32, 0.9])?;
    /// let target = Tensor::new(&device, [1.0f32, 1.0])?;
    /// let out = x.binary_cross_entropy(&target, None, Reduction::None)?.to_vec::<f32>()?;
    /// assert_eq!(format!("{out:.4?}"), "[0.6931, 0.1054]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn binary_cross_entropy(&self, target: &Tensor, weight: Option<&Tensor>, reduction: Reduction) -> Result<Tensor> {
        const OP: &str = "binary_cross_entropy";
        in_autocast!(OP, (x = self, t = target, w = weight), x.binary_cross_entropy(&t, w.as_ref(), reduction));
        expect_float(OP, self)?;
        same_shape(OP, self, target)?;
        rounded_once(OP, [self, target], |[x, t]| {
            let losses = ops::loss::binary_cross_entropy(&x.detach(), &t.detach())?;
            let losses = record(OP, &[x, t], &[x, t], losses, |ctx| {
                let (x, t, g) = (ctx.saved(0), ctx.saved(1), ctx.grad());
                let dx = ctx.want(0, || rules::loss::binary_cross_entropy_x(x, t, g))?;
                let dt = ctx.want(1, || rules::loss::binary_cross_entropy_target(x, g))?;
                Ok(Grads::from_iter([dx, dt]))
            })?;
            reduction.of(OP, &weighted(OP, losses, weight)?)
        })
    }

    /// [`Tensor::binary_cross_entropy`] of sigmoid(self), without overflow on the way; `pos_weight` is a factor of the losses of
    /// positive targets.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::Reduction;
    /// let x = Tensor::new(&device, [0.0f32, 2.0])?;
    /// let target = Tensor::new(&device, [1.0f32, 1.0])?;
    /// let out = x.binary_cross_entropy_with_logits(&target, None, None, Reduction::None)?.to_vec::<f32>()?;
    /// assert_eq!(format!("{out:.4?}"), "[0.6931, 0.1269]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        pos_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OP: &str = "binary_cross_entropy_with_logits";
        in_autocast!(
            OP,
            (x = self, t = target, w = weight, p = pos_weight),
            x.binary_cross_entropy_with_logits(&t, w.as_ref(), p.as_ref(), reduction)
        );
        expect_float(OP, self)?;
        same_shape(OP, self, target)?;
        rounded_once(OP, [self, target], |[x, t]| {
            let negative = x.sub(&t.mul(x)?)?;
            let log = x.logsigmoid()?;
            let log = match pos_weight {
                Some(pos_weight) => {
                    let factor = pos_weight.to_dtype(x.dtype())?.add_scalar(-1.0)?.mul(t);
                    log.mul(&factor.map_err(|error| error.of(OP))?.add_scalar(1.0)?)?
                }
                None => log,
            };
            reduction.of(OP, &weighted(OP, negative.sub(&log)?, weight)?)
        })
    }

    #[track_caller]
    fn apart(&self, op: &'static str, target: &Tensor) -> Result<Tensor> {
        expect_float(op, self)?;
        self.sub(target).map_err(|error| error.of(op))
    }
}

/// Losses of classes: self is `[N, C, ..]` or `[C]`, targets are `[N, ..]` or 0-d.
impl Tensor {
    /// -weight\[target\] self\[target\], where self holds logarithms of probabilities and targets are classes (i32). A target out of
    /// range is reported by the next call that waits for the device.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::ClassOptions;
    /// let x = Tensor::new(&device, [[-1.0f32, -2.0], [-3.0, -0.5]])?;
    /// let target = Tensor::new(&device, [0i32, 1])?;
    /// assert_eq!(x.nll_loss(&target, ClassOptions::default())?.item::<f32>()?, 0.75);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor, options: ClassOptions<'_>) -> Result<Tensor> {
        const OP: &str = "nll_loss";
        in_autocast!(OP, (x = self, w = options.weight), x.nll_loss(target, ClassOptions { weight: w.as_ref(), ..options }));
        rounded_once(OP, [self], |[x]| {
            let picked = x.picked(OP, target, options)?;
            picked.reduce(OP, picked.losses.clone(), options.reduction)
        })
    }

    /// Cross entropy of softmax(self) and targets that are classes (i32), or probabilities of all classes in the shape of self.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::{ClassOptions, Reduction};
    /// let (x, target) = (Tensor::new(&device, [[0.0f32, 1.0], [0.0, 0.0]])?, Tensor::new(&device, [1i32, 0])?);
    /// let options = ClassOptions { reduction: Reduction::None, ..Default::default() };
    /// assert_eq!(format!("{:.4?}", x.cross_entropy_with(&target, options)?.to_vec::<f32>()?), "[0.3133, 0.6931]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cross_entropy_with(&self, target: &Tensor, options: ClassOptions<'_>) -> Result<Tensor> {
        const OP: &str = "cross_entropy";
        in_autocast!(
            OP,
            (x = self, w = options.weight),
            x.cross_entropy_with(target, ClassOptions { weight: w.as_ref(), ..options })
        );
        let smoothing = options.label_smoothing;
        if !(0.0..=1.0).contains(&smoothing) {
            let fact = format!("label_smoothing is {smoothing} (shape {:?})", self.shape());
            return Err(Error::argument(OP, fact, "pass a number from 0 to 1"));
        }
        rounded_once(OP, [self], |[x]| {
            let classes = classes(OP, x)?;
            let logs = x.log_softmax(classes as isize).map_err(|error| error.of(OP))?;
            let share = smoothing / x.shape()[classes] as f64;
            let weighted = || match options.weight {
                Some(weight) => logs.mul(&along(OP, weight, x, classes)?),
                None => Ok(logs.clone()),
            };
            let sum = |x: &Tensor| x.sum(&[classes as isize], KeepDim::Drop);
            if target.dtype().is_float() {
                same_shape(OP, x, target)?;
                let target =
                    if smoothing > 0.0 { target.mul_scalar(1.0 - smoothing)?.add_scalar(share)? } else { target.clone() };
                let losses = sum(&weighted()?.mul(&target)?)?.neg()?;
                return options.reduction.of(OP, &losses);
            }
            let picked = logs.picked(OP, target, options)?;
            let hard = picked.reduce(OP, picked.losses.clone(), options.reduction)?;
            if smoothing == 0.0 {
                return Ok(hard);
            }
            let all = sum(&weighted()?)?.neg()?.masked_fill(&picked.ignored, 0)?;
            hard.mul_scalar(1.0 - smoothing)?.add(&picked.reduce(OP, all, options.reduction)?.mul_scalar(share)?)
        })
    }

    #[track_caller]
    fn picked(&self, op: &'static str, target: &Tensor, options: ClassOptions<'_>) -> Result<Picked> {
        expect_float(op, self)?;
        ops::expect_dtype(op, target, DType::I32)?;
        let classes = classes(op, self)?;
        let rest: Vec<usize> = (0..self.rank()).filter(|dim| *dim != classes).map(|dim| self.shape()[dim]).collect();
        if rest != target.shape() {
            return Err(Error::shape(
                op,
                format!("an input of shape {:?} and targets of shape {:?}", self.shape(), target.shape()),
                "pass an input [N, C, ..] and targets [N, ..], or an input [C] and a 0-d target",
            ));
        }
        let ignored = target.eq(&ops::copy::full(target.device(), &[], options.ignore_index.unwrap_or(-100), DType::I32)?)?;
        let safe = target.masked_fill(&ignored, 0)?;
        let weights = match options.weight {
            Some(weight) => {
                along(op, weight, self, classes)?;
                weight.elements(op, 0, &safe.reshape(&[-1])?)?.reshape(&signed(target.shape()))?
            }
            None => ops::copy::full(self.device(), target.shape(), 1, self.dtype())?,
        };
        let weights = weights.masked_fill(&ignored, 0)?;
        let logs = self.elements(op, classes as isize, &safe.unsqueeze(classes as isize)?)?.squeeze(classes as isize)?;
        let losses = logs.mul(&weights)?.neg()?.masked_fill(&ignored, 0)?;
        Ok(Picked { losses, weights, ignored })
    }
}

/// Losses of the targets' classes.
struct Picked {
    /// Weighted; 0 where ignored.
    losses: Tensor,
    /// Of the targets' classes; 0 where ignored.
    weights: Tensor,
    /// Which targets do not count.
    ignored: Tensor,
}

impl Picked {
    #[track_caller]
    fn reduce(&self, op: &'static str, losses: Tensor, reduction: Reduction) -> Result<Tensor> {
        match reduction {
            Reduction::Mean => losses.sum_all()?.div(&self.weights.sum_all()?),
            other => other.of(op, &losses),
        }
    }
}

/// d^2 / 2 where d is at most delta, else delta (d - delta / 2).
#[track_caller]
fn huber(d: &Tensor, delta: f64) -> Result<Tensor> {
    let small = d.le(&ops::copy::full(d.device(), &[], delta, d.dtype())?)?;
    let line = d.add_scalar(-0.5 * delta)?.mul_scalar(delta)?;
    d.square()?.mul_scalar(0.5)?.where_(&small, &line)
}

#[track_caller]
fn weighted(op: &'static str, losses: Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    weight.map_or(Ok(losses.clone()), |weight| losses.mul(weight).map_err(|error| error.of(op)))
}

/// The dimension of the classes.
fn classes(op: &'static str, x: &Tensor) -> Result<usize> {
    match x.shape() {
        [] => Err(Error::shape(op, "an input of shape []", "pass an input [N, C, ..] or [C]")),
        [_] => Ok(0),
        _ => Ok(1),
    }
}

/// The weights of the classes in the place of dimension `classes` of `x`.
#[track_caller]
fn along(op: &'static str, weight: &Tensor, x: &Tensor, classes: usize) -> Result<Tensor> {
    if weight.shape() != [x.shape()[classes]] {
        return Err(Error::shape(
            op,
            format!("weights of shape {:?} for an input of shape {:?}", weight.shape(), x.shape()),
            format!("pass {} weights", x.shape()[classes]),
        ));
    }
    let mut shape = vec![1; x.rank()];
    shape[classes] = -1;
    weight.reshape(&shape)
}

fn same_shape(op: &'static str, x: &Tensor, target: &Tensor) -> Result<()> {
    if x.shape() == target.shape() {
        return Ok(());
    }
    let fact = format!("an input of shape {:?} and a target of shape {:?}", x.shape(), target.shape());
    Err(Error::shape(op, fact, "pass a target of the input's shape"))
}
