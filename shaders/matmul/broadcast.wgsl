// A group of 8 rows times the columns of each lane, summed up in c: lane l has row l of a, and a broadcast hands it round.
// The body says what a step is: `left`, elem or vec4<elem>, and `right`, vec4<elem> or mat4x4<elem>.
fn accumulate(c: ptr<function, array<vec4<elem>, 8>>, a: left, b: right) {
    (*c)[0] += b * subgroupBroadcast(a, 0u);
    (*c)[1] += b * subgroupBroadcast(a, 1u);
    (*c)[2] += b * subgroupBroadcast(a, 2u);
    (*c)[3] += b * subgroupBroadcast(a, 3u);
    (*c)[4] += b * subgroupBroadcast(a, 4u);
    (*c)[5] += b * subgroupBroadcast(a, 5u);
    (*c)[6] += b * subgroupBroadcast(a, 6u);
    (*c)[7] += b * subgroupBroadcast(a, 7u);
}
