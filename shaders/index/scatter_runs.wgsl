// out[l, v, i] = out[l, v, i] combined with every dout[l, k, i] whose ids[l, k] is v, in the order of k. `order` has the positions k of
// a line by rising ids, equal ones as they come. Of its window [start, end), at most 32,768 positions, the first of each run of
// one id walks the run. Ids out of range are left out.

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
    let end = p.end;
    let column = job % p.width;
    let first = p.start + job / p.width % (end - p.start);
    let line = job / p.width / (end - p.start);
    let order = p.a_offset + line * p.count;
    let ids = p.ids_offset + line * p.count;
    let dout = p.dout_offset + line * p.count * p.width + column;
    let k = u32(load_order(order + first));
    let id = load_ids(ids + k);
    if id < 0 || u32(id) >= p.rows {
        return;
    }
    if first > p.start && load_ids(ids + u32(load_order(order + first - 1u))) == id {
        return;
    }
    var total = load_dout(dout + k * p.width);
    for (var next = first + 1u; next < end; next++) {
        let at = u32(load_order(order + next));
        if load_ids(ids + at) != id {
            break;
        }
        total = combine(total, load_dout(dout + at * p.width));
    }
    let to = p.out_offset + (line * p.rows + u32(id)) * p.width + column;
    out[to] = combine(out[to], total);
}
