//! Normalisation over channels, groups and several dimensions. Letters: N samples, C channels.

use super::autocast::in_autocast;
use super::mode::no_grad;
use super::windows::sizes;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::reduce::{KeepDim, expect_float};
use crate::tensor::Tensor;

/// What [`Tensor::batch_norm`] and [`Tensor::instance_norm`] normalise by. All tensors are `[C]`.
#[derive(Clone, Copy, Debug)]
pub struct NormOptions<'a> {
    /// Mean of what was seen before; changed in place where `training` is true.
    pub running_mean: Option<&'a Tensor>,
    /// Variance of what was seen before; changed in place where `training` is true.
    pub running_var: Option<&'a Tensor>,
    /// Factors of the result; 1 where there are none.
    pub weight: Option<&'a Tensor>,
    /// Added to the result.
    pub bias: Option<&'a Tensor>,
    /// Whether mean and variance are the input's (PyTorch's `use_input_stats` for instances), not the running ones.
    pub training: bool,
    /// The part of the input's mean and variance (unbiased) in the running ones.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
}

impl Default for NormOptions<'_> {
    fn default() -> Self {
        let (running_mean, running_var, weight, bias) = (None, None, None, None);
        NormOptions { running_mean, running_var, weight, bias, training: false, momentum: 0.1, eps: 1e-5 }
    }
}

impl Tensor {
    /// [`Tensor::layer_norm`] over the last dimensions, whose lengths are `normalized_shape`; weight and bias have that shape.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 3.0], [5.0, 7.0]])?;
    /// let out = x.layer_norm_over(&[2], None, None, 1e-5)?.to_vec::<f32>()?;
    /// assert_eq!(format!("{out:.4?}"), "[-1.0000, 1.0000, -1.0000, 1.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn layer_norm_over(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        const OP: &str = "layer_norm";
        in_autocast!(OP, (x = self, w = weight, c = bias), x.layer_norm_over(normalized_shape, w.as_ref(), c.as_ref(), eps));
        let rows = rows(OP, self, normalized_shape)?;
        let [weight, bias] = [flat(OP, weight, normalized_shape)?, flat(OP, bias, normalized_shape)?];
        self.reshape(&rows)?.layer_norm(weight.as_ref(), bias.as_ref(), eps)?.reshape(&sizes(&[self.shape()]))
    }

    /// x / sqrt(mean(x^2) + eps) * weight, with the mean over the last dimensions, whose lengths are `normalized_shape`; weight has
    /// that shape. Without eps it is that of f32, 2^-23.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[3.0f32, 4.0]])?;
    /// assert_eq!(format!("{:.4?}", x.rms_norm(&[2], None, None)?.to_vec::<f32>()?), "[0.8485, 1.1314]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn rms_norm(&self, normalized_shape: &[usize], weight: Option<&Tensor>, eps: impl Into<Option<f64>>) -> Result<Tensor> {
        const OP: &str = "rms_norm";
        let eps = eps.into();
        in_autocast!(OP, (x = self, w = weight), x.rms_norm(normalized_shape, w.as_ref(), eps));
        expect_float(OP, self)?;
        let rows = self.reshape(&rows(OP, self, normalized_shape)?)?;
        let weight = flat(OP, weight, normalized_shape)?;
        let eps = eps.unwrap_or(f64::from(f32::EPSILON));
        let wide = rows.to_dtype(DType::F32)?;
        let scale = wide.square()?.mean(&[-1], KeepDim::Keep)?.add_scalar(eps)?.rsqrt()?;
        let out = wide.mul(&scale)?;
        let out = weight.map_or(Ok(out.clone()), |weight| out.mul(&weight))?;
        out.to_dtype(self.dtype())?.reshape(&sizes(&[self.shape()]))
    }

    /// (x - mean) / sqrt(variance + eps) * weight + bias per channel (dimension 1): `[N, C, ..]`. Mean and biased variance are those of
    /// the input over all other dimensions in training, else the running ones, which then are needed.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::NormOptions;
    /// let x = Tensor::new(&device, [[1.0f32, 0.0], [3.0, 4.0]])?;
    /// let options = NormOptions { training: true, ..Default::default() };
    /// assert_eq!(format!("{:.4?}", x.batch_norm(options)?.to_vec::<f32>()?), "[-1.0000, -1.0000, 1.0000, 1.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn batch_norm(&self, options: NormOptions<'_>) -> Result<Tensor> {
        if self.is_empty() {
            // There is nothing to normalize, and nothing to learn from.
            expect_float("batch_norm", self)?;
            return self.mul_scalar(1.0);
        }
        let over: Vec<isize> = (0..self.rank() as isize).filter(|dim| *dim != 1).collect();
        self.channel_norm("batch_norm", &over, options)
    }

    /// [`Tensor::batch_norm`] with mean and variance of each channel of each sample: `[N, C, ..]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::NormOptions;
    /// let x = Tensor::new(&device, [[[1.0f32, 3.0], [2.0, 6.0]]])?;
    /// let options = NormOptions { training: true, ..Default::default() };
    /// assert_eq!(format!("{:.4?}", x.instance_norm(options)?.to_vec::<f32>()?), "[-1.0000, 1.0000, -1.0000, 1.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn instance_norm(&self, options: NormOptions<'_>) -> Result<Tensor> {
        const OP: &str = "instance_norm";
        if self.rank() < 3 {
            let fact = format!("an input of shape {:?}", self.shape());
            return Err(Error::shape(OP, fact, "pass an input [N, C, ..] of at least 3 dimensions"));
        }
        self.channel_norm(OP, &(2..self.rank() as isize).collect::<Vec<_>>(), options)
    }

    /// (x - mean) / sqrt(variance + eps) * weight + bias with mean and biased variance over each of `groups` groups of channels of each
    /// sample: `[N, C, ..]`, weight and bias `[C]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 3.0, 2.0, 6.0]])?;
    /// assert_eq!(format!("{:.4?}", x.group_norm(2, None, None, 1e-5)?.to_vec::<f32>()?), "[-1.0000, 1.0000, -1.0000, 1.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn group_norm(&self, groups: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        const OP: &str = "group_norm";
        in_autocast!(OP, (x = self, w = weight, c = bias), x.group_norm(groups, w.as_ref(), c.as_ref(), eps));
        expect_float(OP, self)?;
        let [n, c, rest @ ..] = self.shape() else {
            let fact = format!("an input of shape {:?}", self.shape());
            return Err(Error::shape(OP, fact, "pass an input [N, C, ..] of at least 2 dimensions"));
        };
        if groups == 0 || !c.is_multiple_of(groups) {
            let fact = format!("{groups} groups for an input of shape {:?}", self.shape());
            return Err(Error::shape(OP, fact, format!("pass a number of groups that divides {c}")));
        }
        if *c == 0 || rest.contains(&0) {
            let fact = format!("an input of shape {:?}", self.shape());
            return Err(Error::shape(OP, fact, "pass an input whose channels have elements"));
        }
        let rows = self.reshape(&sizes(&[&[*n, groups, c / groups * rest.iter().product::<usize>()]]))?;
        let rows = rows.to_dtype(DType::F32)?;
        let (var, mean) = rows.var_mean(&[-1], 0.0, KeepDim::Keep)?;
        let out = standardized(&rows, &mean, &var, eps)?.reshape(&sizes(&[self.shape()]))?;
        affine(OP, out, weight, bias)?.to_dtype(self.dtype())
    }

    #[track_caller]
    fn channel_norm(&self, op: &'static str, over: &[isize], options: NormOptions<'_>) -> Result<Tensor> {
        expect_float(op, self)?;
        // A vector has channels only, and nothing to take a mean over.
        let channels = *self.shape().get(1).or(self.shape().first()).unwrap_or(&1);
        let running = [("running_mean", options.running_mean), ("running_var", options.running_var)];
        for (name, vector) in running {
            if let Some(vector) = vector
                && vector.shape() != [channels]
            {
                let fact = format!("{name} of shape {:?} for an input of shape {:?}", vector.shape(), self.shape());
                return Err(Error::shape(op, fact, format!("pass {channels} numbers, one for each channel")));
            }
        }
        let x = self.to_dtype(DType::F32)?;
        let (mean, var) = match (options.training, options.running_mean, options.running_var) {
            (true, running_mean, running_var) => {
                let count: usize = over.iter().map(|dim| self.shape()[*dim as usize]).product();
                if self.rank() < 2 || count == 1 {
                    let fact = format!("an input of shape {:?}, in training", self.shape());
                    return Err(Error::shape(op, fact, "pass an input [N, C, ..] with more than one number per channel"));
                }
                let (var, mean) = x.var_mean(over, 0.0, KeepDim::Keep)?;
                let unbiased = count as f64 / (count as f64 - 1.0);
                no_grad(|| {
                    learn(running_mean, &mean, options.momentum, 1.0)?;
                    learn(running_var, &var, options.momentum, unbiased)
                })?;
                (mean, var)
            }
            (false, Some(mean), Some(var)) => (as_channels(self.rank(), mean)?, as_channels(self.rank(), var)?),
            _ => {
                let fact = format!("running_mean or running_var is missing for an input of shape {:?}", self.shape());
                return Err(Error::argument(op, fact, "pass both, or training: true"));
            }
        };
        affine(op, standardized(&x, &mean, &var, options.eps)?, options.weight, options.bias)?.to_dtype(self.dtype())
    }
}

/// (x - mean) / sqrt(var + eps) of f32.
#[track_caller]
fn standardized(x: &Tensor, mean: &Tensor, var: &Tensor, eps: f64) -> Result<Tensor> {
    x.sub(mean)?.mul(&var.to_dtype(DType::F32)?.add_scalar(eps)?.rsqrt()?)
}

/// `running` by the part `momentum` closer to the mean of `seen` over the samples.
#[track_caller]
fn learn(running: Option<&Tensor>, seen: &Tensor, momentum: f64, factor: f64) -> Result<()> {
    let Some(running) = running else { return Ok(()) };
    let seen = seen.mean(&[0], KeepDim::Keep)?.reshape(&[running.len() as isize])?;
    running.mul_scalar_(1.0 - momentum)?;
    running.add_(&seen.to_dtype(running.dtype())?, momentum * factor)
}

/// x times weight plus bias, per channel.
#[track_caller]
fn affine(op: &'static str, x: Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    let channels = *x.shape().get(1).or(x.shape().first()).unwrap_or(&1);
    for (name, vector) in [("weight", weight), ("bias", bias)] {
        if let Some(vector) = vector
            && vector.shape() != [channels]
        {
            let fact = format!("{name} of shape {:?} for an input of shape {:?}", vector.shape(), x.shape());
            return Err(Error::shape(op, fact, format!("pass {channels} numbers, one for each channel")));
        }
    }
    let x = weight.map_or(Ok(x.clone()), |weight| x.mul(&as_channels(x.rank(), weight)?))?;
    bias.map_or(Ok(x.clone()), |bias| x.add(&as_channels(x.rank(), bias)?))
}

/// A vector over the channels of tensors of `rank` dimensions, in a shape that broadcasts to theirs.
#[track_caller]
fn as_channels(rank: usize, vector: &Tensor) -> Result<Tensor> {
    let mut shape = vec![1; rank.saturating_sub(1).max(1)];
    shape[0] = vector.len() as isize;
    vector.reshape(&shape)
}

/// The shape of `x` as rows of its last dimensions, whose lengths have to be `shape`.
fn rows(op: &'static str, x: &Tensor, shape: &[usize]) -> Result<[isize; 2]> {
    match x.shape().strip_suffix(shape) {
        Some(outer) if !shape.is_empty() => {
            Ok([outer.iter().product::<usize>() as isize, shape.iter().product::<usize>() as isize])
        }
        _ => Err(Error::shape(
            op,
            format!("normalized_shape {shape:?} for an input of shape {:?}", x.shape()),
            "pass the lengths of the last dimensions, at least one",
        )),
    }
}

/// A weight or bias of shape `shape` as a vector.
#[track_caller]
fn flat(op: &'static str, vector: Option<&Tensor>, shape: &[usize]) -> Result<Option<Tensor>> {
    let Some(vector) = vector else { return Ok(None) };
    if vector.shape() != shape {
        let fact = format!("weight or bias of shape {:?} for normalized_shape {shape:?}", vector.shape());
        return Err(Error::shape(op, fact, "pass that shape"));
    }
    vector.reshape(&[vector.len() as isize]).map(Some)
}
