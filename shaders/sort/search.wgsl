// out[l, m] = how many elements of the rising line a[l, :] the place for values[l, m] lies behind, by halving: values of
// [lines, count], a of [lines, rows]. `start` is 1 where equal elements lie before the place.

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
    let line = p.a_offset + (job / p.count) * p.rows;
    let value = load_values(p.ids_offset + job);
    var low = 0u;
    var high = p.rows;
    while low < high {
        let middle = low + (high - low) / 2u;
        if passes(load_a(line + middle), value, p.start == 1u) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    out[p.out_offset + job] = i32(low);
}
