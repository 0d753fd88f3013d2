// AMSGrad: the largest second moment so far (at the offset of exp_avg_sq).
fn largest_square(at: u32, v: vec4<f32>, inside: vec4<bool>) -> vec4<f32> {
    let old = load_max_exp_avg_sq(at);
    let largest = max(old, v);
    new_max_exp_avg_sq[at] = select(old, largest, inside);
    return largest;
}
