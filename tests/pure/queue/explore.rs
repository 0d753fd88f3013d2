//! Seeds, many at a time, and what is left of a program that fails.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::faults::Fault;
use super::program::{Program, program};
use super::world;
use crate::chance::shrink;

/// Schedules of the test; `LINN_SCHEDULES` sets another number.
const SCHEDULES: u64 = 500_000;
/// Seeds that a thread takes at a time.
const SHARE: u64 = 256;

pub struct Failure {
    pub seed: u64,
    pub program: Program,
}

/// A panic is a failure like any other.
pub fn run(program: &Program, fault: Option<Fault>) -> Result<(), String> {
    let caught = catch_unwind(AssertUnwindSafe(|| world::run(program, fault).0));
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "a panic".into()))
    })
}

/// The smallest of these seeds whose program fails, on all cores.
pub fn first_failure(seeds: RangeInclusive<u64>, fault: Option<Fault>) -> Option<Failure> {
    let (next, failed) = (AtomicU64::new(*seeds.start()), Mutex::new(None::<Failure>));
    let worker = || {
        loop {
            let from = next.fetch_add(SHARE, Ordering::Relaxed);
            let mine = from..(from + SHARE).min(seeds.end() + 1);
            if mine.is_empty() || failed.lock().unwrap().as_ref().is_some_and(|failure| failure.seed < from) {
                return;
            }
            for seed in mine {
                let program = program(seed);
                if run(&program, fault).is_err() {
                    let mut failed = failed.lock().unwrap();
                    if failed.as_ref().is_none_or(|failure| seed < failure.seed) {
                        *failed = Some(Failure { seed, program });
                    }
                    return;
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    failed.into_inner().unwrap()
}

/// The same failure with as little as possible: fewer steps, then simpler ones.
pub fn minimal(mut program: Program, fault: Option<Fault>) -> Program {
    let setup = program.setup;
    let fails = |steps: &[_]| run(&Program { setup, steps: steps.to_vec() }, fault).is_err();
    loop {
        program.steps = shrink(program.steps, fails);
        let simpler = (0..program.steps.len()).find_map(|at| {
            program.steps[at].simpler().into_iter().find_map(|step| {
                let mut steps = program.steps.clone();
                steps[at] = step;
                fails(&steps).then_some(steps)
            })
        });
        match simpler {
            Some(steps) => program.steps = steps,
            None => return program,
        }
    }
}

#[test]
fn programs_meet_everything_that_can_go_wrong() {
    let mut seen = world::Seen::default();
    for seed in 1..=3_000 {
        let counts = world::run(&program(seed), None).1;
        seen.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    println!("in 3,000 programs, by world::What: {seen:?}");
    assert!(seen.iter().all(|count| *count >= 30), "{seen:?}");
}

#[test]
fn any_schedule_computes_what_serial_execution_computes() {
    let schedules = std::env::var("LINN_SCHEDULES").ok().map_or(SCHEDULES, |text| text.parse().expect("a number"));
    if let Some(failure) = first_failure(1..=schedules, None) {
        let program = minimal(failure.program, None);
        panic!("seed {}: {}\n{program}", failure.seed, run(&program, None).unwrap_err());
    }
}
