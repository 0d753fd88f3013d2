// 8 x 8 tile per invocation in registers, no workgroup memory: CPU drivers without subgroups run barriers as coroutines.
// A workgroup is 2 x 4 invocations. Written out for the reason given in subgroup.wgsl.

fn accumulate(c: ptr<function, array<vec4<elem>, 8>>, a_low: vec4<elem>, a_high: vec4<elem>, b: vec4<elem>) {
    (*c)[0] += a_low.x * b;
    (*c)[1] += a_low.y * b;
    (*c)[2] += a_low.z * b;
    (*c)[3] += a_low.w * b;
    (*c)[4] += a_high.x * b;
    (*c)[5] += a_high.y * b;
    (*c)[6] += a_high.z * b;
    (*c)[7] += a_high.w * b;
}

fn four_of_a(i: u32, at: vec4<u32>) -> vec4<elem> {
    return vec4<elem>(load_a(i + at.x), load_a(i + at.y), load_a(i + at.z), load_a(i + at.w));
}

fn four_of_b(i: u32, at: vec4<u32>) -> vec4<elem> {
    return vec4<elem>(load_b(i + at.x), load_b(i + at.y), load_b(i + at.z), load_b(i + at.w));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile = flat_group(group, groups);
    if tile >= tiles() {
        return;
    }
    let at = place_of(tile);
    let row = at.row + lane / 4u * 8u;
    let col = at.col + lane % 4u * 8u;
    if row >= p.size.x || col >= p.size.y {
        return;
    }
    // Rows and columns past the end repeat the last one and are not stored.
    let four = vec4<u32>(0u, 1u, 2u, 3u);
    let last_row = vec4<u32>(p.size.x - 1u);
    let last_col = vec4<u32>(p.size.y - 1u);
    let row_low = min(row + four, last_row) * p.a.y;
    let row_high = min(row + four + 4u, last_row) * p.a.y;
    let col_low = min(col + four, last_col) * p.b.z;
    let col_high = min(col + four + 4u, last_col) * p.b.z;
    var left: array<vec4<elem>, 8>;
    var right: array<vec4<elem>, 8>;
    var a_at = at.a;
    var b_at = at.b;
    for (var k = 0u; k < at.steps; k++) {
        let a_low = four_of_a(a_at, row_low);
        let a_high = four_of_a(a_at, row_high);
        accumulate(&left, a_low, a_high, four_of_b(b_at, col_low));
        accumulate(&right, a_low, a_high, four_of_b(b_at, col_high));
        a_at += p.a.z;
        b_at += p.b.y;
    }
    let left_columns = columns(at, col + four);
    let right_columns = columns(at, col + four + 4u);
    for (var r = 0u; r < 8u; r++) {
        store(left_columns, row + r, pick(&left, r));
        store(right_columns, row + r, pick(&right, r));
    }
}
