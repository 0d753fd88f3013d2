// Copies a view of up to 8 dimensions (outermost first) into another of the same shape; one element per invocation.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    var rest = flat_group(group, groups) * WG + lane;
    if rest >= p.len {
        return;
    }
    var from_at = p.a_offset;
    var to_at = p.out_offset;
    for (var half = 2u; half > 0u; half--) {
        for (var dim = 4u; dim > 0u; dim--) {
            let len = p.shape[half - 1u][dim - 1u];
            from_at += rest % len * p.a_strides[half - 1u][dim - 1u];
            to_at += rest % len * p.out_strides[half - 1u][dim - 1u];
            rest /= len;
        }
    }
    put(to_at, load_a(from_at));
}
