fn direction(at: u32, g: vec4<f32>, inside: vec4<bool>) -> vec4<f32> {
    return g;
}
