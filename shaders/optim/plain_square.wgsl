fn largest_square(at: u32, v: vec4<f32>, inside: vec4<bool>) -> vec4<f32> {
    return v;
}
