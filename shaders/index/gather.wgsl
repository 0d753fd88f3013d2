// out[o, k, i] = a[o, ids[o, k, i], i] for a of [outer, rows, width], ids and out of [outer, count, width].

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
    let id = checked(load_ids(p.ids_offset + job), p.rows, job);
    let outer = job / (p.count * p.width);
    out[p.out_offset + job] = load_a(p.a_offset + (outer * p.rows + id) * p.width + job % p.width);
}
