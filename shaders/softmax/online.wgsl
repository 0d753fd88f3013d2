// Maximum and sum of exponentials in one pass.

// (maximum m, sum of exp(x - m)) with one more x. -inf adds nothing even where m is -inf; +inf and NaN make the sum NaN.
fn more(seen: vec2<elem>, x: elem) -> vec2<elem> {
    let m = select(seen.x, x, x > seen.x);
    let kept = select(seen.y * f_exp(seen.x - m), seen.y, seen.x == m);
    return vec2<elem>(m, kept + select(f_exp(x - m), 0.0, x == -f_infinity()));
}
