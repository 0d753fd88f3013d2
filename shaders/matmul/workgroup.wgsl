// 64 x 64 tile per workgroup of 256, in steps of 16 through workgroup memory; 4 x 4 elements per invocation.

var<workgroup> a_tile: array<array<elem, TM>, DEPTH>;
var<workgroup> b_tile: array<array<elem, TN>, DEPTH>;

// Element i of a tile of `width` x DEPTH as (position, k): neighbouring invocations take neighbours in memory.
fn spread(i: u32, width: u32, k_stride: u32) -> vec2<u32> {
    return select(vec2<u32>(i % width, i / width), vec2<u32>(i / DEPTH, i % DEPTH), k_stride == 1u);
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
    let row = lane / 16u * 4u;
    let col = lane % 16u * 4u;
    var c0 = vec4<elem>();
    var c1 = vec4<elem>();
    var c2 = vec4<elem>();
    var c3 = vec4<elem>();
    for (var first = 0u; first < at.steps; first += DEPTH) {
        for (var i = lane; i < TM * DEPTH; i += WG) {
            let a_at = spread(i, TM, p.a.z);
            var value = elem();
            if at.row + a_at.x < p.size.x && first + a_at.y < at.steps {
                value = load_a(at.a + (at.row + a_at.x) * p.a.y + (first + a_at.y) * p.a.z);
            }
            a_tile[a_at.y][a_at.x] = value;
        }
        for (var i = lane; i < TN * DEPTH; i += WG) {
            let b_at = spread(i, TN, p.b.y);
            var value = elem();
            if at.col + b_at.x < p.size.y && first + b_at.y < at.steps {
                value = load_b(at.b + (first + b_at.y) * p.b.y + (at.col + b_at.x) * p.b.z);
            }
            b_tile[b_at.y][b_at.x] = value;
        }
        workgroupBarrier();
        // Only the steps there are: 0 times an infinity would be NaN.
        for (var k = 0u; k < min(DEPTH, at.steps - first); k++) {
            let b = vec4<elem>(b_tile[k][col], b_tile[k][col + 1u], b_tile[k][col + 2u], b_tile[k][col + 3u]);
            c0 += a_tile[k][row] * b;
            c1 += a_tile[k][row + 1u] * b;
            c2 += a_tile[k][row + 2u] * b;
            c3 += a_tile[k][row + 3u] * b;
        }
        workgroupBarrier();
    }
    let to = columns(at, at.col + col + vec4<u32>(0u, 1u, 2u, 3u));
    store(to, at.row + row, c0);
    store(to, at.row + row + 1u, c1);
    store(to, at.row + row + 2u, c2);
    store(to, at.row + row + 3u, c3);
}
