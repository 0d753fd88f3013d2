// AMSGrad divides by the largest second moment so far.
fn square_for(v: vec4<f32>, row: Row, i: u32) -> vec4<f32> {
    let largest = max(load_max_exp_avg_sq(row.state.z + i), v);
    store_max_exp_avg_sq(row.state.z + i, largest);
    return largest;
}
