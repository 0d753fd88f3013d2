// An item is four elements.
fn sum_lanes(v: item) -> elem {
    return (v.x + v.y) + (v.z + v.w);
}
