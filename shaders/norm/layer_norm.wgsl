// out = (a - mean) rstd weight + bias over rows of n items; one invocation per row, the variance in a second pass.

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
    let start = p.a_offset + row * p.n;
    let out_start = p.out_offset + row * p.n;
    let weight_start = p.weight_offset;
    let bias_start = p.bias_offset;
    let has_bias = p.has_bias == 1u;
    var seen = 0u;
    var sum = item();
    for (var i = 0u; i < p.n; i++) {
        sum += load_a(start + i);
        if i % 4u == 0u {
            seen |= touch(out_start + i);
        }
    }
    let m = sum_lanes(sum) * p.inverse_len;
    var squares = item();
    for (var i = 0u; i < p.n; i++) {
        let d = load_a(start + i) - m;
        squares += d * d;
    }
    let r = 1.0 / sqrt(sum_lanes(squares) * p.inverse_len + p.eps);
    // All of them; the driver cannot know.
    let n = select(p.n, 0u, seen == 0xffffffffu && p.rows == 0u);
    for (var i = 0u; i < n; i++) {
        var value = (load_a(start + i) - m) * r * load_weight(weight_start + i);
        if has_bias {
            value += load_bias(bias_start + i);
        }
        out[out_start + i] = value;
    }
    mean[row] = m;
    rstd[row] = r;
}
