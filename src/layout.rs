//! Shape, strides and offset of a tensor: views and broadcasting as pure arithmetic.
//!
//! Lengths, strides and offsets count *elements*. A dimension of a broadcast view has stride 0.

use std::fmt;
use std::ops::Deref;

use crate::error::{Error, Result};

/// The most dimensions a tensor can have.
pub const MAX_RANK: usize = 8;

/// A short list of dimension lengths or strides, held inline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Dims {
    /// A whole word: bytes of padding are copied one by one, and the loads after that wait for the stores.
    len: usize,
    items: [usize; MAX_RANK],
}

impl Dims {
    /// A list from a slice of at most [`MAX_RANK`] entries; `None` where there are more.
    pub fn from_slice(items: &[usize]) -> Option<Dims> {
        let mut dims = Dims { len: items.len(), items: [0; MAX_RANK] };
        dims.items.get_mut(..items.len())?.copy_from_slice(items);
        Some(dims)
    }

    fn filled(len: usize, value: usize) -> Dims {
        let mut dims = Dims { len, items: [0; MAX_RANK] };
        dims.items[..len].fill(value);
        dims
    }
}

impl Deref for Dims {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.items[..self.len]
    }
}

impl std::ops::DerefMut for Dims {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.items[..self.len]
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Where the elements of a tensor lie in its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Dims,
    strides: Dims,
    offset: usize,
}

impl Layout {
    /// Row-major layout of `shape` from the start of a storage.
    pub fn contiguous(op: &'static str, shape: &[usize]) -> Result<Layout> {
        let dims = dims(op, shape)?;
        let strides = row_major(&dims).ok_or_else(|| too_large(op, shape))?;
        Ok(Layout { shape: dims, strides, offset: 0 })
    }

    /// `len` elements, one after the other.
    pub fn vector(len: usize, offset: usize) -> Layout {
        Layout { shape: Dims::filled(1, len), strides: Dims::filled(1, 1), offset }
    }

    /// The same shape and strides from another offset on.
    pub fn at_offset(&self, offset: usize) -> Layout {
        Layout { offset, ..*self }
    }

    /// A layout with the given strides; the caller vouches that it stays inside its storage.
    pub fn strided(shape: Dims, strides: Dims, offset: usize) -> Layout {
        debug_assert_eq!(shape.len(), strides.len());
        Layout { shape, strides, offset }
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Distance between neighbours of each dimension, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Position of the first element in the storage, in elements.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// True when the elements lie in row-major order without gaps (from `offset` on).
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (len, stride) in self.shape.iter().zip(self.strides.iter()).rev() {
            if *len != 1 && *stride != expected {
                return self.is_empty();
            }
            expected *= len;
        }
        true
    }

    /// True when two indices can name the same element (a broadcast dimension longer than 1).
    pub fn is_expanded(&self) -> bool {
        self.shape.iter().zip(self.strides.iter()).any(|(len, stride)| *len > 1 && *stride == 0)
    }

    /// One past the largest element position that the layout touches; 0 when it is empty.
    pub fn end(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.offset + self.shape.iter().zip(self.strides.iter()).map(|(len, stride)| (len - 1) * stride).sum::<usize>() + 1
    }

    /// Dimension `dim` counted from the front, or from the back where it is negative.
    pub fn dim(&self, op: &'static str, dim: isize) -> Result<usize> {
        resolve_dim(op, dim, self.rank())
    }

    /// Swaps two dimensions.
    pub fn transpose(&self, a: usize, b: usize) -> Layout {
        let mut out = *self;
        // Also right for the one dimension that a 0-d tensor is said to have.
        if a != b {
            out.shape.swap(a, b);
            out.strides.swap(a, b);
        }
        out
    }

    /// Reorders the dimensions: dimension `i` of the result is dimension `order[i]` of this layout.
    pub fn permute(&self, order: &[usize]) -> Result<Layout> {
        let mut seen = [false; MAX_RANK];
        let valid =
            order.len() == self.rank() && order.iter().all(|dim| *dim < self.rank() && !std::mem::replace(&mut seen[*dim], true));
        if !valid {
            return Err(Error::shape(
                "permute",
                format!("order {order:?} does not fit shape {:?}", self.shape),
                format!("name each of the dimensions 0..{} once", self.rank()),
            ));
        }
        let mut out = *self;
        for (to, from) in order.iter().enumerate() {
            out.shape[to] = self.shape[*from];
            out.strides[to] = self.strides[*from];
        }
        Ok(out)
    }

    /// Keeps the `len` entries of dimension `dim` from `start` on.
    pub fn narrow(&self, dim: usize, start: usize, len: usize) -> Result<Layout> {
        if dim >= self.rank() {
            return Err(Error::shape(
                "narrow",
                format!("shape {:?} has no dimension {dim}", self.shape),
                "name a dimension that exists; a 0-d tensor has none to cut",
            ));
        }
        if start.checked_add(len).is_none_or(|end| end > self.shape[dim]) {
            return Err(Error::shape(
                "narrow",
                format!("range {start}..{} of dimension {dim} does not fit shape {:?}", start.saturating_add(len), self.shape),
                format!("use a range inside 0..{}", self.shape[dim]),
            ));
        }
        let mut out = *self;
        out.shape[dim] = len;
        out.offset += start * self.strides[dim];
        Ok(out)
    }

    /// Keeps every `step`-th of the `len` entries of dimension `dim` from `start` on (step at least 1, the range inside it).
    pub fn slice(&self, dim: usize, start: usize, len: usize, step: usize) -> Result<Layout> {
        let mut out = self.narrow(dim, start, len)?;
        let step = step.max(1);
        out.shape[dim] = len.div_ceil(step);
        if out.shape[dim] > 1 {
            out.strides[dim] *= step;
        }
        Ok(out)
    }

    /// The entries where the index of dimension `b` is that of dimension `a` plus `offset`, as a new last dimension; `a` and `b`
    /// differ and are gone.
    pub fn diagonal(&self, offset: isize, a: usize, b: usize) -> Layout {
        let (down, right) = (offset.min(0).unsigned_abs(), offset.max(0).unsigned_abs());
        let len = self.shape[a].saturating_sub(down).min(self.shape[b].saturating_sub(right));
        let stride = self.strides[a] + self.strides[b];
        let mut out = self.without(a.max(b)).without(a.min(b));
        out.shape.len += 1;
        out.strides.len += 1;
        let last = out.rank() - 1;
        (out.shape[last], out.strides[last]) = (len, stride);
        if len > 0 {
            out.offset += down * self.strides[a] + right * self.strides[b];
        }
        out
    }

    /// Windows of `size` entries of dimension `dim`, one every `step` entries: the windows take the dimension's place, their
    /// entries are a new last dimension. `None` where no window fits or there would be more than [`MAX_RANK`] dimensions.
    pub fn unfold(&self, dim: usize, size: usize, step: usize) -> Option<Layout> {
        let windows = self.shape[dim].checked_sub(size)? / step.max(1) + 1;
        let mut out = *self;
        out.shape[dim] = windows;
        if windows > 1 {
            out.strides[dim] *= step.max(1);
        }
        let last = self.rank();
        if last == MAX_RANK {
            return None;
        }
        (out.shape.len, out.strides.len) = (out.shape.len + 1, out.strides.len + 1);
        (out.shape[last], out.strides[last]) = (size, self.strides[dim]);
        Some(out)
    }

    /// The layout whose parts along `dim` these are, one after the other in one storage: [`Layout::narrow`] backwards. `None`
    /// where they lie otherwise.
    pub fn joined(parts: &[&Layout], dim: usize) -> Option<Layout> {
        let mut out = **parts.first()?;
        let same = |a: &Dims, b: &Dims| a.len() == b.len() && (0..a.len()).all(|i| i == dim || a[i] == b[i]);
        for part in &parts[1..] {
            let next = out.offset + out.shape.get(dim)? * out.strides[dim];
            if !same(&part.shape, &out.shape) || part.strides != out.strides || part.offset != next {
                return None;
            }
            out.shape[dim] = out.shape[dim].checked_add(part.shape[dim])?;
        }
        Some(out)
    }

    /// Repeats dimensions of length 1 (and adds dimensions in front) until the shape is `shape`.
    pub fn broadcast_to(&self, op: &'static str, shape: &[usize]) -> Result<Layout> {
        let refuse = || {
            Error::shape(
                op,
                format!("shape {:?} cannot be expanded to {shape:?}", self.shape),
                "align the shapes at their last dimension; each length must be equal or 1",
            )
        };
        let target = dims(op, shape)?;
        let added = shape.len().checked_sub(self.rank()).ok_or_else(refuse)?;
        let mut strides = Dims::filled(shape.len(), 0);
        for i in 0..self.rank() {
            if self.shape[i] == shape[added + i] {
                strides[added + i] = self.strides[i];
            } else if self.shape[i] != 1 {
                return Err(refuse());
            }
        }
        row_major(&target).ok_or_else(|| too_large(op, shape))?;
        Ok(Layout { shape: target, strides, offset: self.offset })
    }

    /// The same elements in another shape without a copy; `None` where only a copy can do that.
    pub fn reshape(&self, shape: &[usize]) -> Option<Layout> {
        let target = Dims::from_slice(shape)?;
        let strides = row_major(&target)?;
        if shape.iter().product::<usize>() != self.len() {
            return None;
        }
        if self.is_contiguous() {
            return Some(Layout { shape: target, strides, offset: self.offset });
        }
        // Walk both shapes from the left, matching groups of dimensions with the same number of elements.
        let old: Vec<(usize, usize)> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|(len, _)| *len != 1).collect();
        let mut strides = Dims::filled(shape.len(), 0);
        let (mut i, mut j) = (0, 0);
        while i < old.len() && j < shape.len() {
            let (mut have, mut want) = (old[i].0, shape[j]);
            let (first_i, first_j) = (i, j);
            i += 1;
            j += 1;
            while have != want {
                if have < want {
                    have *= old.get(i)?.0;
                    i += 1;
                } else {
                    want *= *shape.get(j)?;
                    j += 1;
                }
            }
            if (first_i..i - 1).any(|k| old[k].1 != old[k + 1].1 * old[k + 1].0) {
                return None;
            }
            let mut stride = old[i - 1].1;
            for k in (first_j..j).rev() {
                strides[k] = stride;
                stride *= shape[k];
            }
        }
        // What is left over has length 1: any stride does.
        for k in j..shape.len() {
            strides[k] = 1;
        }
        Some(Layout { shape: target, strides, offset: self.offset })
    }

    /// Removes dimension `dim`, at position `index`.
    pub fn select(&self, dim: usize, index: usize) -> Result<Layout> {
        let narrowed = self.narrow(dim, index, 1)?;
        Ok(narrowed.without(dim))
    }

    /// Removes dimension `dim`, whose length is 1.
    pub fn without(&self, dim: usize) -> Layout {
        let drop = |dims: &Dims| {
            let mut out = Dims { len: dims.len - 1, items: [0; MAX_RANK] };
            let kept = dims.iter().enumerate().filter(|(i, _)| *i != dim);
            for (to, (_, item)) in kept.enumerate() {
                out.items[to] = *item;
            }
            out
        };
        Layout { shape: drop(&self.shape), strides: drop(&self.strides), offset: self.offset }
    }

    /// Adds a dimension of length 1 before position `dim` (at most [`MAX_RANK`] in all).
    pub fn unsqueeze(&self, dim: usize) -> Option<Layout> {
        let stride = if dim < self.rank() { self.shape[dim] * self.strides[dim] } else { 1 };
        let insert = |dims: &Dims, item: usize| {
            let mut items: smallvec::SmallVec<[usize; MAX_RANK + 1]> = dims.iter().copied().collect();
            items.insert(dim, item);
            Dims::from_slice(&items)
        };
        Some(Layout { shape: insert(&self.shape, 1)?, strides: insert(&self.strides, stride)?, offset: self.offset })
    }
}

fn too_large(op: &'static str, shape: &[usize]) -> Error {
    Error::shape(op, format!("shape {shape:?} has more elements than fit in memory"), "use a smaller shape")
}

/// Row-major strides of `shape`; `None` where a stride or a part of it would not fit in memory (also beside a length of 0).
pub fn row_major(shape: &Dims) -> Option<Dims> {
    let mut strides = Dims { len: shape.len, items: [0; MAX_RANK] };
    let mut stride = 1usize;
    for (to, len) in strides.iter_mut().zip(shape.iter()).rev() {
        *to = stride;
        stride = stride.checked_mul((*len).max(1))?;
    }
    // The largest element has 8 bytes, on the host.
    (stride <= isize::MAX as usize / 8).then_some(strides)
}

/// The shape that both shapes can be expanded to (NumPy's and PyTorch's rule).
pub fn broadcast_shapes(op: &'static str, a: &[usize], b: &[usize]) -> Result<Dims> {
    let rank = a.len().max(b.len());
    if rank > MAX_RANK {
        let fact = format!("shapes {a:?} and {b:?}: more than {MAX_RANK} dimensions");
        return Err(Error::shape(op, fact, format!("use at most {MAX_RANK} dimensions")));
    }
    let mut out = Dims::filled(rank, 1);
    for i in 0..rank {
        let from_end = |shape: &[usize]| shape.len().checked_sub(i + 1).map_or(1, |at| shape[at]);
        let (x, y) = (from_end(a), from_end(b));
        out[rank - 1 - i] = match (x, y) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => {
                return Err(Error::shape(
                    op,
                    format!("shapes {a:?} and {b:?} do not broadcast"),
                    "align the shapes at their last dimension; each pair of lengths must be equal or one of them 1",
                ));
            }
        };
    }
    Ok(out)
}

/// The lengths of a shape, where it has no more dimensions than there may be.
fn dims(op: &'static str, shape: &[usize]) -> Result<Dims> {
    Dims::from_slice(shape).ok_or_else(|| {
        let fact = format!("shape {shape:?} has {} dimensions", shape.len());
        Error::shape(op, fact, format!("use at most {MAX_RANK} dimensions"))
    })
}

/// Dimension `dim` of `rank`, counted from the back where it is negative. As in PyTorch, a 0-d tensor takes 0 and -1.
pub fn resolve_dim(op: &'static str, dim: isize, rank: usize) -> Result<usize> {
    let count = rank.max(1);
    let resolved = if dim < 0 { dim + count as isize } else { dim };
    if (0..count as isize).contains(&resolved) {
        return Ok(resolved as usize);
    }
    Err(Error::argument(
        op,
        format!("dimension {dim} does not exist in a tensor of {rank} dimensions"),
        format!("use a dimension from -{count} to {}", count - 1),
    ))
}

/// Operands of one element-wise kernel with neighbouring dimensions merged wherever every operand allows it.
///
/// All layouts must have the same shape. Dimensions of length 1 vanish. The result has at least one dimension.
pub fn collapse<const N: usize>(layouts: [&Layout; N]) -> Collapsed<N> {
    let shape = layouts[0].shape;
    let mut out = Collapsed { shape: Dims::default(), strides: [Dims::default(); N] };
    for i in 0..shape.len() {
        if shape[i] == 1 {
            continue;
        }
        let last = out.shape.len();
        let merges = last > 0 && (0..N).all(|n| out.strides[n][last - 1] == layouts[n].strides[i] * shape[i]);
        if merges {
            out.shape[last - 1] *= shape[i];
        } else {
            out.shape.len += 1;
            out.shape[last] = shape[i];
        }
        for (strides, layout) in out.strides.iter_mut().zip(layouts) {
            strides.len = out.shape.len;
            let at = strides.len() - 1;
            strides[at] = layout.strides[i];
        }
    }
    if out.shape.is_empty() {
        out.shape = Dims::filled(1, 1);
        out.strides = [Dims::filled(1, 1); N];
    }
    out
}

/// What [`collapse`] found: one shape, and the strides of each operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed<const N: usize> {
    /// Lengths after merging.
    pub shape: Dims,
    /// Strides of each operand after merging, in elements.
    pub strides: [Dims; N],
}
