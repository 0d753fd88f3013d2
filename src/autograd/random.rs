//! Random tensors: in place, like others, and drawn by what other tensors say. None has a gradient; what random numbers replace gets
//! the gradient 0, as in PyTorch.

use super::graph::{Backward, Grads};
use super::mode::no_grad;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::checks::Subject;
use crate::ops;
use crate::ops::random::Distribution;
use crate::ops::reduce::KeepDim;
use crate::ops::sort::{Order, Side};
use crate::tensor::Tensor;

/// Whether a category can be drawn again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Every draw is from all categories.
    With,
    /// A category is drawn once at most.
    Without,
}

/// Most categories of `multinomial`.
const MOST_CATEGORIES: usize = 1 << 24;

impl Tensor {
    /// Uniform in [low, high), from the device's generator; floats.
    ///
    /// ```
    /// # use linn::{DType, Tensor};
    /// # let device = linn::Device::open()?;
    /// let x = Tensor::empty(&device, &[4], DType::F16)?;
    /// x.uniform_(-1.0, 1.0)?;
    /// assert!(x.to_vec::<half::f16>()?.iter().all(|x| (-1.0..1.0).contains(&x.to_f32())));
    /// # Ok::<(), linn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where low > high, or one of them or their difference is not in the range of the element type.
    #[track_caller]
    pub fn uniform_(&self, low: f64, high: f64) -> Result<()> {
        self.redraw(Distribution::uniform("uniform_", low, high, self.dtype())?, "uniform_")
    }

    /// Normal with mean `mean` and standard deviation `std`; floats.
    ///
    /// # Errors
    /// Where `std` is negative or NaN.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::zeros(&device, &[10_000])?;
    /// x.normal_(5.0, 0.5)?;
    /// assert!((x.mean_all()?.item::<f32>()? - 5.0).abs() < 0.05);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn normal_(&self, mean: f64, std: f64) -> Result<()> {
        expect_float("normal_", self)?;
        self.redraw(Distribution::normal("normal_", mean, std)?, "normal_")
    }

    /// Exponential with density rate e^(-rate x), mean 1 / rate; floats.
    ///
    /// # Errors
    /// Where `rate` is not positive.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::zeros(&device, &[10_000])?;
    /// x.exponential_(4.0)?;
    /// assert!((x.mean_all()?.item::<f32>()? - 0.25).abs() < 0.02);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn exponential_(&self, rate: f64) -> Result<()> {
        expect_float("exponential_", self)?;
        self.redraw(Distribution::exponential("exponential_", rate)?, "exponential_")
    }

    /// 1 with probability `p`, else 0; every element type.
    ///
    /// # Errors
    /// Where `p` is not from 0 to 1.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::zeros(&device, &[10_000])?;
    /// x.bernoulli_(0.25)?;
    /// assert!((x.mean_all()?.item::<f32>()? - 0.25).abs() < 0.03);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn bernoulli_(&self, p: f64) -> Result<()> {
        self.redraw(Distribution::bernoulli("bernoulli_", p, 1.0)?, "bernoulli_")
    }

    /// Whole numbers in [low, high); every element type (PyTorch's `random_(from, to)`).
    ///
    /// # Errors
    /// Where the range is empty or not within the element type; floats take what they hold exactly.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::new(&device, [0, 0, 0])?;
    /// x.random_(1, 7)?;
    /// assert!(x.to_vec::<i32>()?.iter().all(|x| (1..7).contains(x)));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn random_(&self, low: i64, high: i64) -> Result<()> {
        self.redraw(Distribution::randint("random_", low, high, self.dtype())?, "random_")
    }

    /// Uniform in [0, 1) with the shape and element type of this tensor, contiguous; floats.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::zeros(&device, &[2, 3])?.rand_like()?;
    /// assert_eq!(x.shape(), [2, 3]);
    /// assert!(x.to_vec::<f32>()?.iter().all(|x| (0.0..1.0).contains(x)));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn rand_like(&self) -> Result<Tensor> {
        Distribution::uniform("rand_like", 0.0, 1.0, self.dtype())?.draw(self.device(), self.shape(), self.dtype())
    }

    /// Normal with mean 0 and deviation 1, with the shape and element type of this tensor, contiguous; floats.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::zeros(&device, &[100, 100])?.randn_like()?;
    /// assert_eq!(x.shape(), [100, 100]);
    /// assert!(x.mean_all()?.item::<f32>()?.abs() < 0.05);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn randn_like(&self) -> Result<Tensor> {
        expect_float("randn_like", self)?;
        Distribution::normal("randn_like", 0.0, 1.0)?.draw(self.device(), self.shape(), self.dtype())
    }

    /// Whole numbers in [low, high) with the shape and element type of this tensor, contiguous.
    ///
    /// # Errors
    /// As [`Tensor::random_`].
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::new(&device, [0, 0, 0])?.randint_like(1, 7)?;
    /// assert!(x.to_vec::<i32>()?.iter().all(|x| (1..7).contains(x)));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn randint_like(&self, low: i64, high: i64) -> Result<Tensor> {
        Distribution::randint("randint_like", low, high, self.dtype())?.draw(self.device(), self.shape(), self.dtype())
    }

    /// Normal numbers, each with the mean and the standard deviation that stand at its place; both are broadcast.
    ///
    /// # Errors
    /// A negative or undefined deviation is reported at the next synchronising call.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let mean = linn::Tensor::new(&device, [-100.0f32, 100.0])?;
    /// let std = linn::Tensor::new(&device, 1.0f32)?;
    /// let x = linn::Tensor::normal_of(&mean, &std)?.to_vec::<f32>()?;
    /// assert!(x[0] < -90.0 && x[1] > 90.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn normal_of(mean: &Tensor, std: &Tensor) -> Result<Tensor> {
        const OP: &str = "normal";
        expect_float(OP, mean)?;
        expect_float(OP, std)?;
        no_grad(|| {
            check(OP, std, Subject::Deviation)?;
            let spread = std.mul(&mean.zeros_like()?.add(&std.zeros_like()?)?.randn_like()?)?;
            mean.add(&spread)
        })
    }

    /// 0, 1, .. n - 1 in random order (i32), every order as probable as any other but for n^2 / 2^65.
    ///
    /// The positions of sorted random words, sorted again by a second word for each: keys of 64 bits. On the device, without a wait.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let order = linn::Tensor::randperm(&device, 5)?;
    /// let mut all = order.to_vec::<i32>()?;
    /// all.sort();
    /// assert_eq!(all, [0, 1, 2, 3, 4]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn randperm(device: &Device, n: usize) -> Result<Tensor> {
        const OP: &str = "randperm";
        let words = || Distribution::bits().draw(device, &[n], DType::U32);
        let named = |order: Result<Tensor>| order.map_err(|error| error.of(OP));
        let first = named(ops::sort::argsort(&words()?, Order::Ascending))?;
        // Words of their own for the second key: in whatever order they stand, they are random.
        let second = named(ops::sort::argsort(&words()?, Order::Ascending))?;
        if n == 0 { Ok(first) } else { first.gather(0, &second) }
    }

    /// 1 with the probability that stands at each place, else 0; floats, of the same type.
    ///
    /// # Errors
    /// A probability that is not from 0 to 1 is reported at the next synchronising call.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let p = linn::Tensor::new(&device, [0.0f32, 1.0, 1.0])?;
    /// assert_eq!(p.bernoulli()?.to_vec::<f32>()?, [0.0, 1.0, 1.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn bernoulli(&self) -> Result<Tensor> {
        const OP: &str = "bernoulli";
        expect_float(OP, self)?;
        no_grad(|| {
            check(OP, self, Subject::Probability)?;
            let drawn = Distribution::uniform(OP, 0.0, 1.0, DType::F32)?.draw(self.device(), self.shape(), DType::F32)?;
            drawn.lt(&self.detach().to_dtype(DType::F32)?)?.to_dtype(self.dtype())
        })
    }

    /// Each element becomes 0 with probability `p`, else it is divided by 1 - p; floats. What `nn::Dropout` does in training.
    ///
    /// # Errors
    /// Where `p` is not from 0 to 1.
    ///
    /// ```
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::ones(&device, &[100])?.dropout(0.75)?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|x| *x == 0.0 || *x == 4.0));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Result<Tensor> {
        const OP: &str = "dropout";
        expect_float(OP, self)?;
        let kept = 1.0 - ops::random::probability(OP, p)?;
        self.mul(&Distribution::bernoulli(OP, kept, 1.0 / kept)?.draw(self.device(), self.shape(), self.dtype())?)
    }

    /// `count` categories (i32) drawn by the weights `[C]` or `[B, C]`, which are floats and need not sum to 1: `[count]` or
    /// `[B, count]`.
    ///
    /// One, or without replacement: the largest quotients weight / exponential number (Efraimidis, Spirakis: "Weighted random sampling
    /// with a reservoir", 2006); categories of weight 0 come last. Several with replacement: the places of uniform numbers in running
    /// sums of the sorted weights. A weight counts with all its digits, however small it is beside others.
    ///
    /// ```
    /// # use linn::autograd::Replacement;
    /// # let device = linn::Device::open()?;
    /// let weights = linn::Tensor::new(&device, [0.0f32, 10.0, 3.0, 0.0])?;
    /// let drawn = weights.multinomial(2, Replacement::Without)?.to_vec::<i32>()?;
    /// assert!(drawn == [1, 2] || drawn == [2, 1]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where there are no categories, more than 2^24, or fewer than `count` without replacement. A weight that is negative, infinite
    /// or NaN, and weights that sum to 0, are reported at the next synchronising call.
    #[track_caller]
    pub fn multinomial(&self, count: usize, replacement: Replacement) -> Result<Tensor> {
        const OP: &str = "multinomial";
        expect_float(OP, self)?;
        let (Some(&categories), 1..=2) = (self.shape().last(), self.rank()) else {
            return Err(Error::shape(OP, format!("probabilities of shape {:?}", self.shape()), "pass [C] or [B, C]"));
        };
        let most = if replacement == Replacement::Without { categories } else { usize::MAX };
        if count == 0 || count > most || categories == 0 || categories > MOST_CATEGORIES {
            return Err(Error::argument(
                OP,
                format!("{count} samples {replacement:?} replacement of probabilities of shape {:?}", self.shape()),
                "draw at least 1, without replacement no more than there are categories; of these there are 1 to 2^24",
            ));
        }
        no_grad(|| {
            let weights = self.detach().to_dtype(DType::F32)?;
            check(OP, &weights, Subject::Weight)?;
            let shape: Vec<usize> = self.shape()[..self.rank() - 1].iter().copied().chain([count]).collect();
            if weights.is_empty() {
                return ops::copy::full(self.device(), &shape, 0, DType::I32);
            }
            let largest = weights.amax(&[-1], KeepDim::Keep)?;
            check(OP, &largest, Subject::LargestWeight)?;
            // Neither sums nor quotients of what is at most 1 leave the range of f32.
            let weights = weights.div(&largest)?;
            if count == 1 || replacement == Replacement::Without {
                let drawn = fractions(OP, self.device(), self.shape())?.neg()?.log1p()?.neg()?;
                let race = weights.div(&drawn)?;
                return match count {
                    1 => race.argmax(-1, KeepDim::Keep),
                    _ => race.argsort(-1, Order::Descending)?.narrow(-1, 0, count)?.contiguous(),
                };
            }
            // The smallest first: each sum is of smaller weights than the next, and does not swallow it. Those of weight 0 have the sum
            // 0, so nothing falls into them.
            let (rising, order) = weights.sort(-1, Order::Ascending)?;
            let (sums, _) = rising.cumsum(-1)?.cummax(-1)?;
            let at = fractions(OP, self.device(), &shape)?.mul(&sums.narrow(-1, -1, 1)?)?;
            let places = sums.contiguous()?.searchsorted(&at, Side::Right)?.clamp(0, categories as i64 - 1)?;
            order.gather(-1, &places)
        })
    }

    /// Draws all elements anew.
    #[track_caller]
    fn redraw(&self, distribution: Distribution, op: &'static str) -> Result<()> {
        let nothing = |ctx: &Backward<'_>| Ok(Grads::from_iter([ctx.want(0, || ctx.grad().zeros_like())?]));
        self.change(op, &[], &[], || distribution.fill_(self), nothing)
    }
}

/// Uniform between 0 and 1, neither of them, with 24 digits however small a number is: 24 bits before the point of 2^24 u, and 24 behind
/// it.
#[track_caller]
fn fractions(op: &'static str, device: &Device, shape: &[usize]) -> Result<Tensor> {
    const UNIT: f64 = 1.0 / (1 << 24) as f64;
    let whole = Distribution::randint(op, 0, 1 << 24, DType::F32)?.draw(device, shape, DType::F32)?;
    let rest = Distribution::uniform(op, 0.0, 1.0, DType::F32)?.draw(device, shape, DType::F32)?;
    whole.add(&rest)?.mul_scalar(UNIT)?.clamp(UNIT * UNIT, 1.0 - UNIT)
}

/// Elements that the device looks at; errors come later.
#[track_caller]
fn check(op: &'static str, x: &Tensor, subject: Subject) -> Result<()> {
    ops::random::check(op, &x.detach().to_dtype(DType::F32)?.contiguous()?, subject)
}

fn expect_float(op: &'static str, x: &Tensor) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    Err(Error::DType { op, got: x.dtype(), expected: "f32, f16 and bf16" })
}
