// out[ids[k], :] += sum of dout[k, :] over the window: the first position of each id walks its links in order, so the
// sum has one order and no two invocations write one element. Ids out of range are left out; the forward pass reported them.

const HEAD: u32 = 0x40000000u;

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
    let k = p.start + job / p.width;
    let column = job % p.width;
    let id = load_ids(p.ids_offset + k);
    let link = load_links(k - p.start);
    if (link & HEAD) == 0u || id < 0 || u32(id) >= p.rows {
        return;
    }
    var total = load_dout(p.dout_offset + k * p.width + column);
    var next = link & ~HEAD;
    while next < p.end {
        total += load_dout(p.dout_offset + next * p.width + column);
        next = load_links(next - p.start) & ~HEAD;
    }
    out[p.out_offset + u32(id) * p.width + column] += total;
}
