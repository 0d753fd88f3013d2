// IEEE 754 half precision in 16 bits. By hand: what drivers do with small numbers, and how they round, differs.

fn from_f16(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let size = bits & 0x7fffu;
    // Below the normal numbers: multiples of 2^-24.
    let small = bitcast<u32>(f32(size) * 5.9604645e-8);
    let normal = (size << 13u) + 0x38000000u;
    let large = (size << 13u) + 0x70000000u;
    return bitcast<f32>(sign | select(select(normal, large, size >= 0x7c00u), small, size < 0x400u));
}

// To the nearest, of two equally near ones the even.
fn to_f16(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u;
    }
    // From 65,520 on infinity is the nearest.
    if size >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    // Between 0.5 and 1, an f32 is a multiple of 2^-24: the addition rounds.
    if size < 0x38800000u {
        return sign | (bitcast<u32>(bitcast<f32>(size) + 0.5) - 0x3f000000u);
    }
    return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
}
