// From the sums of squares of all gradients: out = [total norm, min(1, max_norm / (norm + 1e-6))]. At most 32,768 parts.

@compute @workgroup_size(1)
fn main() {
    var total = 0.0;
    for (var i = 0u; i < p.count; i++) {
        total += load_a(p.a_offset + i);
    }
    let norm = sqrt(total);
    out[0] = norm;
    let coefficient = p.max_norm / (norm + 1e-6);
    out[1] = select(coefficient, 1.0, coefficient > 1.0);
}
