// The step without momentum.
fn direction(step: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    return step;
}
