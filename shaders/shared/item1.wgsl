// An item is one element.
fn sum_lanes(v: item) -> elem {
    return v;
}
