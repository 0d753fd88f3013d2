// SGD with momentum, PyTorch's order: g = g + weight_decay x; b = momentum b + (1 - dampening) g (b = g at the first step);
// g = g + momentum b (Nesterov) or b; x = x - lr g. p.a is (momentum, 1 - dampening).
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    return vec4<f32>();
}

fn update(x: vec4<f32>, grad: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let g = grad + row.weight_decay * x;
    let old = load_momentum_buffer(row.state.x + i);
    let b = select(p.a.x * old + p.a.y * g, g, row.step <= 1.0);
    store_momentum_buffer(row.state.x + i, b);
    return x - row.lr * select(b, g + p.a.x * b, p.flag == 1u);
}
