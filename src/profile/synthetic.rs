//! Workloads from a seed: what programs of several kinds ask of an allocator, without a recording.
//!
//! ```
//! use linn::profile::synthetic::{FAMILIES, generate};
//!
//! for family in FAMILIES {
//!     let workload = generate(family, 1, 1).unwrap();
//!     assert_eq!(Some(&workload), generate(family, 1, 1).as_ref(), "the same seed gives the same rows");
//! }
//! ```

use super::replay::{Row, Workload};
use crate::ids::StreamId;

/// The kinds of programs.
pub const FAMILIES: [&str; 6] =
    ["training_steps", "varying_lengths", "kv_concat", "grad_checkpoint", "stream_prefetch", "lazy_optimizer"];

/// A workload of a family, named `syn_FAMILY_SEED`; `scale` multiplies its length. `None` for an unknown family.
pub fn generate(family: &str, seed: u64, scale: u64) -> Option<Workload> {
    let mut program = Program { rows: Vec::new(), ids: 0, state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
    match family {
        "training_steps" => training_steps(&mut program, scale),
        "varying_lengths" => varying_lengths(&mut program, scale),
        "kv_concat" => kv_concat(&mut program, scale),
        "grad_checkpoint" => grad_checkpoint(&mut program, scale),
        "stream_prefetch" => stream_prefetch(&mut program, scale),
        "lazy_optimizer" => lazy_optimizer(&mut program, scale),
        _ => return None,
    }
    Some(Workload { name: format!("syn_{family}_{seed}"), rows: program.rows })
}

struct Program {
    rows: Vec<Row>,
    ids: u64,
    state: u64,
}

const MAIN: u32 = 0;
/// Bytes of an element.
const F32: u64 = 4;
const F16: u64 = 2;

impl Program {
    /// A number in `low..=high` (splitmix64; its slight unevenness does not matter here).
    fn number(&mut self, low: u64, high: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        low + (mixed ^ (mixed >> 31)) % (high - low + 1)
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.number(0, choices.len() as u64 - 1) as usize]
    }

    fn alloc_on(&mut self, stream: u32, size: u64) -> u64 {
        self.ids += 1;
        self.rows.push(Row::Alloc { id: self.ids, size: size.max(1), stream: StreamId(stream) });
        self.ids
    }

    fn alloc(&mut self, size: u64) -> u64 {
        self.alloc_on(MAIN, size)
    }

    fn free(&mut self, id: u64) {
        self.rows.push(Row::Free { id });
    }

    fn free_all(&mut self, ids: impl IntoIterator<Item = u64>) {
        ids.into_iter().for_each(|id| self.free(id));
    }

    /// Lives for one operation.
    fn temporary(&mut self, size: u64) {
        let id = self.alloc(size);
        self.free(id);
    }
}

/// A transformer of random shape.
struct Model {
    layers: u64,
    width: u64,
    vocabulary: u64,
}

impl Model {
    fn random(program: &mut Program) -> Model {
        let layers = program.number(4, 16);
        Model { layers, width: 64 * program.number(6, 20), vocabulary: 1024 * program.number(8, 50) }
    }

    /// Elements of each parameter.
    fn parameters(&self) -> Vec<u64> {
        let (c, v) = (self.width, self.vocabulary);
        let layer = [c, 3 * c * c, 3 * c, c * c, c, c, 4 * c * c, 4 * c, 4 * c * c, c];
        let layers = std::iter::repeat_n(layer, self.layers as usize).flatten();
        [v * c, 1024 * c].into_iter().chain(layers).chain([c]).collect()
    }

    /// One layer's forward pass over `tokens` tokens: the activations that are kept for the backward pass.
    fn forward(&self, program: &mut Program, tokens: u64) -> Vec<u64> {
        let c = self.width;
        let mut kept = Vec::new();
        for (elements, is_kept) in [
            (c, true),
            (3 * c, true),
            (c, false),
            (tokens.min(1024) * 8, true),
            (c, true),
            (c, true),
            (4 * c, true),
            (4 * c, true),
            (c, false),
        ] {
            let id = program.alloc(tokens * elements * F16);
            if is_kept {
                kept.push(id)
            } else {
                program.free(id)
            }
            program.temporary(tokens * F32);
        }
        kept
    }

    /// One layer's backward pass: its activations go, the gradients of its parameters come.
    fn backward(&self, program: &mut Program, tokens: u64, kept: Vec<u64>, gradients: &mut Vec<u64>, parameters: &[u64]) {
        let mut flowing = program.alloc(tokens * self.width * F16);
        for id in kept.into_iter().rev() {
            let next = program.alloc(tokens * self.width * F16);
            program.free(flowing);
            program.free(id);
            flowing = next;
        }
        program.free(flowing);
        gradients.extend(parameters.iter().map(|elements| program.alloc(elements * F32)));
    }

    /// Forward and backward pass; the gradients are live afterwards.
    fn pass(&self, program: &mut Program, tokens: u64) -> Vec<u64> {
        let parameters = self.parameters();
        let input = program.alloc(tokens * 8);
        let kept: Vec<Vec<u64>> = (0..self.layers).map(|_| self.forward(program, tokens)).collect();
        let logits = program.alloc(tokens * self.vocabulary * F16);
        program.temporary(tokens * self.vocabulary * F32);
        let mut gradients = Vec::new();
        program.free(logits);
        for (layer, kept) in kept.into_iter().enumerate().rev() {
            let first = 2 + 10 * layer;
            self.backward(program, tokens, kept, &mut gradients, &parameters[first..first + 10]);
        }
        program.free(input);
        gradients
    }
}

/// The same step again and again; optimizer state from the start.
fn training_steps(program: &mut Program, scale: u64) {
    let model = Model::random(program);
    for elements in model.parameters() {
        (0..3).for_each(|_| _ = program.alloc(elements * F32));
    }
    let tokens = 256 * program.number(2, 16);
    for _ in 0..8 * scale {
        let gradients = model.pass(program, tokens);
        program.free_all(gradients);
    }
}

/// Every step has another length.
fn varying_lengths(program: &mut Program, scale: u64) {
    let model = Model::random(program);
    for elements in model.parameters() {
        (0..3).for_each(|_| _ = program.alloc(elements * F32));
    }
    for _ in 0..12 * scale {
        let tokens = program.number(100, 4000);
        let gradients = model.pass(program, tokens);
        program.free_all(gradients);
    }
}

/// Generation: each token makes every layer's keys and values anew, one token longer.
fn kv_concat(program: &mut Program, scale: u64) {
    let model = Model::random(program);
    for elements in model.parameters() {
        program.alloc(elements * F16);
    }
    for _ in 0..3 * scale {
        let batch = program.number(1, 8);
        let (prompt, generated) = (program.number(16, 512), program.number(64, 128));
        let size = |length: u64| batch * length * model.width * F16;
        let mut cache: Vec<u64> = (0..2 * model.layers).map(|_| program.alloc(size(prompt))).collect();
        for length in prompt + 1..=prompt + generated {
            for entry in &mut cache {
                let longer = program.alloc(size(length));
                program.free(std::mem::replace(entry, longer));
                program.temporary(batch * model.width * F16);
            }
            program.temporary(batch * model.vocabulary * F32);
        }
        program.free_all(cache);
    }
}

/// Only each layer's input is kept; its activations are made again in the backward pass.
fn grad_checkpoint(program: &mut Program, scale: u64) {
    let model = Model::random(program);
    let parameters = model.parameters();
    for elements in &parameters {
        (0..3).for_each(|_| _ = program.alloc(elements * F32));
    }
    for _ in 0..8 * scale {
        let tokens = 128 * program.number(4, 24);
        let inputs: Vec<u64> = (0..model.layers)
            .map(|_| {
                let input = program.alloc(tokens * model.width * F16);
                let kept = model.forward(program, tokens);
                program.free_all(kept);
                input
            })
            .collect();
        let mut gradients = Vec::new();
        for (layer, input) in inputs.into_iter().enumerate().rev() {
            let kept = model.forward(program, tokens);
            let first = 2 + 10 * layer;
            model.backward(program, tokens, kept, &mut gradients, &parameters[first..first + 10]);
            program.free(input);
        }
        program.free_all(gradients);
    }
}

/// Layers' weights come in on a second stream ahead of their use; results leave on a third.
fn stream_prefetch(program: &mut Program, scale: u64) {
    let model = Model::random(program);
    let weights = 12 * model.width * model.width * F16;
    let ahead = program.number(1, 3) as usize;
    for _ in 0..6 * scale {
        let tokens = 64 * program.number(4, 64);
        let mut coming = std::collections::VecDeque::new();
        let mut leaving = None;
        for layer in 0..model.layers as usize + ahead {
            if layer < model.layers as usize {
                coming.push_back(program.alloc_on(1, weights));
            }
            if layer < ahead {
                continue;
            }
            let kept = model.forward(program, tokens);
            let result = program.alloc_on(2, tokens * model.width * F32);
            if let Some(before) = leaving.replace(result) {
                program.free(before);
            }
            program.free_all(kept);
            program.free_all(coming.pop_front());
        }
        program.free_all(leaving);
    }
}

/// Optimizer state comes with the first step, between what is live then; gradients stay until the next step.
fn lazy_optimizer(program: &mut Program, scale: u64) {
    let model = Model::random(program);
    for elements in model.parameters() {
        program.alloc(elements * F32);
    }
    let tokens = 256 * program.number(2, 12);
    let mut gradients = Vec::new();
    for step in 0..8 * scale {
        let fresh = model.pass(program, tokens);
        program.free_all(std::mem::replace(&mut gradients, fresh));
        if step == 0 {
            for elements in model.parameters() {
                (0..2).for_each(|_| _ = program.alloc(elements * F32));
            }
        }
        let workspace = program.pick(&[1, 2, 8, 32]);
        program.temporary(workspace << 20);
    }
}
