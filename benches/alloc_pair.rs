//! Nanoseconds for one alloc + free pair of a cached block in the pure core, with 10 and with 100,000 live blocks.
//!
//! `cargo bench --no-default-features --bench alloc_pair`. The clock is the CPU time of this thread, so a busy machine
//! disturbs it less. Nothing is bought while it runs; the pool is checked before and after. The machine's memcpy speed is
//! printed beside the figures: a busy or small machine shows in both.

use cpu_time::ThreadTime;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use linn::ids::{BlockId, Fence, FenceSet, Horizons, StreamId};
use linn::memory::{Answer, Category, Config, Pool, Request, Tag};

const MAIN: StreamId = StreamId(0);

/// A host that runs far ahead: nothing it enqueues is submitted while we measure.
struct Ahead;

impl Horizons for Ahead {
    fn enqueued(&self, _: StreamId) -> u64 {
        u64::MAX
    }
    fn submitted(&self, _: StreamId) -> u64 {
        0
    }
    fn completed(&self, _: StreamId) -> u64 {
        0
    }
}

/// Reproducible sizes from 256 B to 112 KiB, four to the octave.
fn sizes(count: usize) -> Vec<u64> {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (256u64 << (state % 9)) * (4 + (state >> 32) % 4) / 4
    };
    (0..count).map(next).collect()
}

fn alloc(pool: &mut Pool, bytes: u64, tag: Tag) -> BlockId {
    let mut request = Request::new(MAIN, bytes, tag);
    loop {
        match pool.alloc(&mut request, &Ahead) {
            Answer::Ready { block, .. } => return block,
            Answer::NeedSegment(segment) => {
                pool.handle_segment(segment);
            }
            other => panic!("there is no limit, yet {other:?}"),
        }
    }
}

struct State {
    pool: Pool,
    sizes: Vec<u64>,
    tag: Tag,
    number: u64,
}

impl State {
    /// `live` blocks of mixed sizes with as many holes between them.
    fn new(live: usize) -> State {
        let tag = Tag::here(Category::Temporary, "bench");
        let mut pool = Pool::new(Config { max_segment: 1 << 32, ..Config::default() });
        let all = sizes(2 * live);
        let blocks: Vec<BlockId> = all.iter().map(|bytes| alloc(&mut pool, *bytes, tag)).collect();
        for block in blocks.iter().step_by(2) {
            pool.free(*block, FenceSet::new(), &Ahead);
        }
        let sizes = all.into_iter().step_by(2).collect();
        State { pool, sizes, tag, number: 0 }
    }

    /// A block of the `at`-th hole's size is lent and given back with a use.
    fn pair(&mut self, at: usize) {
        let block = alloc(&mut self.pool, self.sizes[at % self.sizes.len()], self.tag);
        self.number += 1;
        let uses = FenceSet::from_iter([Fence { stream: MAIN, number: self.number }]);
        self.pool.free(block, uses, &Ahead);
    }
}

/// Bytes per nanosecond (GB/s) of a copy of 64 MiB, the best of nine: the machine beside the figures.
fn memcpy_speed() -> f64 {
    let source = vec![1u8; 64 << 20];
    let mut target = vec![0u8; source.len()];
    let copy = |_| {
        let start = std::time::Instant::now();
        target.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&mut target);
        start.elapsed().as_nanos()
    };
    let best = (0..9).map(copy).min().unwrap_or(1);
    source.len() as f64 / best.max(1) as f64
}

fn alloc_pair(criterion: &mut Criterion) {
    println!("memcpy of 64 MiB: {:.1} GB/s", memcpy_speed());
    let mut group = criterion.benchmark_group("alloc_pair");
    for live in [10, 100_000] {
        let mut state = State::new(live);
        (0..10_000).for_each(|at| state.pair(at));
        let before = state.pool.stats().clone();
        state.pool.validate().expect("the pool is sound before the clock starts");
        assert_eq!(before.allocation.current, live as u64);
        let mut at = 0;
        group.bench_function(BenchmarkId::new("live", live), |bencher| {
            bencher.iter_custom(|pairs| {
                let start = ThreadTime::now();
                for _ in 0..pairs {
                    at += 1;
                    state.pair(at);
                }
                start.elapsed()
            });
        });
        let after = state.pool.stats();
        assert_eq!(after.num_device_alloc, before.num_device_alloc, "every hit was a cached block");
        assert_eq!(after.allocated_bytes.current, before.allocated_bytes.current);
        state.pool.validate().expect("and after it stopped");
    }
    group.finish();
}

criterion_group!(benches, alloc_pair);
criterion_main!(benches);
