fn direction(at: u32, g: vec4<f32>, inside: vec4<bool>) -> vec4<f32> {
    let old = momentum_buffer[at];
    let b = select(p.momentum * old + p.one_minus_dampening * g, g, p.first == 1u);
    momentum_buffer[at] = select(old, b, inside);
    return select(b, g + p.momentum * b, p.nesterov == 1u);
}
