//! Dispatches over many tensors: blocks of one segment lie in one buffer, so one binding can hold the operands of many.
//!
//! What is bound of a segment is the range from the first of these blocks to the last; only the named blocks are read and written,
//! and only these order the dispatch. A kernel learns from a table where in the ranges each operand starts; the table says where
//! blocks are, so whoever enqueues says which places it was made for.

use std::ops::Range;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::device::command::{Command, Op};
use crate::device::places::PlaceId;
use crate::device::{Device, Memory};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ids::SegmentId;
use crate::kernel::grid::Work;
use crate::kernel::{KernelId, Role, Sharing};
use crate::stream::{BINDING_UNIT, Origin, current_id, expect_buffers, queue, submit_some};
use crate::timeline::{Access, AccessList};

/// The bytes of an operand: what of which memory.
#[derive(Clone)]
pub(crate) struct Part<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) bytes: Range<u64>,
}

/// One tensor's operands, in the order of the kernel's bindings.
pub(crate) type Row<'a> = SmallVec<[Part<'a>; 6]>;

/// Bytes of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: Range<u64>,
}

/// Where each row's operands are.
pub(crate) type Extents = Vec<SmallVec<[Extent; 6]>>;

/// Rows that one dispatch does, and what it binds for each operand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) rows: Vec<usize>,
    /// For each operand. Those of one segment have the same.
    pub(crate) windows: SmallVec<[Extent; 6]>,
}

/// One dispatch of a share: its parameters and size.
pub(crate) struct Dispatch {
    pub(crate) params: Vec<u8>,
    pub(crate) work: Work,
}

/// Where the rows' operands are now.
pub(crate) fn locate(device: &Device, rows: &[Row<'_>]) -> Extents {
    let core = device.shared().lock();
    let extent = |part: &Part<'_>| {
        let place = core.pool.place(part.memory.block());
        Extent { segment: place.segment, bytes: place.offset + part.bytes.start..place.offset + part.bytes.end }
    };
    rows.iter().map(|row| row.iter().map(extent).collect()).collect()
}

/// Puts rows whose operands lie in the same segments together, as far as `limit` bytes can be bound at once. `Err` with a row
/// that cannot be bound.
pub(crate) fn shares(extents: &Extents, alignment: u64, limit: u64) -> std::result::Result<Vec<Share>, usize> {
    let mut shares: Vec<Share> = Vec::new();
    let mut open: FxHashMap<SmallVec<[SegmentId; 6]>, usize> = FxHashMap::default();
    for (at, row) in extents.iter().enumerate() {
        let segments = row.iter().map(|extent| extent.segment).collect();
        let known = open.get(&segments).copied();
        if let Some(index) = known
            && let Some(windows) = joined(shares[index].windows.iter().chain(row), row.len(), alignment, limit)
        {
            shares[index].rows.push(at);
            shares[index].windows = windows;
            continue;
        }
        let windows = joined(row.iter(), row.len(), alignment, limit).or_else(|| apart(row, alignment, limit)).ok_or(at)?;
        open.insert(segments, shares.len());
        shares.push(Share { rows: vec![at], windows });
    }
    Ok(shares)
}

/// The smallest windows that hold `extents`, one for each of the first `len` of them and the same within a segment; `None` where one
/// has more than `limit` bytes.
fn joined<'a>(
    extents: impl Iterator<Item = &'a Extent> + Clone,
    len: usize,
    alignment: u64,
    limit: u64,
) -> Option<SmallVec<[Extent; 6]>> {
    let window = |extent: &Extent| {
        let same = extents.clone().filter(|other| other.segment == extent.segment);
        let (start, end) =
            same.fold((u64::MAX, 0), |(start, end), other| (start.min(other.bytes.start), end.max(other.bytes.end)));
        let bytes = start / alignment * alignment..end.next_multiple_of(BINDING_UNIT);
        (bytes.end - bytes.start <= limit).then_some(Extent { segment: extent.segment, bytes })
    };
    extents.clone().take(len).map(window).collect()
}

/// A window of its own for each operand of a row whose segment cannot be bound in one piece.
fn apart(row: &[Extent], alignment: u64, limit: u64) -> Option<SmallVec<[Extent; 6]>> {
    row.iter().map(|extent| joined(std::iter::once(extent), 1, alignment, limit)?.pop()).collect()
}

/// Enqueues the dispatches of all shares on the current stream; false, and nothing is enqueued, where a block is no longer where
/// `extents` has it.
#[track_caller]
pub(crate) fn launch(
    device: &Device,
    (kernel, dtype): (KernelId, DType),
    rows: &[Row<'_>],
    extents: &Extents,
    shares: &[Share],
    dispatches: &[Dispatch],
) -> Result<bool> {
    let (row, form) = (kernel.row(), kernel.form());
    let registry = queue::registry(device.shared()).ok_or_else(|| Error::DeviceLost { fact: "the device is closed".into() })?;
    let mut commands = Vec::with_capacity(shares.len());
    for (share, dispatch) in shares.iter().zip(dispatches) {
        let sharing = Sharing::of(&share.windows, 0);
        expect_buffers(device, row.name, sharing.bound().count())?;
        let pipeline = registry.pipeline(device, kernel, dtype, sharing)?;
        let mut accesses = AccessList::default();
        let operands = share.rows.iter().flat_map(|at| rows[*at].iter().zip(form.bindings));
        accesses.extend(
            operands.map(|(part, binding)| {
                (part.memory.block(), if binding.role == Role::In { Access::Read } else { Access::Write })
            }),
        );
        // A window is named by the row and operand that it starts with: its place stands for all that lie behind it.
        let mut places: SmallVec<[PlaceId; 6]> = SmallVec::new();
        let mut windows = SmallVec::new();
        for slot in sharing.bound() {
            let window = &share.windows[slot];
            let inside = |extent: &Extent| {
                extent.segment == window.segment
                    && window.bytes.start <= extent.bytes.start
                    && extent.bytes.end <= window.bytes.end
            };
            let candidates = share.rows.iter().flat_map(|at| rows[*at].iter().zip(&extents[*at]));
            let Some((part, extent)) =
                candidates.filter(|(_, extent)| inside(extent)).min_by_key(|(_, extent)| extent.bytes.start)
            else {
                return Err(Error::argument(row.name, "a window that holds no operand", "report this as a fault of linn"));
            };
            places.push(part.memory.place());
            let place_start = extent.bytes.start - part.bytes.start;
            windows.push((window.bytes.start - place_start, window.bytes.end - window.bytes.start));
        }
        let op = Op::Dispatch {
            pipeline,
            places,
            windows: Some(Box::new(windows)),
            params: dispatch.params.len() as u16,
            grid: dispatch.work.grid,
            work: dispatch.work.amount,
        };
        commands.push((accesses, Command { label: row.name, location: Origin::line(), op }, &dispatch.params));
    }
    let stream = current_id(device);
    let mut core = device.shared().lock();
    core.alive()?;
    for (row, extents) in rows.iter().zip(extents) {
        for (part, extent) in row.iter().zip(extents) {
            let place = core.pool.place(part.memory.block());
            if (place.segment, place.offset + part.bytes.start) != (extent.segment, extent.bytes.start) {
                return Ok(false);
            }
        }
    }
    commands.iter().try_for_each(|(accesses, ..)| core.usable(row.name, accesses))?;
    for row in rows {
        let written = row.iter().zip(form.bindings).filter(|(_, binding)| binding.role != Role::In);
        written.for_each(|(part, _)| part.memory.written());
    }
    for (accesses, command, params) in commands {
        core.enqueue(stream, &accesses, command, params);
    }
    submit_some(device, core, stream)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(segment: u32, bytes: Range<u64>) -> Extent {
        Extent { segment: SegmentId(segment), bytes }
    }

    fn row(extents: &[Extent]) -> SmallVec<[Extent; 6]> {
        extents.iter().cloned().collect()
    }

    #[test]
    fn rows_in_the_same_segments_share_a_dispatch() {
        let extents = vec![
            row(&[extent(0, 512..600), extent(1, 0..88)]),
            row(&[extent(2, 0..40), extent(1, 256..296)]),
            row(&[extent(0, 1024..1040), extent(1, 768..784)]),
        ];
        let shares = shares(&extents, 256, 1 << 20).unwrap();
        assert_eq!(shares.len(), 2);
        assert_eq!(shares[0].rows, [0, 2]);
        assert_eq!(shares[0].windows, row(&[extent(0, 512..1040), extent(1, 0..784)]));
        assert_eq!(shares[1].rows, [1]);
        assert_eq!(shares[1].windows, row(&[extent(2, 0..48), extent(1, 256..304)]));
    }

    #[test]
    fn operands_of_one_segment_have_one_window() {
        let extents = vec![row(&[extent(0, 512..600), extent(0, 300..310)])];
        assert_eq!(shares(&extents, 256, 1 << 20).unwrap()[0].windows, row(&[extent(0, 256..608), extent(0, 256..608)]));
    }

    #[test]
    fn no_window_is_larger_than_what_can_be_bound() {
        let extents = vec![
            row(&[extent(0, 0..512), extent(0, 4096..4608)]),
            row(&[extent(0, 1024..1536), extent(0, 8192..8704)]),
            row(&[extent(1, 0..512), extent(1, 512..1024)]),
            row(&[extent(1, 1024..1280), extent(1, 1280..1536)]),
        ];
        let shares = shares(&extents, 256, 1024).unwrap();
        assert_eq!(shares.iter().map(|share| share.rows.clone()).collect::<Vec<_>>(), [[0], [1], [2], [3]]);
        assert_eq!(shares[0].windows, row(&[extent(0, 0..512), extent(0, 4096..4608)]), "too far apart for one window");
        for share in &shares {
            assert!(share.windows.iter().all(|window| window.bytes.end - window.bytes.start <= 1024));
        }
        assert_eq!(super::shares(&vec![row(&[extent(0, 0..2048)])], 256, 1024), Err(0));
    }
}
