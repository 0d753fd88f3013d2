// Element-wise over contiguous operands: `apply` on `vec4`s, each invocation `rounds` of them, WG apart.
// `position` is in vec4s; the last one may be cut short by `len`, and then only its own elements are written.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = flat_group(group, groups) * WG * p.rounds + lane;
    let len = p.len;
    let offsets = p.offsets;
    let s = bitcast<elem>(p.s);
    let t = bitcast<elem>(p.t);
    let last = p.offsets.w + (len - 1u) / 4u;
    var seen = 0u;
    for (var round = 0u; round < p.rounds; round++) {
        let i = first + round * WG;
        if i * 4u >= len {
            break;
        }
        let at = offsets + i;
        // Eight invocations share two cache lines: one for each of the next four rounds.
        if round % 4u == 0u {
            seen |= touch(min(at.w - lane % 8u + lane % 8u / 2u * WG + lane % 2u * 4u, last));
        }
        let value = apply(at, s, t);
        let left = len - i * 4u;
        if left >= 4u {
            store(at.w, value);
        } else {
            store_part(at.w, value, left);
        }
    }
    // Never true, which the driver cannot know.
    if seen == 0xffffffffu && len == 0u {
        store(last, res_item());
    }
}
