// Touches every cache line of the tile's result, before the long loop, for the stores behind it (see kernel::source).
// False; the driver cannot know, and so leaves the loads where they are.
fn touched(at: Place, lane: u32) -> bool {
    let last = p.size.xy - 1u;
    let col = min(at.col + lane % 2u * 16u, last.y) * p.out.z;
    var seen = 0u;
    for (var r = lane / 2u; r < TM; r += 4u) {
        seen |= touch(at.out + min(at.row + r, last.x) * p.out.y + col);
    }
    return seen == 0xffffffffu && p.size.x == 0u;
}
