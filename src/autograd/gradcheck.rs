//! Gradients against central differences.

use super::backward::BackwardOptions;
use super::mode::no_grad;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Step and tolerances of [`gradcheck`]; the defaults suit f32 values of size about 1: the step is large enough for the
/// rounding of f32 (1e-7 / 1e-2) and small enough for the curvature (1e-4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradcheckOptions {
    /// Distance by which each element is moved, both ways.
    pub eps: f32,
    /// Absolute error that is allowed.
    pub atol: f64,
    /// Error that is allowed relative to the larger value.
    pub rtol: f64,
}

impl Default for GradcheckOptions {
    fn default() -> GradcheckOptions {
        GradcheckOptions { eps: 1e-2, atol: 2e-3, rtol: 5e-3 }
    }
}

/// Compares the gradients of `f` with central differences at `inputs` (f32, any layout). `f` may have any shape of result:
/// its elements are weighted by fixed numbers and summed, on the host in f64. Waits for the device many times.
/// The error names the worst element.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::{GradcheckOptions, gradcheck};
/// let x = Tensor::new(&device, [0.5f32, -1.0])?;
/// assert!(gradcheck(|x| x[0].tanh(), &[x], GradcheckOptions::default()).is_ok());
/// # Ok::<(), linn::Error>(())
/// ```
pub fn gradcheck(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor], options: GradcheckOptions) -> Result<()> {
    let leaves: Vec<Tensor> = inputs.iter().map(|input| input.detach().requires_grad_(true)).collect::<Result<_>>()?;
    let out = f(&leaves)?;
    let weights = weights(out.len());
    let gradient = Tensor::from_slice(out.device(), out.shape(), &weights)?;
    out.backward_with(BackwardOptions { gradient: Some(gradient), ..Default::default() })?;

    for (number, input) in inputs.iter().enumerate() {
        let analytic = match leaves[number].grad() {
            Some(grad) => grad.to_vec_async::<f32>()?.wait()?,
            None => vec![0.0; input.len()],
        };
        let values = input.to_vec_async::<f32>()?.wait()?;
        for (element, got) in analytic.iter().enumerate() {
            let at = |x: f32| -> Result<f64> {
                let mut values = values.clone();
                values[element] = x;
                let mut moved: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
                moved[number] = Tensor::from_slice(input.device(), input.shape(), &values)?;
                let out = no_grad(|| f(&moved))?.to_vec_async::<f32>()?.wait()?;
                Ok(out.iter().zip(&weights).map(|(y, w)| f64::from(*y) * f64::from(*w)).sum())
            };
            let (low, high) = (values[element] - options.eps, values[element] + options.eps);
            let want = (at(high)? - at(low)?) / f64::from(high - low);
            let got = f64::from(*got);
            let allowed = options.atol + options.rtol * want.abs().max(got.abs());
            let off = (got - want).abs();
            if off.is_nan() || off > allowed {
                return Err(Error::autograd(
                    format!("gradcheck: input {number}, element {element}: gradient {got}, differences say {want}"),
                    "look at the operation's rule, or keep inputs away from points where it has no derivative",
                ));
            }
        }
    }
    Ok(())
}

/// Fixed numbers of both signs between 0.5 and 1.5 in size.
fn weights(len: usize) -> Vec<f32> {
    let weight = |i: usize| {
        let bits = (i as u32).wrapping_mul(2_654_435_761) >> 8;
        let size = 0.5 + bits as f32 / (1 << 24) as f32;
        if i.is_multiple_of(3) { -size } else { size }
    };
    (0..len).map(weight).collect()
}
