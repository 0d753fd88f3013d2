// One step of an optimizer on many parameters, four elements at a time. A workgroup does one chunk of one parameter, which it finds
// in a table: there are fewer dispatches than parameters, since blocks that lie in one buffer can be bound together. Rules say what
// becomes of the four elements at `i` of a row; those past the end of a parameter stay as they are.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rows = p.rows;
    let rounds = p.rounds;
    let table = p.table;
    let top = load_control(p.head);
    let chunk = flat_group(group, groups);
    if chunk >= p.chunks || top.y != 0u {
        return;
    }
    // The last row whose first chunk is not behind this one.
    var low = 0u;
    var count = rows;
    while count > 1u {
        let half = count / 2u;
        if word_control((table + 2u * (low + half)) * 4u) <= chunk {
            low += half;
            count -= half;
        } else {
            count = half;
        }
    }
    let head = load_control(table + 2u * low);
    let places = load_control(table + 2u * low + 1u);
    let number = head.z & 0xffffffu;
    let group_settings = p.groups[head.z >> 24u];
    let step = bitcast<f32>(word_control(p.steps + number)) + 1.0;
    let product = bitcast<f32>(word_control(p.products + number));
    let row = Row(group_settings.x, group_settings.y, step, places.yzw, prepare(group_settings.x, step, product));
    let grad_scale = bitcast<f32>(top.x);
    let first = (chunk - head.x) * WG * rounds + lane;
    for (var round = 0u; round < rounds; round++) {
        let i = first + round * WG;
        if i * 4u >= head.y {
            break;
        }
        let inside = vec4<u32>(0u, 1u, 2u, 3u) + i * 4u < vec4<u32>(head.y);
        let x = load_param(head.w + i);
        let g = load_grad(places.x + i) * grad_scale;
        store_param(head.w + i, select(x, update(x, g, row, i), inside));
    }
}

// A parameter: its learning rate, weight decay, steps counting this one, the places of its state, and what its rule prepared.
struct Row {
    lr: f32,
    weight_decay: f32,
    step: f32,
    state: vec3<u32>,
    prepared: vec4<f32>,
}
