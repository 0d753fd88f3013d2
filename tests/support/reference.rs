//! What every kernel computes, written to be read: slow, obvious, in f64, over plain slices in row-major order.
//!
//! Element-wise kernels are formulas in [`element`]; every other row of the catalogue has a function of its name.
#![allow(dead_code)] // each test tier uses its own part

/// Operands `a`, `b`, `c` and scalars `s`, `t` of an element-wise kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Args {
    pub a: f64,
    pub b: f64,
    pub c: f64,
    pub s: f64,
    pub t: f64,
}

/// Formula of the element-wise kernel `name`.
pub fn element(name: &str) -> Option<fn(Args) -> f64> {
    fn truth(value: bool) -> f64 {
        f64::from(u8::from(value))
    }
    Some(match name {
        "neg" => |x| -x.a,
        "abs" => |x| x.a.abs(),
        "sign" => |x| if x.a > 0.0 { 1.0 } else { -truth(x.a < 0.0) },
        "square" => |x| x.a * x.a,
        "exp" => |x| x.a.exp(),
        "log" => |x| x.a.ln(),
        "sqrt" => |x| x.a.sqrt(),
        "rsqrt" => |x| 1.0 / x.a.sqrt(),
        "reciprocal" => |x| 1.0 / x.a,
        "sin" => |x| x.a.sin(),
        "cos" => |x| x.a.cos(),
        "tanh" => |x| x.a.tanh(),
        "sigmoid" => |x| 1.0 / (1.0 + (-x.a).exp()),
        "erf" => |x| erf(x.a),
        "asin" => |x| x.a.asin(),
        "acos" => |x| x.a.acos(),
        "atan" => |x| x.a.atan(),
        "tan" => |x| x.a.tan(),
        "sinh" => |x| x.a.sinh(),
        "cosh" => |x| x.a.cosh(),
        "asinh" => |x| x.a.asinh(),
        "acosh" => |x| x.a.acosh(),
        "atanh" => |x| x.a.atanh(),
        "exp2" => |x| x.a.exp2(),
        "expm1" => |x| x.a.exp_m1(),
        "log1p" => |x| x.a.ln_1p(),
        "log2" => |x| x.a.log2(),
        "log10" => |x| x.a.log10(),
        "erfc" => |x| erfc(x.a),
        "erfinv" => |x| erfinv(x.a),
        "sinc" => |x| if x.a == 0.0 { 1.0 } else { (std::f64::consts::PI * x.a).sin() / (std::f64::consts::PI * x.a) },
        "floor" => |x| x.a.floor(),
        "ceil" => |x| x.a.ceil(),
        "trunc" => |x| x.a.trunc(),
        "round" => |x| x.a.round_ties_even(),
        "frac" => |x| x.a - x.a.trunc(),
        "elu" => |x| if x.a > 0.0 { x.a } else { x.s * (x.a * x.t).exp_m1() },
        "leaky_relu" => |x| if x.a < 0.0 { x.a * x.s } else { x.a },
        "hardshrink" => |x| if x.a.abs() <= x.s { 0.0 } else { x.a },
        "softshrink" => |x| if x.a.is_nan() { x.a } else { x.a.signum() * (x.a.abs() - x.s).max(0.0) },
        "threshold" => |x| if x.a <= x.s { x.t } else { x.a },
        "softplus" => |x| if x.a * x.s > x.t { x.a } else { (x.a * x.s).exp().ln_1p() / x.s },
        "logsigmoid" => |x| x.a.min(0.0) - (-x.a.abs()).exp().ln_1p() + 0.0 * x.a.signum(),
        "replace_nan" => |x| if x.a.is_nan() { x.s } else { x.a },
        "replace_infinity" => |x| match x.a {
            f64::INFINITY => x.s,
            f64::NEG_INFINITY => x.t,
            other => other,
        },
        "isnan" => |x| truth(x.a.is_nan()),
        "isinf" => |x| truth(x.a.is_infinite()),
        "isfinite" => |x| truth(x.a.is_finite()),
        "signbit" => |x| truth(x.a.is_sign_negative()),
        "logical_not" => |x| truth(x.a == 0.0),
        "relu" => |x| if x.a < 0.0 { 0.0 } else { x.a },
        "gelu" => |x| 0.5 * x.a * (1.0 + erf(x.a / 2f64.sqrt())),
        "add_scalar" => |x| x.a + x.s,
        "mul_scalar" => |x| x.a * x.s,
        "rsub_scalar" => |x| x.s - x.a,
        "rdiv_scalar" => |x| x.s / x.a,
        "pow_scalar" => |x| x.a.powf(x.s),
        "clamp" | "clamp_integer" => |x| if x.a.is_nan() { x.a } else { x.a.max(x.s).min(x.t) },
        "add" => |x| x.a + x.b,
        "sub" => |x| x.a - x.b,
        "mul" => |x| x.a * x.b,
        "div" => |x| x.a / x.b,
        "pow" => |x| x.a.powf(x.b),
        "maximum" => |x| maximum(x.a, x.b),
        "minimum" => |x| -maximum(-x.a, -x.b),
        "maximum_integer" => |x| x.a.max(x.b),
        "minimum_integer" => |x| x.a.min(x.b),
        "atan2" => |x| x.a.atan2(x.b),
        "copysign" => |x| x.a.copysign(x.b),
        "fmax" => |x| x.a.max(x.b),
        "fmin" => |x| x.a.min(x.b),
        "div_trunc" | "div_trunc_integer" => |x| (x.a / x.b).trunc(),
        "div_floor" => |x| (x.a / x.b).floor(),
        "fmod" | "fmod_integer" => |x| x.a % x.b,
        "remainder" => |x| {
            let rest = x.a % x.b;
            if rest != 0.0 && (rest < 0.0) != (x.b < 0.0) { rest + x.b } else { rest }
        },
        "hypot" => |x| x.a.hypot(x.b),
        "heaviside" => |x| if x.a == 0.0 { x.b } else { truth(x.a > 0.0) },
        "xlogy" => |x| {
            if x.b.is_nan() {
                x.b
            } else if x.a == 0.0 {
                0.0
            } else {
                x.a * x.b.ln()
            }
        },
        "logaddexp" => |x| if x.a == x.b { x.a + 2f64.ln() } else { maximum(x.a, x.b) + (-(x.a - x.b).abs()).exp().ln_1p() },
        "logical_and" => |x| truth(x.a != 0.0 && x.b != 0.0),
        "logical_or" => |x| truth(x.a != 0.0 || x.b != 0.0),
        "logical_xor" => |x| truth((x.a != 0.0) != (x.b != 0.0)),
        "elu_backward" => |x| x.b * if x.a > 0.0 { 1.0 } else { x.s * x.t * (x.a * x.t).exp() },
        "leaky_relu_backward" => |x| if x.a > 0.0 { x.b } else { x.b * x.s },
        "shrink_backward" => |x| if x.a.abs() <= x.s { 0.0 } else { x.b },
        "threshold_backward" => |x| if x.a <= x.s { 0.0 } else { x.b },
        "softplus_backward" => |x| x.b * if x.a * x.s > x.t { 1.0 } else { 1.0 / (1.0 + (-x.a * x.s).exp()) },
        "eq" => |x| truth(x.a == x.b),
        "ne" => |x| truth(x.a != x.b),
        "lt" => |x| truth(x.a < x.b),
        "le" => |x| truth(x.a <= x.b),
        "gt" => |x| truth(x.a > x.b),
        "ge" => |x| truth(x.a >= x.b),
        "add_scaled" => |x| x.a + x.s * x.b,
        "where_" => |x| if x.c != 0.0 { x.a } else { x.b },
        "where_scalar" => |x| if x.c != 0.0 { x.a } else { x.s },
        "relu_backward" => |x| if x.a <= 0.0 { 0.0 } else { x.b },
        "gelu_backward" => |x| {
            let density = (-0.5 * x.a * x.a).exp() / (2.0 * std::f64::consts::PI).sqrt();
            x.b * (0.5 * (1.0 + erf(x.a / 2f64.sqrt())) + x.a * density)
        },
        "tanh_backward" => |x| x.b * (1.0 - x.a * x.a),
        "sigmoid_backward" => |x| x.b * x.a * (1.0 - x.a),
        "fill" => |x| x.s,
        // Halves: to the nearest that there is, see tests/gpu/dtypes.rs.
        "copy" | "cast_f32" | "cast_f16" | "cast_bf16" => |x| x.a,
        "cast_bool" => |x| truth(x.a != 0.0),
        "cast_i32" | "cast_u32" => |x| x.a.trunc(),
        "clip_coefficient" => |x| if x.a.is_nan() { x.a } else { (x.s / (x.a + x.t)).min(1.0) },
        _ => return None,
    })
}

/// True when the kernel `name` has a reference here.
pub fn exists(name: &str) -> bool {
    element(name).is_some() || include_str!("reference.rs").contains(&format!("\npub fn {name}("))
}

/// The larger number; NaN where one is NaN.
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// erf(x) = 2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ..): no term cancels another.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / (2.0 * f64::from(n) + 1.0);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// 1 - erf(x): beyond 2 by its continued fraction, before by erf.
pub fn erfc(x: f64) -> f64 {
    if x < 2.0 {
        return 1.0 - erf(x);
    }
    let fraction = (1..120).rev().fold(x, |below, k| x + f64::from(k) / 2.0 / below);
    (-x * x).exp() / fraction / std::f64::consts::PI.sqrt()
}

/// The x whose erf is `y`, by halving.
pub fn erfinv(y: f64) -> f64 {
    if y.is_nan() || y.abs() > 1.0 {
        return f64::NAN;
    }
    if y.abs() == 1.0 {
        return y * f64::INFINITY;
    }
    let (mut low, mut high) = (-6.0, 6.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if erf(middle) < y { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Where element `index` (counted in row-major order of `shape`) of a view lies in its storage.
pub fn position(mut index: usize, shape: &[usize], strides: &[usize], offset: usize) -> usize {
    let mut at = offset;
    for (len, stride) in shape.iter().zip(strides).rev() {
        at += index % len * stride;
        index /= len;
    }
    at
}

/// A view in row-major order.
pub fn copy_rank8(storage: &[f64], shape: &[usize], strides: &[usize], offset: usize) -> Vec<f64> {
    (0..shape.iter().product()).map(|i| storage[position(i, shape, strides, offset)]).collect()
}

/// s, s + t, s + 2 t, ..
pub fn arange(len: usize, s: f64, t: f64) -> Vec<f64> {
    (0..len).map(|i| s + t * i as f64).collect()
}

/// The middle dimension of [outer, n, inner] folded with `fold`, from its first element on.
fn fold_middle(a: &[f64], [outer, n, inner]: [usize; 3], fold: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let column = |i: usize| (0..n).map(move |k| a[(i / inner * n + k) * inner + i % inner]);
    (0..outer * inner).map(|i| column(i).reduce(&fold).unwrap_or(0.0)).collect()
}

/// Sum over the middle dimension of [outer, n, inner].
pub fn sum(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    fold_middle(a, shape, |x, y| x + y)
}

/// Largest element over the middle dimension.
pub fn max(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    fold_middle(a, shape, maximum)
}

/// Smallest element over the middle dimension.
pub fn min(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    fold_middle(a, shape, |x, y| -maximum(-x, -y))
}

/// Product over the middle dimension.
pub fn prod(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    fold_middle(a, shape, |x, y| x * y)
}

/// [`max`] of whole numbers.
pub fn max_integer(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    max(a, shape)
}

/// [`min`] of whole numbers.
pub fn min_integer(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    min(a, shape)
}

/// The middle dimension of [outer, n, inner] folded with `fold` up to each of its elements.
fn scan_middle(a: &[f64], [outer, n, inner]: [usize; 3], fold: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut out = a.to_vec();
    for i in 0..outer * inner {
        let at = |k: usize| (i / inner * n + k) * inner + i % inner;
        (1..n).for_each(|k| out[at(k)] = fold(out[at(k - 1)], out[at(k)]));
    }
    out
}

/// Running sum over the middle dimension.
pub fn cumsum(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    scan_middle(a, shape, |x, y| x + y)
}

/// Running product over the middle dimension.
pub fn cumprod(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    scan_middle(a, shape, |x, y| x * y)
}

/// Running maximum over the middle dimension.
pub fn cummax(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    scan_middle(a, shape, maximum)
}

/// Running minimum over the middle dimension.
pub fn cummin(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    scan_middle(a, shape, |x, y| -maximum(-x, -y))
}

/// [`cummax`] of whole numbers.
pub fn cummax_integer(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    cummax(a, shape)
}

/// [`cummin`] of whole numbers.
pub fn cummin_integer(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    cummin(a, shape)
}

/// Running logarithm of the sum of exponentials over the middle dimension.
pub fn logcumsumexp(a: &[f64], shape: [usize; 3]) -> Vec<f64> {
    scan_middle(a, shape, |x, y| x.max(y) + (-(x - y).abs()).exp().ln_1p())
}

/// Position of the first largest element over the middle dimension; NaN is the largest.
pub fn argmax(a: &[f64], [outer, n, inner]: [usize; 3]) -> Vec<i32> {
    (0..outer * inner)
        .map(|i| {
            let at = |k: usize| a[(i / inner * n + k) * inner + i % inner];
            let better = |k: usize, best: usize| !at(best).is_nan() && (at(k).is_nan() || at(k) > at(best));
            (1..n).fold(0, |best, k| if better(k, best) { k } else { best }) as i32
        })
        .collect()
}

/// Position of the best of parts that earlier stages found: the largest value, of equal ones the smallest position.
pub fn argmax_merge(values: &[f64], positions: &[i32]) -> Option<i32> {
    let largest = values.iter().copied().reduce(maximum)?;
    let is_best = |value: f64| value == largest || (value.is_nan() && largest.is_nan());
    values.iter().zip(positions).filter(|(value, _)| is_best(**value)).map(|(_, position)| *position).min()
}

/// [`argmax`] of whole numbers.
pub fn argmax_integer(a: &[f64], shape: [usize; 3]) -> Vec<i32> {
    argmax(a, shape)
}

/// [`argmax_merge`] of whole numbers.
pub fn argmax_merge_integer(values: &[f64], positions: &[i32]) -> Option<i32> {
    argmax_merge(values, positions)
}

/// (out, mean, rstd) of rows of `n`.
pub fn layer_norm(a: &[f64], n: usize, weight: &[f64], bias: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut out, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
    for row in a.chunks(n) {
        let mean = row.iter().sum::<f64>() / n as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let rstd = 1.0 / (variance + eps).sqrt();
        out.extend(row.iter().zip(weight).zip(bias).map(|((x, w), b)| (x - mean) * rstd * w + b));
        means.push(mean);
        rstds.push(rstd);
    }
    (out, means, rstds)
}

/// Gradient of [`layer_norm`] for `a`.
pub fn layer_norm_backward(a: &[f64], dout: &[f64], n: usize, weight: &[f64], eps: f64) -> Vec<f64> {
    let (_, means, rstds) = layer_norm(a, n, weight, &vec![0.0; n], eps);
    let mut out = Vec::new();
    for (r, (row, dout)) in a.chunks(n).zip(dout.chunks(n)).enumerate() {
        let xhat: Vec<f64> = row.iter().map(|x| (x - means[r]) * rstds[r]).collect();
        let g: Vec<f64> = dout.iter().zip(weight).map(|(d, w)| d * w).collect();
        let g_mean = g.iter().sum::<f64>() / n as f64;
        let g_xhat_mean = g.iter().zip(&xhat).map(|(g, x)| g * x).sum::<f64>() / n as f64;
        out.extend(g.iter().zip(&xhat).map(|(g, x)| rstds[r] * (g - g_mean - x * g_xhat_mean)));
    }
    out
}

/// [`layer_norm_backward`] beside another gradient of `a`.
pub fn layer_norm_backward_add(a: &[f64], dout: &[f64], sum: &[f64], n: usize, weight: &[f64], eps: f64) -> Vec<f64> {
    layer_norm_backward(a, dout, n, weight, eps).iter().zip(sum).map(|(dx, sum)| dx + sum).collect()
}

/// Gradients of [`layer_norm`] for weight and bias.
pub fn layer_norm_backward_weight(a: &[f64], dout: &[f64], n: usize, eps: f64) -> (Vec<f64>, Vec<f64>) {
    let (xhat, _, _) = layer_norm(a, n, &vec![1.0; n], &vec![0.0; n], eps);
    let column = |values: &[f64]| sum(values, [1, values.len() / n, n]);
    (column(&xhat.iter().zip(dout).map(|(x, d)| x * d).collect::<Vec<_>>()), column(dout))
}

/// out[o, k, :] = a[o, ids[k], :] for a of [outer, rows, width].
pub fn index_select(a: &[f64], [outer, rows, width]: [usize; 3], ids: &[i32]) -> Vec<f64> {
    let row = |o: usize, id: i32| &a[(o * rows + id as usize) * width..][..width];
    (0..outer).flat_map(|o| ids.iter().flat_map(move |id| row(o, *id).to_vec())).collect()
}

/// For every position the next one with the same id (or the end), and whether it is the first of its id.
pub fn embedding_links(ids: &[i32]) -> Vec<(usize, bool)> {
    let next = |k: usize| (k + 1..ids.len()).find(|other| ids[*other] == ids[k]).unwrap_or(ids.len());
    (0..ids.len()).map(|k| (next(k), !ids[..k].contains(&ids[k]))).collect()
}

/// Gradient of rows picked by ids: [rows, width] from dout [ids, width].
pub fn embedding_backward(dout: &[f64], ids: &[i32], rows: usize, width: usize) -> Vec<f64> {
    let mut out = vec![0.0; rows * width];
    for (k, id) in ids.iter().enumerate() {
        (0..width).for_each(|i| out[*id as usize * width + i] += dout[k * width + i]);
    }
    out
}

/// out[o, k, i] = a[o, ids[o, k, i], i] for a of [outer, rows, width].
pub fn gather(a: &[f64], [outer, rows, width]: [usize; 3], ids: &[i32]) -> Vec<f64> {
    let per_outer = ids.len() / outer;
    ids.iter().enumerate().map(|(j, id)| a[(j / per_outer * rows + *id as usize) * width + j % width]).collect()
}

/// Gradient of [`gather`] for `a`.
pub fn gather_backward(dout: &[f64], [outer, rows, width]: [usize; 3], ids: &[i32]) -> Vec<f64> {
    let mut out = vec![0.0; outer * rows * width];
    let per_outer = ids.len() / outer;
    for (j, id) in ids.iter().enumerate() {
        out[(j / per_outer * rows + *id as usize) * width + j % width] += dout[j];
    }
    out
}

/// out[o, ids[o, k, i], i] = fold of it and src[o, k, i], in the order of k, for out of [outer, rows, width].
fn scatter_fold(
    out: &[f64],
    [outer, rows, width]: [usize; 3],
    ids: &[i32],
    src: &[f64],
    fold: impl Fn(f64, f64) -> f64,
) -> Vec<f64> {
    let mut out = out.to_vec();
    let per_outer = ids.len() / outer;
    for (j, id) in ids.iter().enumerate() {
        let at = (j / per_outer * rows + *id as usize) * width + j % width;
        out[at] = fold(out[at], src[j]);
    }
    out
}

/// Sums by index.
pub fn scatter_add(out: &[f64], shape: [usize; 3], ids: &[i32], src: &[f64]) -> Vec<f64> {
    scatter_fold(out, shape, ids, src, |a, b| a + b)
}

/// Products by index.
pub fn scatter_prod(out: &[f64], shape: [usize; 3], ids: &[i32], src: &[f64]) -> Vec<f64> {
    scatter_fold(out, shape, ids, src, |a, b| a * b)
}

/// Largest elements by index.
pub fn scatter_amax(out: &[f64], shape: [usize; 3], ids: &[i32], src: &[f64]) -> Vec<f64> {
    scatter_fold(out, shape, ids, src, maximum)
}

/// Smallest elements by index.
pub fn scatter_amin(out: &[f64], shape: [usize; 3], ids: &[i32], src: &[f64]) -> Vec<f64> {
    scatter_fold(out, shape, ids, src, |a, b| -maximum(-a, -b))
}

/// Largest whole numbers by index.
pub fn scatter_amax_integer(out: &[f64], shape: [usize; 3], ids: &[i32], src: &[f64]) -> Vec<f64> {
    scatter_fold(out, shape, ids, src, f64::max)
}

/// Smallest whole numbers by index.
pub fn scatter_amin_integer(out: &[f64], shape: [usize; 3], ids: &[i32], src: &[f64]) -> Vec<f64> {
    scatter_fold(out, shape, ids, src, f64::min)
}

/// 1 + the last position k with ids[o, k, i] = v for each v below rows; 0 where there is none.
pub fn scatter([outer, rows, width]: [usize; 3], ids: &[i32]) -> Vec<i32> {
    let mut out = vec![0; outer * rows * width];
    let per_outer = ids.len() / outer;
    for (j, id) in ids.iter().enumerate() {
        out[(j / per_outer * rows + *id as usize) * width + j % width] = (j % per_outer / width) as i32 + 1;
    }
    out
}

/// Positions of a line in sorted order: equal ones keep theirs, NaN is the largest.
pub fn sort_step(line: &[f64], descending: bool) -> Vec<i32> {
    let mut positions: Vec<i32> = (0..line.len() as i32).collect();
    positions.sort_by(|a, b| {
        let (a, b) = (line[*a as usize], line[*b as usize]);
        let order = a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal));
        if descending { order.reverse() } else { order }
    });
    positions
}

/// [`sort_step`] of whole numbers.
pub fn sort_step_integer(line: &[i32], descending: bool) -> Vec<i32> {
    sort_step(&line.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), descending)
}

/// How many elements of a rising line a value belongs behind.
pub fn searchsorted(line: &[f64], value: f64, right: bool) -> i32 {
    let passes = |x: &&f64| value.is_nan() || **x < value || (right && **x == value);
    line.iter().take_while(passes).count() as i32
}

/// [`searchsorted`] of whole numbers.
pub fn searchsorted_integer(line: &[i32], value: i32, right: bool) -> i32 {
    searchsorted(&line.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), f64::from(value), right)
}

/// Maximum and sum of exponentials of every `splits`-th element of one row.
pub fn cross_entropy_partial(row: &[f64], splits: usize) -> Vec<(f64, f64)> {
    let part = |first: usize| row.iter().skip(first).step_by(splits);
    let top = |first: usize| part(first).copied().fold(f64::NEG_INFINITY, maximum);
    (0..splits).map(|first| (top(first), part(first).map(|x| (x - top(first)).exp()).sum())).collect()
}

/// (loss, log of the sum of exponentials) of every row of `n` logits.
pub fn cross_entropy(logits: &[f64], n: usize, targets: &[i32]) -> (Vec<f64>, Vec<f64>) {
    let lse = |row: &[f64]| {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, maximum);
        top + row.iter().map(|x| (x - top).exp()).sum::<f64>().ln()
    };
    logits.chunks(n).zip(targets).map(|(row, target)| (lse(row) - row[*target as usize], lse(row))).unzip()
}

/// (softmax - one hot) times `scale`.
pub fn cross_entropy_backward(logits: &[f64], n: usize, targets: &[i32], scale: f64) -> Vec<f64> {
    let (_, lse) = cross_entropy(logits, n, targets);
    let one_hot = |i: usize| if targets[i / n] == (i % n) as i32 { 1.0 } else { 0.0 };
    logits.iter().enumerate().map(|(i, x)| scale * ((x - lse[i / n]).exp() - one_hot(i))).collect()
}

/// Philox4x32-10 of one counter (Salmon, Moraes, Dror, Shaw, SC 2011).
pub fn philox(mut c: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(c[0]) * 0xD251_1F53;
        let p1 = u64::from(c[2]) * 0xCD9E_8D57;
        c = [(p1 >> 32) as u32 ^ c[1] ^ key[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ key[1], p0 as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

/// Words of `len` elements: word j of counter offset + i belongs to element 4 i + j. `block` is the counter's third word.
pub fn words(seed: u64, offset: u64, block: u32, len: usize) -> Vec<u32> {
    let words = |i: u64| philox([i as u32, (i >> 32) as u32, block, 0], [seed as u32, (seed >> 32) as u32]);
    (0..len).map(|e| words(offset.wrapping_add(e as u64 / 4))[e % 4]).collect()
}

pub fn random_bits(seed: u64, offset: u64, len: usize) -> Vec<u32> {
    words(seed, offset, 0, len)
}

/// The first `digits` bits of a word as a fraction in [0, 1), mapped to [low, high), every step rounded to f32.
pub fn uniform(bits: &[u32], digits: u32, low: f32, high: f32) -> Vec<f32> {
    let scale = (f64::from(high) - f64::from(low)) as f32;
    let value = |word: &u32| low + scale * ((word >> (32 - digits)) as f32 / (1u32 << digits) as f32);
    bits.iter().map(value).map(|value| if value >= high { low } else { value }).collect()
}

/// Fractions of 24 bits, in [0, 1).
fn fractions(bits: &[u32]) -> Vec<f64> {
    bits.iter().map(|word| f64::from(word >> 8) / 16_777_216.0).collect()
}

/// Box-Muller over pairs of uniforms.
pub fn normal(bits: &[u32], s: f64, t: f64) -> Vec<f64> {
    let u = fractions(bits);
    let pair = |i: usize| {
        let radius = (-2.0 * (1.0 - u[i & !1]).ln()).sqrt();
        let turn = std::f64::consts::TAU * u[i | 1];
        s + t * radius * if i.is_multiple_of(2) { turn.cos() } else { turn.sin() }
    };
    (0..bits.len()).map(pair).collect()
}

/// s times minus the logarithm of numbers in (0, 1]; where that is 0, half of the least other one.
pub fn exponential(bits: &[u32], s: f64) -> Vec<f64> {
    fractions(bits).iter().map(|u| s * (-(1.0 - u).ln()).max(0.5 / 16_777_216.0)).collect()
}

/// t where a fraction is below s, else 0.
pub fn bernoulli(bits: &[u32], s: f64, t: f64) -> Vec<f64> {
    fractions(bits).iter().map(|u| if *u < s { t } else { 0.0 }).collect()
}

/// Whole numbers in s..s + range: the number of 64 bits, high word first, times range, without its last 64 bits.
pub fn randint(high: &[u32], low: &[u32], s: i64, range: u64) -> Vec<i64> {
    let number = |(high, low): (&u32, &u32)| u128::from(*high) << 32 | u128::from(*low);
    high.iter().zip(low).map(number).map(|number| s + ((number * u128::from(range)) >> 64) as i64).collect()
}

/// The places of what is not from `low` to `high`.
pub fn check_range(values: &[f64], low: f64, high: f64) -> Vec<usize> {
    (0..values.len()).filter(|i| !(low..=high).contains(&values[*i])).collect()
}

/// Settings of one step of Adam; `decoupled` is AdamW.
#[derive(Clone, Copy, Debug)]
pub struct AdamSettings {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    pub decoupled: bool,
}

/// Step number `step` (from 1) of Adam or AdamW on one element: (param, exp_avg, exp_avg_sq).
pub fn adam(x: f64, g: f64, m: f64, v: f64, step: f64, settings: AdamSettings) -> (f64, f64, f64) {
    let (x, m, v, _) = adam_amsgrad(x, g, m, v, 0.0, step, settings);
    (x, m, v)
}

/// The same with AMSGrad, which divides by the largest second moment so far: (param, exp_avg, exp_avg_sq, largest).
pub fn adam_amsgrad(x: f64, g: f64, m: f64, v: f64, largest: f64, step: f64, s: AdamSettings) -> (f64, f64, f64, f64) {
    let g = if s.decoupled { g } else { g + s.weight_decay * x };
    let x = if s.decoupled { x * (1.0 - s.lr * s.weight_decay) } else { x };
    let m = s.beta1 * m + (1.0 - s.beta1) * g;
    let v = s.beta2 * v + (1.0 - s.beta2) * g * g;
    let largest = largest.max(v);
    let denominator = (largest / (1.0 - s.beta2.powf(step))).sqrt() + s.eps;
    (x - s.lr * m / (1.0 - s.beta1.powf(step)) / denominator, m, v, largest)
}

/// A gradient times a factor.
pub fn scale_gradients(g: f64, scale: f64) -> f64 {
    g * scale
}

/// A gradient within a bound and its negative; NaN stays NaN.
pub fn clamp_gradients(g: f64, bound: f64) -> f64 {
    if g.is_nan() { g } else { g.clamp(-bound, bound) }
}

/// What the parts of the sums of squares of many tensors sum to.
pub fn square_parts(tensors: &[Vec<f64>]) -> f64 {
    tensors.iter().flatten().map(|x| x * x).sum()
}

/// One step of SGD on one element.
pub fn sgd(x: f64, g: f64, lr: f64, weight_decay: f64) -> f64 {
    x - lr * (g + weight_decay * x)
}

/// One step of SGD with momentum `mu` and dampening on one element: (param, buffer); `buffer` is `None` at the first step.
pub fn sgd_momentum(
    x: f64,
    g: f64,
    buffer: Option<f64>,
    [lr, weight_decay, mu, dampening]: [f64; 4],
    nesterov: bool,
) -> (f64, f64) {
    let g = g + weight_decay * x;
    let b = buffer.map_or(g, |b| mu * b + (1.0 - dampening) * g);
    (x - lr * if nesterov { g + mu * b } else { b }, b)
}

/// Step number `step` of NAdam with NAdam's product of momenta up to it, on one element: (param, exp_avg, exp_avg_sq).
pub fn nadam(x: f64, g: f64, [m, v]: [f64; 2], [step, product, decay]: [f64; 3], s: AdamSettings) -> (f64, f64, f64) {
    let g = if s.decoupled { g } else { g + s.weight_decay * x };
    let x = if s.decoupled { x * (1.0 - s.lr * s.weight_decay) } else { x };
    let (now, next) = (nadam_momentum(s.beta1, step, decay), nadam_momentum(s.beta1, step + 1.0, decay));
    let m = s.beta1 * m + (1.0 - s.beta1) * g;
    let v = s.beta2 * v + (1.0 - s.beta2) * g * g;
    let denominator = (v / (1.0 - s.beta2.powf(step))).sqrt() + s.eps;
    let x = x - s.lr * (1.0 - now) / (1.0 - product) * g / denominator;
    (x - s.lr * next / (1.0 - product * next) * m / denominator, m, v)
}

/// NAdam's momentum at a step.
pub fn nadam_momentum(beta1: f64, step: f64, decay: f64) -> f64 {
    beta1 * (1.0 - 0.5 * 0.96f64.powf(step * decay))
}

/// (step, product) one step on.
pub fn count_steps(step: f64, product: f64, beta1: f64, decay: f64) -> (f64, f64) {
    (step + 1.0, product * nadam_momentum(beta1, step + 1.0, decay))
}

/// (scale, steps since it grew) of a gradient scaler one step on.
pub fn update_scale(scale: f32, lasted: f32, found: bool, [growth, backoff]: [f32; 2], interval: u32) -> (f32, f32) {
    match (found, lasted + 1.0 == interval as f32) {
        (true, _) => (scale * backoff, 0.0),
        (false, true) => (if (scale * growth).is_finite() { scale * growth } else { scale }, 0.0),
        (false, false) => (scale, lasted + 1.0),
    }
}

/// Step number `step` of Adagrad on one element: (param, sum).
pub fn adagrad(x: f64, g: f64, sum: f64, step: f64, [lr, weight_decay, lr_decay, eps]: [f64; 4]) -> (f64, f64) {
    let g = g + weight_decay * x;
    let sum = sum + g * g;
    (x - lr / (1.0 + (step - 1.0) * lr_decay) * g / (sum.sqrt() + eps), sum)
}

/// Settings of one step of RMSprop.
#[derive(Clone, Copy, Debug)]
pub struct RmsPropSettings {
    pub lr: f64,
    pub weight_decay: f64,
    pub alpha: f64,
    pub eps: f64,
    pub momentum: f64,
    pub centered: bool,
}

/// One step of RMSprop on one element: (param, [square_avg, grad_avg, momentum_buffer]).
pub fn rmsprop(x: f64, g: f64, [square, mean, buffer]: [f64; 3], s: RmsPropSettings) -> (f64, [f64; 3]) {
    let g = g + s.weight_decay * x;
    let square = s.alpha * square + (1.0 - s.alpha) * g * g;
    let mean = s.alpha * mean + (1.0 - s.alpha) * g;
    let spread = if s.centered { square - mean * mean } else { square };
    let buffer = s.momentum * buffer + g / (spread.sqrt() + s.eps);
    (x - s.lr * buffer, [square, mean, buffer])
}
pub fn rmsprop_momentum(x: f64, g: f64, state: [f64; 3], s: RmsPropSettings) -> (f64, [f64; 3]) {
    rmsprop(x, g, state, RmsPropSettings { centered: false, ..s })
}
pub fn rmsprop_centered(x: f64, g: f64, state: [f64; 3], s: RmsPropSettings) -> (f64, [f64; 3]) {
    rmsprop(x, g, state, RmsPropSettings { centered: true, momentum: 0.0, ..s })
}
pub fn rmsprop_centered_momentum(x: f64, g: f64, state: [f64; 3], s: RmsPropSettings) -> (f64, [f64; 3]) {
    rmsprop(x, g, state, RmsPropSettings { centered: true, ..s })
}

/// [m, k] times [k, n].
pub fn matmul(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            out[i * n + j] = (0..k).map(|at| a[i * k + at] * b[at * n + j]).sum();
        }
    }
    out
}

/// [m, k] times [k, n], wrapping.
pub fn matmul_integer(a: &[i32], b: &[i32], [m, n, k]: [usize; 3]) -> Vec<i32> {
    let at = |i: usize, j: usize| (0..k).fold(0i32, |sum, at| sum.wrapping_add(a[i * k + at].wrapping_mul(b[at * n + j])));
    (0..m * n).map(|i| at(i / n, i % n)).collect()
}

/// Rows of `n`; row t of every `causal` rows counts columns 0..=t only, where `causal` is not 0.
pub fn softmax(a: &[f64], n: usize, causal: usize, scale: f64) -> Vec<f64> {
    let mut out = Vec::new();
    for (r, row) in a.chunks(n).enumerate() {
        let seen = if causal > 0 { (r % causal + 1).min(n) } else { n };
        let top = row[..seen].iter().fold(f64::NEG_INFINITY, |top, x| maximum(top, x * scale));
        let terms: Vec<f64> = row[..seen].iter().map(|x| (x * scale - top).exp()).collect();
        let total: f64 = terms.iter().sum();
        out.extend((0..n).map(|i| if i < seen { terms[i] / total } else { 0.0 }));
    }
    out
}
pub fn log_softmax(a: &[f64], n: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for row in a.chunks(n) {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, maximum);
        let total: f64 = row.iter().map(|x| (x - top).exp()).sum();
        out.extend(row.iter().map(|x| x - top - total.ln()));
    }
    out
}
pub fn softmax_backward(y: &[f64], dout: &[f64], n: usize, scale: f64) -> Vec<f64> {
    let mut out = Vec::new();
    for (y, dout) in y.chunks(n).zip(dout.chunks(n)) {
        let dot: f64 = y.iter().zip(dout).map(|(y, d)| y * d).sum();
        out.extend(y.iter().zip(dout).map(|(y, d)| scale * y * (d - dot)));
    }
    out
}
pub fn log_softmax_backward(y: &[f64], dout: &[f64], n: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for (y, dout) in y.chunks(n).zip(dout.chunks(n)) {
        let sum: f64 = dout.iter().sum();
        out.extend(y.iter().zip(dout).map(|(y, d)| d - y.exp() * sum));
    }
    out
}

/// Known answers of philox4x32-10 from the Random123 distribution: zeros, ones, digits of pi.
#[test]
fn philox_gives_the_published_answers() {
    let cases = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, words) in cases {
        assert_eq!(philox(counter, key), words);
    }
}

#[test]
fn erf_agrees_with_tabulated_values() {
    for (x, y) in [(0.0, 0.0), (0.5, 0.520_499_877_813_046_5), (1.0, 0.842_700_792_949_714_9), (2.5, 0.999_593_047_982_555)] {
        assert!((erf(x) - y).abs() < 1e-14 && (erf(-x) + y).abs() < 1e-14, "erf({x}) = {}", erf(x));
    }
}
