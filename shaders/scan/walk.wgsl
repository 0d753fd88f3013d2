// Running results over the middle of [outer, n, inner], contiguous: an invocation walks one of the `blocks` that a line of n
// elements is cut into. What the blocks before it came to is found by a pass that keeps only the end of each block
// (scan/totals.wgsl), scanned in turn. The order is fixed, and there is no barrier.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let job = flat_group(group, groups) * WG + lane;
    if job >= p.jobs {
        return;
    }
    let inner = p.inner;
    let n = p.n;
    let backward = p.backward == 1u;
    let row = job / inner;
    let block = row % p.blocks;
    let base = (row / p.blocks) * n * inner + job % inner;
    let first = block * p.block;
    let end = min(first + p.block, n);
    let offset = p.offset + base;
    let start = select(first, n - 1u - first, backward) * inner;
    var total = started(job, block, load_a(offset + start));
    passed(base + start, total);
    for (var k = first + 1u; k < end; k += 1u) {
        let at = select(k, n - 1u - k, backward) * inner;
        total = combine(total, load_a(offset + at));
        passed(base + at, total);
    }
    ended(job, total);
}
