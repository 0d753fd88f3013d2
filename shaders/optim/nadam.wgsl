// NAdam (Dozat 2016), PyTorch's form: mu(n) = beta1 (1 - 0.96^(n decay) / 2), and `product` is that of mu(1) to mu(step).
// p.a is (1 - beta1, beta2, 1 - beta2, eps), p.b (beta1, logarithm of beta2, decay times logarithm of 0.96).
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    let now = p.b.x * (1.0 - 0.5 * f_exp(step * p.b.z));
    let next = p.b.x * (1.0 - 0.5 * f_exp((step + 1.0) * p.b.z));
    return vec4<f32>(lr * (1.0 - now) / (1.0 - product), lr * next / (1.0 - product * next), -f_expm1(step * p.b.y), 0.0);
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
    let denominator = sqrt(v / row.prepared.z) + p.a.w;
    return x - row.prepared.x * (g / denominator) - row.prepared.y * (m / denominator);
}
