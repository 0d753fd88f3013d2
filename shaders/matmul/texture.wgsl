// As subgroup.wgsl, with inputs in textures and four steps of K at a time. A texel is four neighbours along k, or four
// rows of a (columns of b). All starts and far strides are multiples of 4.

// Group i of a's rows: lane r of it has row row_of(i, r).
fn row_of(i: u32, r: u32) -> u32 {
    return select(32u * (i / 4u) + 4u * r + i % 4u, 8u * i + r, A_ALONG_K == 1u);
}

alias left = vec4<elem>;
alias right = mat4x4<elem>;

// Four texels, one after the other.
fn four_of_a(at: u32, step: u32) -> mat4x4<elem> {
    return mat4x4<elem>(load_a(at), load_a(at + step), load_a(at + 2u * step), load_a(at + 3u * step));
}

fn four_of_b(at: u32, step: u32) -> mat4x4<elem> {
    return mat4x4<elem>(load_b(at), load_b(at + step), load_b(at + 2u * step), load_b(at + 3u * step));
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
    let four = vec4<u32>(0u, 8u, 16u, 24u);
    // Along k: the texels of the lane's rows, past the end those of the last. Across: of four rows in each half.
    let last_row = vec4<u32>(p.size.x - 1u);
    let row_low = (at.a + min(at.row + four + lane, last_row) * p.a.y) / 4u;
    let row_high = (at.a + min(at.row + four + 32u + lane, last_row) * p.a.y) / 4u;
    let across = (at.a + min(at.row + vec2<u32>(0u, 32u) + 4u * lane, last_row.xy & vec2<u32>(~3u))) / 4u;
    let last_col = p.size.y - 1u;
    let col_along = (at.b + min(at.col + four + lane, vec4<u32>(last_col)) * p.b.z) / 4u;
    let col_across = (at.b + min(at.col + 4u * lane, last_col & ~3u)) / 4u;
    let touch = touched(at, lane);
    let a_step = p.a.z / 4u;
    let b_step = p.b.y / 4u;
    var c0: array<vec4<elem>, 8>;
    var c1: array<vec4<elem>, 8>;
    var c2: array<vec4<elem>, 8>;
    var c3: array<vec4<elem>, 8>;
    var c4: array<vec4<elem>, 8>;
    var c5: array<vec4<elem>, 8>;
    var c6: array<vec4<elem>, 8>;
    var c7: array<vec4<elem>, 8>;
    for (var k = 0u; k < at.steps; k += 4u) {
        // Column e of b is step k + e of the lane's four columns.
        var b: mat4x4<elem>;
        if B_ALONG_K == 1u {
            let t = col_along + k / 4u;
            b = transpose(mat4x4<elem>(load_b(t.x), load_b(t.y), load_b(t.z), load_b(t.w)));
        } else {
            b = four_of_b(col_across + k * b_step, b_step);
        }
        if A_ALONG_K == 1u {
            let low = row_low + k / 4u;
            let high = row_high + k / 4u;
            accumulate(&c0, load_a(low.x), b);
            accumulate(&c1, load_a(low.y), b);
            accumulate(&c2, load_a(low.z), b);
            accumulate(&c3, load_a(low.w), b);
            accumulate(&c4, load_a(high.x), b);
            accumulate(&c5, load_a(high.y), b);
            accumulate(&c6, load_a(high.z), b);
            accumulate(&c7, load_a(high.w), b);
        } else {
            let low = transpose(four_of_a(across.x + k * a_step, a_step));
            let high = transpose(four_of_a(across.y + k * a_step, a_step));
            accumulate(&c0, low[0], b);
            accumulate(&c1, low[1], b);
            accumulate(&c2, low[2], b);
            accumulate(&c3, low[3], b);
            accumulate(&c4, high[0], b);
            accumulate(&c5, high[1], b);
            accumulate(&c6, high[2], b);
            accumulate(&c7, high[3], b);
        }
    }
    let to = columns(at, at.col + select(4u * lane + vec4<u32>(0u, 1u, 2u, 3u), four + lane, B_ALONG_K == 1u));
    let rows = select(TM, 0u, touch);
    for (var r = 0u; r < rows; r++) {
        let i = r % 8u;
        let g = r / 8u;
        let low = select(select(pick(&c0, i), pick(&c1, i), g == 1u), select(pick(&c2, i), pick(&c3, i), g == 3u), g >= 2u);
        let high = select(select(pick(&c4, i), pick(&c5, i), g == 5u), select(pick(&c6, i), pick(&c7, i), g == 7u), g >= 6u);
        let value = select(low, high, g >= 4u);
        store(to, at.row + row_of(g, i), value);
    }
}
