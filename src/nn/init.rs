//! Initial values of parameters, from the device's generator.
//!
//! Functions whose names end in `_` are those of `torch.nn.init`: they change a tensor in place and record nothing. The others make a
//! parameter: it collects gradients and is booked as one.

use crate::autograd::no_grad;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::ops;
use crate::ops::random::Distribution;
use crate::tensor::Tensor;

/// `tensor` as a parameter.
pub fn parameter(tensor: Tensor) -> Result<Tensor> {
    tensor.set_category(Category::Parameter);
    tensor.detach().requires_grad_(true)
}

/// Normally distributed.
pub fn normal(device: &Device, shape: &[usize], mean: f64, std: f64) -> Result<Tensor> {
    parameter(Distribution::normal("init::normal", mean, std)?.draw(device, shape, DType::F32)?)
}

/// Uniform in [low, high).
pub fn uniform(device: &Device, shape: &[usize], low: f64, high: f64) -> Result<Tensor> {
    parameter(Distribution::uniform("init::uniform", low, high, DType::F32)?.draw(device, shape, DType::F32)?)
}

/// All zeros.
pub fn zeros(device: &Device, shape: &[usize]) -> Result<Tensor> {
    constant(device, shape, 0.0)
}

/// All ones.
pub fn ones(device: &Device, shape: &[usize]) -> Result<Tensor> {
    constant(device, shape, 1.0)
}

/// All `value`.
pub fn constant(device: &Device, shape: &[usize], value: f64) -> Result<Tensor> {
    parameter(ops::copy::full(device, shape, value, DType::F32)?)
}

/// What follows a layer: its gain keeps the size of what goes through both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// Nothing, a convolution or a sigmoid: 1.
    Linear,
    /// 5 / 3.
    Tanh,
    /// sqrt(2).
    Relu,
    /// sqrt(2 / (1 + slope^2)), with the slope for negative numbers.
    LeakyRelu(f64),
    /// 3 / 4.
    Selu,
}

/// The factor on standard deviations that suits what follows a layer.
///
/// ```
/// use linn::nn::init::{Nonlinearity, calculate_gain};
/// assert_eq!(calculate_gain(Nonlinearity::Tanh), 5.0 / 3.0);
/// assert_eq!(calculate_gain(Nonlinearity::LeakyRelu(0.0)), calculate_gain(Nonlinearity::Relu));
/// ```
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::Relu => 2f64.sqrt(),
        Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::Selu => 0.75,
    }
}

/// Whose size a layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanMode {
    /// That of what goes forward: the weights of a result are counted.
    In,
    /// That of the gradients: the weights of an input are counted.
    Out,
}

/// All `value`.
#[track_caller]
pub fn constant_(tensor: &Tensor, value: f64) -> Result<()> {
    no_grad(|| tensor.fill_(value))
}

/// All zeros.
#[track_caller]
pub fn zeros_(tensor: &Tensor) -> Result<()> {
    constant_(tensor, 0.0)
}

/// All ones.
#[track_caller]
pub fn ones_(tensor: &Tensor) -> Result<()> {
    constant_(tensor, 1.0)
}

/// Uniform in [low, high).
#[track_caller]
pub fn uniform_(tensor: &Tensor, low: f64, high: f64) -> Result<()> {
    no_grad(|| tensor.uniform_(low, high))
}

/// Normally distributed.
#[track_caller]
pub fn normal_(tensor: &Tensor, mean: f64, std: f64) -> Result<()> {
    no_grad(|| tensor.normal_(mean, std))
}

/// Normally distributed, but only from `low` to `high` (numbers, not deviations; PyTorch's defaults are -2 and 2): the inverse of
/// the distribution at uniform numbers.
///
/// # Errors
/// [`Error::Argument`] where `std` is not positive, `low` is not below `high`, or nearly nothing lies between them (further than 5.5
/// deviations from the mean).
///
/// ```
/// # let device = linn::Device::open()?;
/// let x = linn::Tensor::zeros(&device, &[1000])?;
/// linn::nn::init::trunc_normal_(&x, 0.0, 1.0, -0.5, 2.0)?;
/// assert!(x.to_vec::<f32>()?.iter().all(|x| (-0.5..=2.0).contains(x)));
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn trunc_normal_(tensor: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    const OP: &str = "trunc_normal_";
    let ends = [low, high].map(|end| erf((end - mean) / std / 2f64.sqrt()));
    if !(std > 0.0 && low < high && ends[1] - ends[0] > 2e-7) {
        let fact = format!("mean {mean:?}, std {std:?}, low {low:?}, high {high:?}");
        return Err(Error::argument(OP, fact, "pass a std above 0 and bounds between which normal numbers lie"));
    }
    no_grad(|| {
        let uniform =
            Distribution::uniform(OP, ends[0], ends[1], DType::F32)?.draw(tensor.device(), tensor.shape(), DType::F32)?;
        tensor.copy_(&uniform.erfinv()?.mul_scalar(std * 2f64.sqrt())?.add_scalar(mean)?.clamp(low, high)?)
    })
}

/// erf(x) as 2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ..), whose terms have one sign.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut sum, mut term) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// The identity: 1 on the diagonal of a matrix, else 0.
///
/// # Errors
/// [`Error::Shape`] where it is no matrix.
#[track_caller]
pub fn eye_(tensor: &Tensor) -> Result<()> {
    let [rows, columns] = *tensor.shape() else {
        return Err(Error::shape("eye_", format!("a tensor of shape {:?}", tensor.shape()), "pass a matrix"));
    };
    no_grad(|| {
        tensor.zero_()?;
        tensor.diagonal(0, 0, 1)?.narrow(0, 0, rows.min(columns))?.fill_(1.0)
    })
}

/// Uniform within gain sqrt(6 / (inputs + outputs)) (Glorot, Bengio 2010), for weights `[outputs, inputs, ..window]`.
///
/// # Errors
/// [`Error::Shape`] for fewer than two dimensions.
#[track_caller]
pub fn xavier_uniform_(tensor: &Tensor, gain: f64) -> Result<()> {
    let (inputs, outputs) = fans("xavier_uniform_", tensor)?;
    let bound = gain * (6.0 / (inputs + outputs)).sqrt();
    uniform_(tensor, -bound, bound)
}

/// Normal with standard deviation gain sqrt(2 / (inputs + outputs)) (Glorot, Bengio 2010), for weights `[outputs, inputs, ..window]`.
///
/// # Errors
/// [`Error::Shape`] for fewer than two dimensions.
#[track_caller]
pub fn xavier_normal_(tensor: &Tensor, gain: f64) -> Result<()> {
    let (inputs, outputs) = fans("xavier_normal_", tensor)?;
    normal_(tensor, 0.0, gain * (2.0 / (inputs + outputs)).sqrt())
}

/// Uniform within gain sqrt(3 / fan) (He and others 2015), for weights `[outputs, inputs, ..window]`; PyTorch's default is
/// [`FanMode::In`] and [`Nonlinearity::LeakyRelu`] of 0.
///
/// # Errors
/// [`Error::Shape`] for fewer than two dimensions.
#[track_caller]
pub fn kaiming_uniform_(tensor: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<()> {
    let bound = calculate_gain(nonlinearity) * (3.0 / fan("kaiming_uniform_", tensor, mode)?).sqrt();
    uniform_(tensor, -bound, bound)
}

/// Normal with standard deviation gain / sqrt(fan) (He and others 2015), for weights `[outputs, inputs, ..window]`.
///
/// # Errors
/// [`Error::Shape`] for fewer than two dimensions.
#[track_caller]
pub fn kaiming_normal_(tensor: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<()> {
    normal_(tensor, 0.0, calculate_gain(nonlinearity) / fan("kaiming_normal_", tensor, mode)?.sqrt())
}

/// A random matrix whose rows (columns, where it is higher than wide) are of length `gain` and at right angles; dimensions behind the
/// first count as one. Made on the host, from normal numbers of the device: it waits for these.
///
/// # Errors
/// [`Error::Shape`] for fewer than two dimensions.
///
/// ```
/// # let device = linn::Device::open()?;
/// let x = linn::Tensor::zeros(&device, &[2, 3])?;
/// linn::nn::init::orthogonal_(&x, 1.0)?;
/// let product = x.matmul(&x.transpose(0, 1)?)?.to_vec::<f32>()?;
/// assert!(product.iter().zip([1.0, 0.0, 0.0, 1.0]).all(|(x, want)| (x - want).abs() < 1e-5));
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn orthogonal_(tensor: &Tensor, gain: f64) -> Result<()> {
    const OP: &str = "orthogonal_";
    fans(OP, tensor)?;
    if tensor.is_empty() {
        return Ok(());
    }
    let (rows, columns) = (tensor.shape()[0], tensor.len() / tensor.shape()[0]);
    let (count, len) = (rows.min(columns), rows.max(columns));
    let drawn = Distribution::normal(OP, 0.0, 1.0)?.draw(tensor.device(), &[count, len], DType::F32)?.to_vec::<f32>()?;
    let mut vectors: Vec<Vec<f64>> = drawn.chunks(len).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for at in 0..count {
        let (before, rest) = vectors.split_at_mut(at);
        let vector = &mut rest[0];
        // What the first round leaves of the others, the second takes.
        for other in before.iter().chain(before.iter()) {
            let part = dot(vector, other);
            vector.iter_mut().zip(other).for_each(|(x, other)| *x -= part * other);
        }
        let norm = dot(vector, vector).sqrt();
        vector.iter_mut().for_each(|x| *x /= norm);
    }
    let at = |row: usize, column: usize| if rows <= columns { vectors[row][column] } else { vectors[column][row] };
    let values: Vec<f32> = (0..rows * columns).map(|i| (gain * at(i / columns, i % columns)) as f32).collect();
    no_grad(|| tensor.copy_(&Tensor::from_slice(tensor.device(), tensor.shape(), &values)?))
}

/// How many weights a result and an input have.
fn fans(op: &'static str, tensor: &Tensor) -> Result<(f64, f64)> {
    let [outputs, inputs, window @ ..] = tensor.shape() else {
        let fact = format!("a tensor of shape {:?}", tensor.shape());
        return Err(Error::shape(op, fact, "pass weights of at least 2 dimensions, [outputs, inputs, ..]"));
    };
    let window: usize = window.iter().product();
    Ok(((inputs * window) as f64, (outputs * window) as f64))
}

fn fan(op: &'static str, tensor: &Tensor, mode: FanMode) -> Result<f64> {
    let (inputs, outputs) = fans(op, tensor)?;
    // An empty tensor has nothing to draw.
    Ok(if mode == FanMode::In { inputs } else { outputs }.max(1.0))
}
