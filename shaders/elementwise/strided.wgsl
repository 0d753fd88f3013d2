// Element-wise over views: one invocation takes every `chunks`-th item of one innermost row, so that neighbouring
// invocations touch neighbouring items and the divisions are paid once for many items.

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
    let row = job / p.chunks;
    let rows = row / p.shape.z;
    let outer = vec3<u32>(rows / p.shape.y, rows % p.shape.y, row % p.shape.z);
    let strides = vec4<u32>(p.a_strides.w, p.b_strides.w, p.c_strides.w, p.out_strides.w);
    let start = p.offsets + vec4<u32>(
        offset_of(outer, p.a_strides.xyz),
        offset_of(outer, p.b_strides.xyz),
        offset_of(outer, p.c_strides.xyz),
        offset_of(outer, p.out_strides.xyz),
    );
    let width = p.shape.w;
    let s = bitcast<elem>(p.s);
    let t = bitcast<elem>(p.t);
    for (var i = job % p.chunks; i < width; i += p.chunks) {
        let at = start + i * strides;
        out[at.w] = apply(at, s, t);
    }
}

fn offset_of(index: vec3<u32>, strides: vec3<u32>) -> u32 {
    return index.x * strides.x + index.y * strides.y + index.z * strides.z;
}
