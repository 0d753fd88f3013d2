// One step of Adam or AdamW over four elements per item (Kingma, Ba 2014; Loshchilov, Hutter 2017; PyTorch's order of
// operations). The gradient is multiplied by scale[0], the clip coefficient. step[0] counts
// this step too. 1 - beta^n is -expm1(n log beta), which keeps its digits where beta^n is close to 1.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let given = p;
    let first = flat_group(group, groups) * WG * given.rounds + lane;
    let steps = load_step(0u);
    let correction1 = -f_expm1(steps * given.log_beta1);
    let correction2 = sqrt(-f_expm1(steps * given.log_beta2));
    let grad_scale = load_scale(given.scale_offset);
    for (var round = 0u; round < given.rounds; round++) {
        let i = first + round * WG;
        if i * 4u >= given.len {
            break;
        }
        let inside = vec4<u32>(0u, 1u, 2u, 3u) + i * 4u < vec4<u32>(given.len);
        let at = given.offsets + i;
        let old = load_param(at.x);
        let old_m = load_exp_avg(at.z);
        let old_v = load_exp_avg_sq(at.w);
        var x = old;
        var g = load_grad(at.y) * grad_scale;
        if given.decoupled == 1u {
            x *= 1.0 - given.lr * given.weight_decay;
        } else {
            g += given.weight_decay * x;
        }
        let m = old_m + (g - old_m) * given.one_minus_beta1;
        let v = old_v * given.beta2 + given.one_minus_beta2 * g * g;
        let largest = largest_square(at.w, v, inside);
        let denominator = sqrt(largest) / correction2 + given.eps;
        new_exp_avg[at.z] = select(old_m, m, inside);
        new_exp_avg_sq[at.w] = select(old_v, v, inside);
        new_param[at.x] = select(old, x - (given.lr / correction1) * (m / denominator), inside);
    }
}
