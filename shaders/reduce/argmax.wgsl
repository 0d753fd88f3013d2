// Position of the largest element over the middle of [outer, n, inner], split like reduce/split.wgsl. The first of equal
// elements wins, and NaN is larger than every number. `position` is the place itself, or what an earlier stage found.

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
    let first = row % p.splits;
    var best = load_a(base + first * p.stride);
    var best_at = position(base + first * p.stride, first);
    for (var k = first + p.splits; k < p.n; k += p.splits) {
        let value = load_a(base + k * p.stride);
        let at = position(base + k * p.stride, k);
        let equal = value == best || (unordered(value) && unordered(best));
        let larger = !unordered(best) && (value > best || unordered(value));
        if larger || (equal && at < best_at) {
            best = value;
            best_at = at;
        }
    }
    values[job] = best;
    out[p.out_offset + job] = best_at;
}
