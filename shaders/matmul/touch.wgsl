// Loads one element of every cache line of the tile's result before the long loop, so that its stores find them there: the
// processor completes stores in order, and one that misses the cache holds up those behind it, of spilled registers too.
// False; the driver cannot know, and so leaves the loads where they are.
fn touched(at: Place, lane: u32) -> bool {
    let last = p.size.xy - 1u;
    let col = min(at.col + lane % 2u * 16u, last.y) * p.out.z;
    var seen = 0u;
    for (var r = lane / 2u; r < TM; r += 4u) {
        seen |= bitcast<u32>(out[at.out + min(at.row + r, last.x) * p.out.y + col]);
    }
    return seen == 0xffffffffu && p.never == 1u;
}
