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
    let a_start = p.a_offset + job % p.n;
    let dout_start = p.dout_offset + job % p.n;
    let rows = p.rows;
    var weight_sum = item();
    var bias_sum = item();
    for (var row = job / p.n; row < rows; row += p.splits) {
        let g = load_dout(dout_start + row * p.n);
        weight_sum += g * (load_a(a_start + row * p.n) - load_mean(row)) * load_rstd(row);
        bias_sum += g;
    }
    dweight[job] = weight_sum;
    dbias[job] = bias_sum;
}
