// The first to report tells the host [label, position, what is there, limit]; what comes later is dropped, so that the words belong
// together.
fn report(position: u32, what: u32, limit: u32) {
    loop {
        let told = atomicCompareExchangeWeak(&status[0], 0u, p.label);
        if told.exchanged {
            atomicStore(&status[1], position);
            atomicStore(&status[2], what);
            atomicStore(&status[3], limit);
            return;
        }
        // (A weak exchange may fail though the word is 0.)
        if told.old_value != 0u {
            return;
        }
    }
}

// An index outside 0..len is reported and reads entry 0.
fn checked(index: i32, len: u32, position: u32) -> u32 {
    if index >= 0 && u32(index) < len {
        return u32(index);
    }
    report(position, bitcast<u32>(index), len);
    return 0u;
}
