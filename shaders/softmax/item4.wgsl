// Items of four elements, of which the first `left` count.
fn more_of(seen: vec2<elem>, x: item, left: u32) -> vec2<elem> {
    var state = more(seen, x.x);
    if left > 1u {
        state = more(state, x.y);
    }
    if left > 2u {
        state = more(state, x.z);
    }
    if left > 3u {
        state = more(state, x.w);
    }
    return state;
}

fn exp_of(x: item) -> item {
    return item(f_exp(x.x), f_exp(x.y), f_exp(x.z), f_exp(x.w));
}

fn masked(x: item, left: u32) -> item {
    return select(item(), x, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(left));
}

fn sum_of(x: item) -> elem {
    return (x.x + x.y) + (x.z + x.w);
}
