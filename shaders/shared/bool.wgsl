// How bool lies in memory: a byte, 0 or 1; what the host wrote may be any other number for true.

fn from_bool(bits: u32) -> u32 {
    return u32(bits != 0u);
}

fn to_bool(v: u32) -> u32 {
    return u32(v != 0u);
}
