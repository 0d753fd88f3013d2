// Beside what has come to item i of the input by other ways.
fn beside(i: u32, value: item) -> item {
    return load_sum(i) + value;
}
