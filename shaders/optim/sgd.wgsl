// SGD: x = x - lr (g + weight_decay x).
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    return vec4<f32>();
}

fn update(x: vec4<f32>, g: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    return x - row.lr * (g + row.weight_decay * x);
}
