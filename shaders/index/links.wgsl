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
    let id = load_ids(p.ids_offset + k);
    var next = p.end;
    var head = HEAD;
    for (var other = p.start; other < p.end; other++) {
        let equal = load_ids(p.ids_offset + other) == id;
        head = select(head, 0u, equal && other < k);
        next = select(next, min(next, other), equal && other > k);
    }
    out[k - p.start] = next + head;
}
