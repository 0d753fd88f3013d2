//! Element-wise work, ranges and random numbers on tensors of more bytes than the adapter lets a kernel see
//! (`max_storage_buffer_binding_size`): in pieces, of each of which kernels see a window of every operand that is too large.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::layout::{Dims, Layout, collapse};
use crate::stream::{BINDING_UNIT, Origin};
use crate::tensor::{Storage, Tensor};

/// Pieces begin at multiples of so many elements where a dimension is long enough: so words and `vec4`s stay whole.
const UNIT: usize = 256;

/// Operands of one shape as pieces, in order, whose windows the adapter can bind. Windows in one block are the same or disjoint.
pub(crate) fn pieces<const M: usize>(op: &'static str, operands: [&Tensor; M]) -> Result<Vec<[Tensor; M]>> {
    let limits = operands[0].device().limits();
    let alignment = u64::from(limits.storage_alignment).max(BINDING_UNIT);
    let collapsed = collapse(operands.map(Tensor::layout));
    let whole = Piece { shape: collapsed.shape.iter().copied().collect(), offsets: operands.map(|x| x.layout().offset()) };
    let (mut left, mut done) = (vec![whole], Vec::new());
    while let Some(piece) = left.pop() {
        match piece.windows(&operands, &collapsed.strides, alignment, limits.max_storage_buffer_binding_size) {
            Ok(windows) => done.push(piece.tensors(op, &operands, &collapsed.strides, &windows)?),
            Err(operand) => {
                let (first, second) = piece.halves(&collapsed.strides, operand).ok_or_else(|| Error::Limit {
                    op,
                    fact: format!("an adapter that binds {} bytes", limits.max_storage_buffer_binding_size),
                    help: "use an adapter with a larger max_storage_buffer_binding_size".into(),
                })?;
                left.extend([second, first]);
            }
        }
    }
    Ok(done)
}

/// A contiguous tensor in row-major order, in pieces where it is too large: what `write` is told of each is a contiguous tensor and how
/// many elements stand before it, a multiple of [`UNIT`].
#[track_caller]
pub(crate) fn write_in_order(op: &'static str, out: &Tensor, write: impl Fn(&Tensor, usize) -> Result<()>) -> Result<()> {
    let _origin = Origin::enter();
    if !out.storage.is_too_large() {
        return write(out, 0);
    }
    let mut before = 0;
    for [piece] in pieces(op, [out])? {
        write(&piece, before)?;
        before += piece.len();
    }
    Ok(())
}

/// Some of the elements: a shape, and where it starts in each operand.
struct Piece<const M: usize> {
    shape: SmallVec<[usize; 8]>,
    offsets: [usize; M],
}

impl<const M: usize> Piece<M> {
    /// What each operand that is too large has of the piece, in bytes; or the operand of which that is still too much.
    fn windows(
        &self,
        operands: &[&Tensor; M],
        strides: &[Dims; M],
        alignment: u64,
        limit: u64,
    ) -> std::result::Result<[Option<Range<u64>>; M], usize> {
        let mut windows: [Option<Range<u64>>; M] = std::array::from_fn(|i| {
            let span: usize = self.shape.iter().zip(strides[i].iter()).map(|(len, stride)| (len - 1) * stride).sum();
            let size = operands[i].dtype().size();
            let (start, end) = ((self.offsets[i] * size) as u64, ((self.offsets[i] + span + 1) * size) as u64);
            operands[i].storage.is_too_large().then(|| start / alignment * alignment..end.next_multiple_of(BINDING_UNIT))
        });
        // A dispatch binds no bytes twice: windows that overlap become one.
        for i in 0..M {
            for j in 0..i {
                let (Some(a), Some(b)) = (windows[i].clone(), windows[j].clone()) else { continue };
                if operands[i].shares_storage(operands[j]) && a.start < b.end && b.start < a.end {
                    let both = a.start.min(b.start)..a.end.max(b.end);
                    (windows[i], windows[j]) = (Some(both.clone()), Some(both));
                }
            }
        }
        match windows.iter().position(|window| window.as_ref().is_some_and(|window| window.end - window.start > limit)) {
            Some(operand) => Err(operand),
            None => Ok(windows),
        }
    }

    /// Both halves, cut where `operand` reaches farthest.
    fn halves(&self, strides: &[Dims; M], operand: usize) -> Option<(Piece<M>, Piece<M>)> {
        let reach = |dim: &usize| (self.shape[*dim] - 1) * strides[operand][*dim];
        let dim = (0..self.shape.len()).filter(|dim| self.shape[*dim] > 1).max_by_key(reach)?;
        let half = self.shape[dim] / 2;
        let half = if half > UNIT { half / UNIT * UNIT } else { half };
        let with = |len: usize, skipped: usize| {
            let mut shape = self.shape.clone();
            shape[dim] = len;
            Piece { shape, offsets: std::array::from_fn(|i| self.offsets[i] + skipped * strides[i][dim]) }
        };
        Some((with(half, 0), with(self.shape[dim] - half, half)))
    }

    fn tensors(
        &self,
        op: &'static str,
        operands: &[&Tensor; M],
        strides: &[Dims; M],
        windows: &[Option<Range<u64>>; M],
    ) -> Result<[Tensor; M]> {
        let shape = Dims::from_slice(&self.shape)
            .ok_or_else(|| Error::shape(op, "a piece of too many dimensions", "report this as a bug of linn"))?;
        Ok(std::array::from_fn(|i| {
            let x = operands[i];
            let Some(window) = &windows[i] else { return x.with_layout(Layout::strided(shape, strides[i], self.offsets[i])) };
            let offset = self.offsets[i] - window.start as usize / x.dtype().size();
            let part = Storage::part(&x.storage, window.start, window.end - window.start);
            Tensor { storage: Arc::new(part), ..x.with_layout(Layout::strided(shape, strides[i], offset)) }
        }))
    }
}
