//! A pretend training run on a pretend device, with a history: what tests of snapshots and pages look at.

use linn::ids::StreamId;
use linn::memory::sim::{Lease, SimDevice};
use linn::memory::{Category, Config, HistoryOptions, Snapshot, Tag};

const MAIN: StreamId = StreamId(0);
const SIDE: StreamId = StreamId(1);
const KIB: u64 = 1 << 10;

/// The device, and what it is asked for.
pub struct Story {
    pub device: SimDevice,
    pub events: u64,
    state: u64,
    held: Vec<Lease>,
    parameters: Vec<Lease>,
    /// Called after each operation.
    each: Box<dyn FnMut(&mut SimDevice)>,
}

impl Story {
    /// A device with a limit that is met now and then; `each` is called after each operation.
    pub fn new(options: HistoryOptions, each: impl FnMut(&mut SimDevice) + 'static) -> Story {
        let mut device = SimDevice::new(1 << 30, Config { limit: 64 << 20, ..Config::default() });
        device.pool_mut().record_history(Some(options));
        Story { device, events: 0, state: 11, held: Vec::new(), parameters: Vec::new(), each: Box::new(each) }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    /// Time goes on, a few microseconds an operation.
    fn tick(&mut self) {
        self.events += 1;
        let now = 1_700_000_000_000_000 + 40 * self.events;
        self.device.pool_mut().handle_context(now, None);
    }

    #[track_caller]
    fn lend(&mut self, stream: StreamId, bytes: u64, category: Category, label: &'static str) -> Option<Lease> {
        let tag = Tag::here(category, label);
        self.tick();
        let mut lease = self.device.alloc(stream, bytes, tag).ok();
        if let Some(lease) = &mut lease {
            self.device.use_on(stream, lease);
        }
        (self.each)(&mut self.device);
        lease
    }

    fn give_back(&mut self, lease: Lease) {
        self.tick();
        self.device.free(lease);
        (self.each)(&mut self.device);
    }

    /// Parameters and optimizer state; parameters are named such after they were made, as programs do.
    pub fn set_up(&mut self, layers: u64) {
        for layer in 0..layers {
            let weight = self.lend(MAIN, 300 * KIB + 4 * layer, Category::Temporary, "randn").expect("fits");
            self.tick();
            self.device.pool_mut().set_category(weight.block, Category::Parameter);
            (self.each)(&mut self.device);
            self.parameters.push(weight);
            for label in ["exp_avg", "exp_avg_sq"] {
                let moment = self.lend(MAIN, 300 * KIB + 4 * layer, Category::OptimizerState, label).expect("fits");
                self.parameters.push(moment);
            }
        }
    }

    /// One training step of so many layers.
    pub fn step(&mut self, layers: u64, step: u64) {
        let batch = 4 + self.random(12);
        let input = self.lend(SIDE, 64 * KIB * batch, Category::Input, "from_slice");
        let mut saved = Vec::new();
        for _ in 0..layers {
            let temporary = self.lend(MAIN, 20 * KIB * batch + 100, Category::Temporary, "layer_norm");
            saved.extend(self.lend(MAIN, 90 * KIB * batch, Category::Activation, "matmul"));
            saved.extend(self.lend(MAIN, 30 * KIB * batch, Category::Activation, "gelu"));
            temporary.into_iter().for_each(|lease| self.give_back(lease));
        }
        self.device.submit();
        let mut gradients = Vec::new();
        while let Some(lease) = saved.pop() {
            let temporary = self.lend(MAIN, 24 * KIB * batch, Category::Temporary, "matmul_backward");
            if saved.len().is_multiple_of(2) {
                gradients.extend(self.lend(MAIN, 300 * KIB, Category::Gradient, "accumulate_grad"));
            }
            self.give_back(lease);
            temporary.into_iter().for_each(|lease| self.give_back(lease));
        }
        gradients.into_iter().for_each(|lease| self.give_back(lease));
        input.into_iter().for_each(|lease| self.give_back(lease));
        if step.is_multiple_of(3) {
            let bytes = 16 * KIB + self.random(600 * KIB);
            let kept = self.lend(MAIN, bytes, Category::Temporary, "log_history");
            self.held.extend(kept);
        }
        if [11, 150, 400].contains(&(step % 500)) {
            // An evaluation with a batch that is too large, and everything that was kept goes.
            let large = self.lend(SIDE, 90 << 20, Category::Temporary, "evaluate");
            assert!(large.is_none(), "beyond the limit");
            std::mem::take(&mut self.held).into_iter().for_each(|lease| self.give_back(lease));
            self.tick();
            self.device.empty_cache();
            (self.each)(&mut self.device);
        }
        self.device.submit();
        while self.random(3) > 0 && self.device.complete_one() {}
    }

    /// Steps until `events` are recorded, and a snapshot in the middle of the last one.
    pub fn run(mut self, events: usize) -> Snapshot {
        self.set_up(8);
        let mut step = 0;
        loop {
            self.step(8, step);
            step += 1;
            if step.is_multiple_of(16) || events < 4000 {
                let snapshot = self.device.pool_mut().snapshot();
                if snapshot.trace.len() + snapshot.overflowed as usize >= events {
                    return snapshot;
                }
            }
        }
    }
}
