// NAdam (Dozat 2016), PyTorch's form: mu(n) = beta1 (1 - 0.96^(n decay) / 2), and `product` is that of mu(1) to mu(step - 1).
// p.b is (beta1, logarithm of beta2, decay times logarithm of 0.96).
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    let now = p.b.x * (1.0 - 0.5 * f_exp(step * p.b.z));
    let next = p.b.x * (1.0 - 0.5 * f_exp((step + 1.0) * p.b.z));
    let up_to_now = product * now;
    return vec4<f32>(lr * (1.0 - now) / (1.0 - up_to_now), lr * next / (1.0 - up_to_now * next), -f_expm1(step * p.b.y), 0.0);
}

fn update(old: vec4<f32>, grad: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let made = moments(old, grad, row, i);
    let denominator = sqrt(made.v / row.prepared.z) + p.a.w;
    return made.x - row.prepared.x * (made.g / denominator) - row.prepared.y * (made.m / denominator);
}
