// Less common f32 functions, over those of shared/float.wgsl.

// log(1 + x), near 0 without the sum: what it rounds away cannot be put back, as drivers simplify (1 + x) - 1 to x (Mesa).
fn f_log1p(x: f32) -> f32 {
    let out = select(f_log(1.0 + x), f_log_near(x, 0.0), abs(x) < 0.29);
    return f_or_nan(select(out, x, x == 0.0), x);
}

// (e^x - e^-x) / 2; through e^(x/2), so that it is finite as far as the result is.
fn f_sinh(x: f32) -> f32 {
    let u = f_expm1(abs(x));
    let half = f_exp(0.5 * abs(x));
    let size = select(0.5 * (u + u / (u + 1.0)), (0.5 * half) * half, abs(x) > 20.0);
    return f_or_nan(select(size, -size, is_minus(x)), x);
}

fn f_cosh(x: f32) -> f32 {
    let half = f_exp(0.5 * abs(x));
    return f_or_nan((0.5 * half) * half + 0.5 * f_exp(-abs(x)), x);
}

fn f_tan(x: f32) -> f32 {
    return f_sin(x) / f_cos(x);
}

// Arc tangent of x >= 0: brought to |t| <= tan(pi / 8) by the addition theorem; polynomial of Cephes' atanf.
fn atan_size(x: f32) -> f32 {
    let far = x > 2.41421356;
    let middle = x > 0.414213562;
    let t = select(select(x, (x - 1.0) / (x + 1.0), middle), -1.0 / x, far);
    let base = select(select(0.0, 0.785398163, middle), 1.57079633, far);
    let z = t * t;
    var y = 8.05374449538e-2;
    y = y * z - 1.38776856032e-1;
    y = y * z + 1.99777106478e-1;
    y = y * z - 3.33329491539e-1;
    return base + ((y * z) * t + t);
}

fn f_atan(x: f32) -> f32 {
    let size = atan_size(abs(x));
    return f_or_nan(select(size, -size, is_minus(x)), x);
}

// The angle of the point (x, y), from -pi to pi, with C's signs of zeros and C's values at infinities.
fn f_atan2(y: f32, x: f32) -> f32 {
    let a = abs(y);
    let b = abs(x);
    let diagonal = a == b && a == f_infinity();
    let inner = select(select(atan_size(a / b), 0.0, a == 0.0), 0.785398163, diagonal);
    let left = is_minus(x);
    let size = select(inner, 3.14159265 - inner, left);
    let out = select(size, -size, is_minus(y));
    return select(out, x + y, is_nan(x) || is_nan(y));
}

// Arc sine of 0 <= x <= 0.5 and, by sqrt((1 - x) / 2), of the rest; polynomial of Cephes' asinf.
fn asin_part(x: f32, z: f32) -> f32 {
    var y = 4.2163199048e-2;
    y = y * z + 2.4181311049e-2;
    y = y * z + 4.5470025998e-2;
    y = y * z + 7.4953002686e-2;
    y = y * z + 1.6666752422e-1;
    return (y * z) * x + x;
}

fn f_asin(x: f32) -> f32 {
    let a = abs(x);
    let z = select(a * a, 0.5 * (1.0 - a), a > 0.5);
    let part = asin_part(select(a, sqrt(z), a > 0.5), z);
    let size = select(select(part, 1.57079633 - 2.0 * part, a > 0.5), f_nan(), a > 1.0);
    return f_or_nan(select(size, -size, is_minus(x)), x);
}

fn f_acos(x: f32) -> f32 {
    let a = abs(x);
    let z = select(a * a, 0.5 * (1.0 - a), a > 0.5);
    let part = asin_part(select(a, sqrt(z), a > 0.5), z);
    let outer = select(2.0 * part, 3.14159265 - 2.0 * part, x < 0.0);
    let inner = 1.57079633 - select(part, -part, x < 0.0);
    return f_or_nan(select(select(inner, outer, a > 0.5), f_nan(), a > 1.0), x);
}

fn f_asinh(x: f32) -> f32 {
    let a = abs(x);
    let near = f_log1p(a + a * a / (1.0 + sqrt(a * a + 1.0)));
    let size = select(near, f_log(a) + 0.693147181, a > 1e9);
    return f_or_nan(select(size, -size, is_minus(x)), x);
}

fn f_acosh(x: f32) -> f32 {
    let t = x - 1.0;
    let near = f_log1p(t + sqrt(t * (t + 2.0)));
    return f_or_nan(select(select(near, f_log(x) + 0.693147181, x > 1e9), f_nan(), x < 1.0), x);
}

fn f_atanh(x: f32) -> f32 {
    let a = abs(x);
    let size = select(select(0.5 * f_log1p(2.0 * a / (1.0 - a)), f_infinity(), a == 1.0), f_nan(), a > 1.0);
    return f_or_nan(select(size, -size, is_minus(x)), x);
}

// 1 - erf(x) without cancellation: erfc(t) = 2 Phi(-t sqrt(2)).
fn f_erfc(x: f32) -> f32 {
    let tail = 2.0 * f_normal(-abs(x) * 1.41421356).below;
    return f_or_nan(select(select(1.0 - f_erf(x), tail, x > 0.5), 2.0 - tail, x < -0.5), x);
}

// The inverse of erf: Giles' approximation of 2010 in single precision, of w = -log(1 - x^2).
fn f_erfinv(x: f32) -> f32 {
    let w = -f_log((1.0 - x) * (1.0 + x));
    let u = w - 2.5;
    var y = 2.81022636e-8;
    y = y * u + 3.43273939e-7;
    y = y * u - 3.5233877e-6;
    y = y * u - 4.39150654e-6;
    y = y * u + 2.1858087e-4;
    y = y * u - 1.25372503e-3;
    y = y * u - 4.17768164e-3;
    y = y * u + 2.46640727e-1;
    y = y * u + 1.50140941;
    let v = sqrt(w) - 3.0;
    var q = -2.00214257e-4;
    q = q * v + 1.00950558e-4;
    q = q * v + 1.34934322e-3;
    q = q * v - 3.67342844e-3;
    q = q * v + 5.73950773e-3;
    q = q * v - 7.6224613e-3;
    q = q * v + 9.43887047e-3;
    q = q * v + 1.00167406;
    q = q * v + 2.83297682;
    let out = select(q, y, w < 5.0) * x;
    let end = select(f_infinity(), -f_infinity(), x < 0.0);
    return f_or_nan(select(select(out, end, abs(x) == 1.0), f_nan(), abs(x) > 1.0), x);
}

// log(1 + e^x)
fn f_softplus(x: f32) -> f32 {
    return f_or_nan(max(x, 0.0) + f_log1p(f_exp(-abs(x))), x);
}

// log(1 / (1 + e^-x))
fn f_logsigmoid(x: f32) -> f32 {
    return f_or_nan(min(x, 0.0) - f_log1p(f_exp(-abs(x))), x);
}

// log(e^a + e^b); equal infinities stay what they are.
fn f_logaddexp(a: f32, b: f32) -> f32 {
    let larger = max(a, b);
    let out = larger + f_log1p(f_exp(-abs(a - b)));
    return select(select(out, larger, a == b && abs(a) == f_infinity()), a + b, is_nan(a) || is_nan(b));
}

// 2^x; exact for whole x.
fn f_exp2(x: f32) -> f32 {
    let bounded = clamp(x, -150.0, 129.0);
    let n = floor(bounded + 0.5);
    let half = i32(n) >> 1u;
    let y = f_exp((bounded - n) * 0.693147181);
    return f_or_nan(y * power_of_two(half) * power_of_two(i32(n) - half), x);
}

// sqrt(a^2 + b^2), scaled so that no square overflows or vanishes.
fn f_hypot(a: f32, b: f32) -> f32 {
    let larger = max(abs(a), abs(b));
    let ratio = min(abs(a), abs(b)) / larger;
    let out = larger * sqrt(1.0 + ratio * ratio);
    let infinite = larger == f_infinity() || abs(a) == f_infinity() || abs(b) == f_infinity();
    return select(select(select(out, 0.0, larger == 0.0), a + b, is_nan(a) || is_nan(b)), f_infinity(), infinite);
}

// What a leaves when divided by b, with the sign of a, without rounding: long division in binary, 24 bits a round.
fn f_fmod(a: f32, b: f32) -> f32 {
    var size = abs(b);
    var rest = abs(a);
    if is_nan(a) || is_nan(b) || size == 0.0 || rest == f_infinity() {
        return f_nan();
    }
    if rest < size {
        return a;
    }
    // Where the quotient is beyond f32, PyTorch says so.
    if rest / size == f_infinity() {
        return f_nan();
    }
    // Both are made normal numbers. Their exponents differ by at most 277; each round takes one away.
    let scale = select(1.0, 18446744073709551616.0, rest < 1.0);
    size *= scale;
    rest *= scale;
    for (var round = 0u; round < 300u && rest >= size; round++) {
        let apart = i32(bitcast<u32>(rest) >> 23u) - i32(bitcast<u32>(size) >> 23u);
        var part = size * power_of_two(clamp(apart, 0, 120));
        part = select(part, part * 0.5, part > rest);
        rest -= part;
    }
    rest /= scale;
    return select(rest, -rest, is_minus(a));
}

fn f_remainder(a: f32, b: f32) -> f32 {
    let rest = f_fmod(a, b);
    return select(rest, rest + b, rest != 0.0 && !is_nan(rest) && (rest < 0.0) != (b < 0.0));
}

// Through the rest, so that it is right where a / b is rounded up to a whole number (as PyTorch and Python do).
fn f_div_floor(a: f32, b: f32) -> f32 {
    let rest = f_fmod(a, b);
    var whole = (a - rest) / b;
    whole = select(whole, whole - 1.0, rest != 0.0 && (rest < 0.0) != (b < 0.0));
    let nearest = floor(whole);
    let zero = from_bits((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u);
    let out = select(select(nearest, nearest + 1.0, whole - nearest > 0.5), zero, whole == 0.0);
    // A quotient beyond f32 is what it is.
    let beyond = abs(a / b) == f_infinity() && abs(a) != f_infinity();
    return select(out, a / b, b == 0.0 || beyond);
}
