// out[o, v, i] = out[o, v, i] combined with every dout[o, k, i] for k in [start, end) with ids[o, k, i] = v, in the order of k.
// The window has at most 32,768 positions.

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
    let row = job / p.width;
    let wanted = i32(row % p.rows);
    let base = (row / p.rows) * p.count * p.width + job % p.width;
    var total = elem();
    var found = false;
    for (var k = p.start; k < p.end; k++) {
        let at = base + k * p.width;
        if load_ids(p.ids_offset + at) == wanted {
            let value = load_dout(p.dout_offset + at);
            total = select(value, combine(total, value), found);
            found = true;
        }
    }
    if found {
        out[p.out_offset + job] = combine(out[p.out_offset + job], total);
    }
}
