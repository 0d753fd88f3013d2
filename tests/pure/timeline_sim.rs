//! The timeline against serial execution, over random programs.
//!
//! A pretend device executes commands in the order that batches name them, on physical slots that blocks come and go on.
//! Beside it runs the obvious model: commands take effect at the moment they are enqueued. Whatever a plan chooses, every
//! value read and every final content must be the same. `LINN_LONG=1` runs a hundred times as many programs.

use std::collections::VecDeque;

use linn::ids::{BlockId, Fence, FenceSet, Horizons, StreamId};
use linn::timeline::{Access, AccessList, Flush, SubmissionId, Timeline};

use crate::chance::{Random, shrink};

const SLOTS: usize = 4;
const EVENTS: usize = 3;

/// One step of a program. Numbers choose among what there is (modulo), so any subset of the steps is a program too.
#[derive(Clone, Debug)]
enum Op {
    Alloc {
        slot: usize,
    },
    Free {
        block: usize,
    },
    Command {
        stream: usize,
        reads: Vec<usize>,
        write: Option<usize>,
        constant: u64,
    },
    Record {
        event: usize,
        stream: usize,
    },
    Wait {
        stream: usize,
        event: usize,
    },
    NewStream,
    DropStream {
        stream: usize,
    },
    /// Without a target: everything. `admit` are coin flips: 1 of `admit` commands ends the batch, 0 for never.
    Plan {
        target: Option<Vec<(usize, u64)>>,
        admit: u64,
        seed: u64,
    },
    Complete {
        count: usize,
    },
}

fn program(seed: u64) -> Vec<Op> {
    let mut random = Random::new(seed);
    let len = 10 + random.below(70);
    // Some programs submit rarely, so that long backlogs build up; some hardly use events.
    let (plans, events) = (1 + random.below(12), random.below(12));
    (0..len)
        .map(|_| {
            let r = &mut random;
            match r.below(60 + plans as u64 + events as u64) {
                0..8 => Op::Alloc { slot: r.below(99) },
                8..13 => Op::Free { block: r.below(99) },
                13..16 => Op::NewStream,
                16..17 => Op::DropStream { stream: r.below(99) },
                17..20 => Op::Complete { count: 1 + r.below(3) },
                20..60 => Op::Command {
                    stream: r.below(99),
                    reads: (0..r.below(4)).map(|_| r.below(99)).collect(),
                    write: (r.below(3) > 0).then(|| r.below(99)),
                    constant: r.next(),
                },
                n if n < 60 + plans => Op::Plan {
                    target: (r.below(4) > 0).then(|| (0..1 + r.below(2)).map(|_| (r.below(99), r.below(4) as u64)).collect()),
                    admit: if r.below(2) == 0 { 0 } else { 2 + r.below(6) as u64 },
                    seed: r.next(),
                },
                n if n % 2 == 0 => Op::Record { event: r.below(99), stream: r.below(99) },
                _ => Op::Wait { stream: r.below(99), event: r.below(99) },
            }
        })
        .collect()
}

/// By stream: a command number. Everything up to it.
type Clock = Vec<u64>;

fn raise(clock: &mut Clock, stream: usize, number: u64) {
    if clock.len() <= stream {
        clock.resize(stream + 1, 0);
    }
    clock[stream] = clock[stream].max(number);
}

fn join(clock: &mut Clock, other: &Clock) {
    other.iter().enumerate().for_each(|(stream, number)| raise(clock, stream, *number));
}

fn at(clock: &Clock, stream: usize) -> u64 {
    clock.get(stream).copied().unwrap_or(0)
}

/// Memory that blocks are put on, one at a time.
#[derive(Default)]
struct Slot {
    /// What the pretend device holds, and what serial execution holds.
    device: u64,
    serial: u64,
    /// Last uses by whoever had the slot before; `None` while a block lives on it.
    free: Option<FenceSet>,
    /// The model's own books: the last command that wrote the slot, and the readers since.
    writer: Option<Fence>,
    readers: Vec<Fence>,
}

struct Block {
    id: BlockId,
    slot: usize,
    written: bool,
}

struct Command {
    ordinal: u64,
    reads: Vec<usize>,
    write: Option<usize>,
    constant: u64,
    /// What it has to come after.
    needs: Clock,
    /// A hash of the values that serial execution reads.
    seen: u64,
}

#[derive(Default)]
struct Stream {
    live: bool,
    commands: Vec<Command>,
    executed: u64,
    completed: u64,
    /// What later commands come after because of explicit waits.
    waits: Clock,
    /// What its commands with an edge come after already.
    known: Clock,
}

struct World {
    timeline: Timeline,
    streams: Vec<Stream>,
    slots: Vec<Slot>,
    blocks: Vec<Block>,
    free_ids: Vec<BlockId>,
    next_id: u32,
    events: Vec<Option<(FenceSet, Clock)>>,
    /// Submissions with what each stream has reached by then.
    in_flight: VecDeque<(SubmissionId, Clock)>,
    edges: u64,
    ordinals: u64,
}

fn hash(a: u64, b: u64) -> u64 {
    (a ^ b.rotate_left(29)).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(31)
}

macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => { if !$holds { return Err(format!($($text)*)); } };
}

impl World {
    fn new() -> World {
        let slot = || Slot { free: Some(FenceSet::new()), ..Slot::default() };
        World {
            timeline: Timeline::new(),
            streams: vec![Stream { live: true, ..Stream::default() }],
            slots: std::iter::repeat_with(slot).take(SLOTS).collect(),
            blocks: Vec::new(),
            free_ids: Vec::new(),
            next_id: 0,
            events: vec![None; EVENTS],
            in_flight: VecDeque::new(),
            edges: 0,
            ordinals: 0,
        }
    }

    /// A live stream.
    fn stream(&self, choice: usize) -> usize {
        let live: Vec<usize> = (0..self.streams.len()).filter(|index| self.streams[*index].live).collect();
        live[choice % live.len()]
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Alloc { slot } => self.alloc(*slot),
            Op::Free { block } => self.free(*block),
            Op::Command { stream, reads, write, constant } => self.command(*stream, reads, *write, *constant)?,
            Op::Record { event, stream } => {
                let stream = self.stream(*stream);
                let mut clock = self.streams[stream].waits.clone();
                raise(&mut clock, stream, self.streams[stream].commands.len() as u64);
                self.events[event % EVENTS] = Some((self.timeline.record(StreamId(stream as u32)), clock));
            }
            Op::Wait { stream, event } => {
                let stream = self.stream(*stream);
                if let Some((point, clock)) = &self.events[event % EVENTS] {
                    self.timeline.wait(StreamId(stream as u32), point);
                    let clock = clock.clone();
                    join(&mut self.streams[stream].waits, &clock);
                }
            }
            Op::NewStream if self.streams.iter().filter(|stream| stream.live).count() < 4 => {
                let index = self.timeline.new_stream().0 as usize;
                if index == self.streams.len() {
                    self.streams.push(Stream::default());
                }
                let stream = &mut self.streams[index];
                ensure!(!stream.live, "the id of a live stream was given again");
                ensure!(stream.completed == stream.commands.len() as u64, "the id of a busy stream was given again");
                stream.live = true;
            }
            Op::NewStream => {}
            Op::DropStream { stream } => {
                let stream = self.stream(*stream);
                if stream != 0 {
                    self.timeline.drop_stream(StreamId(stream as u32));
                    self.streams[stream].live = false;
                    self.streams[stream].waits.clear();
                }
            }
            Op::Plan { target, admit, seed } => self.plan(target.as_deref(), *admit, *seed)?,
            Op::Complete { count } => {
                for _ in 0..*count {
                    self.complete();
                }
            }
        }
        self.check()
    }

    fn alloc(&mut self, choice: usize) {
        let free: Vec<usize> = (0..SLOTS).filter(|slot| self.slots[*slot].free.is_some()).collect();
        if free.is_empty() {
            return;
        }
        let slot = free[choice % free.len()];
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.next_id += 1;
            BlockId(self.next_id - 1)
        });
        let mut after = self.slots[slot].free.take().unwrap_or_default();
        // As the pool does: what is submitted needs no order any more.
        after.retain(|fence| fence.number > self.timeline.submitted(fence.stream));
        self.timeline.begin_block(id, after);
        self.blocks.push(Block { id, slot, written: false });
    }

    fn free(&mut self, choice: usize) {
        if !self.blocks.is_empty() {
            let block = self.blocks.swap_remove(choice % self.blocks.len());
            self.slots[block.slot].free = Some(self.timeline.end_block(block.id));
            self.free_ids.push(block.id);
        }
    }

    fn command(&mut self, stream: usize, reads: &[usize], write: Option<usize>, constant: u64) -> Result<(), String> {
        let index = self.stream(stream);
        let id = StreamId(index as u32);
        let mut accesses = AccessList::default();
        // What was never written is never read.
        let readable: Vec<usize> = (0..self.blocks.len()).filter(|block| self.blocks[*block].written).collect();
        let reads: Vec<usize> = reads.iter().filter_map(|choice| readable.get(choice % readable.len().max(1)).copied()).collect();
        let write = write.filter(|_| !self.blocks.is_empty()).map(|choice| choice % self.blocks.len());
        // The waits of the stream bind its next command; later ones come after that.
        let mut needs = std::mem::take(&mut self.streams[index].waits);
        reads.iter().for_each(|block| accesses.push(self.blocks[*block].id, Access::Read));
        if let Some(block) = write {
            accesses.push(self.blocks[block].id, Access::Write);
        }
        let reads: Vec<usize> = reads.iter().map(|block| self.blocks[*block].slot).collect();
        let number = self.streams[index].commands.len() as u64 + 1;
        let this = Fence { stream: id, number };
        for slot in &reads {
            let slot = &self.slots[*slot];
            slot.writer.iter().for_each(|fence| raise(&mut needs, fence.stream.0 as usize, fence.number));
        }
        if let Some(block) = write {
            let slot = &self.slots[self.blocks[block].slot];
            let before = slot.writer.iter().chain(&slot.readers);
            before.for_each(|fence| raise(&mut needs, fence.stream.0 as usize, fence.number));
        }
        raise(&mut needs, index, 0);
        needs[index] = number - 1;

        // One edge for each other stream that is not known to be ahead.
        for other in (0..self.streams.len()).filter(|other| *other != index) {
            let wanted = at(&needs, other);
            if wanted > self.streams[other].executed && wanted > at(&self.streams[index].known, other) {
                self.edges += 1;
                raise(&mut self.streams[index].known, other, wanted);
            }
        }

        let ordinal = self.timeline.enqueue(id, accesses.iter()).0;
        self.ordinals += 1;
        ensure!(ordinal == self.ordinals, "ordinal {ordinal} instead of {}", self.ordinals);
        ensure!(self.timeline.enqueued(id) == number, "number {} instead of {number}", self.timeline.enqueued(id));

        let seen = reads.iter().fold(constant, |sum, slot| hash(sum, self.slots[*slot].serial));
        reads.iter().for_each(|slot| self.slots[*slot].readers.push(this));
        let write = write.map(|block| {
            self.blocks[block].written = true;
            let slot = &mut self.slots[self.blocks[block].slot];
            slot.serial = seen;
            slot.writer = Some(this);
            slot.readers.clear();
            self.blocks[block].slot
        });
        self.streams[index].commands.push(Command { ordinal, reads, write, constant, needs, seen });
        Ok(())
    }

    /// By stream: how far it has to go for `target`, and no further.
    fn closure(&self, target: Option<&FenceSet>) -> Clock {
        let mut wanted: Clock = self.streams.iter().map(|stream| stream.executed).collect();
        match target {
            None => self.streams.iter().enumerate().for_each(|(i, stream)| wanted[i] = stream.commands.len() as u64),
            Some(fences) => fences.iter().for_each(|fence| raise(&mut wanted, fence.stream.0 as usize, fence.number)),
        }
        loop {
            let before = wanted.clone();
            for (index, stream) in self.streams.iter().enumerate() {
                for number in stream.executed..before[index] {
                    join(&mut wanted, &stream.commands[number as usize].needs);
                }
            }
            if wanted == before {
                return wanted;
            }
        }
    }

    fn plan(&mut self, target: Option<&[(usize, u64)]>, admit: u64, seed: u64) -> Result<(), String> {
        let fence = |(choice, back): &(usize, u64)| {
            let stream = choice % self.streams.len();
            let number = (self.streams[stream].commands.len() as u64).saturating_sub(*back);
            Fence { stream: StreamId(stream as u32), number }
        };
        let fences: Option<FenceSet> = target.map(|target| target.iter().map(fence).collect());
        let wanted = self.closure(fences.as_ref());
        let flush = fences.map_or(Flush::Everything, Flush::To);
        let mut random = Random::new(seed);
        let mut asked = vec![0; self.streams.len()];
        let mut wrong = None;
        let mut refused = false;
        let batch = self.timeline.plan(&flush, |stream, n| {
            let count = &mut asked[stream.0 as usize];
            if n != *count || refused {
                wrong = Some(format!("asked for command {n} of stream {} after {count}, refused: {refused}", stream.0));
            }
            *count += 1;
            // The answer for the first command is not looked at.
            let first = asked.iter().sum::<usize>() == 1;
            let admits = admit == 0 || random.below(admit) > 0;
            refused = !admits && !first;
            admits
        });
        if let Some(text) = wrong {
            return Err(text);
        }
        ensure!(batch.len == batch.runs.iter().map(|run| run.1).sum::<usize>(), "the batch's length is not the sum of its runs");
        ensure!(batch.runs.iter().all(|run| run.1 > 0), "an empty run: {batch:?}");
        if batch.len == 0 {
            let nothing = wanted.iter().zip(&self.streams).all(|(wanted, stream)| *wanted == stream.executed);
            ensure!(nothing, "nothing was planned on the way to {wanted:?}");
            return Ok(());
        }
        let id = self.timeline.handle_submitted(&batch);
        let mut last_ordinal = 0;
        for (stream, count) in &batch.runs {
            for _ in 0..*count {
                let ordinal = self.execute(stream.0 as usize)?;
                ensure!(ordinal > last_ordinal, "ordinal {ordinal} after {last_ordinal} in one batch");
                last_ordinal = ordinal;
            }
        }
        let reached: Clock = self.streams.iter().map(|stream| stream.executed).collect();
        let within = reached.iter().zip(&wanted).all(|(reached, wanted)| reached <= wanted);
        ensure!(within, "went to {reached:?}, wanted {wanted:?}");
        ensure!(refused || reached == wanted, "stopped at {reached:?}, wanted {wanted:?}");
        self.in_flight.push_back((id, reached));
        Ok(())
    }

    /// The device executes the next command of a stream.
    fn execute(&mut self, index: usize) -> Result<u64, String> {
        let number = self.streams[index].executed + 1;
        let Some(command) = self.streams[index].commands.get(number as usize - 1) else {
            return Err(format!("stream {index} has no command {number}"));
        };
        for (other, wanted) in command.needs.iter().enumerate() {
            let executed = self.streams[other].executed;
            ensure!(executed >= *wanted, "command {number} of stream {index} ran before command {wanted} of stream {other}");
        }
        let value = command.reads.iter().fold(command.constant, |sum, slot| hash(sum, self.slots[*slot].device));
        ensure!(value == command.seen, "command {number} of stream {index} read something else than serial execution does");
        if let Some(slot) = command.write {
            self.slots[slot].device = value;
        }
        let ordinal = command.ordinal;
        self.streams[index].executed = number;
        Ok(ordinal)
    }

    fn complete(&mut self) {
        if let Some((id, reached)) = self.in_flight.pop_front() {
            self.timeline.handle_completed(id);
            reached.iter().enumerate().for_each(|(stream, number)| self.streams[stream].completed = *number);
        }
    }

    /// What holds after every step.
    fn check(&self) -> Result<(), String> {
        self.timeline.validate()?;
        let mut backlog = 0;
        for (index, stream) in self.streams.iter().enumerate() {
            let id = StreamId(index as u32);
            let horizons = (self.timeline.enqueued(id), self.timeline.submitted(id), self.timeline.completed(id));
            let expected = (stream.commands.len() as u64, stream.executed, stream.completed);
            ensure!(horizons == expected, "stream {index} stands at {horizons:?} instead of {expected:?}");
            backlog += expected.0 - expected.1;
        }
        let stats = self.timeline.stats();
        ensure!(stats.order_edges == self.edges, "{} order edges instead of {}", stats.order_edges, self.edges);
        ensure!(stats.commands == self.ordinals, "{} commands instead of {}", stats.commands, self.ordinals);
        ensure!(self.timeline.backlog() == backlog, "backlog {} instead of {backlog}", self.timeline.backlog());
        ensure!(self.timeline.in_flight() == self.in_flight.len(), "submissions in flight");
        let busy = self.streams.iter().filter(|stream| stream.completed < stream.commands.len() as u64).count();
        ensure!(self.timeline.everything().len() == busy, "everything() names {busy} busy streams");
        ensure!(self.timeline.is_idle() == (busy == 0), "idle means that every command has completed");
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        let mut rounds = 0;
        while self.timeline.backlog() > 0 {
            rounds += 1;
            ensure!(rounds < 10_000, "the backlog never ends");
            self.plan(None, 5, rounds)?;
            self.check()?;
        }
        while !self.in_flight.is_empty() {
            self.complete();
        }
        self.check()?;
        ensure!(self.timeline.is_idle() && self.timeline.everything().is_empty(), "not idle at the end");
        let same = self.slots.iter().all(|slot| slot.device == slot.serial);
        ensure!(same, "the final contents differ from serial execution");
        Ok(())
    }
}

fn run(program: &[Op]) -> Result<(), String> {
    let mut world = World::new();
    for (at, op) in program.iter().enumerate() {
        world.step(op).map_err(|text| format!("step {at}: {text}"))?;
    }
    world.finish().map_err(|text| format!("at the end: {text}"))
}

#[test]
fn any_plan_computes_what_serial_execution_computes() {
    let long = std::env::var_os("LINN_LONG").is_some_and(|value| value == "1");
    let programs = if long { 600_000 } else { 6_000 };
    for seed in 1..=programs {
        let program = program(seed);
        if run(&program).is_err() {
            let program = shrink(program, |steps| run(steps).is_err());
            panic!("seed {seed}: {}\n{program:#?}", run(&program).unwrap_err());
        }
    }
}

#[test]
fn a_missing_order_would_be_noticed() {
    // The model's own books must be able to fail: a device that runs one command too early.
    let mut world = World::new();
    let write = |stream, constant| Op::Command { stream, reads: Vec::new(), write: Some(0), constant };
    let program = [Op::NewStream, Op::Alloc { slot: 0 }, write(0, 7), write(1, 8)];
    program.iter().for_each(|op| world.step(op).unwrap());
    assert_eq!(world.execute(1).unwrap_err(), "command 1 of stream 1 ran before command 1 of stream 0");
    let mut world = World::new();
    program.iter().for_each(|op| world.step(op).unwrap());
    world.step(&Op::Command { stream: 0, reads: vec![0], write: None, constant: 1 }).unwrap();
    world.streams[0].commands[1].needs.clear();
    world.execute(0).unwrap();
    assert_eq!(world.execute(0).unwrap_err(), "command 2 of stream 0 read something else than serial execution does");
}
