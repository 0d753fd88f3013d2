//! How a request becomes a block size, and how large a segment is bought when nothing fits.

/// Segments are bought in multiples of this: small programs reserve little, and a driver's own blocks (4-8 MiB) fill up.
pub const SEGMENT_STEP: u64 = 2 << 20;

/// A segment is at least this share of what is already reserved, so that a growing program needs few purchases.
///
/// Tried on 21 recorded workloads (peak reserved / peak live, geometric mean; segments bought): 1/8 1.120, 727; 1/12 1.084,
/// 965; 1/16 1.072, 1171; 1/20 1.067, 1360; 1/24 1.069, 1532; 1/32 1.079, 1829. Segments of their own for requests up to
/// 64 KiB or 1 MiB were no better at 1/16 (1.082, 1.085) and cost a small GPT 10 to 20% more memory, so all sizes share.
pub const GROWTH_SHARE: u64 = 20;

/// `bytes` rounded up to a multiple of `step` (a power of two); `u64::MAX` rounded down where that overflows.
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
    let growth = round_up(reserved / GROWTH_SHARE, SEGMENT_STEP);
    let wanted = round_up(size, SEGMENT_STEP).max(growth).max(SEGMENT_STEP);
    (wanted.min(max_segment) & !(alignment - 1)).max(size)
}
