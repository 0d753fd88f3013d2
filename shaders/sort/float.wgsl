// NaN is the largest.
fn before(a: elem, b: elem) -> bool {
    return !is_nan(a) && (is_nan(b) || a < b);
}

// Of a line that rises: whether the place for `value` lies behind `element`.
fn passes(element: elem, value: elem, right: bool) -> bool {
    return is_nan(value) || (!is_nan(element) && (element < value || (right && element == value)));
}
