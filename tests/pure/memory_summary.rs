//! The tables that people read, letter by letter.

use linn::memory::{Breakdown, Category, PoolStats, Stat, Stats};
use linn::profile::summary::{HostMemory, category_summary, memory_summary};

const MIB: u64 = 1 << 20;

/// Numbers that meet every unit: 12 GiB reserved, a million allocations, 700 KiB in small blocks.
fn stats() -> Stats {
    let stat = |current, peak, allocated| Stat { current, peak, allocated, freed: allocated - current };
    let of = |scale: u64, count: u64| PoolStats {
        allocation: stat(count, 2 * count, 3000 * count),
        allocated_bytes: stat(scale, 2 * scale, 100 * scale),
        active: stat(count, 2 * count, 3000 * count),
        active_bytes: stat(scale, 2 * scale, 100 * scale),
        requested_bytes: stat(scale - 1, 2 * scale - 2, 100 * scale - 9),
        segment: stat(count / 10, count / 10, count / 10),
        reserved_bytes: stat(2 * scale, 2 * scale, 2 * scale),
        inactive_split: stat(1, 9, 12),
        inactive_split_bytes: stat(512, scale, scale + 512),
    };
    Stats {
        all: of(6 << 30, 1010),
        large_pool: of((6 << 30) - 700 * 1024, 10),
        small_pool: of(700 * 1024, 1000),
        oversize_allocations: stat(1, 2, 750_000),
        num_ooms: 3,
        num_alloc_retries: 4,
        at_peak_allocated: breakdown(2),
        at_peak_reserved: breakdown(3),
        ..Stats::default()
    }
}

fn breakdown(scale: u64) -> Breakdown {
    let mut breakdown = Breakdown { rounding: 100 * scale, cached: scale * MIB, ..Breakdown::default() };
    breakdown.requested[Category::Parameter as usize] = 12 * MIB;
    breakdown.requested[Category::Activation as usize] = (scale - 1) * 3 * MIB / 2;
    breakdown
}

#[test]
fn the_table_of_pytorch() {
    assert_eq!(memory_summary(&stats(), 0, false), include_str!("../support/golden/memory_summary.txt"));
}

#[test]
fn abbreviated_it_has_the_total_rows_alone() {
    let short = memory_summary(&stats(), 0, true);
    let full = memory_summary(&stats(), 0, false);
    let expected: Vec<&str> = full.lines().filter(|line| !line.contains("from ")).collect();
    assert_eq!(short.lines().collect::<Vec<_>>(), expected);
    assert!(full.lines().all(|line| line.len() == 77 && line.starts_with('|') && line.ends_with('|')));
}

#[test]
fn the_table_of_categories() {
    let expected = "\
category                   now     at peak allocated      at peak reserved
parameter             12.0 MiB              12.0 MiB              12.0 MiB
activation                 0 B               1.5 MiB               3.0 MiB
rounding                 100 B                 200 B                 300 B
cached                 1.0 MiB               2.0 MiB               3.0 MiB
= reserved            13.0 MiB              15.5 MiB              18.0 MiB
staging                1.5 MiB  (host memory, not part of reserved)
pinned                 3.0 MiB  (host memory, not part of reserved; 2.0 MiB held, 1.0 MiB cached)
";
    let mut host = HostMemory { staging: 3 << 19, pinned_held: 2 * MIB, pinned_cached: MIB };
    assert_eq!(category_summary(&stats(), &breakdown(1), host), expected);
    host = HostMemory::default();
    let (pool, _) = expected.split_at(expected.find("staging").unwrap());
    assert_eq!(category_summary(&stats(), &breakdown(1), host), pool);
}
