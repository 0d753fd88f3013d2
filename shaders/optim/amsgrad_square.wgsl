// AMSGrad: the largest second moment so far (at the offset of exp_avg_sq).
fn largest_square(at: u32, v: vec4<f32>, inside: vec4<bool>) -> vec4<f32> {
    let largest = max(max_exp_avg_sq[at], v);
    max_exp_avg_sq[at] = select(max_exp_avg_sq[at], largest, inside);
    return largest;
}
