// Per row: lse = log sum exp of the logits, from the parts of cross_entropy_partial, and loss = lse - logit of the target.

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups) * WG + lane;
    if row >= p.rows {
        return;
    }
    let start = row * p.splits;
    var top = load_maxima(start);
    for (var i = 1u; i < p.splits; i++) {
        top = f_maximum(top, load_maxima(start + i));
    }
    var total = 0.0;
    for (var i = 0u; i < p.splits; i++) {
        total += load_sums(start + i) * f_exp(load_maxima(start + i) - top);
    }
    let log_total = f_log(total);
    let target_at = checked(load_targets(p.targets_offset + row), p.n, row);
    lse[row] = top + log_total;
    // Not lse - logit: where logits are large, their difference to the maximum keeps more digits.
    out[row] = log_total + (top - load_a(p.a_offset + row * p.n + target_at));
}
