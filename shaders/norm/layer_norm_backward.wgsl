// da = rstd (g - mean(g) - xhat mean(g xhat)) with g = dout weight, xhat = (a - mean) rstd; one invocation per row.
// The piece `beside` may add another gradient of a.

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
    let a_start = p.a_offset + row * p.n;
    let dout_start = p.dout_offset + row * p.n;
    let weight_start = p.weight_offset;
    let sum_start = p.sum_offset + row * p.n;
    let out_start = p.out_offset + row * p.n;
    let m = load_mean(row);
    let r = load_rstd(row);
    var seen = 0u;
    var g_sum = item();
    var g_xhat_sum = item();
    for (var i = 0u; i < p.n; i++) {
        let g = load_dout(dout_start + i) * load_weight(weight_start + i);
        g_sum += g;
        if i % 4u == 0u {
            seen |= touch(out_start + i);
        }
        g_xhat_sum += g * (load_a(a_start + i) - m);
    }
    let g_mean = sum_lanes(g_sum) * p.inverse_len;
    let slope = sum_lanes(g_xhat_sum) * p.inverse_len * r * r;
    // All of them; the driver cannot know.
    let n = select(p.n, 0u, seen == 0xffffffffu && p.rows == 0u);
    for (var i = 0u; i < n; i++) {
        let g = load_dout(dout_start + i) * load_weight(weight_start + i);
        let value = r * (g - g_mean - slope * (load_a(a_start + i) - m));
        out[out_start + i] = beside(sum_start + i, value);
    }
}
