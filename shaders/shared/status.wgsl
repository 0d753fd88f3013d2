// An index outside 0..len is clamped, and the status word tells the host: [1 + its position, the index]. Of several bad
// indices the last position wins, so that the report does not depend on timing.
fn checked(index: i32, len: u32, position: u32) -> u32 {
    if index < 0 || u32(index) >= len {
        atomicMax(&status[0], position + 1u);
        atomicStore(&status[1], bitcast<u32>(index));
        return min(u32(max(index, 0)), len - 1u);
    }
    return u32(index);
}
