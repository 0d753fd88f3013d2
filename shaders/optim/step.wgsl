// Counts a step: state = [steps, bits of 1 - beta1^steps, bits of sqrt(1 - beta2^steps)].
// 1 - beta^n is -expm1(n ln beta), which keeps its digits where beta^n is close to 1.

@compute @workgroup_size(1)
fn main() {
    let steps = state[0] + 1u;
    state[0] = steps;
    state[1] = bitcast<u32>(-f_expm1(f32(steps) * p.log_beta1));
    state[2] = bitcast<u32>(sqrt(-f_expm1(f32(steps) * p.log_beta2)));
}
