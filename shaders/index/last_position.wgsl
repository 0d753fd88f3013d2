// out[o, ids[o, k, i], i] = 1 + the largest such k, for ids of [outer, count, width] and out of [outer, rows, width]; entries that
// no index names keep what they hold. The largest is the same in whatever order invocations run.

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
    let k = (job / p.width) % p.count;
    atomicMax(&out[p.out_offset + (outer * p.rows + id) * p.width + job % p.width], k + 1u);
}
