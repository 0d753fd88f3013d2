//! How a request becomes a block size, and how large a segment is bought when nothing fits.

/// No segment is larger: sizes beyond this are refused by every driver, below it no sum of sizes overflows, and the addresses
/// that snapshots show stay below 2^53, which a number in JavaScript can hold.
pub const MAX_SEGMENT: u64 = 1 << 51;

/// A segment for blocks below [`OWN_SEGMENT`] is as large as the first of them in multiples of this, or larger: a driver's
/// own blocks (4-8 MiB) fill up.
pub const MIN_SEGMENT: u64 = 2 << 20;

/// Growth and segments of one block are rounded up to this.
pub const SEGMENT_STEP: u64 = 256 << 10;

/// A segment is at least this share of what is already reserved, so that a growing program needs few purchases.
pub const GROWTH_SHARE: u64 = 16;

/// The growth is at most this: one more purchase for each 256 MiB costs nothing beside the work that fills them.
pub const MAX_GROWTH: u64 = 256 << 20;

/// From here on a block is bought a segment of its own size: when it is free, so is the segment, and goes back if memory is
/// needed in another shape.
pub const OWN_SEGMENT: u64 = 16 << 20;

/// A block of this size or more does not break up an idle segment that is larger by more than half: one of its own is
/// bought for it, and the idle one goes back when `reserved` would pass its peak by that.
///
/// Tried on 21 recorded workloads without moves, nothing late: peak reserved / peak live (geometric mean), segments bought,
/// workloads above PyTorch's default. PyTorch itself: 1.177, 8602.
///
/// | rule | ratio | bought | above |
/// |---|---|---|---|
/// | growth alone: 1/20, steps of 2 MiB | 1.068 | 1435 | 3 |
/// | ... 1/8; 1/12; 1/16; 1/32; 1/64; none | 1.119; 1.084; 1.074; 1.080; 1.081; 1.086 | 752 to 9981 | 3 to 10 |
/// | ... 1/20, steps of 1 MiB; 512 KiB; 256 KiB | 1.066; 1.064; 1.060 | 1446 to 1464 | 3 to 5 |
/// | own segments from 4; 16; 64 MiB on | 1.065; 1.058; 1.056 | 9939; 4623; 2783 | 3 to 4 |
/// | ... from 16 MiB on, steps of 256 KiB | 1.045 | 4629 | 0 |
/// | ... and small blocks cut from the end of a free block | 1.045 | 4662 | 0 |
/// | ... and small blocks kept out of idle segments twice their size; 64 times | 1.207; 1.047 | 6184; 4640 | 5; 0 |
/// | ... large ones out of those 1.25; 1.5; 2; 4 times theirs | 1.029; 1.029; 1.031; 1.035 | 6928; 6470; 6197; 5432 | 0 |
/// | ... 1.5 times, growth 1/16 of at most 64; 256 MiB | 1.031; 1.026 | 8605; 7161 | 0 |
/// | ... from 16; 24; 48; 64 MiB on | 1.029; 1.030; 1.030; 1.032 | 9641; 9098; 6504; 6395 | 0 |
/// | ... idle segments back by best fit; oldest first, not largest first | 1.034; 1.034 | 7018; 7210 | 0 |
/// | ... segments of small blocks at least 2 MiB, in steps of 2 MiB unless they grow | 1.031 | 7153 | 0 |
///
/// With a budget for moves (`Share(0.01)`; ratio, bought): segments cut to the room below the ceiling 1.019, 8772; none bought
/// unless a whole one fits there 1.025, 9836; only the block's own size there 1.021, 12234.
///
/// The last one is in force: it costs small programs fewer purchases. Around it (growth 1/14 to 1/20, own segments from 16
/// to 24 MiB, steps from 256 KiB to 1 MiB) all is between 1.026 and 1.035 with no workload above.
pub const WHOLE_SEGMENT: u64 = 32 << 20;

/// `bytes` rounded up to a multiple of `step` (a power of two); `u64::MAX` rounded down where that overflows.
#[inline]
pub fn round_up(bytes: u64, step: u64) -> u64 {
    match bytes.checked_add(step - 1) {
        Some(sum) => sum & !(step - 1),
        None => !(step - 1),
    }
}

/// Bytes of the block for a request of `bytes` (> 0): a multiple of `step`, a power of two.
///
/// `divisions` holds PyTorch's `roundup_power2_divisions`: where there are d > 1 of them and the request is larger than
/// d steps, it is rounded up to a d-th of the power of two below it.
#[inline]
pub fn round_size(bytes: u64, step: u64, divisions: &[u64; 16]) -> u64 {
    let octave = 63 - bytes.max(1).leading_zeros();
    let division = divisions[octave.saturating_sub(20).min(15) as usize];
    if division > 1 && bytes > step.saturating_mul(division) {
        let power = 1u64 << octave;
        return round_up(bytes, (power / division).max(step));
    }
    round_up(bytes, step)
}

/// Size of the segment to buy for a block of `size` bytes while `reserved` bytes are held: at least `size`, otherwise at most
/// `max_segment`. `size` is a multiple of `alignment`, and so is the result.
pub fn segment_size(size: u64, reserved: u64, max_segment: u64, alignment: u64) -> u64 {
    let wanted = match size {
        ..OWN_SEGMENT => round_up(size, MIN_SEGMENT).max(round_up((reserved / GROWTH_SHARE).min(MAX_GROWTH), SEGMENT_STEP)),
        _ => round_up(size, SEGMENT_STEP),
    };
    (wanted.min(max_segment) & !(alignment - 1)).max(size)
}

/// Whether a block of `size` bytes leaves an idle segment of `segment` bytes whole.
pub fn leaves_whole(size: u64, segment: u64) -> bool {
    size >= WHOLE_SEGMENT && segment - size >= size / 2
}
