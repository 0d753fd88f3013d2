// f32 functions to about one unit in the last place on every driver. The built-in ones are as good as the driver and may
// assume that NaN and infinity do not occur. Polynomials: interpolation at Chebyshev nodes; the ranges stand beside them.

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// `value`, but NaN where x is: drivers turn a comparison and a choice into min and max, which lose NaN.
fn f_or_nan(value: f32, x: f32) -> f32 {
    return select(value, x, is_nan(x));
}

// The sign bit, which -0 has too.
fn is_minus(x: f32) -> bool {
    return (bitcast<u32>(x) >> 31u) == 1u;
}

// 0 with the sign of x.
fn f_zero_like(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0x80000000u);
}

// Not written as constants: WGSL refuses constant expressions that are not finite.
fn from_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn f_infinity() -> f32 {
    return from_bits(0x7f800000u);
}

fn f_nan() -> f32 {
    return from_bits(0x7fc00000u);
}

fn power_of_two(n: i32) -> f32 {
    return from_bits(u32(n + 127) << 23u);
}

// exp(x) = 2^n exp(r), |r| <= ln 2 / 2; scaled in two steps, so that 2^n itself need not be a normal number.
fn f_exp(x: f32) -> f32 {
    let bounded = clamp(x, -104.0, 89.0);
    let n = floor(bounded * 1.44269504 + 0.5);
    let r = (bounded - n * 0.693359375) - n * -2.12194440e-4;
    var y = 1.394215984e-3;
    y = y * r + 8.375968226e-3;
    y = y * r + 4.166634014e-2;
    y = y * r + 1.666640530e-1;
    y = y * r + 5.000000050e-1;
    y = (y * r) * r + r + 1.0;
    let half = i32(n) >> 1u;
    return select(y * power_of_two(half) * power_of_two(i32(n) - half), x, is_nan(x));
}

// exp(x) - 1 without cancellation; polynomial on |x| <= 0.35.
fn f_expm1(x: f32) -> f32 {
    var y = 1.989196997e-4;
    y = y * x + 1.393453165e-3;
    y = y * x + 8.333310035e-3;
    y = y * x + 4.166645690e-2;
    y = y * x + 1.666666668e-1;
    y = y * x + 5.000000014e-1;
    return select(select(f_exp(x) - 1.0, (y * x) * x + x, abs(x) <= 0.35), x, x == 0.0);
}

// e ln 2 + log(1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1.
fn f_log_near(f: f32, e: f32) -> f32 {
    var y = 6.971611443e-2;
    y = y * f - 1.147973381e-1;
    y = y * f + 1.168541992e-1;
    y = y * f - 1.242568734e-1;
    y = y * f + 1.424905765e-1;
    y = y * f - 1.666780232e-1;
    y = y * f + 2.000071575e-1;
    y = y * f - 2.499999696e-1;
    y = y * f + 3.333333118e-1;
    let f2 = f * f;
    let log_m = f + ((y * f) * f2 + (e * -2.12194440e-4 - 0.5 * f2));
    return log_m + e * 0.693359375;
}

// log(x) = e ln 2 + log(m), m from sqrt(1/2) to sqrt(2); log(0) = -inf, log of a negative number is NaN.
fn f_log(x: f32) -> f32 {
    let small = x < 1.17549435e-38;
    let bits = bitcast<u32>(select(x, x * 8388608.0, small));
    let shifted = bitcast<i32>(bits - 0x3f3504f3u) >> 23u;
    let m = from_bits(bits - (bitcast<u32>(shifted) << 23u));
    var out = f_log_near(m - 1.0, f32(shifted) - select(0.0, 23.0, small));
    out = select(out, x, is_nan(x) || x == f_infinity());
    out = select(out, f_nan(), x < 0.0);
    return select(out, -f_infinity(), x == 0.0);
}

// x - k pi/2 in three steps, and k. Loses accuracy slowly above |x| = 30,000; sin and cos of infinity are NaN.
fn quarter_turns(x: f32) -> f32 {
    return floor(x * 0.636619772 + 0.5);
}

// sin(r) and cos(r) for |r| <= pi / 4.
fn sine_near(r: f32) -> f32 {
    let s = r * r;
    var sine = 2.724381110e-6;
    sine = sine * s - 1.984003910e-4;
    sine = sine * s + 8.333331786e-3;
    sine = sine * s - 1.666666666e-1;
    return (sine * s) * r + r;
}

fn cosine_near(r: f32) -> f32 {
    let s = r * r;
    var cosine = -2.729594603e-7;
    cosine = cosine * s + 2.480056175e-5;
    cosine = cosine * s - 1.388888760e-3;
    cosine = cosine * s + 4.166666666e-2;
    return (cosine * s) * s - 0.5 * s + 1.0;
}

fn sine_part(x: f32, extra: i32) -> f32 {
    let k = quarter_turns(x);
    let r = ((x - k * 1.5703125) - k * 4.83751296997e-4) - k * 7.54978995489e-8;
    let quadrant = (i32(k) + extra) & 3;
    let value = select(sine_near(r), cosine_near(r), (quadrant & 1) == 1);
    let out = select(value, -value, quadrant >= 2);
    return select(out, f_nan(), (bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u);
}

fn f_sin(x: f32) -> f32 {
    return select(sine_part(x, 0), x, x == 0.0);
}

fn f_cos(x: f32) -> f32 {
    return sine_part(x, 1);
}

// Polynomial on |x| < 0.6, else 1 - 2 / (exp(2 |x|) + 1).
fn f_tanh(x: f32) -> f32 {
    let s = x * x;
    var y = 2.370765655e-3;
    y = y * s - 8.410070820e-3;
    y = y * s + 2.178832201e-2;
    y = y * s - 5.396155178e-2;
    y = y * s + 1.333331287e-1;
    y = y * s - 3.333333323e-1;
    let large = 1.0 - 2.0 / (f_exp(2.0 * abs(x)) + 1.0);
    let out = select(select(large, -large, x < 0.0), (y * s) * x + x, abs(x) < 0.6);
    return select(out, x, is_nan(x) || x == 0.0);
}

fn f_sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + f_exp(-x));
}

// Polynomial in x^2 on |x| < 1; to 4, 1 - exp(polynomial of log erfc); beyond, 1 to the last bit.
fn f_erf(x: f32) -> f32 {
    let s = x * x;
    var y = 7.875875050e-5;
    y = y * s - 8.016864283e-4;
    y = y * s + 5.189087423e-3;
    y = y * s - 2.685421201e-2;
    y = y * s + 1.128359472e-1;
    y = y * s - 3.761262667e-1;
    y = y * s + 1.128379166;
    let t = min(abs(x), 4.0);
    var q = 1.637151416e-6;
    q = q * t - 4.605804271e-5;
    q = q * t + 5.968056258e-4;
    q = q * t - 4.759596294e-3;
    q = q * t + 2.642113601e-2;
    q = q * t - 1.100800830e-1;
    q = q * t - 6.318260516e-1;
    q = q * t - 1.130233435;
    q = q * t + 3.201380501e-4;
    let large = 1.0 - f_exp(q);
    let out = select(select(large, -large, x < 0.0), y * x, abs(x) < 1.0);
    return select(out, x, is_nan(x));
}

// Phi(x) of the normal distribution, and exp(-x^2 / 2): Phi(-t) = exp(-t^2 / 2) m(t), where m is a polynomial of
// u = 1 / (1 + 0.28 t) on t >= 0. Small values keep most of their digits, which 1 + erf(x / sqrt(2)) loses: x^2 is rounded,
// so they are right to about 4 + x^2 / 4 units in the last place.
struct Normal {
    below: f32,
    bell: f32,
}

fn f_normal(x: f32) -> Normal {
    let bell = f_exp(-0.5 * x * x);
    let u = 1.0 / (1.0 + 0.28 * abs(x));
    var m = 2.139121108e-2;
    m = m * u - 7.669454068e-2;
    m = m * u + 5.630324036e-2;
    m = m * u + 3.587995842e-2;
    m = m * u + 4.315158352e-2;
    m = m * u + 9.626092762e-2;
    m = m * u + 9.989259392e-2;
    m = m * u + 1.121358052e-1;
    m = m * u + 1.116792485e-1;
    let tail = bell * (m * u);
    return Normal(select(tail, 1.0 - tail, x > 0.0), bell);
}

fn f_gelu(x: f32) -> f32 {
    return x * f_normal(x).below;
}

// d gelu / dx = Phi(x) + x phi(x)
fn f_gelu_slope(x: f32) -> f32 {
    let n = f_normal(x);
    return n.below + x * (0.398942280 * n.bell);
}

// Of equal ones b, with its sign: drivers make max of the choice, which is free to take the other zero.
fn f_maximum(a: f32, b: f32) -> f32 {
    return select(select(select(b, a, a > b), b, a == b), a + b, is_nan(a) || is_nan(b));
}

fn f_minimum(a: f32, b: f32) -> f32 {
    return select(select(select(b, a, a < b), b, a == b), a + b, is_nan(a) || is_nan(b));
}

// Whole exponents up to 64 by multiplication, so that x^2 and x^3 are as good as x * x * x.
fn f_pow(a: f32, b: f32) -> f32 {
    let whole = floor(b) == b;
    if whole && abs(b) <= 64.0 {
        var n = u32(abs(b));
        var factor = a;
        var product = 1.0;
        while n > 0u {
            product = select(product, product * factor, (n & 1u) == 1u);
            factor *= factor;
            n >>= 1u;
        }
        return select(product, 1.0 / product, b < 0.0);
    }
    let size = f_exp(b * f_log(abs(a)));
    let odd = whole && abs(b) < 16777216.0 && (i32(b) & 1) == 1;
    let signed_size = select(size, -size, odd);
    let negative = select(f_nan(), signed_size, whole || a == -f_infinity() || a == 0.0);
    let out = select(size, negative, is_minus(a));
    let one = a == 1.0 || (a == -1.0 && abs(b) == f_infinity());
    return select(select(out, a + b, is_nan(a) || is_nan(b)), 1.0, one);
}
