// The variance: the mean square less the square of the mean.
fn spread(square: vec4<f32>, g: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let old = load_grad_avg(row.state.y + i);
    let mean = old + (g - old) * p.a.y;
    store_grad_avg(row.state.y + i, mean);
    return square - mean * mean;
}
