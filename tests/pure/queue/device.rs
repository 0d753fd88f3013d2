//! A model of a device: memory of small integers, submissions in a row, commands executed when the program says so.

use std::collections::VecDeque;

use linn::ids::Fence;
use linn::timeline::SubmissionId;

use super::world::ensure;

/// Cells of a buffer, as a bit mask over a view.
pub type Mask = u32;

/// A range of cells of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub buffer: usize,
    pub from: usize,
    pub len: usize,
}

/// What the device does for a command, places resolved.
pub enum Work {
    /// Folds the cells that hold something into one value; it has to be `expected`.
    Dispatch {
        reads: Vec<(Range, Mask)>,
        write: Option<Range>,
        constant: u32,
        expected: u32,
    },
    Upload {
        chunk: usize,
        to: Range,
    },
    Download {
        from: Range,
        chunk: usize,
    },
    Move {
        from: Range,
        to: Range,
    },
    Hold,
}

pub struct Encoded {
    pub fence: Fence,
    /// Commands that the program ordered before this one by hand.
    pub after: Vec<Fence>,
    pub work: Work,
}

/// A batch that was handed over.
pub struct Submission {
    pub id: SubmissionId,
    pub commands: Vec<Encoded>,
    /// It never reached the device.
    pub failed: bool,
}

#[derive(Default)]
struct Buffer {
    cells: Vec<u32>,
    /// Commands handed over and not executed that use it.
    users: usize,
    dropped: bool,
}

#[derive(Default)]
pub struct Device {
    buffers: Vec<Buffer>,
    /// Host memory that the device can see.
    pub chunks: Vec<Vec<u32>>,
    row: VecDeque<Submission>,
    /// Of the first submission in the row.
    next: usize,
    /// By stream: the last command executed.
    executed: Vec<u64>,
    /// The number of the last submission executed; 0 before the first.
    pub done: u64,
    pub hangs: bool,
    /// A batch has failed: what memory holds is not what the program says.
    pub spoilt: bool,
}

/// One value for two.
pub fn mix(a: u32, b: u32) -> u32 {
    (a ^ b.rotate_left(13)).wrapping_mul(0x9E37_79B1).rotate_left(15)
}

/// What a command writes to the cell at `index` of its view; never 0, which is "nothing yet".
pub fn written(value: u32, index: usize) -> u32 {
    mix(value, index as u32) | 1
}

impl Device {
    pub fn buy(&mut self, cells: usize) -> usize {
        self.buffers.push(Buffer { cells: vec![0; cells], ..Buffer::default() });
        self.buffers.len() - 1
    }

    pub fn drop_buffer(&mut self, buffer: usize) {
        self.buffers[buffer].dropped = true;
    }

    /// Cells of buffers that exist or are in use.
    pub fn held(&self) -> usize {
        self.buffers.iter().filter(|buffer| !buffer.dropped || buffer.users > 0).map(|buffer| buffer.cells.len()).sum()
    }

    pub fn submit(&mut self, submission: Submission) {
        for buffer in submission.commands.iter().flat_map(buffers) {
            self.buffers[buffer].users += 1;
        }
        self.row.push_back(submission);
    }

    /// Whether the command has been executed.
    pub fn has_executed(&self, fence: Fence) -> bool {
        fence.number <= self.executed.get(fence.stream.0 as usize).copied().unwrap_or(0)
    }

    pub fn cell(&self, range: Range, index: usize) -> u32 {
        self.buffers[range.buffer].cells[range.from + index]
    }

    /// Executes `commands` commands, if there are so many.
    pub fn run(&mut self, commands: usize) -> Result<(), String> {
        for _ in 0..commands {
            let Some(first) = self.row.front() else { return Ok(()) };
            if self.hangs {
                return Ok(());
            }
            if self.next == first.commands.len() {
                self.finish_first();
                continue;
            }
            self.execute()?;
            self.next += 1;
            if self.row.front().is_some_and(|first| self.next == first.commands.len()) {
                self.finish_first();
            }
        }
        Ok(())
    }

    fn finish_first(&mut self) {
        if let Some(first) = self.row.pop_front() {
            self.done = first.id.0;
            self.next = 0;
        }
    }

    /// The device is gone: nothing more is executed.
    pub fn abandon(&mut self) {
        while let Some(first) = self.row.pop_front() {
            for command in &first.commands[self.next..] {
                buffers(command).for_each(|buffer| self.buffers[buffer].users -= 1);
            }
            self.done = first.id.0;
            self.next = 0;
        }
    }

    /// The next command of the first submission.
    fn execute(&mut self) -> Result<(), String> {
        let Device { buffers: memory, chunks, row, executed, .. } = self;
        let first = &row[0];
        let command = &first.commands[self.next];
        let Fence { stream, number } = command.fence;
        let index = stream.0 as usize;
        if executed.len() <= index {
            executed.resize(index + 1, 0);
        }
        ensure!(executed[index] + 1 == number, "command {number} of stream {index} ran after {}", executed[index]);
        for before in &command.after {
            let done = before.number <= executed.get(before.stream.0 as usize).copied().unwrap_or(0);
            ensure!(done, "command {number} of stream {index} ran before {before:?}, which the program ordered before it");
        }
        executed[index] = number;
        buffers(command).for_each(|buffer| memory[buffer].users -= 1);
        if first.failed {
            return Ok(());
        }
        match &command.work {
            Work::Dispatch { reads, write, constant, expected } => {
                let mut value = *constant;
                for (range, mask) in reads {
                    let cells = &memory[range.buffer].cells[range.from..range.from + range.len];
                    for (i, cell) in cells.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1) {
                        value = mix(value, mix(*cell, i as u32));
                    }
                }
                let same = self.spoilt || value == *expected;
                ensure!(same, "command {number} of stream {index} read something else than serial execution does");
                if let Some(range) = write {
                    let cells = &mut memory[range.buffer].cells[range.from..range.from + range.len];
                    cells.iter_mut().enumerate().for_each(|(i, cell)| *cell = written(value, i));
                }
            }
            Work::Upload { chunk, to } => {
                let Some(cells) = chunks[*chunk].get(..to.len) else { return Err(format!("chunk {chunk} was written again")) };
                memory[to.buffer].cells[to.from..to.from + to.len].copy_from_slice(cells);
            }
            Work::Download { from, chunk } => {
                chunks[*chunk].clear();
                chunks[*chunk].extend_from_slice(&memory[from.buffer].cells[from.from..from.from + from.len]);
            }
            Work::Move { from, to } => {
                let cells = memory[from.buffer].cells[from.from..from.from + from.len].to_vec();
                memory[to.buffer].cells[to.from..to.from + to.len].copy_from_slice(&cells);
            }
            Work::Hold => {}
        }
        Ok(())
    }
}

/// The buffers a command uses, once per use.
fn buffers(command: &Encoded) -> impl Iterator<Item = usize> + '_ {
    let (reads, one, two): (&[_], _, _) = match &command.work {
        Work::Dispatch { reads, write, .. } => (reads, write.as_ref(), None),
        Work::Upload { to: range, .. } | Work::Download { from: range, .. } => (&[], Some(range), None),
        Work::Move { from, to } => (&[], Some(from), Some(to)),
        Work::Hold => (&[], None, None),
    };
    reads.iter().map(|(range, _)| range.buffer).chain(one.map(|range| range.buffer)).chain(two.map(|range| range.buffer))
}
