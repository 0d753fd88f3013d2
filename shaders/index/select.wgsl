// out[o, k, :] = a[o, ids[k], :] for a of [outer, rows, width] and ids of [count]; `chunks` invocations share one row.

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
    let row = job / p.chunks;
    let k = row % p.count;
    let source = (row / p.count) * p.rows + checked(load_ids(p.ids_offset + k), p.rows, k);
    for (var i = job % p.chunks; i < p.width; i += p.chunks) {
        out[p.out_offset + row * p.width + i] = load_a(p.a_offset + source * p.width + i);
    }
}
