// Counts a step of every parameter that has a gradient: steps are f32, exact up to 2^24. The product is NAdam's, of its momenta
// beta1 (1 - 0.96^(step decay) / 2), where given.decay is decay log 0.96. control[1] is not 0 where the step is skipped.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let given = p;
    let i = flat_group(group, groups) * WG + lane;
    if i >= given.len || control[1] != 0u || control[given.flags + i] == 0u {
        return;
    }
    let step = bitcast<f32>(control[given.steps + i]) + 1.0;
    control[given.steps + i] = bitcast<u32>(step);
    let momentum = given.beta1 * (1.0 - 0.5 * f_exp(step * given.decay));
    control[given.products + i] = bitcast<u32>(bitcast<f32>(control[given.products + i]) * momentum);
}
