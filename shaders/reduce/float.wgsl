// Whether a value is NaN, which counts as the largest.
fn unordered(value: elem) -> bool {
    return is_nan(value);
}
