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

// Natural logarithms of the multiples of 2^-24 in (0, 1].
fn log_unit(bits: vec4<u32>) -> vec4<f32> {
    let u = 1.0 - unit(bits);
    return vec4<f32>(f_log(u.x), f_log(u.y), f_log(u.z), f_log(u.w));
}

// Cosine and sine of n / 2^24 turns. What is left of n beside quarter turns is exact, so both are as good as their polynomials.
fn turned(n: u32) -> vec2<f32> {
    let quarters = (n + 0x200000u) >> 22u;
    let r = f32(i32(n) - i32(quarters << 22u)) * 3.7450703e-7;
    let near = vec2<f32>(cosine_near(r), sine_near(r));
    let swapped = select(near, near.yx, (quarters & 1u) == 1u);
    let minus = vec2<bool>(((quarters + 1u) & 2u) == 2u, (quarters & 2u) == 2u);
    return select(swapped, -swapped, minus);
}

// Box-Muller: two words make two normals.
fn normal(bits: vec4<u32>) -> vec4<f32> {
    let radius = sqrt(-2.0 * log_unit(bits).xz);
    return vec4<f32>(radius.x * turned(bits.y >> 8u), radius.y * turned(bits.w >> 8u));
}

// -log(u) of u in (0, 1]; never 0: for u = 1 half of what is next to it.
fn exponential(bits: vec4<u32>) -> vec4<f32> {
    return max(-log_unit(bits), vec4<f32>(2.98023224e-8));
}

// high 2^32 + low, times range, divided by 2^64: whole numbers in 0..range, each as probable as any other to 2^-32. Range 0 is 2^32.
fn below(high: vec4<u32>, low: vec4<u32>, range: u32) -> vec4<u32> {
    if range == 0u {
        return high;
    }
    return vec4<u32>(
        below_one(high.x, low.x, range),
        below_one(high.y, low.y, range),
        below_one(high.z, low.z, range),
        below_one(high.w, low.w, range),
    );
}

fn below_one(high: u32, low: u32, range: u32) -> u32 {
    let middle = high * range;
    return multiply_high(high, range) + select(0u, 1u, middle + multiply_high(low, range) < middle);
}
