fn before(a: elem, b: elem) -> bool {
    return a < b;
}

// Of a line that rises: whether the place for `value` lies behind `element`.
fn passes(element: elem, value: elem, right: bool) -> bool {
    return element < value || (right && element == value);
}
