// The step with momentum, whose buffer is the last part of the state.
fn direction(step: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let b = p.a.w * load_momentum_buffer(row.state.z + i) + step;
    store_momentum_buffer(row.state.z + i, b);
    return b;
}
