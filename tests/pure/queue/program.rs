//! Random programs. Numbers choose among what there is (modulo), so any subset of the steps is a program too.

use linn::memory::Compaction;

use crate::chance::Random;

/// A program: how the memory is set up, and what host and device do, one after the other.
#[derive(Clone, Debug)]
pub struct Program {
    pub setup: Setup,
    pub steps: Vec<Step>,
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.setup)?;
        self.steps.iter().enumerate().try_for_each(|(at, step)| write!(f, "\n{at:3} {step:?}"))
    }
}

/// Memory is counted in cells; a cell holds one small integer.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of a cell: 64 for tiny blocks, 8 MiB where the rules for large segments matter.
    pub cell: u64,
    /// Cells that may be reserved.
    pub limit: u64,
    /// Cells that the driver has.
    pub capacity: u64,
    /// Cells of the largest segment.
    pub segment: u64,
    pub compaction: Compaction,
}

/// A range of cells of one storage.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub which: usize,
    pub from: usize,
    pub len: usize,
}

/// Something to wait for.
#[derive(Clone, Copy, Debug)]
pub enum Point {
    Stream(usize),
    Event(usize),
    Everything,
}

#[derive(Clone, Debug)]
pub enum Step {
    NewStream {
        priority: i32,
    },
    DropStream {
        stream: usize,
    },
    Alloc {
        stream: usize,
        cells: u64,
    },
    Free {
        which: usize,
    },
    /// Reads all of `reads`, then writes `write`, which can be a view of the same storage.
    Dispatch {
        stream: usize,
        reads: Vec<View>,
        write: Option<View>,
        groups: u32,
    },
    Upload {
        stream: usize,
        to: View,
    },
    Download {
        stream: usize,
        from: View,
    },
    /// A read that the timeline is not told of: the stream is recorded, and ordered after the last uses by hand.
    Foreign {
        stream: usize,
        from: View,
    },
    Record {
        event: usize,
        stream: usize,
    },
    WaitEvent {
        stream: usize,
        event: usize,
    },
    WaitStream {
        stream: usize,
        other: usize,
    },
    Flush {
        stream: usize,
    },
    /// A future that somebody keeps.
    Await(Point),
    /// The host waits; on a device that hangs, until it is lost.
    Block(Point),
    Compact {
        stream: usize,
        cells: u64,
    },
    EmptyCache,
    Limit {
        cells: u64,
    },
    Pin {
        which: usize,
    },
    /// The driver refuses the next purchases.
    Refuse {
        count: u32,
    },
    /// The queue looks: `patient` when commands were left long enough; takes `most` commands.
    Submit {
        patient: bool,
        most: usize,
    },
    /// The driver refuses the next batch: it counts as done, with wrong results.
    FailSubmit,
    /// The device executes so many commands.
    Run {
        commands: usize,
    },
    /// The host learns that so many submissions are done.
    Report {
        submissions: usize,
    },
    /// What comes next on the stream waits for another device.
    Hold {
        stream: usize,
    },
    /// That device has come so far.
    Open {
        which: usize,
    },
    /// From now on the device executes nothing.
    Hang,
    Lose,
}

fn view(r: &mut Random) -> View {
    View { which: r.below(99), from: r.below(16), len: 1 + r.below(8) }
}

fn point(r: &mut Random) -> Point {
    match r.below(3) {
        0 => Point::Stream(r.below(99)),
        1 => Point::Event(r.below(99)),
        _ => Point::Everything,
    }
}

/// How often each kind of step comes, in the order of [`step`].
const WEIGHTS: [u64; 26] = [4, 1, 12, 7, 24, 6, 5, 2, 3, 4, 3, 4, 3, 1, 3, 1, 1, 1, 1, 9, 1, 9, 7, 1, 1, 2];

fn step(r: &mut Random, weights: &[u64; 26], sum: u64) -> Step {
    let mut choice = r.below(sum) as u64;
    let kind = weights.iter().position(|weight| match choice.checked_sub(*weight) {
        None => true,
        Some(rest) => {
            choice = rest;
            false
        }
    });
    let stream = r.below(99);
    match kind.unwrap_or(0) {
        0 => Step::NewStream { priority: -(r.below(3) as i32) },
        1 => Step::DropStream { stream },
        2 => Step::Alloc { stream, cells: 1 + r.below(12) as u64 },
        3 => Step::Free { which: r.below(99) },
        4 => Step::Dispatch {
            stream,
            reads: (0..r.below(3)).map(|_| view(r)).collect(),
            write: (r.below(4) > 0).then(|| view(r)),
            groups: if r.below(4) == 0 { 8_000 } else { 1 },
        },
        5 => Step::Upload { stream, to: view(r) },
        6 => Step::Download { stream, from: view(r) },
        7 => Step::Foreign { stream, from: view(r) },
        8 => Step::Record { event: r.below(99), stream },
        9 => Step::WaitEvent { stream, event: r.below(99) },
        10 => Step::WaitStream { stream, other: r.below(99) },
        11 => Step::Flush { stream },
        12 => Step::Await(point(r)),
        13 => Step::Block(point(r)),
        14 => Step::Compact { stream, cells: 1 + r.below(32) as u64 },
        15 => Step::EmptyCache,
        16 => Step::Limit { cells: 8 + r.below(56) as u64 },
        17 => Step::Pin { which: r.below(99) },
        18 => Step::Refuse { count: 1 + r.below(3) as u32 },
        19 => Step::Submit { patient: r.below(2) == 0, most: if r.below(2) == 0 { 1 + r.below(4) } else { usize::MAX } },
        20 => Step::FailSubmit,
        21 => Step::Run { commands: if r.below(2) == 0 { 1 + r.below(3) } else { usize::MAX } },
        22 => Step::Report { submissions: 1 + r.below(3) },
        23 if r.below(4) == 0 => Step::Lose,
        23 => Step::Hang,
        24 => Step::Hold { stream },
        _ => Step::Open { which: r.below(99) },
    }
}

/// The program of a seed.
pub fn program(seed: u64) -> Program {
    let r = &mut Random::new(seed);
    let mut weights = WEIGHTS;
    // Programs differ in what they do often: some never fail, some hardly submit, some only compute.
    for weight in &mut weights {
        *weight = *weight * [0, 1, 1, 2, 3][r.below(5)] + u64::from(r.below(4) == 0);
    }
    if r.below(4) > 0 {
        (weights[20], weights[23]) = (0, 0);
    }
    // Without memory and work there is nothing to see.
    (weights[2], weights[4]) = (weights[2].max(6), weights[4].max(12));
    let sum = weights.iter().sum();
    let limit = 12 + r.below(52) as u64;
    let setup = Setup {
        cell: if r.below(4) == 0 { 8 << 20 } else { 64 },
        limit,
        capacity: if r.below(4) == 0 { limit - r.below(8) as u64 } else { limit * 2 },
        segment: [8, 16, 32, 64][r.below(4)],
        compaction: [Compaction::Off, Compaction::Pressure, Compaction::Pressure, Compaction::Share(1.0)][r.below(4)],
    };
    let len = 8 + r.below(32);
    // Two streams and memory to begin with: short programs reach further.
    let mut steps = vec![Step::NewStream { priority: -(r.below(2) as i32) }, Step::Alloc { stream: r.below(2), cells: 4 }];
    steps.extend((0..len).map(|_| step(r, &weights, sum)));
    Program { setup, steps }
}

impl Step {
    /// Whether the pool can be another one after it.
    pub fn changes_pool(&self) -> bool {
        use Step::*;
        matches!(
            self,
            Alloc { .. } | Free { .. } | Block(_) | Compact { .. } | EmptyCache | Limit { .. } | Pin { .. } | Report { .. }
        )
    }

    /// The same with less in it.
    pub fn simpler(&self) -> Vec<Step> {
        match self {
            Step::Dispatch { stream, reads, write, groups } => {
                let (stream, write, groups) = (*stream, *write, *groups);
                let fewer = (0..reads.len()).map(|at| {
                    let reads = reads.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, view)| *view).collect();
                    Step::Dispatch { stream, reads, write, groups }
                });
                let reads = || reads.clone();
                let mut simpler: Vec<Step> = fewer.collect();
                simpler.extend(write.map(|_| Step::Dispatch { stream, reads: reads(), write: None, groups }));
                simpler.extend((groups > 1).then(|| Step::Dispatch { stream, reads: reads(), write, groups: 1 }));
                simpler
            }
            Step::NewStream { priority } if *priority != 0 => vec![Step::NewStream { priority: 0 }],
            Step::Submit { most, .. } if *most != usize::MAX => vec![Step::Submit { patient: true, most: usize::MAX }],
            Step::Run { commands } if *commands != usize::MAX => vec![Step::Run { commands: usize::MAX }],
            Step::Refuse { count } if *count > 1 => vec![Step::Refuse { count: 1 }],
            _ => Vec::new(),
        }
    }
}
