// Row r of eight: selects are far cheaper to compile than a store for each row, which is a loop over lanes, and an array
// that is indexed by a variable lives in memory.
fn pick(c: ptr<function, array<vec4<elem>, 8>>, r: u32) -> vec4<elem> {
    let low = select(select((*c)[0], (*c)[1], r == 1u), select((*c)[2], (*c)[3], r == 3u), r >= 2u);
    let high = select(select((*c)[4], (*c)[5], r == 5u), select((*c)[6], (*c)[7], r == 7u), r >= 6u);
    return select(low, high, r >= 4u);
}
