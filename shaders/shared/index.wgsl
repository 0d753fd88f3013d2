// Position of a workgroup in a dispatch that kernel::grid folded into up to three dimensions.
fn flat_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + groups.x * (group.y + groups.y * group.z);
}
