//! Writing by index: each method gives a new tensor, and its form in place stands in `in_place.rs`. Indices are i32; one out of range
//! is reported by the next call that waits for the device.

use super::graph::Grads;
use super::record::record;
use super::rules;
use super::views::signed;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::layout::resolve_dim;
use crate::ops;
use crate::ops::scatter::last_positions;
use crate::tensor::Tensor;

/// What [`Tensor::scatter_reduce`] makes of the elements that come to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean.
    Mean,
    /// The largest; NaN where there is one. Equal ones share the gradient.
    Amax,
    /// The smallest; NaN where there is one. Equal ones share the gradient.
    Amin,
}

/// Whether the element that a place held counts (PyTorch's `include_self`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// It does.
    Included,
    /// It does not, where others come.
    Excluded,
}

/// What [`Tensor::index_put`] does with elements (PyTorch's `accumulate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// They replace what was there; of several for one place the last one does.
    Replace,
    /// They are added.
    Add,
}

impl Tensor {
    /// This tensor with `src[i][j]` at `[index[i][j]][j]` for `dim` 0, and so on; of several for one place the last one stays. The index
    /// has the rank of both and is, but for `dim`, no longer than self; `src` is at least as long as the index.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let index = Tensor::new(&device, [2i32, 0])?;
    /// let src = Tensor::new(&device, [10.0f32, 20.0])?;
    /// assert_eq!(x.scatter(0, &index, &src)?.to_vec::<f32>()?, [20.0, 2.0, 10.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter(&self, dim: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scattered("scatter", dim, index, src)
    }

    /// [`Tensor::scatter`] for the operation `op`.
    #[track_caller]
    fn scattered(&self, op: &'static str, dim: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        same_dtype(op, self, src)?;
        let Some(parts) = Parts::of(op, self, dim, index, src)? else { return self.positive() };
        let Parts { own, dim, index, src } = parts;
        let mut last = last_positions(op, &index, dim as isize, own.shape()[dim])?;
        let mut chosen = src.take_positions(dim as isize, &before(&last)?)?;
        if last.shape() != own.shape() {
            // Nothing is written behind the index.
            let missing = own.shape().iter().zip(last.shape()).rev();
            let amounts: Vec<usize> = missing.flat_map(|(all, some)| [0, all - some]).collect();
            last = last.pad(&amounts, super::PadMode::Constant(0.0))?;
            chosen = chosen.pad(&amounts, super::PadMode::Constant(0.0))?;
        }
        like(self, chosen.where_(&last, &own)?)
    }

    /// [`Tensor::scatter`] of one value.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let index = Tensor::new(&device, [2i32, 0])?;
    /// assert_eq!(x.scatter_value(0, &index, 9.0)?.to_vec::<f32>()?, [9.0, 2.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_value(&self, dim: isize, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.scatter(dim, index, &ops::copy::full(self.device(), index.shape(), value, self.dtype())?)
    }

    /// This tensor with `src[i][j]` added at `[index[i][j]][j]` for `dim` 0, and so on, in the order of i; shapes as for
    /// [`Tensor::scatter`]. Halves are added in f32 and rounded once, whole numbers wrap.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let index = Tensor::new(&device, [2i32, 2])?;
    /// let src = Tensor::new(&device, [10.0f32, 20.0])?;
    /// assert_eq!(x.scatter_add(0, &index, &src)?.to_vec::<f32>()?, [1.0, 2.0, 33.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_add(&self, dim: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.combine("scatter_add", dim, index, src, SUMS)
    }

    /// This tensor, where places that the index names hold what `reduce` makes of the elements that come to them; places and shapes as
    /// for [`Tensor::scatter`], types as for [`Tensor::scatter_add`]. A mean of whole numbers is rounded down.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::{Own, ScatterReduce};
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let (index, src) = (Tensor::new(&device, [2i32, 2])?, Tensor::new(&device, [10.0f32, 20.0])?);
    /// assert_eq!(x.scatter_reduce(0, &index, &src, ScatterReduce::Amax, Own::Included)?.to_vec::<f32>()?, [1.0, 2.0, 20.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_reduce(&self, dim: isize, index: &Tensor, src: &Tensor, reduce: ScatterReduce, own: Own) -> Result<Tensor> {
        const OP: &str = "scatter_reduce";
        let [least, most] = match self.dtype() {
            DType::I32 => [i32::MIN.into(), i32::MAX.into()],
            DType::U32 => [0.into(), u32::MAX.into()],
            _ => [f64::NEG_INFINITY.into(), f64::INFINITY.into()],
        };
        let start: Scalar = match reduce {
            ScatterReduce::Sum | ScatterReduce::Mean => 0.into(),
            ScatterReduce::Prod => 1.into(),
            ScatterReduce::Amax => least,
            ScatterReduce::Amin => most,
        };
        let base = match own {
            Own::Included => self.clone(),
            Own::Excluded => {
                let ones = ops::copy::full(self.device(), index.shape(), 1, self.dtype())?;
                let named = self.full_like(0)?.scattered(OP, dim, index, &ones)?;
                self.masked_fill(&named, start)?
            }
        };
        let extremes = |kernel| Combining { kernel, rule: rules::scatter::scatter_extreme, saves: Saves::All };
        match reduce {
            ScatterReduce::Sum => base.combine(OP, dim, index, src, SUMS),
            ScatterReduce::Mean => {
                let sum = base.combine(OP, dim, index, src, SUMS)?;
                let of = |shape: &[usize], value: i32| ops::copy::full(self.device(), shape, value, DType::I32);
                let counted = of(self.shape(), i32::from(own == Own::Included))?;
                let count = counted.combine(OP, dim, index, &of(index.shape(), 1)?, SUMS)?.clamp(1, i32::MAX)?;
                match self.dtype().is_float() {
                    // In f32, which holds counts that halves do not.
                    true => sum.div(&count.to_dtype(DType::F32)?)?.to_dtype(self.dtype()),
                    false => sum.div_floor(&count.to_dtype(self.dtype())?),
                }
            }
            ScatterReduce::Prod => base.combine(OP, dim, index, src, PRODUCTS),
            ScatterReduce::Amax => base.combine(OP, dim, index, src, extremes(ops::scatter::scatter_amax)),
            ScatterReduce::Amin => base.combine(OP, dim, index, src, extremes(ops::scatter::scatter_amin)),
        }
    }

    #[track_caller]
    fn combine(&self, op: &'static str, dim: isize, index: &Tensor, src: &Tensor, by: Combining) -> Result<Tensor> {
        same_dtype(op, self, src)?;
        let Some(parts) = Parts::of(op, self, dim, index, src)? else { return self.positive() };
        let Parts { own, dim, index, src } = parts;
        // The kernel passes over indices out of range: this reports them.
        last_positions(op, &index, dim as isize, own.shape()[dim])?;
        let out = (by.kernel)(&own, dim as isize, &index, &src).map_err(|error| error.of(op))?;
        let kept = out.clone();
        let all: [&Tensor; 4] = [&own, &index, &src, &kept];
        let saved = if by.saves == Saves::Index { &all[1..2] } else { &all[..] };
        let out = record(op, &[&own, &src], saved, out, move |ctx| (by.rule)(ctx, dim as isize))?;
        like(self, out)
    }

    /// This tensor with entry `i` of `source` times `alpha` added to entry `index[i]` of `dim` (index of 1 or 0 dimensions); types
    /// as for [`Tensor::scatter_add`].
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let index = Tensor::new(&device, [0i32, 0])?;
    /// let source = Tensor::new(&device, [10.0f32, 20.0])?;
    /// assert_eq!(x.index_add(0, &index, &source, 2.0)?.to_vec::<f32>()?, [61.0, 2.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index_add(&self, dim: isize, index: &Tensor, source: &Tensor, alpha: impl Into<Scalar>) -> Result<Tensor> {
        const OP: &str = "index_add";
        let rows = Rows::of(OP, self, dim, index, source)?;
        rows.back(rows.own.rows_added(OP, &rows.index, &rows.source.mul_scalar(alpha)?)?)
    }

    /// This tensor with entry `i` of `source` as entry `index[i]` of `dim` (index of 1 or 0 dimensions); of several for one place the
    /// last one stays.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let index = Tensor::new(&device, [2i32, 0])?;
    /// let source = Tensor::new(&device, [10.0f32, 20.0])?;
    /// assert_eq!(x.index_copy(0, &index, &source)?.to_vec::<f32>()?, [20.0, 2.0, 10.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index_copy(&self, dim: isize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        const OP: &str = "index_copy";
        let rows = Rows::of(OP, self, dim, index, source)?;
        rows.back(rows.own.rows_replaced(OP, &rows.index, &rows.source)?)
    }

    /// This tensor with `value` as entries `index` of `dim` (index of 1 or 0 dimensions).
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let index = Tensor::new(&device, [2i32, 0])?;
    /// assert_eq!(x.index_fill(0, &index, 9.0)?.to_vec::<f32>()?, [9.0, 2.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index_fill(&self, dim: isize, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.masked_fill(&self.named("index_fill", dim, index)?, value)
    }

    /// [`Tensor::index_fill`] with a 0-d tensor as value.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let index = Tensor::new(&device, [2i32])?;
    /// let value = Tensor::new(&device, 9.0f32)?;
    /// assert_eq!(x.index_fill_tensor(0, &index, &value)?.to_vec::<f32>()?, [1.0, 2.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index_fill_tensor(&self, dim: isize, index: &Tensor, value: &Tensor) -> Result<Tensor> {
        self.filled("index_fill", &self.named("index_fill", dim, index)?, value)
    }

    /// Which entries of `dim` the index names, in a shape that broadcasts with self.
    #[track_caller]
    fn named(&self, op: &'static str, dim: isize, index: &Tensor) -> Result<Tensor> {
        let index = vector(op, index)?;
        let at = resolve_dim(op, dim, self.rank().max(1))?;
        let len = self.shape().get(at).copied().unwrap_or(1);
        // PyTorch counts from the back here, and in no other operation of its kind. What is out of range stays what it is.
        let from_back = index.lt_scalar(0)?.logical_and(&index.ge_scalar(-(len as i64))?)?;
        let index = index.add_scalar(len as i64)?.where_(&from_back, &index)?;
        let last = last_positions(op, &index, 0, len)?;
        let mut shape = vec![1; self.rank()];
        shape.iter_mut().skip(at).take(1).for_each(|len| *len = -1);
        last.reshape(&shape)
    }

    /// [`Tensor::masked_fill`] with a 0-d tensor as value.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let mask = Tensor::new(&device, [0u8, 1])?;
    /// let value = Tensor::new(&device, 9.0f32)?;
    /// assert_eq!(x.masked_fill_tensor(&mask, &value)?.to_vec::<f32>()?, [1.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_fill_tensor(&self, mask: &Tensor, value: &Tensor) -> Result<Tensor> {
        self.filled("masked_fill", mask, value)
    }

    /// [`Tensor::index_fill_tensor`] in place, through views too.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// let (index, value) = (Tensor::new(&device, [2i32])?, Tensor::new(&device, 9.0f32)?);
    /// x.index_fill_tensor_(0, &index, &value)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index_fill_tensor_(&self, dim: isize, index: &Tensor, value: &Tensor) -> Result<()> {
        self.become_("index_fill_", |x| x.index_fill_tensor(dim, index, value))
    }

    /// [`Tensor::masked_fill_tensor`] in place, through views too.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let (mask, value) = (Tensor::new(&device, [0u8, 1])?, Tensor::new(&device, 9.0f32)?);
    /// x.masked_fill_tensor_(&mask, &value)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 9.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_fill_tensor_(&self, mask: &Tensor, value: &Tensor) -> Result<()> {
        self.become_("masked_fill_", |x| x.masked_fill_tensor(mask, value))
    }

    #[track_caller]
    fn filled(&self, op: &'static str, mask: &Tensor, value: &Tensor) -> Result<Tensor> {
        if value.rank() > 0 {
            return Err(Error::shape(op, format!("a value of shape {:?}", value.shape()), "pass a value of 0 dimensions"));
        }
        value.to_dtype(self.dtype())?.where_(mask, self).map_err(|error| error.of(op))
    }

    /// Every element `value`, with the shape and element type of this tensor, contiguous; no gradient reaches this tensor.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.fill(3.0)?.to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn fill(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        let out = self.full_like(value)?;
        let like = self.detach();
        super::record::record_unary("fill", self, &[], out, move |_| like.zeros_like())
    }

    /// `[R, W]` with row i of `source` `[K, W]` added to row `index[i]`.
    #[track_caller]
    pub(super) fn rows_added(&self, op: &'static str, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        let rows = self.shape()[0];
        last_positions(op, index, 0, rows)?;
        let out = ops::binary::add(self, &ops::index::embedding_backward(source, index, rows).map_err(|error| error.of(op))?)?;
        record(op, &[self, source], &[index], out, |ctx| {
            let ds = ctx.want(1, || ops::index::embedding(ctx.grad(), ctx.saved(0)))?;
            Ok(Grads::from_iter([ctx.needs(0).then(|| ctx.grad().clone()), ds]))
        })
    }

    /// `[R, W]` with row i of `source` `[K, W]` as row `index[i]`.
    #[track_caller]
    pub(super) fn rows_replaced(&self, op: &'static str, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        if index.is_empty() {
            return self.positive();
        }
        let last = last_positions(op, index, 0, self.shape()[0])?;
        source.embedding(&before(&last)?)?.where_(&last.unsqueeze(1)?, self)
    }
}

/// A kernel that combines by index, and its rule.
#[derive(Clone, Copy)]
struct Combining {
    kernel: fn(&Tensor, isize, &Tensor, &Tensor) -> Result<Tensor>,
    rule: fn(&super::graph::Backward<'_>, isize) -> Result<Grads>,
    saves: Saves,
}

/// What the rule reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Saves {
    Index,
    /// Self, index, elements and result.
    All,
}

const SUMS: Combining = Combining { kernel: ops::scatter::scatter_add, rule: rules::scatter::scatter_add, saves: Saves::Index };
const PRODUCTS: Combining =
    Combining { kernel: ops::scatter::scatter_prod, rule: rules::scatter::scatter_prod, saves: Saves::All };

/// Operands of a scatter: of at least one dimension, and elements only where there is an index.
struct Parts {
    own: Tensor,
    dim: usize,
    index: Tensor,
    src: Tensor,
}

impl Parts {
    /// `None` where nothing is written.
    #[track_caller]
    fn of(op: &'static str, own: &Tensor, dim: isize, index: &Tensor, src: &Tensor) -> Result<Option<Parts>> {
        let dim = resolve_dim(op, dim, own.rank().max(1))?;
        let lifted = |x: &Tensor| if x.rank() == 0 { x.unsqueeze(0) } else { Ok(x.clone()) };
        if index.is_empty() {
            return Ok(None);
        }
        let (own, index, mut src) = (lifted(own)?, lifted(index)?, lifted(src)?);
        ops::expect_dtype(op, &index, DType::I32)?;
        let fits = |i: usize| index.shape()[i] <= src.shape()[i] && (i == dim || index.shape()[i] <= own.shape()[i]);
        if own.rank() != index.rank() || own.rank() != src.rank() || !(0..own.rank()).all(fits) {
            return Err(Error::shape(
                op,
                format!(
                    "an index of shape {:?} and elements of shape {:?} for a tensor of shape {:?}",
                    index.shape(),
                    src.shape(),
                    own.shape()
                ),
                "use as many dimensions, and an index that is nowhere longer than the elements and, but for the dimension, the tensor",
            ));
        }
        for (i, len) in index.shape().iter().enumerate() {
            if src.shape()[i] != *len {
                src = src.narrow(i as isize, 0, *len)?;
            }
        }
        Ok(Some(Parts { own, dim, index, src }))
    }
}

/// Operands of an `index_*` method as matrices whose rows are the entries of the dimension.
struct Rows {
    own: Tensor,
    index: Tensor,
    source: Tensor,
    dim: usize,
    /// The shape of the tensor with the dimension first.
    moved: Vec<usize>,
    rank: usize,
}

impl Rows {
    #[track_caller]
    fn of(op: &'static str, own: &Tensor, dim: isize, index: &Tensor, source: &Tensor) -> Result<Rows> {
        same_dtype(op, own, source)?;
        let index = vector(op, index)?;
        ops::expect_dtype(op, &index, DType::I32)?;
        let rank = own.rank();
        let lifted = |x: &Tensor| if x.rank() == 0 { x.unsqueeze(0) } else { Ok(x.clone()) };
        let (wide, source) = (lifted(own)?, lifted(source)?);
        let dim = wide.existing(op, dim)?;
        let fits = |i: usize| source.shape()[i] == if i == dim { index.len() } else { wide.shape()[i] };
        if source.rank() != wide.rank() || !(0..wide.rank()).all(fits) {
            return Err(unfit(op, &format!("{} indices and elements", index.len()), &source, own));
        }
        let matrix = |x: &Tensor| {
            let moved = x.movedim(&[dim as isize], &[0])?;
            let width: usize = moved.shape()[1..].iter().product();
            Ok::<_, Error>((moved.reshape(&[moved.shape()[0] as isize, width as isize])?, moved.shape().to_vec()))
        };
        let ((own, moved), (source, _)) = (matrix(&wide)?, matrix(&source)?);
        Ok(Rows { own, index, source, dim, moved, rank })
    }

    /// A matrix of the rows of the tensor in its shape.
    #[track_caller]
    fn back(&self, rows: Tensor) -> Result<Tensor> {
        let out = rows.reshape(&signed(&self.moved))?.movedim(&[0], &[self.dim as isize])?;
        if self.rank == 0 { out.squeeze(0) } else { out.contiguous() }
    }
}

/// 0-based positions of 1-based ones; 0 for none.
#[track_caller]
fn before(last: &Tensor) -> Result<Tensor> {
    last.clamp(1, i64::from(i32::MAX))?.add_scalar(-1)
}

/// The result in the shape of `own`.
#[track_caller]
fn like(own: &Tensor, out: Tensor) -> Result<Tensor> {
    if out.shape() == own.shape() { Ok(out) } else { out.reshape(&signed(own.shape())) }
}

/// An index of 1 or 0 dimensions as a vector.
#[track_caller]
fn vector(op: &'static str, index: &Tensor) -> Result<Tensor> {
    match index.rank() {
        0 => index.unsqueeze(0),
        1 => Ok(index.clone()),
        _ => Err(Error::shape(op, format!("an index of shape {:?}", index.shape()), "pass an index of one dimension")),
    }
}

pub(super) fn same_dtype(op: &'static str, own: &Tensor, other: &Tensor) -> Result<()> {
    if own.dtype() == other.dtype() {
        return Ok(());
    }
    Err(Error::DType { op, got: other.dtype(), expected: own.dtype().name() })
}

fn unfit(op: &'static str, what: &str, given: &Tensor, own: &Tensor) -> Error {
    Error::shape(
        op,
        format!("{what} of shape {:?} for a tensor of shape {:?}", given.shape(), own.shape()),
        "make the shapes equal where no index chooses",
    )
}
