//! Workgroup arithmetic: how many workgroups a kernel needs, and how they fold into three dimensions. Pure.

/// Workgroups for `jobs` invocations in workgroups of `size`.
pub fn groups(jobs: u64, size: u32) -> u64 {
    jobs.div_ceil(u64::from(size.max(1)))
}

/// Folds `groups` workgroups into a dispatch with at most `limit` per dimension (65,535 on every device).
///
/// At least `groups` are dispatched, and fewer than one row more: a body finds its place with `flat_group` and leaves
/// when it is past the end. `None` where even three dimensions are too few.
pub fn fold(groups: u64, limit: u32) -> Option<[u32; 3]> {
    let limit = u64::from(limit.max(1));
    if groups <= limit {
        // Nearly always; divisions are what an enqueueing thread would notice.
        return Some([groups as u32, 1, 1]);
    }
    let z = groups.div_ceil(limit.saturating_mul(limit)).max(1);
    let y = groups.div_ceil(z).div_ceil(limit).max(1);
    let x = groups.div_ceil(z).div_ceil(y);
    let fits = |n: u64| u32::try_from(n).ok().filter(|_| n <= limit);
    Some([fits(x)?, fits(y)?, fits(z)?])
}

/// How large a dispatch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Workgroups.
    pub grid: [u32; 3],
    /// How much work that is, from which the submit policy guesses how long it takes once it has measured some: a unit is a
    /// workgroup, 1,024 elements of the operands, or 64 steps of a long sum in a workgroup, whatever gives more.
    pub amount: u64,
}

impl From<[u32; 3]> for Work {
    fn from(grid: [u32; 3]) -> Work {
        Work { grid, amount: grid.iter().map(|n| u64::from(*n)).product() }
    }
}

impl Work {
    /// Every workgroup takes so many steps.
    pub fn with_steps(self, steps: usize) -> Work {
        Work { amount: self.amount * steps.div_ceil(64).max(1) as u64, ..self }
    }

    /// The operands have so many elements in all.
    pub fn with_elements(self, elements: usize) -> Work {
        Work { amount: self.amount.max(elements as u64 / 1024), ..self }
    }
}

/// `vec4`s per invocation for a contiguous element-wise kernel over `len` elements.
///
/// A workgroup costs about 270 ns on a CPU driver whatever it does, so there one should do thousands of elements; but
/// all cores want work, and a GPU wants many workgroups before it wants long ones.
pub fn rounds(len: usize, workgroup_size: u32, cpu: bool) -> u32 {
    let items = (len as u64).div_ceil(4).div_ceil(u64::from(workgroup_size.max(1)));
    let (wanted_groups, most) = if cpu { (32, 64) } else { (4096, 8) };
    (items / wanted_groups).clamp(1, most) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fold_covers_all_groups_with_less_than_a_row_to_spare() {
        for limit in [1u32, 2, 7, 65_535] {
            for groups in [0u64, 1, 2, 6, 7, 8, 48, 49, 50, 343, 65_535, 65_536, 131_071, 4_294_836_225, 4_294_836_226, 1 << 40] {
                let most = u64::from(limit).pow(3);
                match fold(groups, limit) {
                    Some([x, y, z]) => {
                        let (x, y, z) = (u64::from(x), u64::from(y), u64::from(z));
                        assert!(x <= limit.into() && y <= limit.into() && z <= limit.into());
                        assert!(x * y * z >= groups, "{groups} in {limit}: {x} {y} {z}");
                        assert!(x * y * z < groups + (y + x) * z + 1, "{groups} in {limit}: {x} {y} {z}");
                    }
                    None => assert!(groups > most, "{groups} fit in {limit}^3"),
                }
            }
        }
    }

    #[test]
    fn work_is_counted_by_what_there_is_most_of() {
        let work = Work::from([4, 3, 2]);
        assert_eq!((work.amount, work.with_steps(1).amount, work.with_steps(640).amount), (24, 24, 240));
        assert_eq!((work.with_elements(1000).amount, work.with_elements(1 << 20).amount), (24, 1024));
    }

    #[test]
    fn rounds_stay_in_bounds() {
        assert_eq!(rounds(0, 64, true), 1);
        assert_eq!(rounds(1024, 64, true), 1);
        assert_eq!(rounds(1 << 28, 64, true), 64);
        assert_eq!(rounds(1 << 28, 64, false), 8);
    }
}
