fn beside(i: u32, value: item) -> item {
    return value;
}
