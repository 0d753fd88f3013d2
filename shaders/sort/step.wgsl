// One step of a bitonic sort of positions: lines of `padded` (a power of two) positions, of which the first n name elements of a line
// of a. Each invocation puts one pair, `step` apart, in the order that its block of `block` positions wants. The first step of a sort
// starts from 0, 1, 2, .. Equal elements keep the order of their positions; positions behind the line come last.

fn ahead(line: u32, i: u32, j: u32) -> bool {
    if max(i, j) >= p.n {
        return i < j;
    }
    let a = load_a(p.offset + line * p.n + i);
    let b = load_a(p.offset + line * p.n + j);
    let less = before(a, b);
    let more = before(b, a);
    if !less && !more {
        return i < j;
    }
    return select(less, more, p.descending == 1u);
}

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
    let pairs = p.padded / 2u;
    let line = job / pairs;
    let pair = job % pairs;
    let low = (pair / p.step) * 2u * p.step + pair % p.step;
    let at = p.out_offset + line * p.padded + low;
    var i = low;
    var j = low + p.step;
    if p.block > 2u {
        i = u32(out[at]);
        j = u32(out[at + p.step]);
    }
    let rising = (low & p.block) == 0u;
    if ahead(line, i, j) == rising {
        out[at] = i32(i);
        out[at + p.step] = i32(j);
    } else {
        out[at] = i32(j);
        out[at + p.step] = i32(i);
    }
}
