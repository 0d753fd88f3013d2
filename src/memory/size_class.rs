//! How a request becomes a block size, and how large a segment is bought when nothing fits.

/// Requests up to this size share their own, small segments.
pub const SMALL_REQUEST: u64 = 1 << 20;

/// Segments are bought in multiples of this.
pub const SEGMENT_STEP: u64 = 2 << 20;

/// A segment is at least this share of what is already reserved, so that a growing program needs few purchases.
pub const GROWTH_SHARE: u64 = 32;

/// The size group of a request. Each group has its own segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Small,
    Large,
}

impl Group {
    /// The group that serves blocks of `size` bytes.
    pub(super) fn of(size: u64) -> Group {
        if size <= SMALL_REQUEST { Group::Small } else { Group::Large }
    }

    /// The group that is asked when this one has nothing and nothing can be bought.
    pub(super) fn other(self) -> Group {
        match self {
            Group::Small => Group::Large,
            Group::Large => Group::Small,
        }
    }
}

/// `bytes` rounded up to a multiple of `step` (a power of two); `u64::MAX` rounded down where that overflows.
pub fn round_up(bytes: u64, step: u64) -> u64 {
    match bytes.checked_add(step - 1) {
        Some(sum) => sum & !(step - 1),
        None => u64::MAX & !(step - 1),
    }
}

/// Size of the segment to buy for a block of `size` bytes while `reserved` bytes are held.
///
/// At least `size`; never more than `max_segment` (which must be at least `size`).
pub fn segment_size(size: u64, reserved: u64, max_segment: u64) -> u64 {
    let growth = round_up(reserved / GROWTH_SHARE, SEGMENT_STEP);
    round_up(size, SEGMENT_STEP).max(growth).max(SEGMENT_STEP).min(max_segment).max(size)
}
