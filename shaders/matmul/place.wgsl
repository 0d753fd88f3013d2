// Which tile of which product a workgroup has. Letters: out [M, N] = a [M, K] b [K, N].
struct Place {
    // First row and column of the tile.
    row: u32,
    col: u32,
    // Where the matrices of this batch entry start, at the first k of this part.
    a: u32,
    b: u32,
    out: u32,
    // Length of this part of K.
    steps: u32,
}

fn place_of(tile: u32) -> Place {
    let col = tile % p.tiles.x;
    let row = tile / p.tiles.x % p.tiles.y;
    let entry = tile / p.tiles.x / p.tiles.y;
    let part = entry % p.parts;
    let inner = entry / p.parts % p.size.w;
    let outer = entry / p.parts / p.size.w;
    let first = part * p.part_len;
    return Place(
        row * TM,
        col * TN,
        p.a.x + outer * p.outer.x + inner * p.a.w + first * p.a.z,
        p.b.x + outer * p.outer.y + inner * p.b.w + first * p.b.y,
        p.out.x + outer * p.outer.z + inner * p.out.w + part * p.outer.w,
        min(p.part_len, p.size.z - first),
    );
}

fn tiles() -> u32 {
    return p.tiles.x * p.tiles.y * p.tiles.z;
}

// Where an invocation's four columns of the result lie, and which of them exist.
struct Columns {
    first: vec4<u32>,
    inside: vec4<bool>,
    rows: u32,
    row_stride: u32,
}

fn columns(at: Place, col: vec4<u32>) -> Columns {
    return Columns(at.out + col * p.out.z, col < vec4<u32>(p.size.y), p.size.x, p.out.y);
}

// Stores one row of them where it exists.
fn store(to: Columns, row: u32, value: vec4<elem>) {
    if row >= to.rows {
        return;
    }
    let at = to.first + row * to.row_stride;
    if to.inside.x {
        out[at.x] = value.x;
    }
    if to.inside.y {
        out[at.y] = value.y;
    }
    if to.inside.z {
        out[at.z] = value.z;
    }
    if to.inside.w {
        out[at.w] = value.w;
    }
}
