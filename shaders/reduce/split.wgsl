// Reduces the middle of [outer, n, inner]: `splits` invocations share one result, each takes every `splits`-th item, in
// blocks of BLOCK so that rounding errors grow with the block, not with n. The result has the shape [outer, splits, inner];
// further stages reduce the splits. The order is fixed, and there is no barrier.

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
    let row = job / p.inner;
    let base = p.offset + (row / p.splits) * p.outer_stride + (job % p.inner) * p.inner_stride;
    let step = BLOCK * p.splits;
    var total = block(base, row % p.splits);
    for (var k = row % p.splits + step; k < p.n; k += step) {
        total = combine(total, block(base, k));
    }
    out[p.out_offset + job] = finish(total * bitcast<elem>(p.s));
}

fn block(base: u32, first: u32) -> item {
    let end = min(first + BLOCK * p.splits, p.n);
    var total = load_a(base + first * p.stride);
    for (var k = first + p.splits; k < end; k += p.splits) {
        total = combine(total, load_a(base + k * p.stride));
    }
    return total;
}
