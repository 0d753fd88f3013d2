// What Adam and its kin do first, PyTorch's order of operations: weight decay (p.flag: decoupled), then both moments, which are
// stored. p.a is (1 - beta1, beta2, 1 - beta2, eps).
struct Moments {
    x: vec4<f32>,
    g: vec4<f32>,
    m: vec4<f32>,
    v: vec4<f32>,
}

fn moments(old: vec4<f32>, grad: vec4<f32>, row: Row, i: u32) -> Moments {
    let decoupled = p.flag == 1u;
    let x = select(old, old * (1.0 - row.lr * row.weight_decay), decoupled);
    let g = select(grad + row.weight_decay * old, grad, decoupled);
    let old_m = load_exp_avg(row.state.x + i);
    let m = old_m + (g - old_m) * p.a.x;
    let v = load_exp_avg_sq(row.state.y + i) * p.a.y + p.a.z * g * g;
    store_exp_avg(row.state.x + i, m);
    store_exp_avg_sq(row.state.y + i, v);
    return Moments(x, g, m, v);
}
