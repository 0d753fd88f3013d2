// Moves the scale of a gradient scaler on, with one invocation. state holds the scale and how many steps it has lasted.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let given = p;
    if flat_group(group, groups) * WG + lane != 0u {
        return;
    }
    let scale = state[given.state];
    if load_found(given.found) != 0.0 {
        state[given.state] = scale * given.backoff;
        state[given.state + 1u] = 0.0;
        return;
    }
    let lasted = state[given.state + 1u] + 1.0;
    let grows = lasted >= f32(given.interval);
    let grown = scale * given.growth;
    // 3.4028234e38 is the largest f32: an infinite scale would never come back.
    state[given.state] = select(scale, grown, grows && grown <= 3.4028234e38);
    state[given.state + 1u] = select(lasted, 0.0, grows);
}
