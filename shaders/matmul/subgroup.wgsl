// 64 x 32 tile per subgroup of 8 (lavapipe): lane l loads rows 8i + l of a and columns 8j + l of b, and a broadcast hands
// a's values round. Loads are what costs there: one element enters the registers once and is used 32 or 64 times. All is
// written out: wgpu guards loops with counters, which keep Mesa from unrolling them, and an array that is indexed by a
// loop variable lives in memory.

alias left = elem;
alias right = vec4<elem>;

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
    // Rows and columns past the end repeat the last one and are not stored.
    let row = vec4<u32>(0u, 8u, 16u, 24u) + at.row + lane;
    let last_row = vec4<u32>(p.size.x - 1u);
    let row_low = min(row, last_row) * p.a.y;
    let row_high = min(row + 32u, last_row) * p.a.y;
    let col = vec4<u32>(0u, 8u, 16u, 24u) + at.col + lane;
    let col_at = min(col, vec4<u32>(p.size.y - 1u)) * p.b.z;
    var c0: array<vec4<elem>, 8>;
    var c1: array<vec4<elem>, 8>;
    var c2: array<vec4<elem>, 8>;
    var c3: array<vec4<elem>, 8>;
    var c4: array<vec4<elem>, 8>;
    var c5: array<vec4<elem>, 8>;
    var c6: array<vec4<elem>, 8>;
    var c7: array<vec4<elem>, 8>;
    let touch = touched(at, lane);
    var a_at = at.a;
    var b_at = at.b;
    for (var k = 0u; k < at.steps; k++) {
        let b = vec4<elem>(load_b(b_at + col_at.x), load_b(b_at + col_at.y), load_b(b_at + col_at.z), load_b(b_at + col_at.w));
        accumulate(&c0, load_a(a_at + row_low.x), b);
        accumulate(&c1, load_a(a_at + row_low.y), b);
        accumulate(&c2, load_a(a_at + row_low.z), b);
        accumulate(&c3, load_a(a_at + row_low.w), b);
        accumulate(&c4, load_a(a_at + row_high.x), b);
        accumulate(&c5, load_a(a_at + row_high.y), b);
        accumulate(&c6, load_a(a_at + row_high.z), b);
        accumulate(&c7, load_a(a_at + row_high.w), b);
        a_at += p.a.z;
        b_at += p.b.y;
    }
    let to = columns(at, col);
    let rows = select(min(TM, p.size.x - at.row), 0u, touch);
    for (var r = 0u; r < rows; r++) {
        let i = r % 8u;
        let g = r / 8u;
        let low = select(select(pick(&c0, i), pick(&c1, i), g == 1u), select(pick(&c2, i), pick(&c3, i), g == 3u), g >= 2u);
        let high = select(select(pick(&c4, i), pick(&c5, i), g == 5u), select(pick(&c6, i), pick(&c7, i), g == 7u), g >= 6u);
        let value = select(low, high, g >= 4u);
        store(to, at.row + r, value);
    }
}
