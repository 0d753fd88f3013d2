// out[i] = s + t (first + i)

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = flat_group(group, groups) * WG + lane;
    if i < p.len {
        out[p.out_offset + i] = bitcast<elem>(p.s) + bitcast<elem>(p.t) * elem(p.first + i);
    }
}
