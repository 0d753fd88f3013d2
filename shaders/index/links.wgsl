// Links equal ids inside the window [start, end) of at most 32,768 positions: links[k] is the next position with the
// same id, or `end`; HEAD is added where no earlier position of the window has it.

const HEAD: u32 = 0x40000000u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let k = p.start + flat_group(group, groups) * WG + lane;
    if k >= p.end {
        return;
    }
    let start = p.start;
    let end = p.end;
    let ids = p.ids_offset;
    let id = load_ids(ids + k);
    var next = k + 1u;
    while next < end && load_ids(ids + next) != id {
        next++;
    }
    // One past the last earlier position with the id, or the start.
    var before = k;
    while before > start && load_ids(ids + before - 1u) != id {
        before--;
    }
    out[k - start] = next + select(0u, HEAD, before == start);
}
