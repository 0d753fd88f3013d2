// Element-wise over views into a contiguous result of which several elements lie in a word: one invocation computes four
// neighbours of the result, whose words nobody else writes.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let quad = flat_group(group, groups) * WG + lane;
    if quad >= p.jobs {
        return;
    }
    let first = quad * 4u;
    let last = p.len - 1u;
    let values = vec4<res>(
        element(first),
        element(min(first + 1u, last)),
        element(min(first + 2u, last)),
        element(min(first + 3u, last)),
    );
    store_part(p.offsets.w + quad, values, p.len - first);
}

fn element(i: u32) -> res {
    let rows = i / p.shape.w;
    let planes = rows / p.shape.z;
    let index = vec4<u32>(planes / p.shape.y, planes % p.shape.y, rows % p.shape.z, i % p.shape.w);
    let at = p.offsets + vec4<u32>(
        offset_of(index, p.a_strides),
        offset_of(index, p.b_strides),
        offset_of(index, p.c_strides),
        0u,
    );
    return apply(at, bitcast<elem>(p.s), bitcast<elem>(p.t));
}

fn offset_of(index: vec4<u32>, strides: vec4<u32>) -> u32 {
    return index.x * strides.x + index.y * strides.y + index.z * strides.z + index.w * strides.w;
}
