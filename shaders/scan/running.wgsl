// Every step of a block is kept, on top of what the blocks before it came to. That is added to each result, not to the first
// element: rounding errors of a long line would go through all further steps of its blocks.
var<private> is_first: bool;
var<private> before: elem;

fn started(job: u32, block: u32, value: elem) -> elem {
    is_first = block == 0u;
    if !is_first {
        before = load_carry(job - p.inner);
    }
    return value;
}

fn passed(at: u32, total: elem) {
    if is_first {
        out[p.out_offset + at] = total;
    } else {
        out[p.out_offset + at] = combine(before, total);
    }
}

fn ended(job: u32, total: elem) {}
