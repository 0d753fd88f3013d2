// The gradient within -lr and lr; NaN stays NaN. x is the same tensor.
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    return vec4<f32>();
}

fn update(x: vec4<f32>, g: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let v = clamp(g, vec4<f32>(-row.lr), vec4<f32>(row.lr));
    return vec4<f32>(f_or_nan(v.x, g.x), f_or_nan(v.y, g.y), f_or_nan(v.z, g.z), f_or_nan(v.w, g.w));
}
