// Gradients of rows.wgsl from its result a: softmax scale a (dout - sum(dout a)), log_softmax dout - exp(a) sum(dout).

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
    // Masked columns of softmax hold 0 and get 0.
    let width = p.n * LANES;
    let seen = select(width, min(row % max(p.causal, 1u) + 1u, width), p.causal > 0u);
    let a_start = p.a_offset + row * p.n;
    let dout_start = p.dout_offset + row * p.n;
    let out_start = p.out_offset + row * p.n;
    let scale = p.scale;
    var sums = item();
    for (var i = 0u; i * LANES < seen; i++) {
        if LOG == 1u {
            sums += load_dout(dout_start + i);
        } else {
            sums += masked(load_dout(dout_start + i) * load_a(a_start + i), seen - i * LANES);
        }
    }
    let sum = sum_of(sums);
    for (var i = 0u; i < p.n; i++) {
        var value = item();
        if i * LANES < seen {
            let a = load_a(a_start + i);
            let dout = load_dout(dout_start + i);
            if LOG == 1u {
                value = dout - exp_of(a) * sum;
            } else {
                value = masked(a * (dout - sum) * scale, seen - i * LANES);
            }
        }
        out[out_start + i] = value;
    }
}
