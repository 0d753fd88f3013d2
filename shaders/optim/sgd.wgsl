// One step of SGD over four elements per item, PyTorch's order: g = grad scale + weight_decay x; with MOMENTUM
// b = momentum b + (1 - dampening) g (b = g at the first step), g = g + momentum b (Nesterov) or b; x = x - lr g.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = flat_group(group, groups) * WG * p.rounds + lane;
    let grad_scale = load_scale(p.scale_offset);
    for (var round = 0u; round < p.rounds; round++) {
        let i = first + round * WG;
        if i * 4u >= p.len {
            break;
        }
        let inside = vec4<u32>(0u, 1u, 2u, 3u) + i * 4u < vec4<u32>(p.len);
        let at = p.offsets + i;
        let old = param[at.x];
        let g = load_grad(at.y) * grad_scale + p.weight_decay * old;
        param[at.x] = select(old, old - p.lr * direction(at.z, g, inside), inside);
    }
}
