// Adam and AdamW (Kingma, Ba 2014; Loshchilov, Hutter 2017). p.b holds the logarithms of both betas: 1 - beta^n is
// -expm1(n log beta), which keeps its digits where beta^n is close to 1.
fn prepare(lr: f32, step: f32, product: f32) -> vec4<f32> {
    return vec4<f32>(lr / -f_expm1(step * p.b.x), sqrt(-f_expm1(step * p.b.y)), 0.0, 0.0);
}

fn update(old: vec4<f32>, grad: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let made = moments(old, grad, row, i);
    let denominator = sqrt(square_for(made.v, row, i)) / row.prepared.y + p.a.w;
    return made.x - row.prepared.x * (made.m / denominator);
}
