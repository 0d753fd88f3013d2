//! Random numbers from a seed, and leaving out what a failure does not need.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, n: u64) -> usize {
        (self.next() % n) as usize
    }
}

/// Leaves out steps, many at a time at first, as long as the rest still fails.
pub fn shrink<T: Clone>(mut steps: Vec<T>, fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut chunk = steps.len();
    while chunk > 0 {
        let mut start = 0;
        while start < steps.len() {
            let mut less = steps.clone();
            less.drain(start..(start + chunk).min(steps.len()));
            if fails(&less) {
                steps = less;
            } else {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    steps
}
