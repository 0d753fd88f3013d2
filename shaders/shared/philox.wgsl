// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

// High word of a * b, from four products of 16-bit halves.
fn multiply_high(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let middle = ah * bl + (low >> 16u);
    let cross = al * bh + (middle & 0xffffu);
    return ah * bh + (middle >> 16u) + (cross >> 16u);
}

fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = key;
    for (var round = 0u; round < 10u; round++) {
        let high0 = multiply_high(0xd2511f53u, c.x);
        let high1 = multiply_high(0xcd9e8d57u, c.z);
        c = vec4<u32>(high1 ^ c.y ^ k.x, 0xcd9e8d57u * c.z, high0 ^ c.w ^ k.y, 0xd2511f53u * c.x);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

// Multiples of 2^-24 in [0, 1): exact in f32, hence the same on every device.
fn unit(bits: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(bits >> vec4<u32>(8u)) * 5.9604644775390625e-8;
}

// Box-Muller: two uniforms make two normals; 1 - u is in (0, 1], so its logarithm is finite.
fn normal(bits: vec4<u32>) -> vec4<f32> {
    let u = unit(bits);
    let r0 = sqrt(-2.0 * f_log(1.0 - u.x));
    let r1 = sqrt(-2.0 * f_log(1.0 - u.z));
    let turn0 = 6.28318531 * u.y;
    let turn1 = 6.28318531 * u.w;
    return vec4<f32>(r0 * f_cos(turn0), r0 * f_sin(turn0), r1 * f_cos(turn1), r1 * f_sin(turn1));
}

// Whole numbers in 0..range.
fn below(bits: vec4<u32>, range: u32) -> vec4<u32> {
    return vec4<u32>(
        multiply_high(bits.x, range),
        multiply_high(bits.y, range),
        multiply_high(bits.z, range),
        multiply_high(bits.w, range),
    );
}
