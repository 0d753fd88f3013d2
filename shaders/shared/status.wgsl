// An index outside 0..len reads entry 0, and the status words tell the host: [label, position, index, len]. Of several bad
// indices the first to arrive reports, so that the words belong together.
fn checked(index: i32, len: u32, position: u32) -> u32 {
    if index >= 0 && u32(index) < len {
        return u32(index);
    }
    if atomicMax(&status[0], p.label) == 0u {
        atomicStore(&status[1], position);
        atomicStore(&status[2], bitcast<u32>(index));
        atomicStore(&status[3], len);
    }
    return 0u;
}
