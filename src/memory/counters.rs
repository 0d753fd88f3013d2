//! The counters as they are kept: few additions for each block that comes or goes. Read as [`Stats`]. Sums wrap at 2^64.

use super::policy::Category;
use super::stats::{Breakdown, PoolStats, PrivateStats, Stat, Stats};
use crate::ids::MemPoolId;

/// What is counted for one class of sizes. What went down follows from the rest.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    current: u64,
    peak: u64,
    allocated: u64,
    /// The value when sums were last reset: it went neither up nor down since.
    base: u64,
}

/// One metric: its value and peak over all sizes, and apart for large and small ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    pub current: u64,
    pub peak: u64,
    /// Large, small.
    parts: [Part; 2],
}

impl Meter {
    #[inline]
    pub(super) fn add(&mut self, small: bool, amount: u64) {
        let part = &mut self.parts[usize::from(small)];
        part.current += amount;
        part.allocated = part.allocated.wrapping_add(amount);
        self.current += amount;
        // Branches: peaks are seldom passed, and stores cost.
        if part.current > part.peak {
            part.peak = part.current;
        }
        if self.current > self.peak {
            self.peak = self.current;
        }
    }

    #[inline]
    pub(super) fn sub(&mut self, small: bool, amount: u64) {
        self.parts[usize::from(small)].current -= amount;
        self.current -= amount;
    }

    fn stat(&self, class: Class) -> Stat {
        let part = |at: usize| {
            let Part { current, peak, allocated, base } = self.parts[at];
            Stat { current, peak, allocated, freed: base.wrapping_add(allocated).wrapping_sub(current) }
        };
        match class {
            Class::Large => part(0),
            Class::Small => part(1),
            Class::All => Stat {
                current: self.current,
                peak: self.peak,
                allocated: part(0).allocated.wrapping_add(part(1).allocated),
                freed: part(0).freed.wrapping_add(part(1).freed),
            },
        }
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
        self.parts.iter_mut().for_each(|part| part.peak = part.current);
    }

    fn reset_sums(&mut self) {
        self.parts.iter_mut().for_each(|part| (part.allocated, part.base) = (0, part.current));
    }
}

/// Which sizes.
#[derive(Clone, Copy)]
enum Class {
    Large,
    Small,
    All,
}

/// Active = live + waiting. It is counted as the excess over a meter of live blocks, because in policy `linn` nothing waits:
/// its peaks can pass those of the live blocks only while something does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    /// Large, small.
    current: [u64; 2],
    /// The largest sums seen while something waited: large, small, all.
    peaks: [u64; 3],
    /// What waited when sums were last reset.
    base: [u64; 2],
}

impl Waiting {
    fn of(values: [u64; 2], class: Class) -> u64 {
        match class {
            Class::Large | Class::Small => values[class as usize],
            Class::All => values[0] + values[1],
        }
    }

    /// What waits, of all sizes.
    pub(super) fn sum(&self) -> u64 {
        Waiting::of(self.current, Class::All)
    }

    fn lift(&mut self, live: &Meter) {
        for class in [Class::Large, Class::Small, Class::All] {
            let sum = live.stat(class).current + Waiting::of(self.current, class);
            let peak = &mut self.peaks[class as usize];
            *peak = sum.max(*peak);
        }
    }

    fn active(&self, live: &Meter, class: Class) -> Stat {
        let Stat { current, peak, allocated, freed } = live.stat(class);
        let waiting = Waiting::of(self.current, class);
        let peak = peak.max(self.peaks[class as usize]);
        Stat {
            current: current + waiting,
            peak,
            allocated,
            freed: freed.wrapping_add(Waiting::of(self.base, class)).wrapping_sub(waiting),
        }
    }

    fn reset_peak(&mut self, live: &Meter) {
        self.peaks = [0; 3];
        self.lift(live);
    }

    fn reset_sums(&mut self) {
        self.base = self.current;
    }
}

/// Values from before the last resets. What the pool decides must not depend on when somebody resets counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    allocated_peak: u64,
    reserved_peak: u64,
    allocated: u64,
    moved: u64,
}

/// All counters of a pool. The fields are those of [`PoolStats`] and [`Stats`].
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub before: Before,
    pub allocation: Meter,
    pub allocated_bytes: Meter,
    pub waiting: Waiting,
    pub waiting_bytes: Waiting,
    pub requested_bytes: Meter,
    pub segment: Meter,
    pub reserved_bytes: Meter,
    pub inactive_split: Meter,
    pub inactive_split_bytes: Meter,
    pub oversize_allocations: Meter,
    pub oversize_segments: Meter,
    /// Bytes of the segments of private pools, from number 1 on.
    pub private: Vec<Meter>,
    pub max_split_size: u64,
    pub num_device_alloc: u64,
    pub num_device_free: u64,
    pub num_ooms: u64,
    pub num_oom_rejections: u64,
    pub num_alloc_retries: u64,
    pub num_sync_all_streams: u64,
    pub order_edges: u64,
    pub moves: u64,
    pub moved_bytes: u64,
    pub move_plans: u64,
    pub peak_requested: [u64; Category::ALL.len()],
    pub at_peak_allocated: Breakdown,
    pub at_peak_reserved: Breakdown,
    /// What was allocated at the moment of `at_peak_reserved`.
    pub most_at_peak: u64,
}

impl Counters {
    fn meters(&mut self) -> impl Iterator<Item = &mut Meter> {
        let meters = [
            &mut self.allocation,
            &mut self.allocated_bytes,
            &mut self.requested_bytes,
            &mut self.segment,
            &mut self.reserved_bytes,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
            &mut self.oversize_allocations,
            &mut self.oversize_segments,
        ];
        meters.into_iter().chain(&mut self.private)
    }

    /// What a private pool's segments are counted with; everybody's are not.
    pub(super) fn private_meter(&mut self, pool: MemPoolId) -> Option<&mut Meter> {
        let at = (pool.0 as usize).checked_sub(1)?;
        if at >= self.private.len() {
            self.private.resize(at + 1, Meter::default());
        }
        self.private.get_mut(at)
    }

    /// Bytes of a private pool's segments.
    pub(super) fn private_bytes(&self, pool: MemPoolId) -> u64 {
        let at = (pool.0 as usize).checked_sub(1);
        at.and_then(|at| self.private.get(at)).map_or(0, |meter| meter.current)
    }

    fn private_stats(&self) -> Vec<PrivateStats> {
        let numbered = (1..).map(MemPoolId).zip(&self.private);
        let all = numbered.map(|(pool, meter)| PrivateStats {
            pool,
            all: meter.stat(Class::All),
            large_pool: meter.stat(Class::Large),
            small_pool: meter.stat(Class::Small),
        });
        all.filter(|stats| stats.all != Stat::default()).collect()
    }

    /// Most bytes ever allocated at one time, whatever was reset.
    pub(super) fn most_allocated(&self) -> u64 {
        self.before.allocated_peak.max(self.allocated_bytes.peak)
    }

    /// Most bytes ever reserved at one time.
    pub(super) fn most_reserved(&self) -> u64 {
        self.before.reserved_peak.max(self.reserved_bytes.peak)
    }

    /// Bytes of all blocks ever lent.
    pub(super) fn ever_allocated(&self) -> u64 {
        self.before.allocated.saturating_add(self.allocated_bytes.stat(Class::All).allocated)
    }

    /// Bytes of all moves ever made.
    pub(super) fn ever_moved(&self) -> u64 {
        self.before.moved.saturating_add(self.moved_bytes)
    }

    pub(super) fn reset_peaks(&mut self, now: Breakdown) {
        (self.before.allocated_peak, self.before.reserved_peak) = (self.most_allocated(), self.most_reserved());
        self.meters().for_each(Meter::reset_peak);
        self.waiting.reset_peak(&self.allocation);
        self.waiting_bytes.reset_peak(&self.allocated_bytes);
        self.peak_requested = now.requested;
        (self.at_peak_allocated, self.at_peak_reserved, self.most_at_peak) = (now, now, now.allocated());
    }

    pub(super) fn reset_sums(&mut self) {
        (self.before.allocated, self.before.moved) = (self.ever_allocated(), self.ever_moved());
        self.meters().for_each(Meter::reset_sums);
        self.waiting.reset_sums();
        self.waiting_bytes.reset_sums();
        (self.num_device_alloc, self.num_device_free) = (0, 0);
        (self.num_ooms, self.num_oom_rejections, self.num_alloc_retries) = (0, 0, 0);
        (self.num_sync_all_streams, self.order_edges) = (0, 0);
        (self.moves, self.moved_bytes, self.move_plans) = (0, 0, 0);
    }

    /// A block waits, or no longer does.
    pub(super) fn wait(&mut self, small: bool, size: u64, waits: bool) {
        let parts = [(&mut self.waiting, 1), (&mut self.waiting_bytes, size)];
        for (waiting, amount) in parts {
            let current = &mut waiting.current[usize::from(small)];
            *current = if waits { *current + amount } else { *current - amount };
        }
        self.lift_active();
    }

    /// To be called whenever blocks are lent while others wait.
    pub(super) fn lift_active(&mut self) {
        self.waiting.lift(&self.allocation);
        self.waiting_bytes.lift(&self.allocated_bytes);
    }

    fn pool(&self, class: Class) -> PoolStats {
        let of = |meter: &Meter| meter.stat(class);
        PoolStats {
            allocation: of(&self.allocation),
            allocated_bytes: of(&self.allocated_bytes),
            active: self.waiting.active(&self.allocation, class),
            active_bytes: self.waiting_bytes.active(&self.allocated_bytes, class),
            requested_bytes: of(&self.requested_bytes),
            segment: of(&self.segment),
            reserved_bytes: of(&self.reserved_bytes),
            inactive_split: of(&self.inactive_split),
            inactive_split_bytes: of(&self.inactive_split_bytes),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            all: self.pool(Class::All),
            large_pool: self.pool(Class::Large),
            small_pool: self.pool(Class::Small),
            oversize_allocations: self.oversize_allocations.stat(Class::All),
            oversize_segments: self.oversize_segments.stat(Class::All),
            private_pools: self.private_stats(),
            max_split_size: self.max_split_size,
            num_device_alloc: self.num_device_alloc,
            num_device_free: self.num_device_free,
            num_ooms: self.num_ooms,
            num_oom_rejections: self.num_oom_rejections,
            num_alloc_retries: self.num_alloc_retries,
            num_sync_all_streams: self.num_sync_all_streams,
            order_edges: self.order_edges,
            moves: self.moves,
            moved_bytes: self.moved_bytes,
            move_plans: self.move_plans,
            peak_requested: self.peak_requested,
            at_peak_allocated: self.at_peak_allocated,
            at_peak_reserved: self.at_peak_reserved,
        }
    }
}
