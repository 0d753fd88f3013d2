// bfloat16: the upper half of an f32.

fn from_bf16(bits: u32) -> f32 {
    return bitcast<f32>(bits << 16u);
}

// To the nearest, of two equally near ones the even.
fn to_bf16(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
