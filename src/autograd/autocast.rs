//! Mixed precision: which operations run in halves, which in f32, as PyTorch's autocast decides for its GPUs.
//!
//! Products run in the half type of the scope; functions whose results leave the range of halves, or lose their digits, run in f32;
//! everything else runs in what its operands have, by promotion. Only operands are converted, by recorded [`Tensor::to_dtype`]: so
//! gradients come back in the type that each tensor has, and parameters stay f32.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::graph::{Leaf, interior_of, leaf_of};
use super::mode::is_grad_enabled;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::stream::Origin;
use crate::tensor::Tensor;

thread_local! {
    static MODE: Cell<DType> = const { Cell::new(DType::F32) };
    static PARAMETERS: RefCell<FxHashMap<*const Leaf, Converted>> = RefCell::default();
}

/// Runs `f` with products in `dtype` (f16 or bf16; f32 switches a scope around this one off). As PyTorch's `torch.autocast`, it is for
/// the forward pass and the loss; a backward pass runs each step in the types of its forward step wherever it is called.
///
/// - In `dtype`: `matmul`, `mm`, `bmm`, `mv`, `linear`, `addmm` and its kin, `einsum`, `tensordot`, convolutions, attention, `prelu`.
/// - In f32: `exp`, `expm1`, `log` (and `log2`, `log10`, `log1p`), `pow`, `reciprocal`, `rsqrt`, `acos`, `asin`, `tan`, `cosh`,
///   `sinh`, `erfinv`, `square`, `softplus`, softmaxes, `logsumexp`, `sum`, `prod`, `cumsum`, `cumprod`, norms (`layer_norm`, `rms_norm`,
///   `group_norm`, `norm`, `normalize`), `dist`, `cdist`, `cosine_similarity`, `trapezoid`, `interpolate` (but areas), and all losses.
/// - `binary_cross_entropy` is refused: use `binary_cross_entropy_with_logits`.
///
/// Halves of f16 have a small range, so small gradients become 0: use a [`GradScaler`](crate::optim::GradScaler) with it. A parameter
/// is converted once in a scope, however often it is used.
///
/// ```
/// # use linn::{Device, DType, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::autocast;
/// let (x, w) = (Tensor::ones(&device, &[2, 3])?, Tensor::ones(&device, &[3, 4])?.requires_grad_(true)?);
/// let y = autocast(DType::BF16, || x.matmul(&w))?;
/// assert_eq!(y.dtype(), DType::BF16);
/// y.sum_all()?.backward()?;
/// assert_eq!(w.grad().map(|grad| grad.dtype()), Some(DType::F32));
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// Those of `f`; [`Error::DType`] for a type that is no float.
pub fn autocast<T>(dtype: DType, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = autocast_guard(dtype)?;
    f()
}

/// [`autocast`] in this thread until the guard is dropped; guards nest.
///
/// ```
/// use linn::{DType, autograd::{autocast_dtype, autocast_guard}};
/// {
///     let _halves = autocast_guard(DType::F16)?;
///     assert_eq!(autocast_dtype(), Some(DType::F16));
/// }
/// assert_eq!(autocast_dtype(), None);
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// [`Error::DType`] for a type that is no float.
pub fn autocast_guard(dtype: DType) -> Result<AutocastGuard> {
    match dtype.is_float() {
        true => Ok(AutocastGuard { before: MODE.replace(dtype), _stays_in_its_thread: PhantomData }),
        false => Err(Error::DType { op: "autocast", got: dtype, expected: "f16 or bf16, or f32 for none" }),
    }
}

/// The type that products run in, in this thread; `None` outside of [`autocast`].
///
/// ```
/// use linn::{DType, autograd::{autocast, autocast_dtype}};
/// assert_eq!(autocast(DType::BF16, || Ok(autocast_dtype()))?, Some(DType::BF16));
/// # Ok::<(), linn::Error>(())
/// ```
pub fn autocast_dtype() -> Option<DType> {
    Some(MODE.get()).filter(|dtype| *dtype != DType::F32)
}

/// Keeps [`autocast`] on while it lives; made by [`autocast_guard`].
#[must_use = "the earlier mode is back as soon as the guard is dropped"]
pub struct AutocastGuard {
    before: DType,
    _stays_in_its_thread: PhantomData<*const ()>,
}

impl Drop for AutocastGuard {
    fn drop(&mut self) {
        MODE.set(self.before);
        if self.before == DType::F32 {
            // Taken out first: dropping tensors runs other code.
            let _converted = PARAMETERS.take();
        }
    }
}

/// A parameter in the type of the scope.
struct Converted {
    leaf: Arc<Leaf>,
    version: u64,
    tensor: Tensor,
}

/// What becomes of an operation's operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Lower,
    Full,
    /// They meet in one type by promotion, whatever the operation is put together from.
    Promote,
    Refused,
    /// Operations that are one step anyway.
    AsTheyAre,
}

/// PyTorch's lists for GPUs.
fn policy(op: &str) -> Policy {
    match op {
        "matmul" | "linear" | "addmm" | "addmv" | "addr" | "addbmm" | "baddbmm" | "einsum" | "prelu" => Policy::Lower,
        "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d" | "conv_transpose2d" => Policy::Lower,
        "scaled_dot_product_attention" => Policy::Lower,
        "acos" | "asin" | "cosh" | "erfinv" | "exp" | "expm1" | "log" | "log10" | "log1p" | "log2" | "reciprocal" | "rsqrt"
        | "sinh" | "softplus" | "square" | "tan" | "pow" | "pow_scalar" => Policy::Full,
        "softmax" | "softmin" | "log_softmax" | "logsumexp" | "sum" | "prod" | "cumsum" | "cumprod" | "norm" | "norm_nuclear"
        | "normalize" | "dist" | "cdist" | "cosine_similarity" | "layer_norm" | "rms_norm" | "group_norm" | "trapezoid"
        | "interpolate" => Policy::Full,
        "cross_entropy"
        | "nll_loss"
        | "mse_loss"
        | "l1_loss"
        | "smooth_l1_loss"
        | "huber_loss"
        | "kl_div"
        | "binary_cross_entropy_with_logits" => Policy::Full,
        "dot" | "vdot" | "inner" | "nansum" | "trace" => Policy::Promote,
        "binary_cross_entropy" => Policy::Refused,
        _ => Policy::AsTheyAre,
    }
}

/// At the top of a method that [`policy`] names: in a scope of [`autocast`] it is called again with the operands that this wants, and
/// runs outside of the scope, as PyTorch's operations do: what it is put together from is not converted again.
macro_rules! in_autocast {
    ($op:expr, ($($name:ident $(= $operand:expr)?),+), $again:expr) => {
        if let Some((($($name,)+), _off)) = $crate::autograd::autocast::operands($op, ($(in_autocast!(@ $name $(= $operand)?),)+))? {
            return $again;
        }
    };
    (@ $name:ident = $operand:expr) => { $operand };
    (@ $name:ident) => { $name };
}
pub(super) use in_autocast;

/// The operands of `op` as a scope of [`autocast`] wants them, and a guard that takes the thread out of that scope; `None` where it
/// has no wish.
#[track_caller]
pub(super) fn operands<O: Operands>(op: &'static str, operands: O) -> Result<Option<(O::Converted, AutocastGuard)>> {
    let Some(lower) = autocast_dtype() else { return Ok(None) };
    let to = match policy(op) {
        Policy::AsTheyAre => return Ok(None),
        Policy::Promote => None,
        Policy::Refused => {
            return Err(Error::argument(
                op,
                format!("called inside autocast({lower}): probabilities rounded to 0 or 1 have no logarithm"),
                "pass logits to binary_cross_entropy_with_logits, or call it inside autocast(DType::F32, ..)",
            ));
        }
        Policy::Lower => Some(lower),
        Policy::Full => Some(DType::F32),
    };
    let _origin = Origin::enter();
    let operands = operands.convert(&|x| match to {
        Some(to) if x.dtype().is_float() && x.dtype() != to => converted(x, to),
        _ => Ok(x.clone()),
    })?;
    Ok(Some((operands, autocast_guard(DType::F32)?)))
}

/// `x` in another type: a parameter once in each scope.
fn converted(x: &Tensor, to: DType) -> Result<Tensor> {
    let Some(leaf) = leaf_of(x).filter(|_| to != DType::F32) else { return x.to_dtype(to) };
    let (place, version) = (Arc::as_ptr(&leaf), x.version());
    let usable = |known: &Converted| {
        // A backward pass may have freed the conversion, or it may have been made under no_grad.
        let history = interior_of(&known.tensor).and_then(|slot| slot.history("autocast").ok());
        let alive = history.map_or(!x.requires_grad(), |history| history.node.check_not_freed().is_ok());
        Arc::ptr_eq(&known.leaf, &leaf) && known.version == version && known.tensor.dtype() == to && (alive || !is_grad_enabled())
    };
    let known = PARAMETERS.with_borrow(|known| known.get(&place).filter(|known| usable(known)).map(|known| known.tensor.clone()));
    if let Some(tensor) = known {
        return Ok(tensor);
    }
    let tensor = x.to_dtype(to)?;
    let _old = PARAMETERS.with_borrow_mut(|known| known.insert(place, Converted { leaf, version, tensor: tensor.clone() }));
    Ok(tensor)
}

/// Operands as a method has them.
pub(super) trait Operands {
    type Converted;

    fn convert(self, by: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self::Converted>;
}

impl Operands for &Tensor {
    type Converted = Tensor;

    fn convert(self, by: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        by(self)
    }
}

impl Operands for Option<&Tensor> {
    type Converted = Option<Tensor>;

    fn convert(self, by: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Option<Tensor>> {
        self.map(by).transpose()
    }
}

impl Operands for &[&Tensor] {
    type Converted = Vec<Tensor>;

    fn convert(self, by: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        self.iter().map(|tensor| by(tensor)).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),+);)*) => { $(
        impl<$($name: Operands),+> Operands for ($($name,)+) {
            type Converted = ($($name::Converted,)+);

            fn convert(self, by: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self::Converted> {
                Ok(($(self.$at.convert(by)?,)+))
            }
        }
    )* };
}
tuples! { (A 0); (A 0, B 1); (A 0, B 1, C 2); (A 0, B 1, C 2, D 3); }
