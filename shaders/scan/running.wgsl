// Every step of a block is kept, on top of what the blocks before it came to.
fn started(job: u32, block: u32, value: elem) -> elem {
    if block == 0u {
        return value;
    }
    return combine(load_carry(job - p.inner), value);
}

fn passed(at: u32, total: elem) {
    out[p.out_offset + at] = total;
}

fn ended(job: u32, total: elem) {}
