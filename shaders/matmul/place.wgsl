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

// Stores one element of the result where it exists.
fn store(at: Place, row: u32, col: u32, value: elem) {
    if row < p.size.x && col < p.size.y {
        out[at.out + row * p.out.y + col * p.out.z] = value;
    }
}
