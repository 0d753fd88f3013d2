//! Counters, with PyTorch's names and meaning.

use super::policy::Category;

/// One counter: now, the most so far, and the sums of all that went up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The value now.
    pub current: u64,
    /// The largest value since the start or the last [`reset_peak_stats`](super::Pool::reset_peak_stats).
    pub peak: u64,
    /// The sum of all increases since the start or the last reset of accumulated values.
    pub allocated: u64,
    /// The sum of all decreases, likewise.
    pub freed: u64,
}

impl Stat {
    #[inline]
    pub(super) fn add(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    #[inline]
    pub(super) fn sub(&mut self, amount: u64) {
        self.current -= amount;
        self.freed += amount;
    }
}

/// Counters of the pool, in bytes or counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of live blocks (rounded sizes).
    pub allocated_bytes: Stat,
    /// Bytes bought from the driver and not yet given back, retiring segments included.
    pub reserved_bytes: Stat,
    /// Bytes that callers asked for and hold.
    pub requested_bytes: Stat,
    /// Live blocks.
    pub allocation: Stat,
    /// Segments, retiring ones included.
    pub segment: Stat,
    /// Segments bought so far.
    pub num_device_alloc: u64,
    /// Segments given back so far; counted when the memory is really free.
    pub num_device_free: u64,
    /// Requests that ended in [`Answer::Exhausted`](super::Answer::Exhausted).
    pub num_ooms: u64,
    /// Times the last resort was needed.
    pub num_alloc_retries: u64,
    /// Edges to other streams' commands that came with lent blocks.
    pub order_edges: u64,
    /// Live blocks moved.
    pub moves: u64,
    /// Their bytes.
    pub moved_bytes: u64,
}

impl Stats {
    pub(super) fn stats_mut(&mut self) -> [&mut Stat; 5] {
        [&mut self.allocated_bytes, &mut self.reserved_bytes, &mut self.requested_bytes, &mut self.allocation, &mut self.segment]
    }

    /// PyTorch's `memory_stats()` as a flat list, for the counters that exist here, in PyTorch's (sorted) order.
    /// linn's own counters `order_edges`, `moves` and `moved_bytes` stand at the end.
    pub fn flat(&self) -> Vec<(&'static str, u64)> {
        macro_rules! stat {
            ($name:literal, $stat:expr) => {
                [
                    (concat!($name, ".all.allocated"), $stat.allocated),
                    (concat!($name, ".all.current"), $stat.current),
                    (concat!($name, ".all.freed"), $stat.freed),
                    (concat!($name, ".all.peak"), $stat.peak),
                ]
            };
        }
        let mut list = Vec::with_capacity(27);
        list.extend(stat!("allocated_bytes", self.allocated_bytes));
        list.extend(stat!("allocation", self.allocation));
        list.extend([
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_ooms", self.num_ooms),
        ]);
        list.extend(stat!("requested_bytes", self.requested_bytes));
        list.extend(stat!("reserved_bytes", self.reserved_bytes));
        list.extend(stat!("segment", self.segment));
        list.extend([("order_edges", self.order_edges), ("moves", self.moves), ("moved_bytes", self.moved_bytes)]);
        list
    }
}

/// Where the reserved bytes are at one moment. The parts never overlap and their sum is `reserved`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Bytes asked for by live blocks, per [`Category`] in the order of [`Category::ALL`].
    pub requested: [u64; Category::ALL.len()],
    /// Bytes of live blocks beyond what was asked for.
    pub rounding: u64,
    /// Bytes of free blocks that can be lent.
    pub cached: u64,
    /// Bytes of segments on their way back to the driver.
    pub retiring: u64,
}

impl Breakdown {
    /// Bytes asked for in this category.
    pub fn of(&self, category: Category) -> u64 {
        self.requested[category as usize]
    }

    /// Every part with its name: the categories, then rounding, cached, retiring.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let requested = Category::ALL.into_iter().map(|category| (category.name(), self.of(category)));
        requested.chain([("rounding", self.rounding), ("cached", self.cached), ("retiring", self.retiring)])
    }

    /// Bytes reserved.
    pub fn sum(&self) -> u64 {
        self.parts().map(|(_, bytes)| bytes).sum()
    }
}
