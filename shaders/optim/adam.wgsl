// Adam and AdamW (Kingma, Ba 2014; Loshchilov, Hutter 2017), PyTorch's order of operations. p.a is (1 - beta1, beta2, 1 - beta2,
// eps), p.b the logarithms of both betas: 1 - beta^n is -expm1(n log beta), which keeps its digits where beta^n is close to 1.
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    return vec4<f32>(lr / -f_expm1(step * p.b.x), sqrt(-f_expm1(step * p.b.y)), 0.0, 0.0);
}

fn update(old: vec4<f32>, grad: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let decoupled = p.flag == 1u;
    let x = select(old, old * (1.0 - row.lr * row.weight_decay), decoupled);
    let g = select(grad + row.weight_decay * old, grad, decoupled);
    let old_m = load_exp_avg(row.state.x + i);
    let m = old_m + (g - old_m) * p.a.x;
    let v = load_exp_avg_sq(row.state.y + i) * p.a.y + p.a.z * g * g;
    store_exp_avg(row.state.x + i, m);
    store_exp_avg_sq(row.state.y + i, v);
    let denominator = sqrt(square_for(v, row, i)) / row.prepared.y + p.a.w;
    return x - row.prepared.x * (m / denominator);
}
