//! Counters, with PyTorch's names and meaning.

use std::collections::BTreeMap;

use super::policy::Category;
use crate::ids::MemPoolId;

/// One counter: now, the most so far, and the sums of all that went up and down.
///
/// Sums wrap at 2^64, so the difference of two readings stays right (PyTorch's are signed and wrap at 2^63).
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

/// What is counted for all memory, and apart for large and for small requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Live blocks.
    pub allocation: Stat,
    /// Bytes of live blocks (rounded sizes).
    pub allocated_bytes: Stat,
    /// Live blocks, and those given back whose use must complete first (policy `pytorch` only).
    pub active: Stat,
    /// Bytes of these.
    pub active_bytes: Stat,
    /// Bytes that callers asked for, of active blocks.
    pub requested_bytes: Stat,
    /// Segments, retiring ones included.
    pub segment: Stat,
    /// Bytes bought from the driver and not yet given back, retiring segments included.
    pub reserved_bytes: Stat,
    /// Free blocks beside live ones: giving back idle segments does not free them.
    pub inactive_split: Stat,
    /// Bytes of these.
    pub inactive_split_bytes: Stat,
}

impl PoolStats {
    /// All nine by PyTorch's names, in the order of the fields.
    pub fn named(&self) -> [(&'static str, Stat); 9] {
        [
            ("allocation", self.allocation),
            ("allocated_bytes", self.allocated_bytes),
            ("active", self.active),
            ("active_bytes", self.active_bytes),
            ("requested_bytes", self.requested_bytes),
            ("segment", self.segment),
            ("reserved_bytes", self.reserved_bytes),
            ("inactive_split", self.inactive_split),
            ("inactive_split_bytes", self.inactive_split_bytes),
        ]
    }
}

/// Bytes of the segments of one private pool. When it is dropped nothing is its own any more; peak and sums stay until they
/// are reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivateStats {
    /// Whose.
    pub pool: MemPoolId,
    /// All of its segments.
    pub all: Stat,
    /// Those for large requests.
    pub large_pool: Stat,
    /// Those for small requests.
    pub small_pool: Stat,
}

/// Counters of the pool, in bytes or counts. It dereferences to [`Stats::all`].
///
/// Live blocks are sorted into large and small by the bytes asked for; segments, and what is unused in them, by the
/// segment's size (policy `pytorch`: by its pool). The border is [`SMALL_SIZE`](super::pytorch::SMALL_SIZE).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// All memory.
    pub all: PoolStats,
    /// Of large requests.
    pub large_pool: PoolStats,
    /// Of small requests.
    pub small_pool: PoolStats,
    /// Live blocks of at least `max_split_size`.
    pub oversize_allocations: Stat,
    /// Segments of at least that.
    pub oversize_segments: Stat,
    /// Private pools that have, or had, memory of their own.
    pub private_pools: Vec<PrivateStats>,
    /// Blocks of at least so many bytes are not split; `u64::MAX` for no such rule.
    pub max_split_size: u64,
    /// Segments bought so far.
    pub num_device_alloc: u64,
    /// Segments given back so far; counted when the memory is really free.
    pub num_device_free: u64,
    /// Requests that ended in [`Answer::Exhausted`](super::Answer::Exhausted), whatever stood in the way.
    pub num_ooms: u64,
    /// Those of them that failed without a word from the driver: it had refused none of what was bought for them.
    pub num_oom_rejections: u64,
    /// Requests for which, at the limit or after a refusal of the driver, all that was idle was given back to try again:
    /// once for each, whether it failed in the end or not.
    pub num_alloc_retries: u64,
    /// Times everything had to complete: for requests (several times where moves empty segments), and for emptied caches.
    pub num_sync_all_streams: u64,
    /// Edges to other streams' commands that came with lent blocks.
    pub order_edges: u64,
    /// Live blocks moved.
    pub moves: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Times that moves were looked for because a request could not be served otherwise, found or not.
    pub move_plans: u64,
    /// Most bytes asked for at one time in each [`Category`], in the order of [`Category::ALL`]; each at a moment of its own.
    pub peak_requested: [u64; Category::ALL.len()],
    /// The categories at the moment of the peak of allocated bytes.
    pub at_peak_allocated: Breakdown,
    /// The categories at the peak of reserved bytes: while that lasted, at the moment when most was allocated.
    pub at_peak_reserved: Breakdown,
}
impl std::ops::Deref for Stats {
    type Target = PoolStats;
    fn deref(&self) -> &PoolStats {
        &self.all
    }
}

impl Stats {
    /// Most bytes asked for at one time in this category.
    pub fn peak_of(&self, category: Category) -> u64 {
        self.peak_requested[category as usize]
    }

    /// PyTorch's `memory_stats()`: every counter by its name, sorted. A private pool's are `reserved_bytes_by_private_pools`
    /// with its two numbers, `0_1` for the first.
    /// `order_edges`, `moves`, `moved_bytes` and `move_plans` are ours.
    ///
    /// Numbers are signed because PyTorch's `max_split_size` is -1 where there is none.
    pub fn flat(&self) -> BTreeMap<String, i64> {
        let mut flat = BTreeMap::new();
        let mut put = |name: String, stat: Stat| {
            for (kind, value) in
                [("current", stat.current), ("peak", stat.peak), ("allocated", stat.allocated), ("freed", stat.freed)]
            {
                flat.insert(format!("{name}.{kind}"), value as i64);
            }
        };
        for (pool, stats) in [("all", &self.all), ("large_pool", &self.large_pool), ("small_pool", &self.small_pool)] {
            stats.named().into_iter().for_each(|(metric, stat)| put(format!("{metric}.{pool}"), stat));
        }
        for stats in &self.private_pools {
            for (pool, stat) in [("all", stats.all), ("large_pool", stats.large_pool), ("small_pool", stats.small_pool)] {
                put(format!("reserved_bytes_by_private_pools.0_{}.{pool}", stats.pool.0), stat);
            }
        }
        put("oversize_allocations".into(), self.oversize_allocations);
        put("oversize_segments".into(), self.oversize_segments);
        let scalars = [
            ("max_split_size", self.max_split_size),
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("order_edges", self.order_edges),
            ("moves", self.moves),
            ("moved_bytes", self.moved_bytes),
            ("move_plans", self.move_plans),
        ];
        flat.extend(scalars.map(|(name, value)| (name.to_owned(), value as i64)));
        flat
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

    /// Bytes of live blocks.
    pub fn allocated(&self) -> u64 {
        self.requested.iter().sum::<u64>() + self.rounding
    }

    /// Bytes reserved.
    pub fn sum(&self) -> u64 {
        self.allocated() + self.cached + self.retiring
    }
}
