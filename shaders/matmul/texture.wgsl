// As subgroup.wgsl, with inputs in textures, four steps of K at a time, and a tile of 32 x 32: the loop has 2,300
// instructions, where twice as many are more than the processor keeps decoded. A texel is four neighbours along k, or
// four rows of a (columns of b). All starts and far strides are multiples of 4.

// Group i of a's rows: lane r of it has row row_of(i, r).
fn row_of(i: u32, r: u32) -> u32 {
    return select(4u * r + i, 8u * i + r, A_ALONG_K == 1u);
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
    // Along k: the texels of the lane's rows, past the end those of the last. Across: of its four rows.
    let last_row = p.size.x - 1u;
    let row_along = (at.a + min(at.row + four + lane, vec4<u32>(last_row)) * p.a.y) / 4u;
    let row_across = (at.a + min(at.row + 4u * lane, last_row & ~3u)) / 4u;
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
            let t = row_along + k / 4u;
            accumulate(&c0, load_a(t.x), b);
            accumulate(&c1, load_a(t.y), b);
            accumulate(&c2, load_a(t.z), b);
            accumulate(&c3, load_a(t.w), b);
        } else {
            let a = transpose(four_of_a(row_across + k * a_step, a_step));
            accumulate(&c0, a[0], b);
            accumulate(&c1, a[1], b);
            accumulate(&c2, a[2], b);
            accumulate(&c3, a[3], b);
        }
    }
    let to = columns(at, at.col + select(4u * lane + vec4<u32>(0u, 1u, 2u, 3u), four + lane, B_ALONG_K == 1u));
    let rows = select(TM, 0u, touch);
    for (var r = 0u; r < rows; r++) {
        let i = r % 8u;
        let g = r / 8u;
        let value = select(select(pick(&c0, i), pick(&c1, i), g == 1u), select(pick(&c2, i), pick(&c3, i), g == 3u), g >= 2u);
        store(to, at.row + row_of(g, i), value);
    }
}
