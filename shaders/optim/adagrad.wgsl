// Adagrad (Duchi, Hazan, Singer 2011), PyTorch's form: the learning rate falls with 1 + (step - 1) lr_decay. p.a is (lr_decay, eps).
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    return vec4<f32>(lr / (1.0 + (step - 1.0) * p.a.x), 0.0, 0.0, 0.0);
}

fn update(x: vec4<f32>, grad: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let g = grad + row.weight_decay * x;
    let sum = load_sum(row.state.x + i) + g * g;
    store_sum(row.state.x + i, sum);
    return x - row.prepared.x * (g / (sqrt(sum) + p.a.y));
}
