// Sums of squares of many tensors, in parts. A workgroup does one chunk of one tensor, which it finds in a table: its first chunk,
// elements, where it starts, and where its parts start. Each invocation writes the sums of its four lanes.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rounds = p.rounds;
    let table = p.table;
    let chunk = flat_group(group, groups);
    if chunk >= p.chunks {
        return;
    }
    // The last row whose first chunk is not behind this one.
    var low = 0u;
    var count = p.rows;
    while count > 1u {
        let half = count / 2u;
        if word_table((table + low + half) * 4u) <= chunk {
            low += half;
            count -= half;
        } else {
            count = half;
        }
    }
    let head = load_table(table + low);
    let within = chunk - head.x;
    let first = within * WG * rounds + lane;
    if first * 4u >= head.y {
        return;
    }
    var sum = vec4<f32>();
    for (var round = 0u; round < rounds; round++) {
        let i = first + round * WG;
        if i * 4u >= head.y {
            break;
        }
        let inside = vec4<u32>(0u, 1u, 2u, 3u) + i * 4u < vec4<u32>(head.y);
        let x = select(vec4<f32>(), load_a(head.z + i), inside);
        sum += x * x;
    }
    store_out(head.w + within * WG + lane, sum);
}
