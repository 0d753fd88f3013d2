// softmax and log_softmax of rows of n items, scaled and causally masked; one invocation per row, which reads it twice.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups) * WG + lane;
    if row >= p.rows {
        return;
    }
    // Elements of the row that count: columns up to the row's number in its matrix, where the mask is causal.
    let width = p.n * LANES;
    let seen = select(width, min(row % max(p.causal, 1u) + 1u, width), p.causal > 0u);
    let start = p.a_offset + row * p.n;
    let out_start = p.out_offset + row * p.n;
    let scale = p.scale;
    var state = vec2<elem>(-f_infinity(), 0.0);
    // In blocks, so that the longest chain of additions stays short.
    for (var first = 0u; first * LANES < seen; first += BLOCK) {
        var block = vec2<elem>(-f_infinity(), 0.0);
        for (var i = first; i < first + BLOCK && i * LANES < seen; i++) {
            block = more_of(block, load_a(start + i) * scale, seen - i * LANES);
        }
        state = merged(state, block);
    }
    let log_sum = f_log(state.y);
    for (var i = 0u; i < p.n; i++) {
        var value = item();
        if i * LANES < seen {
            let x = load_a(start + i) * scale;
            if LOG == 1u {
                value = (x - state.x) - log_sum;
            } else {
                value = masked(exp_of(x - state.x) / state.y, seen - i * LANES);
            }
        }
        out[out_start + i] = value;
    }
}
