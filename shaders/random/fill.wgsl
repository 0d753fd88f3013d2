// Element 4 i + j of the result comes from word j of philox(counter = offset + i, key = seed), through `sample`.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = flat_group(group, groups) * WG * p.rounds + lane;
    for (var round = 0u; round < p.rounds; round++) {
        let i = first + round * WG;
        if i * 4u >= p.len {
            break;
        }
        let low = p.counter_low + i;
        let high = p.counter_high + select(0u, 1u, low < i);
        let bits = philox(vec4<u32>(low, high, 0u, 0u), vec2<u32>(p.seed_low, p.seed_high));
        let value = sample(bits, bitcast<elem>(p.s), bitcast<elem>(p.t));
        let at = p.out_offset + i * 4u;
        out[at] = value.x;
        if i * 4u + 1u < p.len {
            out[at + 1u] = value.y;
        }
        if i * 4u + 2u < p.len {
            out[at + 2u] = value.z;
        }
        if i * 4u + 3u < p.len {
            out[at + 3u] = value.w;
        }
    }
}
