// Reports an element of a that is not from p.low to p.high (NaN never is).

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let job = flat_group(group, groups) * WG + lane;
    if job >= p.jobs {
        return;
    }
    for (var i = job; i < p.len; i += p.jobs) {
        let value = load_a(p.offset + i);
        if !is_nan(value) && value >= p.low && value <= p.high {
            continue;
        }
        report(i, bitcast<u32>(value), 0u);
        return;
    }
}
