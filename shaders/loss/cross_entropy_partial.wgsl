// Maximum and sum of exp(x - maximum) of every `splits`-th element of a row of n logits; results are [rows, splits].

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
    let start = p.a_offset + (job / p.splits) * p.n;
    var top = load_a(start + job % p.splits);
    for (var i = job % p.splits + p.splits; i < p.n; i += p.splits) {
        top = f_maximum(top, load_a(start + i));
    }
    var total = 0.0;
    for (var i = job % p.splits; i < p.n; i += p.splits) {
        total += f_exp(load_a(start + i) - top);
    }
    maxima[job] = top;
    sums[job] = total;
}
