//! The two rules' second half with numbers of your own machine: what fills a card, and what every knob costs.
//!
//! One model goes through every knob: what it keeps for the backward pass beside what theory says, the peaks, the time of a step, the
//! loss. Then the classic puzzles of cached memory, each with its cure. Relations are checked; times are printed, not judged.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use linn::autograd::{SaveOnCpu, autocast, checkpoint, no_grad, saved_tensors_hooks};
use linn::memory::{Category, HistoryOptions};
use linn::nn::{Bias, Embedding, LayerNorm, Linear, Module, Parts, loss};
use linn::ops::attention::Mask;
use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup};
use linn::{DType, Device, DeviceOptions, Error, Result, Tensor};

const KIB: f64 = 1024.0;
const MIB: u64 = 1 << 20;

fn main() -> anyhow::Result<()> {
    run(false)
}

/// The example; `quick` is for the tests that run it.
pub fn run(quick: bool) -> anyhow::Result<()> {
    table(
        if quick { Sizes { b: 4, t: 32, c: 64, h: 2, l: 4, v: 33 } } else { Sizes { b: 8, t: 64, c: 128, h: 4, l: 4, v: 65 } },
        quick,
    )?;
    println!("\nPuzzles of memory that is cached, and of calls that are enqueued:");
    timing_without_synchronise()?;
    small_tensors_large_reserved()?;
    empty_cache_makes_it_slower()?;
    fragments()?;
    out_of_memory()?;
    random_lengths(if quick { 150 } else { 1000 }, !quick)
}

/// B sequences of T positions, width C, H heads, L blocks, V words.
#[derive(Clone, Copy)]
struct Sizes {
    b: usize,
    t: usize,
    c: usize,
    h: usize,
    l: usize,
    v: usize,
}

impl Sizes {
    /// Bytes that a block keeps for its backward pass; `half` are the bytes of an element where autocast may round.
    ///
    /// Layer norms keep their operand and two numbers a row; each linear layer keeps its operand (C wide, the last one 4 C), attention
    /// q, k, v and its probabilities (in f32), gelu its operand (4 C). Additions, views and splits keep nothing. Under autocast the
    /// rounded copies of the weights are kept, too.
    fn block(self, half: usize) -> usize {
        let Sizes { b, t, c, h, .. } = self;
        let norms = 2 * (b * t * c + 2 * b * t) * 4;
        let linears = (c + c + c + 4 * c) * b * t * half;
        let attention = 3 * b * t * c * half + b * h * t * t * 4;
        let gelu = 4 * b * t * c * half;
        let weights = if half < 4 { (3 + 1 + 4 + 4) * c * c * half } else { 0 };
        norms + linears + attention + gelu + weights
    }

    /// The last layer norm, the head's operand, and the loss: the logarithms, and a weight for each position.
    fn head(self, half: usize) -> usize {
        let Sizes { b, t, c, v, .. } = self;
        let weights = if half < 4 { c * v * half } else { 0 };
        (b * t * c + 2 * b * t) * 4 + b * t * c * half + b * t * (v + 1) * 4 + weights
    }

    /// Bytes of one hidden state.
    fn hidden(self) -> usize {
        self.b * self.t * self.c * 4
    }
}

/// A transformer of pre-norm blocks.
struct Model {
    words: Embedding,
    places: Embedding,
    blocks: Vec<Arc<Block>>,
    norm: LayerNorm,
    head: Linear,
}

struct Block {
    heads: usize,
    norms: [LayerNorm; 2],
    qkv: Linear,
    proj: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(device: &Device, Sizes { c, h, .. }: Sizes) -> Result<Block> {
        let linear = |from, to| Linear::normal(device, from, to, Bias::Without, 0.02);
        let norm = || LayerNorm::new(device, c, Bias::Without);
        let (qkv, proj, up, down) = (linear(c, 3 * c)?, linear(c, c)?, linear(c, 4 * c)?, linear(4 * c, c)?);
        Ok(Block { heads: h, norms: [norm()?, norm()?], qkv, proj, up, down })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [b, t, c] = [x.size(0)?, x.size(1)?, x.size(2)?].map(|size| size as isize);
        let parts = self.qkv.forward(&self.norms[0].forward(x)?)?.split(c as usize, -1)?;
        let head = |i: usize| parts[i].reshape(&[b, t, self.heads as isize, -1])?.transpose(1, 2);
        let seen = head(0)?.scaled_dot_product_attention(&head(1)?, &head(2)?, Mask::Causal)?;
        let x = x.add(&self.proj.forward(&seen.transpose(1, 2)?.reshape(&[b, t, c])?)?)?;
        x.add(&self.down.forward(&self.up.forward(&self.norms[1].forward(&x)?)?.gelu()?)?)
    }

    fn parts(&self) -> Parts<'_> {
        let parts = Parts::new().child("ln_1", &self.norms[0]).child("qkv", &self.qkv).child("proj", &self.proj);
        parts.child("ln_2", &self.norms[1]).child("up", &self.up).child("down", &self.down)
    }
}

impl Model {
    fn new(device: &Device, sizes: Sizes) -> Result<Model> {
        device.manual_seed(1)?;
        Ok(Model {
            words: Embedding::new(device, sizes.v, sizes.c, 0.02)?,
            places: Embedding::new(device, sizes.t, sizes.c, 0.02)?,
            blocks: (0..sizes.l).map(|_| Block::new(device, sizes).map(Arc::new)).collect::<Result<_>>()?,
            norm: LayerNorm::new(device, sizes.c, Bias::Without)?,
            head: Linear::normal(device, sizes.c, sizes.v, Bias::Without, 0.02)?,
        })
    }

    fn loss(&self, (ids, targets): &(Tensor, Tensor), checkpoints: bool) -> Result<Tensor> {
        let mut x = self.words.forward(ids)?.add(&self.places.weight.narrow(0, 0, ids.size(1)?)?)?;
        for block in &self.blocks {
            x = match checkpoints {
                false => block.forward(&x)?,
                true => {
                    let block = block.clone();
                    checkpoint(move |x| block.forward(&x[0]), &[&x])?
                }
            };
        }
        loss::cross_entropy(&self.head.forward(&self.norm.forward(&x)?)?, targets)
    }
}

impl Module for Model {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.words.forward(ids)?)
    }

    fn parts(&self) -> Parts<'_> {
        let parts = Parts::new().child("words", &self.words).child("places", &self.places);
        parts.list("blocks", self.blocks.iter().map(|block| &**block)).child("norm", &self.norm).child("head", &self.head)
    }
}

/// What is turned.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Knob {
    Nothing,
    NoGrad,
    Bf16,
    Checkpointing,
    Accumulate(usize),
    Offload,
    Bf16State,
    Frozen,
}

impl Knob {
    /// Bytes of activations at their peak.
    fn theory(self, sizes: Sizes) -> usize {
        let whole = |half| sizes.l * sizes.block(half) + sizes.head(half);
        match self {
            Knob::Nothing | Knob::Bf16State => whole(4),
            Knob::NoGrad => 0,
            Knob::Bf16 => whole(2),
            // The operand of every block, and what one block keeps, whose first norm's operand is one of these.
            Knob::Checkpointing => sizes.l * sizes.hidden() + sizes.block(4) - sizes.hidden(),
            Knob::Accumulate(n) => whole(4) / n,
            // After the forward pass only what is too small to be worth a copy is on the device.
            Knob::Offload => (2 * (2 * sizes.l + 1) + 1) * small(sizes.b * sizes.t * 4),
            // Only the head learns: its operand, and the loss.
            Knob::Frozen => sizes.b * sizes.t * (sizes.c + sizes.v + 1) * 4,
        }
    }
}

/// Saved tensors of less than 4 KiB stay on the device.
fn small(bytes: usize) -> usize {
    if bytes < 4 << 10 { bytes } else { 0 }
}

/// What a knob gave.
struct Row {
    /// Bytes after the forward pass, at the peak, and as hooks see them.
    kept: u64,
    peak: u64,
    seen: u64,
    parameters: u64,
    gradients: u64,
    state: u64,
    allocated: u64,
    reserved: u64,
    step: Duration,
    loss: f32,
    waits: u64,
}

fn table(sizes: Sizes, quick: bool) -> anyhow::Result<()> {
    let device = Device::open()?;
    device.record_memory_history(Some(HistoryOptions::default()));
    let Sizes { b, t, c, h, l, v } = sizes;
    println!("on {}: B {b}, T {t}, C {c}, H {h}, L {l}, V {v}; KiB", device.info());
    println!(
        "{:16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7} {:>5}",
        "knob",
        "theory",
        "peak of activations",
        "by hooks",
        "kept",
        "params",
        "grads",
        "state",
        "allocated",
        "reserved",
        "step ms",
        "loss",
        "waits"
    );
    let (warm, steps) = if quick { (1, 3) } else { (2, 10) };
    let measure = |knob: Knob| -> anyhow::Result<Row> {
        let row = measure(&device, knob, sizes, warm, steps)?;
        let kib = |bytes: u64| bytes as f64 / KIB;
        println!(
            "{:16} {:9.1} {:19.1} {:9.1} {:9.1} {:9.1} {:9.1} {:9.1} {:9.1} {:9.1} {:8.2} {:7.4} {:5}",
            format!("{knob:?}"),
            kib(knob.theory(sizes) as u64),
            kib(row.peak),
            kib(row.seen),
            kib(row.kept),
            kib(row.parameters),
            kib(row.gradients),
            kib(row.state),
            kib(row.allocated),
            kib(row.reserved),
            row.step.as_secs_f64() * 1e3,
            row.loss,
            row.waits
        );
        Ok(row)
    };
    let plain = measure(Knob::Nothing)?;
    let near = |got: u64, want: usize| (got as f64 - want as f64).abs() <= 0.05 * want as f64;
    ensure!(
        near(plain.kept, Knob::Nothing.theory(sizes)) && near(plain.peak, Knob::Nothing.theory(sizes)),
        "activations are off the formula"
    );
    ensure!(near(plain.seen, Knob::Nothing.theory(sizes)), "hooks see something else");
    ensure!(
        plain.gradients == plain.parameters && near(plain.state, 2 * plain.parameters as usize),
        "AdamW keeps two numbers a parameter"
    );

    let none = measure(Knob::NoGrad)?;
    ensure!((none.kept, none.peak, none.seen, none.gradients) == (0, 0, 0, 0), "no_grad keeps nothing");
    let bf16 = measure(Knob::Bf16)?;
    ensure!(near(bf16.kept, Knob::Bf16.theory(sizes)), "bf16 is off the formula");
    ensure!((bf16.loss / plain.loss - 1.0).abs() <= 0.02, "bf16 learns something else");
    let again = measure(Knob::Checkpointing)?;
    ensure!(near(again.peak, Knob::Checkpointing.theory(sizes)), "checkpointing is off the formula");
    ensure!(again.peak as f64 <= 0.4 * plain.peak as f64, "checkpointing saves 60 % with four blocks");
    let parts = measure(Knob::Accumulate(4))?;
    ensure!(near(parts.peak, Knob::Accumulate(4).theory(sizes)), "a quarter of the batch, a quarter of the activations");
    ensure!((parts.loss - plain.loss).abs() <= 1e-5, "accumulation learns the same");
    let away = measure(Knob::Offload)?;
    ensure!(away.kept as usize <= Knob::Offload.theory(sizes), "activations are in host memory");
    ensure!((again.loss, away.loss) == (plain.loss, plain.loss), "the same to the bit");
    let halves = measure(Knob::Bf16State)?;
    ensure!(near(halves.state, plain.parameters as usize), "a state in bf16 is half as large");
    let frozen = measure(Knob::Frozen)?;
    ensure!(
        near(frozen.kept, Knob::Frozen.theory(sizes)) && frozen.gradients < plain.gradients / 4,
        "what is frozen costs nothing"
    );
    for row in [plain, none, bf16, again, parts, away, halves, frozen] {
        ensure!(row.waits == 0, "no step waits for the device");
        ensure!(row.allocated <= row.reserved, "what is allocated is reserved");
    }
    let page = std::env::temp_dir().join(format!("linn_laboratory_{}.html", std::process::id()));
    std::fs::write(&page, device.memory_snapshot().to_html("the memory laboratory"))?;
    println!("all of it over time: open {}", page.display());
    Ok(())
}

fn measure(device: &Device, knob: Knob, sizes: Sizes, warm: u64, steps: u64) -> anyhow::Result<Row> {
    let model = Model::new(device, sizes)?;
    let learns: Vec<_> = match knob {
        Knob::Frozen => {
            model.requires_grad_(false)?;
            model.head.requires_grad_(true)?;
            model.head.named_parameters()
        }
        _ => model.named_parameters(),
    };
    let groups = ParamGroup::by_rank(learns, 1e-3, 0.1);
    let mut optimizer = Adam::adamw(groups, AdamOptions { betas: (0.9, 0.95), ..AdamOptions::default() });
    if knob == Knob::Bf16State {
        optimizer = optimizer.bf16_state()?;
    }
    let host = SaveOnCpu::new(device)?;
    let batches = (0..warm + steps).map(|step| batch(device, sizes, step)).collect::<Result<Vec<_>>>()?;
    let parts = if let Knob::Accumulate(n) = knob { n } else { 1 };
    let forward = |batch: &(Tensor, Tensor)| match knob {
        Knob::NoGrad => no_grad(|| model.loss(batch, false)),
        Knob::Bf16 => autocast(DType::BF16, || model.loss(batch, false)),
        Knob::Offload => host.scope(|| model.loss(batch, false)),
        _ => model.loss(batch, knob == Knob::Checkpointing),
    };
    // A part of the batch, whose gradients are added to those of the parts before.
    let pass = |(ids, targets): &(Tensor, Tensor), part: usize| -> Result<(Tensor, u64)> {
        let rows = sizes.b / parts;
        let of = |x: &Tensor| x.narrow(0, (part * rows) as isize, rows);
        let loss = forward(&(of(ids)?, of(targets)?))?.mul_scalar(1.0 / parts as f64)?;
        let kept = device.memory_breakdown().of(Category::Activation);
        if knob != Knob::NoGrad {
            loss.backward()?;
        }
        Ok((loss.detach(), kept))
    };
    let (mut last, mut kept, mut start) = (None, 0, Instant::now());
    for (step, batch) in (0..).zip(&batches) {
        if step == warm {
            device.synchronize()?;
            device.empty_cache()?;
            device.reset_peak_memory_stats();
            device.reset_host_waits();
            start = Instant::now();
        }
        let (mut loss, first) = pass(batch, 0)?;
        for part in 1..parts {
            loss = loss.add(&pass(batch, part)?.0)?;
        }
        if knob != Knob::NoGrad {
            optimizer.step()?;
        }
        (last, kept) = (Some(loss), first);
        if step + 1 < warm + steps {
            optimizer.zero_grad();
        }
    }
    let waits = device.host_waits().iter().map(|wait| wait.count).sum();
    device.synchronize()?;
    let step = start.elapsed() / steps as u32;
    let (stats, now) = (device.stats().memory, device.memory_breakdown());
    let loss = last.map_or(Ok(f32::NAN), |loss| loss.item::<f32>())?;
    let seen =
        seen_by_hooks(|| if knob == Knob::NoGrad { no_grad(|| model.loss(&batches[0], false)) } else { forward(&batches[0]) })?;
    Ok(Row {
        kept,
        peak: stats.peak_of(Category::Activation),
        seen,
        parameters: now.of(Category::Parameter),
        gradients: now.of(Category::Gradient),
        state: now.of(Category::OptimizerState),
        allocated: stats.allocated_bytes.peak,
        reserved: stats.reserved_bytes.peak,
        step,
        loss,
        waits,
    })
}

/// Ids and the ids that follow them: a text in which each word follows from the one before.
fn batch(device: &Device, Sizes { b, t, v, .. }: Sizes, step: u64) -> Result<(Tensor, Tensor)> {
    let word = |row: usize, at: usize| ((row * 7 + at * 3 + step as usize * 5) % v) as i32;
    let ids = |from: usize| -> Vec<i32> { (0..b * t).map(|i| word(i / t, i % t + from)).collect() };
    Ok((Tensor::from_slice(device, &[b, t], &ids(0))?, Tensor::from_slice(device, &[b, t], &ids(1))?))
}

/// Bytes of float tensors that operations save, each once: views of one result (q, k and v) are parts of it. Inner hooks (offload,
/// checkpoints) take what they see away from outer ones.
fn seen_by_hooks(forward: impl FnOnce() -> Result<Tensor>) -> Result<u64> {
    let kept: Rc<RefCell<Vec<Tensor>>> = Rc::default();
    let list = kept.clone();
    let pack = move |tensor: &Tensor| {
        let known = |other: &Tensor| other.shares_storage(tensor) && other.layout() == tensor.layout();
        if !tensor.requires_grad() && tensor.dtype().is_float() && !list.borrow().iter().any(known) {
            list.borrow_mut().push(tensor.clone());
        }
        Ok(tensor.clone())
    };
    let loss = saved_tensors_hooks(pack, |tensor: &Tensor| Ok(tensor.clone()), forward)?;
    drop(loss);
    Ok(kept.borrow().iter().map(|tensor| (tensor.len() * tensor.dtype().size()) as u64).sum())
}

/// Ten products, as `item` in the loop would have them or not: the first number says how often the host waited.
fn products(device: &Device, reads: bool) -> anyhow::Result<(u64, Duration, Duration)> {
    let x = Tensor::full(device, &[256, 256], 1.0 / 256.0)?;
    x.matmul(&x)?.sum_all()?.item::<f32>()?;
    device.reset_host_waits();
    let start = Instant::now();
    let mut y = x.clone();
    for _ in 0..10 {
        y = y.matmul(&x)?;
        if reads {
            y.sum_all()?.item::<f32>()?;
        }
    }
    let enqueued = start.elapsed();
    let waits = device.host_waits().iter().map(|wait| wait.count).sum();
    device.synchronize()?;
    Ok((waits, enqueued, start.elapsed()))
}

fn timing_without_synchronise() -> anyhow::Result<()> {
    let device = Device::open()?;
    let (waits, enqueued, done) = products(&device, false)?;
    println!("\n1. My 10 products take {enqueued:.1?}? That is the enqueueing: with device.synchronize() they take {done:.1?}.");
    let (waits_with_item, ..) = products(&device, true)?;
    println!(
        "2. item() in the loop: {waits_with_item} waits in 10 steps, without it {waits}. Read the loss every 100 steps, or as a future."
    );
    ensure!((waits, waits_with_item) == (0, 10), "item waits, and nothing else does");
    Ok(())
}

fn small_tensors_large_reserved() -> anyhow::Result<()> {
    let device = Device::open()?;
    let small = Tensor::ones(&device, &[1024])?;
    drop(Tensor::ones(&device, &[16 << 20])?);
    let (allocated, reserved) = (device.memory_allocated(), device.memory_reserved());
    device.empty_cache()?;
    let after = device.memory_reserved();
    println!("3. My tensors have {allocated} bytes, but {reserved} are reserved: a tensor of 64 MiB was there and is cached.");
    println!("   device.empty_cache() gives it back: {after} are left.");
    ensure!(
        allocated == 4096 && reserved >= 64 * MIB && after <= 2 * MIB && small.len() == 1024,
        "the cache keeps what is freed"
    );
    Ok(())
}

fn empty_cache_makes_it_slower() -> anyhow::Result<()> {
    let device = Device::open()?;
    let run = |empties: bool| -> anyhow::Result<(u64, Duration)> {
        let (bought, start) = (device.stats().memory.num_device_alloc, Instant::now());
        for _ in 0..10 {
            Tensor::zeros(&device, &[4 << 20])?.add_scalar(1.0)?;
            if empties {
                device.empty_cache()?;
            }
        }
        device.synchronize()?;
        Ok((device.stats().memory.num_device_alloc - bought, start.elapsed()))
    };
    run(false)?;
    let ((few, fast), (many, slow)) = (run(false)?, run(true)?);
    println!("4. empty_cache() in every step: {many} purchases from the driver and {slow:.1?}, without it {few} and {fast:.1?}.");
    ensure!(few == 0 && many >= 10, "what is given back is bought again");
    Ok(())
}

/// A device with a limit of 64 MiB whose free memory lies in pieces.
fn in_pieces(compaction: &str) -> Result<(Device, Vec<Tensor>)> {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(64 * MIB);
    options.alloc_conf = Some(format!("compaction:{compaction}"));
    let device = Device::open_with(options)?;
    // Two segments of 32 MiB, and sixteen tensors of 4 MiB in them.
    drop([Tensor::zeros(&device, &[8 << 20])?, Tensor::zeros(&device, &[8 << 20])?]);
    let all = (0..16).map(|i| Tensor::full(&device, &[1 << 20], i as f32)).collect::<Result<Vec<_>>>()?;
    // Every second one goes: 32 MiB are free, no two of them side by side.
    Ok((device, all.into_iter().step_by(2).collect()))
}

fn fragments() -> anyhow::Result<()> {
    let (device, kept) = in_pieces("off")?;
    let free = 64 * MIB - device.memory_allocated();
    let Err(Error::OutOfMemory(_)) = Tensor::zeros(&device, &[6 << 20]) else { anyhow::bail!("24 MiB in one piece were found") };
    println!("5. {} MiB are free, and 24 MiB do not fit: no piece is so large.", free / MIB);
    drop(kept);
    let (device, kept) = in_pieces("pressure")?;
    Tensor::zeros(&device, &[6 << 20])?;
    println!("   With compaction:pressure, the default, {} live blocks moved, and they fit.", device.stats().memory.moves);
    for (i, tensor) in kept.iter().enumerate() {
        ensure!(tensor.to_vec::<f32>()?.iter().all(|value| *value == 2.0 * i as f32), "what was moved is the same");
    }
    ensure!(free >= 24 * MIB && device.stats().memory.moves > 0, "something moved");
    Ok(())
}

fn out_of_memory() -> anyhow::Result<()> {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(64 * MIB);
    let device = Device::open_with(options)?;
    let weights = Tensor::zeros(&device, &[8 << 20])?;
    weights.set_category(Category::Parameter);
    let Err(error) = Tensor::zeros(&device, &[12 << 20]) else { anyhow::bail!("48 of 32 MiB were found") };
    println!(
        "6. An out-of-memory error says who asked for how much, what stands in the way, who holds the rest, and what helps:"
    );
    error.to_string().lines().for_each(|line| println!("   | {line}"));
    let text = error.to_string();
    ensure!(text.contains("parameter") && text.contains("help:"), "the error explains itself: {text}");
    ensure!(weights.narrow(0, 0, 2)?.to_vec::<f32>()? == [0.0, 0.0], "and everything goes on");
    Ok(())
}

/// Every step has another length, so no two ask for the same sizes. Where nothing else runs in the process, its memory is looked at:
/// from half way on, when every kernel has been compiled for every length.
fn random_lengths(steps: u64, alone: bool) -> anyhow::Result<()> {
    let device = Device::open()?;
    let sizes = Sizes { b: 4, t: 64, c: 32, h: 2, l: 2, v: 33 };
    let model = Model::new(&device, sizes)?;
    let mut optimizer = Adam::adamw(ParamGroup::by_rank(model.named_parameters(), 1e-3, 0.1), AdamOptions::default());
    let (mut at_100, mut half_way, mut state) = (0, None, 1u64);
    for step in 1..=steps {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let t = 1 + (state >> 33) as usize % sizes.t;
        model.loss(&batch(&device, Sizes { t, ..sizes }, step)?, false)?.backward()?;
        optimizer.step()?;
        optimizer.zero_grad();
        if step == 100 {
            at_100 = device.memory_reserved();
        }
        if step == steps / 2 {
            device.synchronize()?;
            half_way = resident();
        }
    }
    device.synchronize()?;
    let (reserved, process) = (device.memory_reserved(), resident());
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    println!("7. {steps} steps of random lengths: {:.1} MiB reserved after 100, {:.1} at the end.", mib(at_100), mib(reserved));
    if let (true, Some(before), Some(after)) = (alone, half_way, process) {
        println!("   The process: {:.1} MiB half way, {:.1} at the end.", mib(before), mib(after));
        ensure!(after <= before + 2 * MIB, "the process grows");
    }
    ensure!(reserved == at_100, "what was reserved serves all lengths");
    Ok(())
}

/// Bytes of the process that are in memory, on Linux.
fn resident() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
