// out = (softmax(a) - one_hot(target)) dout scale; scale is 1 / rows for the mean. `chunks` invocations share one row.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let job = flat_group(group, groups) * WG + lane;
    if job >= p.rows * p.splits {
        return;
    }
    let row = job / p.splits;
    let log_sum = load_lse(row);
    let g = load_dout(p.dout_offset) * p.scale;
    let target_at = load_targets(p.targets_offset + row);
    for (var i = job % p.splits; i < p.n; i += p.splits) {
        let probability = f_exp(load_a(p.a_offset + row * p.n + i) - log_sum);
        out[p.out_offset + row * p.n + i] = g * (probability - select(0.0, 1.0, i32(i) == target_at));
    }
}
