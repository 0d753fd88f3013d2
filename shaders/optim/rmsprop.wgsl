// RMSprop (Hinton 2012), PyTorch's form: eps is added to the root. p.a is (alpha, 1 - alpha, eps, momentum).
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    return vec4<f32>();
}

fn update(x: vec4<f32>, grad: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let g = grad + row.weight_decay * x;
    let square = p.a.x * load_square_avg(row.state.x + i) + p.a.y * g * g;
    store_square_avg(row.state.x + i, square);
    return x - row.lr * direction(g / (sqrt(spread(square, g, row, i)) + p.a.z), row, i);
}
