// Only the end of a block is kept.
fn started(job: u32, block: u32, value: elem) -> elem {
    return value;
}

fn passed(at: u32, total: elem) {}

fn ended(job: u32, total: elem) {
    out[p.out_offset + job] = total;
}
