//! Elements in other places: turned, rolled, repeated, padded, picked by index. All are compositions of views, copies, `where_` and
//! reads by index, so that gradients follow from theirs.

use super::halves::rounded_once;
use super::methods::cat;
use super::views::signed;
use crate::device::Device;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::layout::{MAX_RANK, resolve_dim};
use crate::ops;
use crate::tensor::Tensor;

/// More of anything than this would not fit a tensor, and of less no sum or product overflows.
const MOST: usize = i32::MAX as usize;

/// What [`Tensor::pad`] puts beside the elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// This value.
    Constant(f64),
    /// The elements mirrored at the first and last one, which are not repeated.
    Reflect,
    /// The first and last element.
    Replicate,
    /// The elements from the other end.
    Circular,
}

impl Tensor {
    /// The entries of dimension `dim` named by `index` (i32, 1-d or 0-d), in its order. One out of range is reported by the next
    /// call that waits for the device.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let index = Tensor::new(&device, [1i32, 1])?;
    /// assert_eq!(x.index_select(0, &index)?.to_vec::<f32>()?, [3.0, 4.0, 3.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index_select(&self, dim: isize, index: &Tensor) -> Result<Tensor> {
        self.entries("index_select", dim, index)
    }

    /// [`Tensor::index_select`] for the operation `op`.
    #[track_caller]
    fn entries(&self, op: &'static str, dim: isize, index: &Tensor) -> Result<Tensor> {
        if index.rank() > 1 {
            return Err(Error::shape(op, format!("an index of shape {:?}", index.shape()), "pass an index of one dimension"));
        }
        let index = if index.rank() == 0 { index.unsqueeze(0)? } else { index.clone() };
        if self.rank() == 0 {
            return self.unsqueeze(0)?.entries(op, 0, &index)?.squeeze(0);
        }
        let dim = resolve_dim(op, dim, self.rank())?;
        // Rows of a table: the dimension first, all others as one.
        let moved = self.movedim(&[dim as isize], &[0])?;
        let width = moved.shape()[1..].iter().product::<usize>();
        let rows = moved.reshape(&[moved.shape()[0] as isize, width as isize])?;
        let mut shape = signed(moved.shape());
        shape[0] = index.len() as isize;
        rows.rows(op, &index)?.reshape(&shape)?.movedim(&[0], &[dim as isize])
    }

    /// [`Tensor::index_select`] with positions that the host knows.
    #[track_caller]
    pub(super) fn pick(&self, dim: usize, positions: &[i32]) -> Result<Tensor> {
        let index = Tensor::from_slice(self.device(), &[positions.len()], positions)?;
        self.index_select(dim as isize, &index)
    }

    /// Reversed along `dims`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.flip(&[1])?.to_vec::<f32>()?, [2.0, 1.0, 4.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn flip(&self, dims: &[isize]) -> Result<Tensor> {
        let mut out = self.positive()?;
        if self.rank() == 0 {
            dims.iter().try_for_each(|dim| resolve_dim("flip", *dim, 0).map(drop))?;
            return Ok(out);
        }
        let mut seen = Vec::new();
        for dim in dims {
            let dim = resolve_dim("flip", *dim, self.rank())?;
            if seen.contains(&dim) {
                return Err(Error::argument(
                    "flip",
                    format!("dimension {dim} stands twice in {dims:?}"),
                    "name each dimension once",
                ));
            }
            seen.push(dim);
            let len = self.shape()[dim];
            let turned = Tensor::arange(self.device(), len, DType::I32)?.mul_scalar(-1)?.add_scalar(len as i64 - 1)?;
            out = out.index_select(dim as isize, &turned)?;
        }
        Ok(out)
    }

    /// Reversed along dimension 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.fliplr()?.to_vec::<f32>()?, [2.0, 1.0, 4.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn fliplr(&self) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::shape("fliplr", format!("a tensor of shape {:?}", self.shape()), "pass at least 2 dimensions"));
        }
        self.flip(&[1])
    }

    /// Reversed along dimension 0.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.flipud()?.to_vec::<f32>()?, [3.0, 4.0, 1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn flipud(&self) -> Result<Tensor> {
        if self.rank() < 1 {
            return Err(Error::shape("flipud", "a tensor of 0 dimensions (shape [])", "pass at least 1 dimension"));
        }
        self.flip(&[0])
    }

    /// Moved by `shifts` along `dims`, what falls out at one end comes in at the other; without `dims` as if of one dimension.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// assert_eq!(x.roll(&[1], &[0])?.to_vec::<f32>()?, [3.0, 1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn roll(&self, shifts: &[isize], dims: &[isize]) -> Result<Tensor> {
        if dims.is_empty() && shifts.len() == 1 {
            let shape = signed(self.shape());
            return self.flatten(0, -1)?.roll(shifts, &[0])?.reshape(&shape);
        }
        if shifts.is_empty() || shifts.len() != dims.len() {
            return Err(Error::argument(
                "roll",
                format!("shifts {shifts:?} and dims {dims:?} for a tensor of shape {:?}", self.shape()),
                "pass one shift for each dimension",
            ));
        }
        let mut out = self.positive()?;
        for (shift, dim) in shifts.iter().zip(dims) {
            let at = self.existing("roll", *dim)?;
            let len = self.shape()[at] as isize;
            if len > 1 {
                let start = (len - shift.rem_euclid(len)) % len;
                let (left, right) = (out.narrow(*dim, 0, start as usize)?, out.narrow(*dim, start, (len - start) as usize)?);
                out = cat(&[&right, &left], *dim)?;
            }
        }
        Ok(out)
    }

    /// Turned by 90 degrees `k` times, from the first of `dims` to the second.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.rot90(1, &[0, 1])?.to_vec::<f32>()?, [2.0, 4.0, 1.0, 3.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn rot90(&self, k: isize, dims: &[isize]) -> Result<Tensor> {
        const OP: &str = "rot90";
        let refuse = || {
            let fact = format!("dims {dims:?} of a tensor of shape {:?}", self.shape());
            Error::argument(OP, fact, "pass two dimensions of a tensor that has them")
        };
        let &[a, b] = dims else { return Err(refuse()) };
        if self.rank() < 2 {
            return Err(refuse());
        }
        let [a, b] = [resolve_dim(OP, a, self.rank())? as isize, resolve_dim(OP, b, self.rank())? as isize];
        if a == b {
            return Err(refuse());
        }
        match k.rem_euclid(4) {
            0 => self.positive(),
            1 => self.flip(&[b])?.transpose(a, b)?.contiguous(),
            2 => self.flip(&[a, b]),
            _ => self.flip(&[a])?.transpose(a, b)?.contiguous(),
        }
    }

    /// The whole tensor `counts` times along each dimension; counts of new dimensions stand first.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = x.repeat(&[2, 2])?;
    /// assert_eq!(y.shape(), [2, 4]);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn repeat(&self, counts: &[usize]) -> Result<Tensor> {
        if counts.len() < self.rank() || counts.iter().any(|count| *count > MOST) {
            return Err(Error::argument(
                "repeat",
                format!("counts {counts:?} for a tensor of shape {:?}", self.shape()),
                format!("pass at least one count for each dimension, and none above {MOST}"),
            ));
        }
        let new = counts.len() - self.rank();
        let lens = |i: usize| if i < new { 1 } else { self.shape()[i - new] };
        // Each dimension as (count, length), the count expanded.
        let (mut thin, mut wide, mut shape) = (Vec::new(), Vec::new(), Vec::new());
        for (i, count) in counts.iter().enumerate() {
            thin.extend([1, lens(i) as isize]);
            wide.extend([*count as isize, lens(i) as isize]);
            shape.push((count * lens(i)) as isize);
        }
        // Two dimensions for each would be more than a tensor has: one after the other.
        if wide.len() > MAX_RANK {
            let start: Vec<isize> = (0..counts.len()).map(|i| lens(i) as isize).collect();
            let mut out = self.reshape(&start).map_err(|error| error.of("repeat"))?;
            for (dim, count) in counts.iter().enumerate() {
                let copies: Vec<&Tensor> = (0..*count).map(|_| &out).collect();
                out = match copies.is_empty() {
                    true => out.narrow(dim as isize, 0, 0)?,
                    false => cat(&copies, dim as isize)?,
                };
            }
            return Ok(out);
        }
        self.reshape(&thin)?.expand(&wide)?.positive()?.reshape(&shape)
    }

    /// [`Tensor::repeat`], where missing counts at the front are 1.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32], [2.0]])?;
    /// assert_eq!(x.tile(&[2])?.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn tile(&self, counts: &[usize]) -> Result<Tensor> {
        let missing = self.rank().saturating_sub(counts.len());
        let counts: Vec<usize> = std::iter::repeat_n(1, missing).chain(counts.iter().copied()).collect();
        self.repeat(&counts)
    }

    /// Each entry of `dim` (`None`: each element, as if of one dimension) `count` times, side by side.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.repeat_interleave(2, 0)?.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn repeat_interleave(&self, count: usize, dim: impl Into<Option<isize>>) -> Result<Tensor> {
        let Some(dim) = dim.into() else { return self.flatten(0, -1)?.repeat_interleave(count, 0) };
        let at = self.existing("repeat_interleave", dim)?;
        if count > MOST {
            let fact = format!("count {count} for a tensor of shape {:?}", self.shape());
            return Err(Error::argument("repeat_interleave", fact, format!("pass a count of at most {MOST}")));
        }
        let mut shape = signed(self.shape());
        shape[at] *= count as isize;
        let len = |dims: &[usize]| dims.iter().product::<usize>() as isize;
        // What stands before and behind as one dimension each: there is room for another, however many there are.
        let (outer, inner) = (len(&self.shape()[..=at]), len(&self.shape()[at + 1..]));
        self.reshape(&[outer, 1, inner])?.expand(&[outer, count as isize, inner])?.positive()?.reshape(&shape)
    }

    /// The elements at `index` (i32, any shape) of this tensor as if of one dimension; negative ones count from the back.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let index = Tensor::new(&device, [0i32, -1])?;
    /// assert_eq!(x.take(&index)?.to_vec::<f32>()?, [1.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        let shape = signed(index.shape());
        let flat = self.reshape(&[self.len() as isize])?;
        let index = from_front(index, self.len())?;
        flat.entries("take", 0, &index.reshape(&[index.len() as isize])?)?.reshape(&shape)
    }

    /// [`Tensor::gather`] with tensors that are broadcast to each other in all dimensions but `dim`; negative indices count from the
    /// back.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let index = Tensor::new(&device, [[1i32]])?;
    /// assert_eq!(x.take_along_dim(&index, 1)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn take_along_dim(&self, index: &Tensor, dim: isize) -> Result<Tensor> {
        const OP: &str = "take_along_dim";
        if self.rank() != index.rank() {
            return Err(Error::shape(
                OP,
                format!("an index of shape {:?} for a tensor of shape {:?}", index.shape(), self.shape()),
                "make both of as many dimensions",
            ));
        }
        let at = resolve_dim(OP, dim, self.rank())?;
        let (mut of_self, mut of_index) = (Vec::new(), Vec::new());
        for (i, (a, b)) in self.shape().iter().zip(index.shape()).enumerate() {
            let both = if *a == 1 { *b } else { *a } as isize;
            of_self.push(if i == at { *a as isize } else { both });
            of_index.push(if i == at { *b as isize } else { both });
        }
        self.expand(&of_self)?.elements(
            OP,
            dim,
            &from_front(&index.expand(&of_index)?, self.shape().get(at).copied().unwrap_or(1))?,
        )
    }

    /// Elements on and below diagonal `diagonal` of the last two dimensions, 0 elsewhere.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.tril(0)?.to_vec::<f32>()?, [1.0, 0.0, 3.0, 4.0]);
    /// assert_eq!(x.tril(-1)?.to_vec::<f32>()?, [0.0, 0.0, 3.0, 0.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Result<Tensor> {
        self.triangle("tril", diagonal, |place, diagonal| place.gt(diagonal))
    }

    /// Elements on and above diagonal `diagonal` of the last two dimensions, 0 elsewhere.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.triu(0)?.to_vec::<f32>()?, [1.0, 2.0, 0.0, 4.0]);
    /// assert_eq!(x.triu(1)?.to_vec::<f32>()?, [0.0, 2.0, 0.0, 0.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Result<Tensor> {
        self.triangle("triu", diagonal, |place, diagonal| place.lt(diagonal))
    }

    #[track_caller]
    fn triangle(&self, op: &'static str, diagonal: isize, outside: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let [.., rows, columns] = *self.shape() else {
            return Err(Error::shape(op, format!("a tensor of shape {:?}", self.shape()), "pass at least 2 dimensions"));
        };
        let place = column_less_row(self.device(), rows, columns)?;
        let diagonal = ops::copy::full(self.device(), &[], diagonal as i64, DType::I32)?;
        self.masked_fill(&outside(&place, &diagonal)?, 0)
    }

    /// A matrix with this vector on its diagonal `diagonal`, or that diagonal of this matrix, copied.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = x.diag(0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 0.0, 0.0, 2.0]);
    /// assert_eq!(y.diag(0)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn diag(&self, diagonal: isize) -> Result<Tensor> {
        match self.rank() {
            1 => self.diag_embed(diagonal, 0, 1),
            2 => self.diagonal(diagonal, 0, 1)?.positive(),
            _ => Err(Error::shape("diag", format!("a tensor of shape {:?}", self.shape()), "pass 1 or 2 dimensions")),
        }
    }

    /// Matrices in dimensions `dim1` and `dim2` of the result, with the last dimension on their diagonal `offset`, 0 elsewhere.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.diag_embed(0, 0, 1)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn diag_embed(&self, offset: isize, dim1: isize, dim2: isize) -> Result<Tensor> {
        const OP: &str = "diag_embed";
        let Some(len) = self.shape().last() else {
            return Err(Error::shape(OP, "a tensor of 0 dimensions (shape [])", "pass at least 1 dimension"));
        };
        let [a, b] = [resolve_dim(OP, dim1, self.rank() + 1)?, resolve_dim(OP, dim2, self.rank() + 1)?];
        if a == b {
            return Err(Error::argument(
                OP,
                format!("dim1 {dim1} and dim2 {dim2} are one dimension of a tensor of shape {:?}", self.shape()),
                "pass two dimensions",
            ));
        }
        if offset.unsigned_abs() > MOST {
            let fact = format!("offset {offset} for a tensor of shape {:?}", self.shape());
            return Err(Error::argument(OP, fact, format!("pass an offset of at most {MOST}")));
        }
        if self.rank() == MAX_RANK {
            let fact = format!("shape {:?} has {MAX_RANK} dimensions already", self.shape());
            return Err(Error::shape(OP, fact, format!("use at most {MAX_RANK} dimensions")));
        }
        let size = len + offset.unsigned_abs();
        // Row i has element i - (what lies above) in column i + offset.
        let above = (-offset).max(0) as usize;
        let padded = self.pad(&[above, size - len - above], PadMode::Constant(0.0))?;
        let mut wide = signed(padded.shape());
        wide.push(size as isize);
        let diagonal = ops::copy::full(self.device(), &[], offset as i64, DType::I32)?;
        let elsewhere = column_less_row(self.device(), size, size)?.ne(&diagonal)?;
        let last = self.rank() as isize;
        padded.unsqueeze(-1)?.expand(&wide)?.masked_fill(&elsewhere, 0)?.movedim(&[last - 1, last], &[a as isize, b as isize])
    }

    /// `amounts` (before and after the last dimension, before and after the one before it, ..) of elements added by `mode`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::PadMode;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// assert_eq!(x.pad(&[1, 2], PadMode::Constant(0.0))?.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 0.0, 0.0]);
    /// assert_eq!(x.pad(&[1, 1], PadMode::Reflect)?.to_vec::<f32>()?, [2.0, 1.0, 2.0, 3.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn pad(&self, amounts: &[usize], mode: PadMode) -> Result<Tensor> {
        self.pad_signed(&amounts.iter().map(|amount| *amount as isize).collect::<Vec<_>>(), mode)
    }

    /// [`Tensor::pad`], where negative amounts take elements away.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::PadMode;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0])?;
    /// assert_eq!(x.pad_signed(&[1, -2], PadMode::Constant(0.0))?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn pad_signed(&self, amounts: &[isize], mode: PadMode) -> Result<Tensor> {
        const OP: &str = "pad";
        let refuse = |help: &str| {
            Err(Error::argument(OP, format!("amounts {amounts:?} for a tensor of shape {:?} ({mode:?})", self.shape()), help))
        };
        if !amounts.len().is_multiple_of(2) || amounts.len() / 2 > self.rank() {
            return refuse("pass two amounts for each dimension, the last one's first");
        }
        if amounts.iter().any(|amount| amount.unsigned_abs() > MOST) {
            return refuse("pass smaller amounts");
        }
        let mut out = self.positive()?;
        for (i, pair) in amounts.chunks_exact(2).enumerate() {
            let dim = self.rank() - 1 - i;
            let (mut len, [mut before, mut after]) = (self.shape()[dim] as isize, [pair[0], pair[1]]);
            if len + before + after < 0 {
                return refuse("take away no more than there is");
            }
            if mode == PadMode::Circular && (before < 0 || after < 0) {
                // What is taken away does not come back at the other end.
                let kept = len + before.min(0) + after.min(0);
                if kept < 0 {
                    return refuse("take away no more than there is");
                }
                out = out.narrow(dim as isize, (-before).max(0), kept as usize)?;
                (len, before, after) = (kept, before.max(0), after.max(0));
            }
            if before == 0 && after == 0 {
                continue;
            }
            let inside = |at: isize| match mode {
                PadMode::Constant(_) | PadMode::Replicate => at.clamp(0, len - 1),
                PadMode::Circular => at.rem_euclid(len.max(1)),
                PadMode::Reflect if at < 0 => -at,
                PadMode::Reflect if at >= len => 2 * (len - 1) - at,
                PadMode::Reflect => at,
            };
            let fits = match mode {
                PadMode::Constant(_) => true,
                PadMode::Replicate => len > 0,
                PadMode::Reflect => before < len && after < len,
                PadMode::Circular => before <= len && after <= len && len > 0,
            };
            if !fits {
                return refuse("add less than the dimension has by this mode");
            }
            if let PadMode::Constant(value) = mode {
                let kept = len + before.min(0) + after.min(0);
                let middle = out.narrow(dim as isize, (-before).max(0), kept as usize)?;
                let side = |amount: isize| {
                    let mut shape = middle.shape().to_vec();
                    shape[dim] = amount.max(0) as usize;
                    ops::copy::full(self.device(), &shape, value, self.dtype())
                };
                out = cat(&[&side(before)?, &middle, &side(after)?], dim as isize)?;
            } else {
                let positions: Vec<i32> = (-before..len + after).map(|at| inside(at) as i32).collect();
                out = out.pick(dim, &positions)?;
            }
        }
        Ok(out)
    }

    /// The vector product along `dim`, of length 3.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 0.0, 0.0])?;
    /// let y = Tensor::new(&device, [0.0f32, 1.0, 0.0])?;
    /// assert_eq!(x.cross(&y, 0)?.to_vec::<f32>()?, [0.0, 0.0, 1.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn cross(&self, other: &Tensor, dim: isize) -> Result<Tensor> {
        const OP: &str = "cross";
        let at = self.existing(OP, dim)?;
        if self.rank() != other.rank() || self.shape()[at] != 3 || other.shape()[at] != 3 {
            return Err(Error::shape(
                OP,
                format!("shapes {:?} and {:?} along dimension {dim}", self.shape(), other.shape()),
                "pass tensors of as many dimensions, whose length along it is 3",
            ));
        }
        let turned = |x: &Tensor, by: isize| x.roll(&[by], &[dim]);
        rounded_once(OP, [self, other], |[x, y]| turned(x, -1)?.mul(&turned(y, -2)?)?.sub(&turned(x, -2)?.mul(&turned(y, -1)?)?))
    }

    /// `[.., C r r, H, W]` -> `[.., C, H r, W r]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0])?.reshape(&[1, 4, 1, 1])?;
    /// let y = x.pixel_shuffle(2)?;
    /// assert_eq!(y.shape(), [1, 1, 2, 2]);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn pixel_shuffle(&self, factor: usize) -> Result<Tensor> {
        let (outer, [c, h, w]) = self.picture("pixel_shuffle")?;
        let square = factor.saturating_mul(factor);
        if square == 0 || !c.is_multiple_of(square) {
            return Err(Error::shape(
                "pixel_shuffle",
                format!("{c} channels (shape {:?}) and a factor of {factor}", self.shape()),
                "make the channels a multiple of the factor's square",
            ));
        }
        let r = factor as isize;
        let (n, c, h, w) = (outer.iter().product::<isize>(), (c / square) as isize, h as isize, w as isize);
        let shape: Vec<isize> = outer.iter().copied().chain([c, h * r, w * r]).collect();
        self.reshape(&[n, c, r, r, h, w])?.permute(&[0, 1, 4, 2, 5, 3])?.reshape(&shape)
    }

    /// `[.., C, H r, W r]` -> `[.., C r r, H, W]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 3.0, 4.0])?.reshape(&[1, 1, 2, 2])?;
    /// let y = x.pixel_unshuffle(2)?;
    /// assert_eq!(y.shape(), [1, 4, 1, 1]);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn pixel_unshuffle(&self, factor: usize) -> Result<Tensor> {
        let (outer, [c, h, w]) = self.picture("pixel_unshuffle")?;
        if factor == 0 || !h.is_multiple_of(factor) || !w.is_multiple_of(factor) {
            return Err(Error::shape(
                "pixel_unshuffle",
                format!("a picture of {h} x {w} (shape {:?}) and a factor of {factor}", self.shape()),
                "make height and width multiples of the factor",
            ));
        }
        let r = factor as isize;
        let (n, c, h, w) = (outer.iter().product::<isize>(), c as isize, h as isize / r, w as isize / r);
        let shape: Vec<isize> = outer.iter().copied().chain([c * r * r, h, w]).collect();
        self.reshape(&[n, c, h, r, w, r])?.permute(&[0, 1, 3, 5, 2, 4])?.reshape(&shape)
    }

    /// The leading dimensions, and the last three.
    fn picture(&self, op: &'static str) -> Result<(Vec<isize>, [usize; 3])> {
        let [outer @ .., c, h, w] = self.shape() else {
            return Err(Error::shape(op, format!("a tensor of shape {:?}", self.shape()), "pass at least 3 dimensions"));
        };
        Ok((signed(outer), [*c, *h, *w]))
    }

    /// The first half of `dim` times the sigmoid of the second.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0, 0.0, 0.0])?;
    /// assert_eq!(x.glu(0)?.to_vec::<f32>()?, [0.5, 1.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn glu(&self, dim: isize) -> Result<Tensor> {
        let at = self.existing("glu", dim)?;
        let len = self.shape()[at];
        if !len.is_multiple_of(2) {
            return Err(Error::shape(
                "glu",
                format!("length {len} of dimension {dim} (shape {:?})", self.shape()),
                "make it even",
            ));
        }
        let half = len / 2;
        rounded_once("glu", [self], |[x]| x.narrow(dim, 0, half)?.mul(&x.narrow(dim, half as isize, half)?.sigmoid()?))
    }

    /// The sum over what broadcasting to this shape would have repeated in a tensor of `shape`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.sum_to_size(&[1, 2])?.to_vec::<f32>()?, [4.0, 6.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn sum_to_size(&self, shape: &[usize]) -> Result<Tensor> {
        let fits = shape.len() <= self.rank()
            && shape.iter().rev().zip(self.shape().iter().rev()).all(|(to, from)| to == from || *to == 1);
        if !fits {
            return Err(Error::shape(
                "sum_to_size",
                format!("{shape:?} does not broadcast to shape {:?}", self.shape()),
                "pass a shape that this one comes from by broadcasting",
            ));
        }
        let new = self.rank() - shape.len();
        let over: Vec<isize> =
            (0..self.rank()).filter(|i| *i < new || shape[i - new] != self.shape()[*i]).map(|i| i as isize).collect();
        let sizes = signed(shape);
        match over.is_empty() {
            true => self.positive(),
            false => self.sum(&over, ops::reduce::KeepDim::Keep)?.reshape(&sizes),
        }
    }

    /// f32 `[n, m]`: 1 where row and column are equal, else 0.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// assert_eq!(Tensor::eye(&device, 2, 3)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn eye(device: &Device, n: isize, m: isize) -> Result<Tensor> {
        let (Ok(n), Ok(m)) = (usize::try_from(n), usize::try_from(m)) else {
            return Err(Error::argument("eye", format!("n is {n}, m is {m}"), "pass lengths of at least 0"));
        };
        let zero = ops::copy::full(device, &[], 0, DType::I32)?;
        column_less_row(device, n, m)?.eq(&zero)?.to_dtype(DType::F32)
    }

    /// f32 `steps` numbers at equal distances from `start` to `end`, both among them.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// assert_eq!(Tensor::linspace(&device, 0.0, 1.0, 5)?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace(device: &Device, start: impl Into<Scalar>, end: impl Into<Scalar>, steps: usize) -> Result<Tensor> {
        let (start, end) = (start.into().value(), end.into().value());
        let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
        let (half, all) = (steps / 2, Tensor::arange(device, steps, DType::F32)?);
        // From both ends, as PyTorch does, so that the last is `end` exactly.
        let from_start = all.narrow(0, 0, half)?.mul_scalar(step)?.add_scalar(start)?;
        let back = all.narrow(0, half as isize, steps - half)?.add_scalar(-(steps.saturating_sub(1) as f64))?;
        let from_end = back.mul_scalar(step)?.add_scalar(if steps > 1 { end } else { start })?;
        cat(&[&from_start, &from_end], 0)
    }

    /// [`Tensor::linspace`] between 0-d tensors, whose values stay on the device.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let start = Tensor::new(&device, 0.0f32)?;
    /// let end = Tensor::new(&device, 4.0f32)?;
    /// assert_eq!(Tensor::linspace_tensor(&start, &end, 3)?.to_vec::<f32>()?, [0.0, 2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace_tensor(start: &Tensor, end: &Tensor, steps: usize) -> Result<Tensor> {
        const OP: &str = "linspace";
        let float = |x: &Tensor| match x.rank() {
            0 => x.detach().to_dtype(DType::F32),
            _ => Err(Error::shape(OP, format!("a bound of shape {:?}", x.shape()), "pass bounds of 0 dimensions")),
        };
        let (start, end) = (float(start)?, float(end)?);
        if steps < 2 {
            return start.expand(&[steps as isize])?.positive();
        }
        let step = end.sub(&start)?.mul_scalar(1.0 / (steps - 1) as f64)?;
        let (half, all) = (steps / 2, Tensor::arange(start.device(), steps, DType::F32)?);
        let from_start = all.narrow(0, 0, half)?.mul(&step)?.add(&start)?;
        let back = all.narrow(0, half as isize, steps - half)?.add_scalar(-((steps - 1) as f64))?;
        cat(&[&from_start, &back.mul(&step)?.add(&end)?], 0)
    }

    /// [`Tensor::logspace`] between 0-d tensors, whose values stay on the device.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let start = Tensor::new(&device, 0.0f32)?;
    /// let end = Tensor::new(&device, 2.0f32)?;
    /// let out = Tensor::logspace_tensor(&start, &end, 3, 2.0)?.to_vec::<f32>()?;
    /// assert_eq!(format!("{out:.4?}"), "[1.0000, 2.0000, 4.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn logspace_tensor(start: &Tensor, end: &Tensor, steps: usize, base: f64) -> Result<Tensor> {
        let exponents = Tensor::linspace_tensor(start, end, steps).map_err(|error| error.of("logspace"))?;
        ops::copy::full(start.device(), &[], base, DType::F32)?.pow(&exponents)
    }

    /// f32 `steps` powers of `base`, whose exponents are at equal distances from `start` to `end`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let out = Tensor::logspace(&device, 0.0, 2.0, 3, 10.0)?.to_vec::<f32>()?;
    /// assert_eq!(format!("{out:.4?}"), "[1.0000, 10.0000, 100.0000]");
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn logspace(
        device: &Device,
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        steps: usize,
        base: f64,
    ) -> Result<Tensor> {
        let exponents = Tensor::linspace(device, start, end, steps)?;
        ops::copy::full(device, &[], base, DType::F32)?.pow(&exponents)
    }
}

/// Column minus row of each place of a matrix, i32.
#[track_caller]
fn column_less_row(device: &Device, rows: usize, columns: usize) -> Result<Tensor> {
    let row = Tensor::arange(device, rows, DType::I32)?.unsqueeze(1)?;
    Tensor::arange(device, columns, DType::I32)?.unsqueeze(0)?.sub(&row)
}

/// Indices (i32) among `len` entries, where negative ones counted from the back.
#[track_caller]
pub(super) fn from_front(index: &Tensor, len: usize) -> Result<Tensor> {
    let zero = ops::copy::full(index.device(), &[], 0, index.dtype())?;
    index.add_scalar(len as i64)?.where_(&index.lt(&zero)?, index)
}

/// Which dimension of a grid the first two tensors vary along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// The first along dimension 0, the second along dimension 1: rows and columns.
    Ij,
    /// The first along dimension 1, the second along dimension 0: x and y.
    Xy,
}

/// Vectors (or 0-d tensors) as grids: each varies along a dimension of all results, in their order, but for `indexing`.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::{Indexing, meshgrid};
/// let x = Tensor::new(&device, [1.0f32, 2.0])?;
/// let y = Tensor::new(&device, [3.0f32, 4.0])?;
/// let grids = meshgrid(&[&x, &y], Indexing::Ij)?;
/// assert_eq!(grids[0].to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
/// assert_eq!(grids[1].to_vec::<f32>()?, [3.0, 4.0, 3.0, 4.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn meshgrid(tensors: &[&Tensor], indexing: Indexing) -> Result<Vec<Tensor>> {
    const OP: &str = "meshgrid";
    if tensors.is_empty() {
        return Err(Error::argument(OP, "there are no tensors", "pass at least one tensor"));
    }
    if let Some(other) = tensors.iter().find(|tensor| tensor.rank() > 1) {
        return Err(Error::shape(OP, format!("a tensor of shape {:?}", other.shape()), "pass tensors of 0 or 1 dimensions"));
    }
    if let (Indexing::Xy, [first, second, rest @ ..]) = (indexing, tensors) {
        let swapped: Vec<&Tensor> = [*second, *first].into_iter().chain(rest.iter().copied()).collect();
        let mut grids = meshgrid(&swapped, Indexing::Ij)?;
        grids.swap(0, 1);
        return Ok(grids);
    }
    let sizes: Vec<isize> = tensors.iter().map(|tensor| tensor.len() as isize).collect();
    let grid = |(i, tensor): (usize, &&Tensor)| {
        let mut shape = vec![1isize; sizes.len()];
        shape[i] = sizes[i];
        tensor.reshape(&shape)?.expand(&sizes)
    };
    tensors.iter().enumerate().map(grid).collect()
}
