// Element 4 i + j of the result comes from word j of philox(counter = offset + i, key = seed), through `sample`.

fn words(at: vec4<u32>) -> vec4<u32> {
    return philox(at, vec2<u32>(p.seed_low, p.seed_high));
}

// low + scale u for u of 32 - p.shift bits in [0, 1); low itself where rounding leads to p.limit or beyond. The product passes through
// p.zero, which is 0, so that no driver adds to it before it is rounded: the same bits everywhere.
fn spread(bits: vec4<u32>, low: f32, scale: f32) -> vec4<f32> {
    let u = vec4<f32>(bits >> vec4<u32>(p.shift)) * power_of_two(i32(p.shift) - 32);
    let value = low + bitcast<vec4<f32>>(bitcast<vec4<u32>>(scale * u) ^ vec4<u32>(p.zero));
    return select(value, vec4<f32>(low), value >= vec4<f32>(p.limit));
}

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
        let value = sample(vec4<u32>(low, high, 0u, 0u), bitcast<elem>(p.s), bitcast<elem>(p.t));
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
