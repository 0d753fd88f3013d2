// Column sums for the weight and the bias: dweight = sum over rows of dout xhat, dbias = sum over rows of dout.
// `splits` invocations share a column, each takes every `splits`-th row; results are [splits, n] for `sum` to finish.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let job = flat_group(group, groups) * WG + lane;
    if job >= p.splits * p.n {
        return;
    }
    let column = job % p.n;
    var weight_sum = item();
    var bias_sum = item();
    for (var row = job / p.n; row < p.rows; row += p.splits) {
        let g = load_dout(p.dout_offset + row * p.n + column);
        weight_sum += g * (load_a(p.a_offset + row * p.n + column) - load_mean(row)) * load_rstd(row);
        bias_sum += g;
    }
    dweight[job] = weight_sum;
    dbias[job] = bias_sum;
}
