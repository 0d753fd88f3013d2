//! Operations with a gradient of a program's own: PyTorch's `torch.autograd.Function`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::graph::{Backward, Grads, Interior};
use super::mode::{is_grad_enabled, no_grad};
use super::record::node;
use super::rules::binary::to_shape;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops::copy;
use crate::tensor::Tensor;

/// An operation that brings its own gradient; what it is made of is not recorded. Use it with [`Function::apply`].
///
/// Numbers, flags and kernels are fields of the type; what `forward` finds out for `backward` beside tensors can be too.
///
/// ```
/// use linn::autograd::{Context, Function};
/// use linn::{Device, Result, Tensor};
///
/// /// y = e^x, whose gradient is y itself.
/// struct Exp;
///
/// impl Function for Exp {
///     fn forward(&mut self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
///         let y = inputs[0].exp()?;
///         ctx.save_for_backward(&[&y]);
///         Ok(vec![y])
///     }
///
///     fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(grads[0].mul(&ctx.saved_tensors()[0])?)])
///     }
/// }
///
/// let device = Device::open()?;
/// let x = Tensor::new(&device, [0.0f32, 1.0])?.requires_grad_(true)?;
/// let [y] = Exp.apply(&[&x])?;
/// y.sum_all()?.backward()?;
/// let gradient = x.grad().expect("a leaf has one").to_vec::<f32>()?;
/// assert!((gradient[0] - 1.0).abs() < 1e-6 && (gradient[1] - 1f32.exp()).abs() < 1e-5);
/// # Ok::<(), linn::Error>(())
/// ```
pub trait Function: Send + Sync + Sized + 'static {
    /// Computes the results. Runs under `no_grad`; `inputs` are those of [`Function::apply`].
    ///
    /// A result may share the memory of an input (a view of it, or the input itself); then it counts as a view. An input that
    /// wants gradients must not be changed in place.
    fn forward(&mut self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>>;

    /// The gradient of each input, given that of each result (zeros where a result was not used): one entry per input, `None` for
    /// inputs that have none or want none ([`Context::needs_input_grad`]). A gradient has the shape of its input; one that was
    /// broadcast from it is summed, and one of another floating type is converted.
    ///
    /// Runs under `no_grad` on the stream of the forward pass, once for each backward pass through the operation: a gradient is
    /// itself not recorded (PyTorch's `once_differentiable`).
    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>>;

    /// What errors call it: by default the name of the type.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        let path = path.split_once('<').map_or(path, |(path, _)| path);
        path.rsplit_once("::").map_or(path, |(_, name)| name)
    }

    /// Runs the operation, and records it where an input wants gradients: `let [y] = F.apply(&[&x])?`.
    ///
    /// # Errors
    /// Those of `forward`; [`Error::Autograd`] where it answers with another number of results than is asked for, or changes an
    /// input that wants gradients in place. Later, from the backward pass: those of `backward`, [`Error::Autograd`] for another
    /// number of gradients, a gradient that does not fit its input, or a saved tensor that was changed in place since.
    #[track_caller]
    fn apply<const N: usize>(self, inputs: &[&Tensor]) -> Result<[Tensor; N]> {
        apply(self, inputs)
    }
}

/// What an operation keeps from its forward pass for its backward pass.
#[derive(Debug, Default)]
pub struct Context {
    needs: SmallVec<[bool; 3]>,
    saved: Vec<Tensor>,
    non_differentiable: Vec<Tensor>,
}

impl Context {
    /// Keeps tensors for the backward pass: inputs, results, or any others. The last call counts. That they are not changed in
    /// place until then is checked.
    pub fn save_for_backward(&mut self, tensors: &[&Tensor]) {
        self.saved = tensors.iter().map(|tensor| (*tensor).clone()).collect();
    }

    /// What was kept, without history.
    pub fn saved_tensors(&self) -> &[Tensor] {
        &self.saved
    }

    /// True when input `i` wants a gradient; without that its gradient need not be computed, nor anything be saved for it.
    pub fn needs_input_grad(&self, i: usize) -> bool {
        self.needs.get(i).copied().unwrap_or(false)
    }

    /// These results have no gradient. Results that are no floats have none in any case.
    pub fn mark_non_differentiable(&mut self, results: &[&Tensor]) {
        self.non_differentiable = results.iter().map(|tensor| (*tensor).clone()).collect();
    }
}

fn apply<F: Function, const N: usize>(mut function: F, inputs: &[&Tensor]) -> Result<[Tensor; N]> {
    let op = function.name();
    let recorded = is_grad_enabled();
    let needs = inputs.iter().map(|input| recorded && input.requires_grad()).collect();
    let mut ctx = Context { needs, ..Context::default() };
    let before: SmallVec<[u64; 3]> = inputs.iter().map(|input| input.version()).collect();
    let outs = no_grad(|| function.forward(&mut ctx, inputs))?;
    let outs: [Tensor; N] = outs.try_into().map_err(|outs: Vec<Tensor>| {
        let help = "write as many names as forward gives: let [y] = f.apply(..)?, let [y, z] = f.apply(..)?";
        Error::autograd(format!("`{op}` gave {} results where {N} are wanted", outs.len()), help)
    })?;
    let outs = outs.map(|out| out.without_grad_slot());
    if !ctx.needs.contains(&true) {
        return Ok(outs);
    }
    if let Some(i) = (0..inputs.len()).find(|i| ctx.needs[*i] && inputs[*i].version() != before[*i]) {
        return Err(Error::autograd(
            format!("`{op}` changed input {i} in place, which wants gradients (shape {:?})", inputs[i].shape()),
            "change a copy of it and return that",
        ));
    }
    let wanted: SmallVec<[Like; 3]> = inputs.iter().map(|input| (input.layout, input.dtype)).collect();
    let given = outs.each_ref().map(|out| (out.layout, out.dtype));
    let saved: SmallVec<[&Tensor; 3]> = ctx.saved.iter().collect();
    let count = saved.len();
    let rule = move |b: &Backward<'_>| {
        let ctx = Context {
            needs: (0..wanted.len()).map(|i| b.needs(i)).collect(),
            saved: (0..count).map(|i| b.saved(i).clone()).collect(),
            non_differentiable: Vec::new(),
        };
        let or_zeros = |(k, (layout, dtype)): (usize, &Like)| match b.grads().get(k).cloned().flatten() {
            Some(grad) => Ok(grad),
            None => copy::full(b.grad().device(), layout.shape(), 0.0, *dtype),
        };
        let grads = given.iter().enumerate().map(or_zeros).collect::<Result<Vec<Tensor>>>()?;
        let answer = function.backward(&ctx, &grads)?;
        if answer.len() != wanted.len() {
            return Err(Error::autograd(
                format!("backward of `{op}` gave {} gradients for {} inputs", answer.len(), wanted.len()),
                "give one for each input, in their order: None where there is none",
            ));
        }
        let checked = answer.into_iter().zip(&wanted).enumerate().map(|(i, (grad, like))| match grad {
            Some(grad) if b.needs(i) => gradient(op, i, &grad, like, b.grad()).map(Some),
            _ => Ok(None),
        });
        checked.collect::<Result<Grads>>()
    };
    let Some(node) = node(op, inputs, &saved, rule)? else { return Ok(outs) };
    let mut output = 0..;
    Ok(outs.map(|out| {
        let same = |other: &Tensor| out.shares_storage(other) && out.layout == other.layout;
        let (Some(k), true) = (output.next(), out.dtype.is_float() && !ctx.non_differentiable.iter().any(same)) else {
            return out;
        };
        let slot = match inputs.iter().find(|input| out.shares_storage(input)) {
            Some(input) => Interior::view(node.clone(), k, input),
            None => Interior::new(node.clone(), k),
        };
        Tensor { grad_slot: Some(Arc::new(slot)), ..out }
    }))
}

/// What a tensor's gradient has to look like.
type Like = (Layout, DType);

/// The gradient of input `i` as `backward` gave it, made that of the input's own shape and type; `near` is on the device.
fn gradient(op: &'static str, i: usize, grad: &Tensor, (layout, dtype): &Like, near: &Tensor) -> Result<Tensor> {
    if !grad.device().same(near.device()) {
        return Err(near.device().mismatch(op, grad.device()));
    }
    if !grad.dtype.is_float() {
        return Err(Error::autograd(
            format!("backward of `{op}` gave a gradient of {} for input {i}", grad.dtype),
            "gradients are floats; None where there is none",
        ));
    }
    if layout.broadcast_to(op, grad.shape()).is_err() {
        return Err(Error::autograd(
            format!("backward of `{op}` gave a gradient of shape {:?} for input {i} of shape {:?}", grad.shape(), layout.shape()),
            "give a gradient of the input's own shape, or one that was broadcast from it",
        ));
    }
    copy::to_dtype(&to_shape(&grad.without_grad_slot(), layout.shape())?, *dtype)
}
